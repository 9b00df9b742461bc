"""Finds and repairs faults on Redis, and reads facts of the server."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from itertools import groupby
from typing import Any, Final, Literal

from toril.engines.redis.connection.client import RedisClient
from toril.engines.redis.connection.url import RedisAddress
from toril.engines.redis.layout import FIELDS, FLEET, KEYS, NUMBERS, may_be_id
from toril.engines.redis.options import load_options
from toril.engines.redis.runner import ScriptRunner
from toril.engines.redis.scripts import script, scripts
from toril.errors import EngineUnusable, TorilError, unknown_cursor
from toril.model import Fault, FaultKind, Page, Recovered, ServerFacts
from toril.policy.doctor import ScanOrder, ScanPosition, cursor_of
from toril.runtime.clock import SYSTEM
from toril.store.capabilities import RepairStore
from toril.store.checked import implements

__all__ = ["RedisRepairs", "Walk", "server_facts"]

_PINGS: Final = 11
_COMPILES: Final = "local made, reason = loadstring(ARGV[1]) return made and '' or reason"


async def server_facts(server: RedisClient, place: str) -> ServerFacts:
    """Everything needed to judge whether this server is safe for jobs."""
    info = await _info(server)
    pings, skew = await _timed(server)
    return ServerFacts(
        place=place,
        version=info.get("valkey_version") or info.get("redis_version", "0"),
        policy=info.get("maxmemory_policy"),
        maxmemory=_number(info, "maxmemory"),
        used=_number(info, "used_memory"),
        total=_number(info, "total_system_memory"),
        evicted=_number(info, "evicted_keys"),
        log=info["aof_enabled"] == "1" if "aof_enabled" in info else None,
        log_ok=info.get("aof_last_write_status", "ok") == "ok" and info.get("aof_last_bgrewrite_status", "ok") == "ok",
        snapshots=await _snapshots(server),
        snapshot_ok=info.get("rdb_last_bgsave_status", "ok") == "ok",
        unsaved=_number(info, "rdb_changes_since_last_save"),
        role=info.get("role", "master"),
        link_ok=info.get("master_link_status", "up") == "up",
        replicas=_number(info, "connected_slaves"),
        replicas_behind=sum("state=online" not in value for name, value in info.items() if _is_replica(name)),
        pings=pings,
        skew=skew,
        refused=await _refused(server),
        scripts=_number(info, "number_of_cached_scripts"),
    )


async def _info(server: RedisClient) -> dict[str, str]:
    """The answer to INFO; empty if it is not permitted."""
    try:
        lines = str(await server.ask("INFO")).splitlines()
    except TorilError:
        return {}
    return dict(line.split(":", 1) for line in lines if ":" in line)


async def _snapshots(server: RedisClient) -> bool | None:
    try:
        found = await server.ask("CONFIG", "GET", "save")
    except TorilError:  # hosted servers do not show their configuration
        return None
    return bool(found and found[1])


async def _timed(server: RedisClient) -> tuple[tuple[float, ...], float]:
    """How long several pings took, in ms, and by how much the clocks differ at least."""
    pings: list[float] = []
    differences: list[tuple[float, float]] = []
    for _ in range(_PINGS):
        began, now = SYSTEM.monotonic(), SYSTEM.now()
        seconds, micros = await server.ask("TIME")
        took = (SYSTEM.monotonic() - began) * 1000
        pings.append(took)
        differences.append((took, int(seconds) * 1000 + int(micros) / 1000 - now - took / 2))
    shortest, skew = min(differences)
    sure = max(0.0, abs(skew) - shortest / 2 - 1)
    return tuple(pings), sure if skew > 0 else -sure


async def _refused(server: RedisClient) -> tuple[str, ...]:
    """Scripts of ours that the server cannot run, and why. They are neither run nor loaded."""
    refused = []
    for name in scripts():
        try:
            reason: Any = await server.ask("EVAL", _COMPILES, 0, script(name).source)
        except TorilError as error:
            return (str(error),)
        if reason:
            refused.append(f"{name}: {reason}")
    return tuple(refused)


def _is_replica(name: str) -> bool:
    return name.startswith("slave") and name[5:].isdecimal()


def _number(info: dict[str, str], name: str) -> int:
    text = info.get(name, "0")
    return int(text) if text.isdecimal() else 0


_LISTS: Final = ("active", "wait", "paused")
_SETS: Final = ("prioritized", "delayed", "waiting_children", "completed", "failed")
_NOTES: Final = {"resting": (FaultKind.REST, "ZSCAN"), "awaited": (FaultKind.WAIT, "HSCAN")}
# Of a queue; a step with the name of a place scans that place.
_STEPS: Final = ("lists", *_LISTS, *_SETS, "line", *_NOTES)
_LAST: Final = ("keys", "fleet")
_PAGE: Final = 100  # ids per look
_LISTED: Final = 1000  # ids of a list, which are only read
_KEYS: Final = 100  # keys per step of the scan; a look ends once it has this many to check
_SCANS: Final = 5  # steps per look, if there is little to check
_WORKERS: Final = 500
_LONGEST: Final = 2**53  # of a list: the largest number that scripts count exactly
_SCANNED: Final = 2**64
_DIGITS: Final = 20  # digits of that number

Looked = list[Fault]
Checked = Callable[[Sequence[Fault]], Awaitable[list[Fault]]]


class Walk:
    """One scan. `ask` sends a command, `run` runs a script for a queue, `there` keeps the faults that still exist."""

    def __init__(
        self,
        address: RedisAddress,
        fleet: str,
        ask: Callable[..., Awaitable[Any]],
        run: Callable[..., Awaitable[Any]],
        there: Checked,
    ) -> None:
        self._prefix = address.prefix
        self._letters, self._named = address.dead_letters, address.names_dead_letters
        self._fleet = fleet
        self._ask = ask
        self._run = run
        self._there = there
        # For each queue scanned so far, the ids in its lists, so that they need not be looked up one by one;
        # None: too many.
        self._listed: dict[str, set[str] | None] = {}

    async def faults(self, queues: Sequence[str], cursor: str | None) -> AsyncGenerator[Page[Fault], None]:
        """The faults that each look finds."""
        course = ScanOrder(queues, _STEPS, _LAST)
        spot: ScanPosition | None = course.first(cursor)
        while spot is not None:
            if not (spot.at is None or _is_number(spot.at, _LONGEST if spot.step in _LISTS else _SCANNED)):
                raise unknown_cursor(cursor)
            found, at = await self._look(spot, frozenset(queues))
            spot = course.after(spot, at)
            yield Page(tuple(found), cursor_of(spot))

    async def _look(self, spot: ScanPosition, queues: frozenset[str]) -> tuple[Looked, str | None]:
        """What is found at a position, and where the scan continues."""
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
        except EngineUnusable as error:  # the other places can still be scanned
            return [self._foreign(spot.queue, error)], None

    async def _along(self, queue: str, place: str, at: str) -> tuple[Looked, str | None]:
        if place in _NOTES:
            return await self._noted(queue, place, at)
        following, faults, options = await self._run("faults", queue, [KEYS[place], at, _PAGE])
        found = [self._fault(kind, queue, subject, place) for kind, subject in faults]
        found += [
            self._fault(FaultKind.UNREADABLE, queue, subject, place)
            for text, *ids in options
            if load_options(text).unreadable
            for subject in ids
        ]
        return found, None if following == "0" else following

    async def _twice(self, queue: str) -> Looked:
        """Ids that are in the lists more than once."""
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
        return await self._there(
            [
                Fault(kind=FaultKind.WORKER, queue="", subject=each, place=self._fleet + FLEET["workers"])
                for each in workers
            ]
        )

    async def _dead_letters(self) -> Looked:
        """Whether another program uses the queue of the dead letters: such programs number the jobs that they add, and
        store their version when they open a queue."""
        letters = self._letters
        number, meta = self._key(letters, "id"), self._key(letters, "meta")
        if await self._ask("EXISTS", number):
            why, place = f"another program has jobs in the queue {letters!r}", number
        elif await self._is_anothers(letters):
            why, place = f"another program opened the queue {letters!r} before the first dead letter", meta
        else:
            return []
        said = f"{why}, so failed jobs do not become dead letters; choose another queue with dead_letter_queue=…"
        return [_of_key(FaultKind.FOREIGN, "", said, place)]

    async def _is_anothers(self, letters: str) -> bool:
        """Whether another program opened the queue before Toril, and the user has not said that it is for dead
        letters."""
        if self._named:
            return False
        ours = await self._ask("HEXISTS", self._key(letters, "toril"), FIELDS["for_letters"])
        return not ours and bool(await self._ask("EXISTS", self._key(letters, "meta")))

    async def _noted(self, queue: str, name: str, at: str) -> tuple[Looked, str | None]:
        """Notes of jobs that rest, or of whom signals go to, where that is not so."""
        kind, scan = _NOTES[name]
        following, flat = await self._ask(scan, self._key(queue, name), at, "COUNT", _PAGE)
        subjects = [each.replace("\0", " ", 1) for each in flat[::2]]
        found = await self._there([self._fault(kind, queue, each, name) for each in subjects])
        return found, None if following == "0" else following

    async def _of_the_line(self, queue: str) -> Looked:
        """Faults of the marker, and of the list of suspects."""
        suspects = await self._ask("ZRANGE", self._key(queue, "suspects"), 0, _PAGE)
        faults = [self._fault(FaultKind.SUSPECT, queue, each, "suspects") for each in suspects]
        first = await self._ask("LINDEX", self._key(queue, "wait"), -1)
        ready = [first] if first else await self._ask("ZRANGE", self._key(queue, "prioritized"), 0, 0)
        faults += [self._fault(FaultKind.MARKER, queue, each, "marker") for each in ready]
        return await self._there(faults)

    async def _keys(self, queues: frozenset[str], cursor: str) -> tuple[Looked, str | None]:
        """Jobs, locks and deduplication keys, which can only be found by their names. Other keys are left alone."""
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
        """Sort keys into ids to look up in their queue, and possible faults."""
        for key in keys:
            queue, _, rest = key[len(self._prefix) + 1 :].partition(":")
            if queue not in queues:
                continue
            if rest.endswith(KEYS["lock"]):
                faults.append(_of_key(FaultKind.LOCK, queue, rest.removesuffix(KEYS["lock"]), key))
            elif rest.startswith(KEYS["dedup"]):
                faults.append(_of_key(FaultKind.DEDUP, queue, rest.removeprefix(KEYS["dedup"]), key))
            elif may_be_id(rest) and self._may_be_lost(queue, rest):
                jobs.setdefault(queue, []).append(rest)

    def _may_be_lost(self, queue: str, identity: str) -> bool:
        listed = self._listed.get(queue, set())
        return listed is not None and identity not in listed

    async def _orphans(self, queue: str, ids: Sequence[str]) -> list[Fault]:
        """Which of these jobs are in no list."""
        lost: list[Fault] = []
        for start in range(0, len(ids), _PAGE):
            try:
                found = await self._run("orphans", queue, ids[start : start + _PAGE])
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


_AT_ONCE: Final = 50  # faults per step
_LATER: Final = -1


@implements(RepairStore)
class RedisRepairs:
    """Repairs of the seam."""

    def __init__(self, runner: ScriptRunner, recover: Callable[..., Awaitable[Recovered]]) -> None:
        self._runner = runner
        self._recover = recover

    async def facts(self, *, quick: bool = False) -> ServerFacts:  # noqa: ARG002 - it never takes long
        self._runner.check_open()
        return await server_facts(self._runner.client, self._runner.address.shown)

    def scan(
        self,
        queues: Sequence[str],
        *,
        cursor: str | None = None,
        quick: bool = False,  # noqa: ARG002 - each look is
    ) -> AsyncGenerator[Page[Fault], None]:
        self._runner.check_open()
        walk = Walk(self._runner.address, self._runner.fleet, self._runner.client.ask, self._runner.read, self._there)
        return walk.faults(queues, cursor)

    async def repair(
        self, faults: Sequence[Fault], *, mode: Literal["look", "repair"], now: int | None = None
    ) -> list[bool]:
        lost = {fault.queue for fault in faults if fault.kind is FaultKind.LOST}
        answers: dict[Fault, bool] = {}
        for queue, group in groupby(sorted(faults, key=lambda fault: fault.queue), key=lambda fault: fault.queue):
            answers |= await self._repair(queue, list(group), mode, now)
        for queue in lost if mode == "repair" else ():
            while (await self._recover(queue, now=now)).more:
                pass
        return [answers[fault] for fault in faults]

    async def _repair(self, queue: str, faults: Sequence[Fault], mode: str, now: int | None) -> dict[Fault, bool]:
        """Repair the faults of one queue. What would take too long in one step is left to the next."""
        answers: dict[Fault, bool] = {}
        left, at_once = list(faults), _AT_ONCE
        while left:
            batch = left[:at_once]
            words = [word for fault in batch for word in self._words(fault)]
            try:
                found = await self._runner.read("repair", queue, [mode, *words], now)
            except EngineUnusable:  # the key belongs to another program, so its owner cannot be read
                if len(batch) == 1:
                    answers[left.pop(0)] = False
                at_once = 1
                continue
            answers |= {fault: word == 1 for fault, word in zip(batch, found, strict=True) if word != _LATER}
            left = [fault for fault in left if fault not in answers]
        return answers

    def _words(self, fault: Fault) -> tuple[str, str, str]:
        return fault.kind.value, fault.subject, fault.place.removeprefix(self._runner.base(fault.queue))

    async def _there(self, faults: Sequence[Fault]) -> list[Fault]:
        found = await self.repair(faults, mode="look") if faults else []
        return [fault for fault, there in zip(faults, found, strict=True) if there]
