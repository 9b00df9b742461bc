"""Scanners: find stuck rows in the application's own tables on a timer, and reset them."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from toril.errors import NotFound, UsageError, preview
from toril.model import check_int, moment
from toril.model.attempts import Result
from toril.model.durations import Duration, milliseconds
from toril.model.names import check_label
from toril.queue import Queue
from toril.records import Seconds
from toril.runtime.hooks import function
from toril.runtime.logs import log
from toril.runtime.services import Services

__all__ = ["Scanner", "Scanners"]

PRIORITY: Final = 10  # after everything else in its queue
_SHOWN: Final = 10  # errors to list in a result


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanner:
    """Finds what has been stuck since before a moment, and resets each item. `reset` returns False for an item that is
    no longer stuck."""

    name: str
    find: Callable[[datetime], Any]
    reset: Callable[[Any], Any]
    threshold: Seconds
    limit: int

    async def scan(self, now: datetime, *, dry: bool, go_on: Callable[[], object] = lambda: None) -> Result:
        """One run, and what came of it. What cannot be reset keeps nothing else from being reset."""
        counts = {"found": 0, "reset": 0, "unchanged": 0, "failed": 0}
        errors: list[str] = []
        async for stuck in _each(await self._found(now - timedelta(seconds=self.threshold))):
            if counts["found"] == self.limit:
                break
            go_on()
            counts["found"] += 1
            if not dry:
                counts[await self._reset(stuck, errors)] += 1
        return Result(self._summary(counts, dry=dry), counts, errors[:_SHOWN])

    async def _found(self, before: datetime) -> Any:
        """The items that `find` returns. If it blocks, all items are read in the thread in which it runs."""
        return await _called(_taken(self.find, self.limit), before)

    async def _reset(self, stuck: Any, errors: list[str]) -> str:
        try:
            return "unchanged" if await _called(self.reset, stuck) is False else "reset"
        except Exception as error:
            log.exception("scanner %s could not reset %s", self.name, preview(stuck))
            errors.append(f"{preview(stuck)}: {type(error).__name__}: {error}")
            return "failed"

    def _summary(self, counts: Mapping[str, int], *, dry: bool) -> str:
        if dry:
            return f"{counts['found']} would be reset (dry run)"
        return ", ".join(f"{number} {word}" for word, number in counts.items() if number or word == "found")


class Scanners:
    """The scanners of an app."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._declared: dict[str, Scanner] = {}

    def declare(
        self,
        name: str,
        queue: Queue,
        *,
        every: Duration,
        find: Callable[[datetime], Any],
        reset: Callable[[Any], Any],
        threshold: Duration,
        limit: int,
    ) -> Scanner:
        """See `App.scanner`."""
        if check_label("a scanner's name", name) in self._declared:
            raise UsageError(f"scanner {name!r} is already declared; choose another name")
        made = Scanner(
            name=name,
            find=function("find", find),
            reset=function("reset", reset),
            threshold=milliseconds("threshold", threshold) / 1000,
            limit=check_int("limit", limit, 1, 1_000_000),
        )

        async def run(ctx: Any) -> Result:
            return await self._scan(made, dry=bool((ctx.data or {}).get("dry_run")), go_on=ctx.raise_if_cancelled)

        queue.handlers.register(name, run)
        queue.handlers.priorities.leave_out(name)
        queue.schedule(
            name, name, {"dry_run": False}, every=every, attempts=1, priority=PRIORITY, overlap="skip", subject=name
        )
        self._declared[name] = made
        return made

    async def scan(self, name: str, *, dry: bool) -> Result:
        """See `App.scan`."""
        if name not in self._declared:
            known = ", ".join(map(repr, self._declared)) or "none"
            raise NotFound(f"there is no scanner {preview(name)} in this app; it has {known}")
        return await self._scan(self._declared[name], dry=dry)

    async def _scan(self, scanner: Scanner, *, dry: bool, go_on: Callable[[], object] = lambda: None) -> Result:
        now = moment(self._services.clock.now())
        return await scanner.scan(now, dry=dry, go_on=go_on)


async def _called(fn: Callable[[Any], Any], argument: Any) -> Any:
    """The result of a function of the app; one that blocks is called in a thread."""
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        answer = fn(argument)
    else:
        answer = await asyncio.to_thread(fn, argument)
    return await answer if isinstance(answer, Awaitable) else answer


def _taken(find: Callable[[datetime], Any], limit: int) -> Callable[[datetime], Any]:
    if inspect.iscoroutinefunction(find) or inspect.isasyncgenfunction(find):
        return find

    def taken(before: datetime) -> Any:
        found = find(before)
        return list(islice(found, limit)) if isinstance(found, Iterable) else found

    return taken


async def _each(found: Any) -> AsyncIterator[Any]:
    if isinstance(found, AsyncIterator):
        async for each in found:
            yield each
    elif isinstance(found, Iterable):
        for each in found:
            yield each
    else:
        raise TypeError(f"find must return an iterable of what it found, not {preview(found)}")
