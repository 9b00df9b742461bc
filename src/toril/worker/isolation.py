"""Isolation: runs a job that has stalled alone in its process."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from toril.model import Exchange
from toril.runtime.clock import Clock

__all__ = ["Isolation", "IsolationHold", "SuspectPolicy"]

_HOLD: Final = 10.0  # seconds for which claims are held back so that a suspect can run alone
_RETRY_AFTER: Final = 60.0  # seconds before that is tried again, if what runs did not end in time


class SuspectPolicy(Enum):
    """What a process does about them."""

    HOLD_CLAIMS = auto()  # there is nobody else: claim nothing more until one can run alone
    WHEN_IDLE = auto()  # take one while nothing runs; for the rest there are spare processes
    LEAVE = auto()  # they are the spare processes'
    ONLY = auto()  # this is a spare process


class IsolationHold:
    """When claims are held back. A job that has stalled runs with nothing beside it, so that whatever crashes next is
    known to be at fault; while such jobs wait, the worker claims nothing else, but not for ever."""

    def __init__(self, clock: Clock, suspects: SuspectPolicy = SuspectPolicy.HOLD_CLAIMS) -> None:
        self._clock = clock
        self._suspects = suspects
        self._suspect_runs = False
        self.waiting = suspects is not SuspectPolicy.LEAVE  # for all that is known before the first claim
        self.until: float | None = None
        self._not_before = 0.0

    def holds_back(self) -> bool:
        """Whether a worker that runs something should claim nothing beside it."""
        return self._suspect_runs or (self.until is not None and self._clock.monotonic() < self.until)

    def note(self, *, waiting: int, taken: bool) -> None:
        """A claim brought a suspect, or saw that some wait."""
        self._suspect_runs = taken
        self.waiting = waiting > 0 and self._suspects is not SuspectPolicy.LEAVE
        if self._suspects is not SuspectPolicy.HOLD_CLAIMS:
            return
        now = self._clock.monotonic()
        if taken or not waiting:
            self.until = None
        elif self.until is None and now >= self._not_before:
            self.until = now + _HOLD
        elif self.until is not None and now >= self.until:
            self.until, self._not_before = None, now + _RETRY_AFTER


class Isolation:
    """What runs in a process, over all its queues; and which worker, if any, has it to itself."""

    def __init__(
        self,
        clock: Clock,
        suspects: SuspectPolicy = SuspectPolicy.HOLD_CLAIMS,
        call_spares: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self.suspects = suspects
        self._call_spares = call_spares
        self._running = 0
        self._claims = 0
        self._holder: object | None = None
        self._holds: dict[object, float] = {}  # who wants the process to itself, and until when others wait
        self._wanted = False
        self._listeners: list[Callable[[], None]] = []

    def join(self, wake: Callable[[], None]) -> None:
        """Have this called when the process may be had alone, and when it is shared again."""
        self._listeners.append(wake)

    def excludes(self, worker: object) -> bool:
        """Whether another worker has the process to itself, or is to have it soon."""
        if self._holder is not None:
            return self._holder is not worker
        if not self._holds or worker in self._holds:
            return False
        now = self._clock.monotonic()
        return any(now < until for until in self._holds.values())

    @property
    def engaged(self) -> bool:
        """Whether a job that has stalled runs alone, or is to run alone soon."""
        now = self._clock.monotonic()
        return (self._holder is not None and self._running > 0) or any(now < until for until in self._holds.values())

    def looked(self, answer: Exchange) -> None:
        """Those who have stalled and wait for a process of their own are told of where there are spare ones."""
        if answer.suspects and self.suspects in (SuspectPolicy.WHEN_IDLE, SuspectPolicy.LEAVE):
            self._call_spares(answer.suspects)

    def hold_others(self, worker: object, until: float | None) -> None:
        """Have the others claim nothing for a while, or no longer."""
        if until is None:
            if self._holds.pop(worker, None) is not None:
                self._notify()
        elif self._holds.get(worker) != until:
            self._holds[worker] = until
            self._clock.later(max(0.0, until - self._clock.monotonic()), self._notify)

    def is_possible_for(self, worker: object) -> bool:
        """Whether nothing runs in the process, and nobody else may be given something just now."""
        can = not self._running and not self._claims and self._holder in (None, worker)
        self._wanted = self._wanted or not can
        return can

    def claim(self, worker: object, *, alone: bool) -> None:
        """A claim is on its way; if it is for one alone, nobody else claims until it is answered."""
        self._claims += 1
        if alone:
            self._holder = worker

    def answered(self, *, suspect: bool) -> None:
        """The jobs of a claim have begun. With a suspect among them the process stays its own until it ends."""
        self._claims -= 1
        if not (suspect and self._running):
            self._share()
        self._offer()

    def begin(self) -> None:
        self._running += 1

    def end(self) -> None:
        self._running -= 1
        if not self._running:
            self._share()
        self._offer()

    def _share(self) -> None:
        """Whichever worker had the process to itself has it no more, and those who were kept out may claim."""
        if self._holder is not None:
            self._holder = None
            self._notify()

    def _offer(self) -> None:
        """The process is free again, if it is, for those who waited for that."""
        if self._wanted and not self._running and not self._claims:
            self._wanted = False
            self._notify()

    def _notify(self) -> None:
        for wake in self._listeners:
            wake()
