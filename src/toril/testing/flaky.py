"""A store whose calls fail now and then, before or after they have taken effect."""

import inspect
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from toril.errors import EngineUnavailable, InvalidOption, shown
from toril.store.engine import Engine, Store

__all__ = ["CALLS", "FlakyStore"]

_NEVER = {"open", "close", "health", "twin"}
CALLS = {name for name, _ in inspect.getmembers(Engine, inspect.isfunction) if not name.startswith("_")} - _NEVER


class FlakyStore:
    """The given store, of whose calls a share is answered by `EngineUnavailable`: half of these did not happen, the
    other half did, and only their answer was lost. The same seed loses the same calls."""

    def __init__(self, store: Store, *, rate: float = 0.2, seed: int = 0) -> None:
        if not 0 <= rate < 1:
            raise InvalidOption(f"rate must be from 0 to below 1, not {shown(rate)}")
        self._store = store
        self._rate = rate
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self.lost = 0

    def twin(self) -> "FlakyStore":
        return self

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._call, found) if name in CALLS else found

    async def _call(self, method: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        chance = self._random.random()
        if chance < self._rate / 2:
            raise self._lose("request")
        answer = await method(*args, **options)
        if chance < self._rate:
            raise self._lose("answer")
        return answer

    def _lose(self, what: str) -> EngineUnavailable:
        self.lost += 1
        return EngineUnavailable(f"the {what} was lost, as the test wants it")
