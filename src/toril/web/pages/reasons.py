"""Why a job does not run, for a page: the answer, what holds it back with the way there, and what does not. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toril.model import JobRecord, QueueView, WorkerView
from toril.model.states import State
from toril.operate.why import Explanation
from toril.web.words import number, plural

__all__ = ["Hold", "Why", "explained"]


@dataclass(frozen=True, slots=True)
class Hold:
    """What keeps a job, and where that can be changed."""

    cls: str
    icon: str
    text: str
    button: str = ""
    to: Sequence[str] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    jobs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Why:
    """`title` is the question; `fine` are the checks that passed."""

    title: str
    answer: str
    holds: Sequence[Hold]
    fine: Sequence[str]


_BREAKERS: Final = ("breakers",)


def explained(
    found: Explanation, record: JobRecord, view: QueueView, workers: Sequence[WorkerView], now: int
) -> Why | None:
    """None for a job that has ended: its state says it all."""
    if record.state in (State.COMPLETED, State.FAILED):
        return None
    if record.state is State.ACTIVE:
        return Why("It is running", found.sentence, (), ()) if found.reason != "running" else None
    hold = _hold(found, view)
    return Why(
        "Why is it not running?", found.sentence, [hold] if hold else [], _fine(found, record, view, workers, now)
    )


_GROUPS: Final = {
    "group_paused": "is paused", "group_limit": "is at its limit", "group_rate": "is rate limited",
    "group_turn": "has its turn to come",
}  # fmt: skip


# Its class, its icon and its words, for what the page of workers tells more of.
_WORKERS: Final = {
    "no_worker": ("crit", "crit", "No worker serves this queue"),
    "quiet": ("paused", "paused", "All workers of this queue are quiet"),
    "alone": ("warn", "lock", "It runs alone because its worker died"),
}


def _hold(found: Explanation, view: QueueView) -> Hold | None:
    facts: Mapping[str, Any] = found.facts
    queue, hold = ("queues", view.name), None
    match found.reason:
        case "circuit":
            hold = Hold("open", "open", f"Circuit {facts['circuit']} is {facts['state']}", "See circuit", _BREAKERS)
        case "paused":
            hold = Hold("paused", "paused", f"Queue {view.name} is paused", "See queue", queue)
        case reason if reason in _WORKERS:
            hold = Hold(*_WORKERS[reason], "See workers", ("workers",))
        case "no_handler":
            hold = Hold(
                "crit", "crit", f"No living worker has a handler for {facts['name']}", "See workers", ("workers",)
            )
        case "concurrency":
            text = f"The queue runs {facts['concurrency']} at once"
            hold = Hold("warn", "lock", text, "See running", queue, {"state": "active"}, facts["running"])
        case "rate":
            hold = Hold("warn", "delayed", "The queue's rate is used up", "See queue", queue)
        case reason if reason in _GROUPS:
            text, query = f"Group {facts['group']} {_GROUPS[reason]}", {"queue": view.name}
            hold = Hold("warn", "lock", text, "See group", ("groups",), query, facts["holders"])
        case "waiting_children":
            open_, of = number(facts["open"]), plural(facts["children"], "child", "children")
            hold = Hold("children", "children", f"{open_} of {of} have not ended")
        case "not_due" | "retry_later":
            hold = Hold("delayed", "delayed", "Its time has not come")
        case "behind":
            text = f"{plural(facts['ahead'], 'job goes', 'jobs go')} first"
            hold = Hold("wait", "wait", text, "See waiting", queue, {"state": "waiting"})
        case _:
            pass  # it is the next
    return hold


def _fine(found: Explanation, record: JobRecord, view: QueueView, workers: Sequence[WorkerView], now: int) -> list[str]:
    """What could keep it, and does not."""
    fine = []
    if not view.settings.paused:
        fine.append("Queue is not paused")
    listening = [worker for worker in workers if not worker.orders]
    if listening:
        slots = [worker.slots_for(view.name) for worker in listening]
        free = sum(max(0, all_ - used) for all_, used in slots)
        listen = plural(len(listening), "worker listens", "workers listen")
        fine.append(f"{listen}, {number(free)} of {plural(sum(all_ for all_, _ in slots), 'slot')} free")
    if record.due is None or record.due <= now:
        fine.append("It is due")
    if view.settings.concurrency is not None and view.counts.active < view.settings.concurrency:
        fine.append(f"{number(view.counts.active)} of {number(view.settings.concurrency)} run")
    if found.reason != "rate" and view.settings.rate is not None:
        fine.append("The rate is not used up")
    if record.state is not State.WAITING_CHILDREN:
        fine.append("No open children")
    return fine
