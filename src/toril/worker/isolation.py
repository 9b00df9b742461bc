"""Isolation: runs a job that has stalled alone in its process."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from toril.model import Exchange
from toril.runtime.clock import Clock

__all__ = ["Isolation", "IsolationHold", "SuspectPolicy"]

_HOLD: Final = 10.0  # seconds during which claims are held back so that a suspect can run alone
_RETRY_AFTER: Final = 60.0  # seconds before that is tried again, if running jobs did not end in time


class SuspectPolicy(Enum):
    """What a process does about suspects."""

    HOLD_CLAIMS = auto()  # no other process will run them: claim nothing more until one can run alone
    WHEN_IDLE = auto()  # take one while idle; spare processes take the others
    LEAVE = auto()  # leave them to the spare processes
    ONLY = auto()  # this is a spare process


class IsolationHold:
    """When to hold back claims. A suspect runs with nothing beside it, so that whatever crashes next is known to be at
    fault. While suspects wait, the worker claims nothing else, but not forever."""

    def __init__(self, clock: Clock, suspects: SuspectPolicy = SuspectPolicy.HOLD_CLAIMS) -> None:
        self._clock = clock
        self._suspects = suspects
        self._suspect_runs = False
        self.waiting = suspects is not SuspectPolicy.LEAVE  # assumed before the first claim
        self.until: float | None = None
        self._not_before = 0.0

    def holds_back(self) -> bool:
        """Whether a worker with running jobs should claim nothing more."""
        return self._suspect_runs or (self.until is not None and self._clock.monotonic() < self.until)

    def note(self, *, waiting: int, taken: bool) -> None:
        """A claim returned a suspect, or saw that some wait."""
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
    """What runs in a process, over all its queues, and which worker, if any, has it to itself."""

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
        self._holds: dict[object, float] = {}  # workers that want the process to themselves, and until when others wait
        self._wanted = False
        self._listeners: list[Callable[[], None]] = []

    def join(self, wake: Callable[[], None]) -> None:
        """Call this when a worker may have the process alone, and when it is shared again."""
        self._listeners.append(wake)

    def excludes(self, worker: object) -> bool:
        """Whether another worker has the process to itself, or is about to."""
        if self._holder is not None:
            return self._holder is not worker
        if not self._holds or worker in self._holds:
            return False
        now = self._clock.monotonic()
        return any(now < until for until in self._holds.values())

    @property
    def engaged(self) -> bool:
        """Whether a suspect runs alone, or is about to."""
        now = self._clock.monotonic()
        return (self._holder is not None and self._running > 0) or any(now < until for until in self._holds.values())

    def looked(self, answer: Exchange) -> None:
        """Report suspects that wait for a process of their own, if there are spare processes."""
        if answer.suspects and self.suspects in (SuspectPolicy.WHEN_IDLE, SuspectPolicy.LEAVE):
            self._call_spares(answer.suspects)

    def hold_others(self, worker: object, until: float | None) -> None:
        """Make the others claim nothing for a while, or let them claim again."""
        if until is None:
            if self._holds.pop(worker, None) is not None:
                self._notify()
        elif self._holds.get(worker) != until:
            self._holds[worker] = until
            self._clock.later(max(0.0, until - self._clock.monotonic()), self._notify)

    def is_possible_for(self, worker: object) -> bool:
        """Whether nothing runs in the process, and no other worker is claiming."""
        can = not self._running and not self._claims and self._holder in (None, worker)
        self._wanted = self._wanted or not can
        return can

    def claim(self, worker: object, *, alone: bool) -> None:
        """A claim is in flight; if it is for a job that runs alone, nobody else claims until it is answered."""
        self._claims += 1
        if alone:
            self._holder = worker

    def answered(self, *, suspect: bool) -> None:
        """The jobs of a claim have begun. With a suspect among them, the process is reserved until it ends."""
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
        """No worker has the process to itself any longer, and those that were held back may claim."""
        if self._holder is not None:
            self._holder = None
            self._notify()

    def _offer(self) -> None:
        """If the process is idle, wake the workers that waited for that."""
        if self._wanted and not self._running and not self._claims:
            self._wanted = False
            self._notify()

    def _notify(self) -> None:
        for wake in self._listeners:
            wake()
