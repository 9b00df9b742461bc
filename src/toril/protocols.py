"""What Toril asks of a store beside the core of the seam; each of them one capability. The rules of `engine` hold."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from toril.model import Call, Changed, DeadLetter, Keep, Page, Replay

__all__ = ["DeadLetters", "Order"]

Order: TypeAlias = Literal["newest", "oldest"]


@runtime_checkable
class DeadLetters(Protocol):
    """Jobs that failed for good. The step that settles a job as failed writes its letter, unless the job itself is
    kept; so each job is in one place, and among the letters once at most. They stay until someone acts, or until their
    own retention is over."""

    async def letters(self, *, order: Order = "newest", cursor: str | None = None, limit: int = 50) -> Page[DeadLetter]:
        """A page of them, by the time at which they failed."""

    async def letters_of(self, ids: Sequence[str]) -> list[DeadLetter | None]:
        """Those of these ids, in that order."""

    async def count_letters(self) -> int: ...

    async def replay(
        self, queue: str, replays: Sequence[Replay], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        """Move letters back into the queue that they came from, each as a job that has tried nothing yet. Refused is
        what is no letter of this queue, and, with the state, what has its id taken by another job."""

    async def discard(self, ids: Sequence[str], *, call: Call | None = None, now: int | None = None) -> Changed:
        """Delete letters for good."""

    async def keep_letters(self, keep: Keep | None, *, now: int | None = None) -> Keep:
        """How many are kept, and for how long, over the whole store; None to change nothing and just read it. `prune`
        carries it out."""
