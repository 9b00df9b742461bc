"""`ClaimState`: decides when to claim again, from the answers so far."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from toril.model import Claim, Exchange, Gate
from toril.worker.isolation import IsolationHold

__all__ = ["ClaimState", "LastClaim"]

_SPARE_LOOK: Final = 5.0  # seconds after which a spare process checks, in case nobody told it


@dataclass(frozen=True, slots=True)
class LastClaim:
    """The outcome of the last claim."""

    exhausted: bool = False  # it got less than it wanted, and nothing has arrived since
    filled: bool = False  # it got all that it wanted, and there may be more
    alone: bool = False  # it was made while nothing ran in the process
    blocked_by: Gate | None = None


@dataclass(slots=True)
class ClaimState:
    """Whether and when a worker claims again. `hold` says when claims are held back for a stalled job; a spare process
    claims such jobs only."""

    hold: IsolationHold
    only_suspects: bool = False
    pending: int = 0  # jobs requested by claims that are not answered yet
    arrivals: int = 0  # how often something may have arrived
    last: LastClaim = LastClaim()
    wake_at: float | None = None  # when the next job is due

    @property
    def unlooked(self) -> bool:
        """Whether stalled jobs may wait that no claim made alone has looked for."""
        return self.hold.waiting and not self.last.alone

    def may_claim(self, free: int, process_idle: Callable[[], bool]) -> bool:
        """Whether to claim now, with this many free slots. `process_idle` says whether nothing runs in the process."""
        if free <= self.pending:
            return False
        if self.only_suspects:
            return not self.last.exhausted and process_idle()
        if self.unlooked and process_idle():
            return True  # what the last claim could not get, because something was running
        return not self.last.exhausted and (not self.hold.holds_back() or process_idle())

    def claims_alone(self, process_idle: Callable[[], bool]) -> bool:
        """Whether the claim is for a job that must run alone."""
        return (self.only_suspects or self.hold.waiting) and process_idle()

    def arrived(self) -> None:
        """Something may have arrived."""
        self.arrivals += 1
        last = self.last
        if last.exhausted:  # not by `replace`: a job that arrives waits for this
            self.last = LastClaim(filled=last.filled, alone=last.alone, blocked_by=last.blocked_by)

    def due(self) -> None:
        """What could not be claimed before may be claimed now."""
        self.arrived()
        self.wake_at = None

    def answered(self, claim: Claim, answer: Exchange, *, asked_at: float, arrivals: int) -> None:
        """Update from the answer to a claim. `arrivals` is the number when the claim was made."""
        got_suspect = bool(answer.jobs) and answer.jobs[0].suspect
        got_all = len(answer.jobs) == claim.want
        self.last = LastClaim(
            # What arrived while the claim was in flight may have come after it.
            exhausted=not got_all and not got_suspect and arrivals == self.arrivals,
            filled=got_all and not (got_suspect or answer.blocked_by or answer.suspects),
            alone=claim.alone,
            blocked_by=answer.blocked_by,
        )
        self.hold.note(waiting=answer.suspects, taken=got_suspect)
        self.wake_at = self._next_look(answer, asked_at) if self.last.exhausted else None

    def _next_look(self, answer: Exchange, asked_at: float) -> float | None:
        """Counted from when it was requested: the next claim takes as long as this one, so it reaches the store at the
        right time, and not later by a round trip each time."""
        times = [] if answer.wake_at is None else [asked_at + max(0, answer.wake_at - answer.now) / 1000]
        if self.only_suspects:
            times.append(asked_at + _SPARE_LOOK)
        return min(times, default=None)
