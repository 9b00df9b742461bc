"""A walk through all that a prefix holds, in bounded looks: along the lines of each queue, then over the keys."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final

from toril.engines.redis.connection.place import Address
from toril.engines.redis.layout import FIELDS, FLEET, KEYS, NUMBERS, may_be_id
from toril.engines.redis.options import load_options
from toril.errors import EngineUnusable
from toril.model import Fault, FaultKind, Page
from toril.policy.walks import Course, Spot, cursor_of, unknown

__all__ = ["Walk"]

_LISTS: Final = ("active", "wait", "paused")
_SETS: Final = ("prioritized", "delayed", "waiting_children", "completed", "failed")
_STEPS: Final = ("lists", *_LISTS, *_SETS, "line")  # of a queue; one with the name of a place goes along that
_LAST: Final = ("keys", "fleet")
_PAGE: Final = 100  # ids a look
_LISTED: Final = 1000  # ids of a list that are only read
_KEYS: Final = 100  # keys a step of the scan, and with so many to ask for a look has enough
_SCANS: Final = 5  # steps a look, if there is little to ask for
_WORKERS: Final = 500
_LONGEST: Final = 2**53  # of a list: up to here scripts count exactly
_SCANNED: Final = 2**64
_DIGITS: Final = 20  # of that

Looked = list[Fault]
Checked = Callable[[Sequence[Fault]], Awaitable[list[Fault]]]


class Walk:
    """One walk. `ask` sends a command, `run` a script for a queue, `there` keeps the faults that are there."""

    def __init__(
        self, address: Address, fleet: str, ask: Callable[..., Awaitable[Any]], run: Callable[..., Awaitable[Any]],
        there: Checked,
    ) -> None:  # fmt: skip
        self._prefix = address.prefix
        self._letters, self._named = address.dead_letters, address.names_dead_letters
        self._fleet = fleet
        self._ask = ask
        self._run = run
        self._there = there
        # For each queue that this walk went through the ids in its lists, so that they need not be asked for by name;
        # None: too many.
        self._listed: dict[str, set[str] | None] = {}

    async def faults(self, queues: Sequence[str], cursor: str | None) -> AsyncGenerator[Page[Fault], None]:
        """What each look finds."""
        course = Course(queues, _STEPS, _LAST)
        spot: Spot | None = course.first(cursor)
        while spot is not None:
            if not (spot.at is None or _is_number(spot.at, _LONGEST if spot.step in _LISTS else _SCANNED)):
                raise unknown(cursor)
            found, at = await self._look(spot, frozenset(queues))
            spot = course.after(spot, at)
            yield Page(tuple(found), cursor_of(spot))

    async def _look(self, spot: Spot, queues: frozenset[str]) -> tuple[Looked, str | None]:
        """What is found at a spot, and where its step goes on."""
        if spot.step == "keys":
            return await self._keys(queues, spot.at or "0")
        if spot.step == "fleet":
            return [*await self._workers(), *await self._dead_letters()], None
        try:
            if spot.step == "lists":
                return await self._twice(spot.queue), None
            if spot.step == "line":
                return await self._of_the_line(spot.queue), None
            return await self._along(spot.queue, spot.step, spot.at or "0")
        except EngineUnusable as error:  # the other places can still be looked at
            return [self._foreign(spot.queue, error)], None

    async def _along(self, queue: str, place: str, at: str) -> tuple[Looked, str | None]:
        following, faults, options = await self._run("survey", queue, [KEYS[place], at, _PAGE])
        found = [self._fault(kind, queue, subject, place) for kind, subject in faults]
        found += [
            self._fault(FaultKind.UNREADABLE, queue, subject, place)
            for text, *ids in options
            if load_options(text).unreadable
            for subject in ids
        ]
        return found, None if following == "0" else following

    async def _twice(self, queue: str) -> Looked:
        """Who stands in the lists more than once."""
        self._listed[queue] = None
        length = sum([int(await self._ask("LLEN", self._key(queue, each))) for each in _LISTS])
        if length > NUMBERS["walked"]:
            return []
        seen: set[str] = set()
        twice: list[Fault] = []
        for name in _LISTS:
            for start in range(0, length, _LISTED):
                ids = await self._ask("LRANGE", self._key(queue, name), start, start + _LISTED - 1)
                for each in ids:
                    if each in seen:
                        twice.append(self._fault(FaultKind.DOUBLE, queue, each, name))
                    seen.add(each)
                if len(ids) < _LISTED:
                    break
        self._listed[queue] = seen
        return await self._there(twice)

    async def _workers(self) -> Looked:
        workers = await self._ask("ZRANGE", self._fleet + FLEET["workers_till"], 0, _WORKERS)
        return await self._there([
            Fault(kind=FaultKind.WORKER, queue="", subject=each, place=self._fleet + FLEET["workers"])
            for each in workers
        ])  # fmt: skip

    async def _dead_letters(self) -> Looked:
        """Whether their queue is another program's: those number the jobs that they add, and write down their version
        when they open one."""
        letters = self._letters
        number, meta = self._key(letters, "id"), self._key(letters, "meta")
        if await self._ask("EXISTS", number):
            why, place = f"the queue {letters!r} has jobs of another program", number
        elif await self._is_anothers(letters):
            why, place = f"the queue {letters!r} was opened by another program before there was a dead letter", meta
        else:
            return []
        said = f"{why}, so jobs that fail for good stay failed jobs; name a queue for them with dead_letter_queue=…"
        return [_of_key(FaultKind.FOREIGN, "", said, place)]

    async def _is_anothers(self, letters: str) -> bool:
        """Whether someone has opened the queue before us, and nobody has said that it is for dead letters."""
        if self._named:
            return False
        ours = await self._ask("HEXISTS", self._key(letters, "toril"), FIELDS["for_letters"])
        return not ours and bool(await self._ask("EXISTS", self._key(letters, "meta")))

    async def _of_the_line(self, queue: str) -> Looked:
        """What sleepers are told of, and who is said to wait alone."""
        suspects = await self._ask("ZRANGE", self._key(queue, "suspects"), 0, _PAGE)
        faults = [self._fault(FaultKind.SUSPECT, queue, each, "suspects") for each in suspects]
        first = await self._ask("LINDEX", self._key(queue, "wait"), -1)
        ready = [first] if first else await self._ask("ZRANGE", self._key(queue, "prioritized"), 0, 0)
        faults += [self._fault(FaultKind.MARKER, queue, each, "marker") for each in ready]
        return await self._there(faults)

    async def _keys(self, queues: frozenset[str], cursor: str) -> tuple[Looked, str | None]:
        """Jobs, locks and deduplication keys, which are found by their names alone. Other keys are left alone."""
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", self._prefix) + ":*"
        jobs: dict[str, list[str]] = {}
        faults: list[Fault] = []
        for _ in range(_SCANS):
            cursor, keys = await self._ask("SCAN", cursor, "MATCH", pattern, "COUNT", _KEYS)
            self._sort(keys, queues, jobs, faults)
            if cursor == "0" or len(faults) + sum(map(len, jobs.values())) >= _KEYS:
                break
        found = await self._there(faults)
        for queue, ids in jobs.items():
            found += await self._orphans(queue, ids)
        return found, None if cursor == "0" else cursor

    def _sort(
        self, keys: Sequence[str], queues: frozenset[str], jobs: dict[str, list[str]], faults: list[Fault]
    ) -> None:
        """Put those that have to be asked for with the jobs of their queue, or with what may be a fault."""
        for key in keys:
            queue, _, rest = key[len(self._prefix) + 1 :].partition(":")
            if queue not in queues:
                continue
            if rest.endswith(KEYS["lock"]):
                faults.append(_of_key(FaultKind.LOCK, queue, rest.removesuffix(KEYS["lock"]), key))
            elif rest.startswith(KEYS["dedup"] + ":"):
                faults.append(_of_key(FaultKind.DEDUP, queue, rest.removeprefix(KEYS["dedup"] + ":"), key))
            elif may_be_id(rest) and self._may_be_lost(queue, rest):
                jobs.setdefault(queue, []).append(rest)

    def _may_be_lost(self, queue: str, identity: str) -> bool:
        listed = self._listed.get(queue, set())
        return listed is not None and identity not in listed

    async def _orphans(self, queue: str, ids: Sequence[str]) -> list[Fault]:
        """Which of these are jobs that stand nowhere."""
        lost: list[Fault] = []
        for start in range(0, len(ids), _PAGE):
            try:
                found = await self._run("survey_jobs", queue, ids[start : start + _PAGE])
            except EngineUnusable as error:
                return [self._foreign(queue, error)]
            lost += [_of_key(FaultKind.ORPHAN, queue, each, self._key(queue) + each) for each in found]
        return await self._there(lost)

    def _key(self, queue: str, name: str | None = None) -> str:
        return f"{self._prefix}:{queue}:{'' if name is None else KEYS[name]}"

    def _foreign(self, queue: str, error: EngineUnusable) -> Fault:
        return _of_key(FaultKind.FOREIGN, queue, str(error), self._key(queue))

    def _fault(self, kind: str, queue: str, subject: str, name: str) -> Fault:
        return Fault(kind=FaultKind(kind), queue=queue, subject=subject, place=self._key(queue, name))


def _of_key(kind: FaultKind, queue: str, subject: str, key: str) -> Fault:
    return Fault(kind=kind, queue=queue, subject=subject, place=key)


def _is_number(at: object, end: int) -> bool:
    return isinstance(at, str) and len(at) <= _DIGITS and at.isascii() and at.isdigit() and int(at) < end
