"""What needs attention, in words: what is wrong, why, and what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from toril.policy.attention import (
    CircuitOpen,
    HighFailureRate,
    Importance,
    ManyDeadLetters,
    Need,
    NoWorker,
    Paused,
    Slow,
    Stalling,
    StoreUnwell,
    importance_of,
)
from toril.web.templates import Name, Words, number, percent, plural, span

__all__ = ["ProblemLine", "of_queue", "troubles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemLine:
    """A line of the list of problems. The button leads somewhere (`to`), or does something (`act`, at an API path)."""

    cls: str
    icon: str
    statement: Words
    cause: Words
    since: int | None
    button: str
    to: Sequence[str] = ()
    query: Mapping[str, str] = field(default_factory=dict)
    act: str = ""
    at: Sequence[str] = ()
    on: str = ""


def troubles(needs: Sequence[Need]) -> list[ProblemLine]:
    return [_line(need) for need in needs]


def of_queue(needs: Sequence[Need], queue: str) -> list[ProblemLine]:
    """Those of one queue."""
    return troubles([need for need in needs if getattr(need, "queue", None) == queue])


_LOOKS: Final = {Importance.CRITICAL: ("crit", "crit"), Importance.WARNING: ("warn", "warn")}


def _queue(name: str) -> Name:
    return Name(name, ("queues", name))


def _usually(rate: float | None) -> str:
    return "no job ended in the week before" if rate is None else f"usually {percent(rate)}"


def _line(need: Need) -> ProblemLine:
    cls, icon = _LOOKS[importance_of(need)]
    match need:
        case NoWorker(queue, since, waiting, growth):
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=since,
                statement=(_queue(queue), " has no worker"),
                cause=(f"{_waits(waiting)}{_more(growth)}.",),
                button="See workers",
                to=("workers",),
            )
        case HighFailureRate(queue, since, rate, usual, failed):
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=since,
                statement=(_queue(queue), f" fails {percent(rate)} of its jobs"),
                cause=(f"{number(failed)} in 30 minutes; {_usually(usual)}.",),
                button="See failures",
                to=("queues", queue),
                query={"state": "failed"},
            )
        case CircuitOpen(key, since, till):
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=since or None,
                statement=("Circuit ", Name(key, ("breakers",)), " is open"),
                cause=("Its jobs are put off, no attempt is spent. Next probe ", Name("", until=till), "."),
                button="See circuit",
                to=("breakers",),
            )
        case StoreUnwell(_, finding):
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=None,
                statement=("The store is not well",),
                cause=(f"{finding.summary[:1].upper()}{finding.summary[1:]}. Fix: ", Name(finding.fix)),
                button="See workers",
                to=("workers",),
            )
        case _:
            return _warned(need, cls, icon)


def _warned(need: Need, cls: str, icon: str) -> ProblemLine:
    match need:
        case Slow(queue, since, wait, target, busy, growth):
            slots = "All slots are busy" if busy else "Slots are free"
            grows = f", the backlog grows by {number(growth)} a minute" if growth and growth >= 1 else ""
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=since,
                statement=(_queue(queue), f" keeps jobs waiting for {span(wait * 1000)}"),
                cause=(f"Its target is {span(target * 1000)}. {slots}{grows}.",),
                button="See waiting",
                to=("queues", queue),
                query={"state": "waiting"},
            )
        case Stalling(queue, _, stalls):
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=None,
                statement=(f"{plural(stalls, 'job')} of ", _queue(queue), " stalled within an hour"),
                cause=(
                    "Workers were killed, or stood still for longer than a lease. The jobs are run again, alone; one "
                    "that stalls once more is a dead letter.",
                ),
                button="See workers",
                to=("workers",),
            )
        case Paused(queue, since, waiting, by):
            return ProblemLine(
                cls="paused",
                icon="paused",
                since=since,
                statement=(_queue(queue), " is paused"),
                cause=(*(("By ", Name(by), ". ") if by else ()), f"{_waits(waiting)}."),
                button="Resume",
                act="resume",
                at=("queues", queue),
                on=queue,
            )
        case ManyDeadLetters(_, letters):
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=None,
                statement=("Dead letters pile up",),
                cause=(f"{number(letters)}{' or more' if letters >= 100 else ''} jobs gave up in the last hour.",),
                button="See dead letters",
                to=("dead",),
            )
        case _:
            raise LookupError(f"there are no words for {need!r}")


def _waits(waiting: int) -> str:
    return f"{plural(waiting, 'job')} {'waits' if waiting == 1 else 'wait'}"


def _more(growth: float | None) -> str:
    return f", {number(growth)} more each minute" if growth is not None and growth >= 1 else ""
