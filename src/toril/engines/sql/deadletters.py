"""The dead letters of the seam, as steps for the runner."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from toril.engines.sql import letters
from toril.engines.sql.replay import replay
from toril.engines.sql.transaction import Op
from toril.errors import InvalidOption, shown
from toril.model import DEAD_LETTERS, Call, Changed, DeadLetterRow, Keep, Page, Replay, whole
from toril.model.names import check_queue_name
from toril.store.capabilities import Order

__all__ = ["SqliteDeadLetters"]

T = TypeVar("T")
_MOST = 1_000  # in one page


class SqliteDeadLetters:
    """Jobs that failed for good."""

    dead_letter_queue: str = DEAD_LETTERS

    @abstractmethod
    async def _write(self, op: Op[T], now: int | None, *, grows: bool = False) -> T: ...

    @abstractmethod
    async def _read(self, op: Op[T], now: int | None = None) -> T: ...

    async def letters(
        self, *, order: Order = "newest", cursor: str | None = None, limit: int = 50
    ) -> Page[DeadLetterRow]:
        most = min(whole("limit", limit, 1, 2**53), _MOST)
        return await self._read(partial(letters.page, order=order, cursor=cursor, limit=most))

    async def letters_of(self, ids: Sequence[str]) -> list[DeadLetterRow | None]:
        return await self._read(partial(letters.of_ids, ids=ids))

    async def count_letters(self) -> int:
        return await self._read(letters.count)

    async def replay(
        self, queue: str, replays: Sequence[Replay], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        queue = check_queue_name(queue)
        return await self._write(partial(replay, queue=queue, replays=replays, call=call), now)

    async def discard(self, ids: Sequence[str], *, call: Call | None = None, now: int | None = None) -> Changed:
        return await self._write(partial(letters.discard, ids=ids, call=call), now)

    async def keep_letters(self, keep: Keep | None, *, now: int | None = None) -> Keep:
        if keep is not None and not isinstance(keep, Keep):
            raise InvalidOption(f"what to keep must be a Keep(…), not {shown(keep)}")
        return await self._write(partial(letters.keep_letters, keep=keep), now)
