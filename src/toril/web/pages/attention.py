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
    """A line in the list of problems. The button links to a page (`to`), or performs an action (`act`, at an API
    path)."""

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
    """The problems of one queue."""
    return troubles([need for need in needs if getattr(need, "queue", None) == queue])


_LOOKS: Final = {Importance.CRITICAL: ("crit", "crit"), Importance.WARNING: ("warn", "warn")}


def _queue(name: str) -> Name:
    return Name(name, ("queues", name))


def _usually(rate: float | None) -> str:
    return "nothing earlier this week to compare with" if rate is None else f"usually {percent(rate)}"


def _line(need: Need) -> ProblemLine:
    cls, icon = _LOOKS[importance_of(need)]
    match need:
        case NoWorker(queue, since, waiting, growth):
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=since,
                statement=(_queue(queue), " has no workers"),
                cause=(f"{_waits(waiting)}{_more(growth)}.",),
                button="View workers",
                to=("workers",),
            )
        case HighFailureRate(queue, since, rate, usual, failed):
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=since,
                statement=(f"{percent(rate)} of jobs in ", _queue(queue), " failed"),
                cause=(f"{number(failed)} in the last 30 minutes; {_usually(usual)}.",),
                button="View failures",
                to=("queues", queue),
                query={"state": "failed"},
            )
        case CircuitOpen(key, since, till):
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=since or None,
                statement=("Circuit ", Name(key, ("breakers",)), " is open"),
                cause=("Its jobs are deferred without using an attempt. Next probe ", Name("", until=till), "."),
                button="View circuit",
                to=("breakers",),
            )
        case StoreUnwell(_, finding):
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=None,
                statement=("The store needs attention",),
                cause=(f"{finding.summary[:1].upper()}{finding.summary[1:]}. Fix: ", Name(finding.fix)),
                button="View workers",
                to=("workers",),
            )
        case _:
            return _warned(need, cls, icon)


def _warned(need: Need, cls: str, icon: str) -> ProblemLine:
    match need:
        case Slow(queue, since, wait, target, busy, growth):
            slots = "All slots are busy" if busy else "Slots are free"
            grows = f"; the backlog grows by {number(growth)} per minute" if growth and growth >= 1 else ""
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=since,
                statement=("Jobs in ", _queue(queue), f" wait {span(wait * 1000)}"),
                cause=(f"The target is {span(target * 1000)}. {slots}{grows}.",),
                button="View waiting",
                to=("queues", queue),
                query={"state": "waiting"},
            )
        case Stalling(queue, _, stalls):
            return ProblemLine(
                cls=cls,
                icon=icon,
                since=None,
                statement=(f"{plural(stalls, 'job')} in ", _queue(queue), " stalled in the last hour"),
                cause=(
                    "Their workers died or hung for longer than a lease. Each job runs again in isolation; if it "
                    "stalls again, it becomes a dead letter.",
                ),
                button="View workers",
                to=("workers",),
            )
        case Paused(queue, since, waiting, by):
            return ProblemLine(
                cls="paused",
                icon="paused",
                since=since,
                statement=(_queue(queue), " is paused"),
                cause=(*(("Paused by ", Name(by), ". ") if by else ()), f"{_waits(waiting)}."),
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
                statement=(
                    f"{number(letters)}{'+' if letters >= 100 else ''} jobs failed permanently in the last hour",
                ),
                cause=("They are kept as dead letters.",),
                button="View dead letters",
                to=("dead",),
            )
        case _:
            raise LookupError(f"no words for {need!r}")


def _waits(waiting: int) -> str:
    return f"{plural(waiting, 'job')} waiting"


def _more(growth: float | None) -> str:
    return f", growing by {number(growth)} per minute" if growth is not None and growth >= 1 else ""
