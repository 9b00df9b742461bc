"""A walk through all that a prefix holds, in bounded looks: along the lines of each queue, then over the keys."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

from toril.engines.redis.layout import FLEET, KEYS, NUMBERS, may_be_id
from toril.errors import EngineUnusable
from toril.model import Fault, FaultKind

__all__ = ["Walk"]

_LISTS: Final = ("active", "wait", "paused")
_SETS: Final = ("prioritized", "delayed", "waiting_children", "completed", "failed")
_PAGE: Final = 100  # ids a look
_KEYS: Final = 500  # keys a step of the scan

Looked = Sequence[Fault]
Checked = Callable[[Sequence[Fault]], Awaitable[list[Fault]]]


class Walk:
    """One walk. `ask` sends a command, `run` a script for a queue, `there` keeps the faults that are there."""

    def __init__(
        self, prefix: str, fleet: str, ask: Callable[..., Awaitable[Any]], run: Callable[..., Awaitable[Any]],
        there: Checked,
    ) -> None:  # fmt: skip
        self._prefix = prefix
        self._fleet = fleet
        self._ask = ask
        self._run = run
        self._there = there
        self._listed: dict[str, set[str] | None] = {}  # for each queue the ids in its lists; None: too many

    async def faults(self, queues: Sequence[str]) -> AsyncGenerator[Looked, None]:
        """What each look finds."""
        for queue in queues:
            async with aclosing(self._along(queue)) as looks:
                async for found in looks:
                    yield found
        async with aclosing(self._keys(frozenset(self._listed))) as looks:
            async for found in looks:
                yield found
        workers = await self._ask("ZRANGE", self._fleet + FLEET["workers_till"], 0, _KEYS)
        yield await self._there([
            Fault(kind=FaultKind.WORKER, queue="", subject=each, place=self._fleet + FLEET["workers"])
            for each in workers
        ])  # fmt: skip

    async def _along(self, queue: str) -> AsyncGenerator[Looked, None]:
        seen: set[str] | None = None
        try:
            length = sum([int(await self._ask("LLEN", self._key(queue, each))) for each in _LISTS])
            seen = set() if length <= NUMBERS["walked"] else None
        except EngineUnusable as error:
            yield [self._foreign(queue, error)]
        for name in (*_LISTS, *_SETS):
            cursor = "0"
            while True:
                try:
                    cursor, ids, faults = await self._run("survey", queue, [KEYS[name], cursor, _PAGE])
                except EngineUnusable as error:  # the other places can still be looked at
                    seen = None if name in _LISTS else seen
                    yield [self._foreign(queue, error)]
                    break
                found = [self._fault(kind, queue, subject, name) for kind, subject in faults]
                if name in _LISTS and seen is not None:
                    twice = [each for index, each in enumerate(ids) if each in seen or each in ids[:index]]
                    found += [self._fault(FaultKind.DOUBLE, queue, each, name) for each in twice]
                    seen.update(ids)
                yield found
                if cursor == "0":
                    break
        self._listed[queue] = seen
        try:
            yield await self._of_the_line(queue)
        except EngineUnusable as error:
            yield [self._foreign(queue, error)]

    async def _of_the_line(self, queue: str) -> Looked:
        """What sleepers are told of, and who is said to wait alone."""
        suspects = await self._ask("ZRANGE", self._key(queue, "suspects"), 0, _PAGE)
        faults = [self._fault(FaultKind.SUSPECT, queue, each, "suspects") for each in suspects]
        first = await self._ask("LINDEX", self._key(queue, "wait"), -1)
        ready = [first] if first else await self._ask("ZRANGE", self._key(queue, "prioritized"), 0, 0)
        faults += [self._fault(FaultKind.MARKER, queue, each, "marker") for each in ready]
        return await self._there(faults)

    async def _keys(self, queues: frozenset[str]) -> AsyncGenerator[Looked, None]:
        """Jobs, locks and deduplication keys, which are found by their names alone. Other keys are left alone."""
        pattern, cursor = re.sub(r"([*?\[\]\\])", r"\\\1", self._prefix) + ":*", "0"
        while True:
            cursor, keys = await self._ask("SCAN", cursor, "MATCH", pattern, "COUNT", _KEYS)
            jobs: dict[str, list[str]] = {}
            faults: list[Fault] = []
            for key in keys:
                queue, _, rest = key[len(self._prefix) + 1 :].partition(":")
                if queue not in queues:
                    continue
                if rest.endswith(KEYS["lock"]):
                    faults.append(_of_key(FaultKind.LOCK, queue, rest.removesuffix(KEYS["lock"]), key))
                elif rest.startswith(KEYS["dedup"] + ":"):
                    faults.append(_of_key(FaultKind.DEDUP, queue, rest.removeprefix(KEYS["dedup"] + ":"), key))
                elif may_be_id(rest) and (listed := self._listed[queue]) is not None and rest not in listed:
                    jobs.setdefault(queue, []).append(rest)
            yield await self._there(faults)
            for queue, ids in jobs.items():
                for start in range(0, len(ids), _PAGE):
                    try:
                        found = await self._run("survey_jobs", queue, ids[start : start + _PAGE])
                    except EngineUnusable as error:
                        yield [self._foreign(queue, error)]
                        break
                    lost = [_of_key(FaultKind.ORPHAN, queue, each, self._key(queue) + each) for each in found]
                    yield await self._there(lost)
            if cursor == "0":
                return

    def _key(self, queue: str, name: str | None = None) -> str:
        return f"{self._prefix}:{queue}:{'' if name is None else KEYS[name]}"

    def _foreign(self, queue: str, error: EngineUnusable) -> Fault:
        return _of_key(FaultKind.FOREIGN, queue, str(error), self._key(queue))

    def _fault(self, kind: str, queue: str, subject: str, name: str) -> Fault:
        return Fault(kind=FaultKind(kind), queue=queue, subject=subject, place=self._key(queue, name))


def _of_key(kind: FaultKind, queue: str, subject: str, key: str) -> Fault:
    return Fault(kind=kind, queue=queue, subject=subject, place=key)
