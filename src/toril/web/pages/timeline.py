"""What happened to a job, as steps and as a bar with parts in proportion to their time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from toril.model import EventKind, EventRow, JobRow
from toril.model.states import State
from toril.web.pages.drawing import look_of
from toril.web.templates import plural

__all__ = ["TimelineBar", "TimelineStep", "chronicle"]

_SHORTEST: Final = 0.6  # percent of the bar


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """`ended` is when the next one began; None for the last."""

    cls: str
    icon: str
    at: int
    word: str
    more: str = ""
    ended: int | None = None


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A part of the bar, in percent."""

    cls: str
    x: float
    width: float


def chronicle(
    record: JobRow, events: Sequence[EventRow], now: int, *, active: str = "Attempt"
) -> tuple[list[TimelineStep], list[TimelineBar]]:
    """The steps of a job. If events were trimmed, or never written, as by other programs, the record's own times fill
    in. `active` is what a call of the handler is called: an attempt of a job that rests has several."""
    steps = _steps(record, [event for event in events if event.kind is not EventKind.PROGRESS], active)
    linked = [replace(step, ended=after.at) for step, after in pairwise(steps)] + steps[-1:]
    return linked, _bar(linked, record, now)


def _steps(record: JobRow, events: Sequence[EventRow], active: str) -> list[TimelineStep]:
    steps: list[TimelineStep] = []
    attempt = 0
    if not any(event.kind is EventKind.ADDED for event in events):
        steps.append(TimelineStep("wait", "wait", record.added_at, "Added"))
    for event in events:
        if event.kind is EventKind.ACTIVE:
            attempt += 1
        step = _step(event, f"{active} {attempt}")
        if step is not None and not (steps and step.word == steps[-1].word == "Waiting"):
            steps.append(step)
    if not attempt:
        known = {step.word for step in steps}
        steps += [step for step in _from_record(record) if step.word not in known]
    return sorted(steps, key=lambda step: step.at)


# How each kind of event looks, and its name; other kinds are not shown.
_KINDS: Final = {
    EventKind.ADDED: ("wait", "Added"),
    EventKind.DELAYED: ("delayed", "Delayed"),
    EventKind.WAITING_CHILDREN: ("children", "Waiting for children"),
    EventKind.COMPLETED: ("done", "Completed"),
    EventKind.FAILED: ("failed", "Failed"),
    EventKind.CANCELLED: ("cancelled", "Cancelled"),
    EventKind.STALLED: ("failed", "Worker lost"),
}


def _step(event: EventRow, active: str) -> TimelineStep | None:
    if event.kind is EventKind.ACTIVE:
        return TimelineStep("active", "active", event.time, active)
    if event.kind is EventKind.WAITING and "prev" in event.detail:
        return TimelineStep("wait", "wait", event.time, "Waiting", f"was {event.detail['prev']}")
    if event.kind not in _KINDS:
        return None
    look, word = _KINDS[event.kind]
    return TimelineStep(look, look, event.time, word, event.detail.get("failedReason", ""))


def _from_record(record: JobRow) -> list[TimelineStep]:
    found = []
    if record.started_at is not None and record.state is not State.WAITING:
        made = plural(record.starts, "start") if record.starts > 1 else ""
        found.append(TimelineStep("active", "active", record.started_at, "Started", made))
    if record.finished_at is not None:
        look = look_of(record)
        found.append(TimelineStep(look.cls, look.icon, record.finished_at, look.word))
    return found


def _bar(steps: Sequence[TimelineStep], record: JobRow, now: int) -> list[TimelineBar]:
    """The bar from the first step to the end, or to now."""
    if not steps:
        return []
    first, end = steps[0].at, record.finished_at or now
    whole = max(1, end - first)
    parts = []
    for step in steps:
        until = step.ended if step.ended is not None else end
        width = 100 * (until - step.at) / whole
        if until > step.at and step.cls not in ("done", "cancelled"):
            cls = "delayed" if step.cls == "failed" else step.cls
            parts.append(
                TimelineBar(cls, round(100 * (step.at - first) / whole, 1), round(max(_SHORTEST, width - 0.3), 1))
            )
    return parts
