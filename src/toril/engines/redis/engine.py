"""The engine: each method of the seam as one script."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

from toril.engines.redis.audit import RedisAudits
from toril.engines.redis.breakers import RedisBreakers
from toril.engines.redis.connection.client import Server, Unconfirmed, check_server, keeps_well, uncertain
from toril.engines.redis.connection.marker_listener import Bell
from toril.engines.redis.connection.presence import Presence
from toril.engines.redis.connection.result_listener import Ears
from toril.engines.redis.connection.topology import ServerWay
from toril.engines.redis.connection.url import Address, parse
from toril.engines.redis.dead_letters import RedisDeadLetters
from toril.engines.redis.exchange import VERDICTS, arguments_of, exchange_of
from toril.engines.redis.faults import RedisRepairs
from toril.engines.redis.flows import RedisFlows
from toril.engines.redis.groups import RedisGroups
from toril.engines.redis.layout import FLEET, KEYS, may_be_id
from toril.engines.redis.metrics import RedisFigures
from toril.engines.redis.options import dump_options, is_plain
from toril.engines.redis.records import ended_of
from toril.engines.redis.runner import bounded
from toril.engines.redis.schedules import RedisSchedules
from toril.engines.redis.transfer import RedisMoves
from toril.errors import InvalidOption, TorilError
from toril.model import (
    BATCH,
    Added,
    AddOutcome,
    Call,
    Cancellation,
    Checkpoint,
    Claim,
    Ended,
    Exchange,
    Extended,
    Finished,
    Health,
    Lease,
    LogLine,
    NewJob,
    Pending,
    Progress,
    Report,
    Rewrite,
    Settlement,
    Verdict,
    ttl_ms,
    whole,
)
from toril.model.jobs import Run, runs_of
from toril.model.names import check_queue_name
from toril.model.states import State
from toril.runtime.clock import SYSTEM, Clock

__all__ = ["RedisEngine"]

_LOOK: Final = 1.0  # seconds after which a result is looked for without news: other libraries' workers do not tell
_OUTCOMES: Final = (AddOutcome.ADDED, AddOutcome.DUPLICATE, AddOutcome.DEDUPLICATED, AddOutcome.REPLACED)


class RedisEngine(
    RedisRepairs, RedisDeadLetters, RedisBreakers, RedisAudits, RedisFlows, RedisGroups, RedisFigures, RedisMoves
):
    """A store on a Redis server, shared by any number of machines, and with BullMQ."""

    def __init__(self, address: Address, *, clock: Clock = SYSTEM) -> None:
        super().__init__(address, clock=clock)
        self._assemble()

    def _assemble(self) -> None:
        self._way = ServerWay(self._address)
        self._server = Server(self._address, self._way)
        self._bell = Bell(self._way, f"{self._fleet}{FLEET['wake']}", self._server.ask, self._ready)
        self._ears = Ears(self._way)
        self._presence = Presence(self._address, self._way)

    @classmethod
    def from_url(
        cls, url: str, *, clock: Clock = SYSTEM, prefix: str = "bull", durability: str | None = None,
        dead_letter_queue: str | None = None,
    ) -> "RedisEngine":  # fmt: skip
        address = parse(url, prefix=prefix, durability=durability, dead_letter_queue=dead_letter_queue)
        return cls(address, clock=clock)

    async def open(self) -> None:
        if not self._open:
            self._assemble()
            try:
                address = await check_server(self._server, self._address)
            except BaseException:
                await self._let_go()
                raise
            if address != self._address:
                await self._let_go()
                self._address = address
                self._assemble()
            self._open = True

    async def _let_go(self) -> None:
        await self._server.close()
        await self._way.close()

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        for part in (self._bell, self._ears, self._presence, self._server, self._way):
            await part.close()

    def twin(self) -> "RedisEngine":
        twin = RedisEngine(self._address, clock=self._clock)
        twin._open = self._open
        return twin

    @property
    def schedules(self) -> RedisSchedules:
        return RedisSchedules(self._read, self._scheduled)

    async def _scheduled(self, queue: str) -> list[str]:
        self._check_open()
        names: list[str] = await self._server.ask("ZRANGE", self._base(queue) + KEYS["repeat"], 0, -1)
        return names

    async def health(self) -> Health:
        try:
            self._check_open()
            seconds, micros = await self._server.ask("TIME")
            if not await keeps_well(self._server):
                await self._server.ask("DEL", f"{self._fleet}{FLEET['wake']}none")  # no key: refused if writing is
        except TorilError as error:
            return Health(ok=False, detail=str(error), now=self._clock.now())
        return Health(ok=True, now=int(seconds) * 1000 + int(micros) // 1000)

    async def add(
        self, queue: str, jobs: Sequence[NewJob], *, call: Call | None = None, now: int | None = None
    ) -> list[Added]:
        if not jobs and call is None:
            return []
        queue = check_queue_name(queue)
        if len(jobs) > BATCH:
            raise InvalidOption(f"one add takes at most {BATCH} jobs, not {len(jobs)}")
        runs = runs_of(jobs)
        plain = all(is_plain(job) for job, _ in runs)
        arguments: list[Any] = [queue, len(jobs), "plain" if plain else "any"]
        if plain:
            _gathered(runs, arguments)
        else:
            for job, texts in runs:
                for text in texts:
                    arguments += _spelled_out(job, text)
        try:
            return _added(await self._write("add", queue, arguments, call, now), len(jobs))
        except Unconfirmed as error:
            ids = [each.id for each in _added(error.answer, len(jobs))]
            if not ids:  # it only used up a number
                raise
            raise uncertain(self._address.shown, error, ids) from None

    async def exchange(
        self,
        queue: str,
        batch: Sequence[Settlement],
        claim: Claim,
        *,
        call: Call | None = None,
        now: int | None = None,
    ) -> Exchange:
        queue = check_queue_name(queue)
        answer = await self._write("exchange", queue, arguments_of(batch, claim), call, now)
        return exchange_of(queue, claim.token, answer)

    async def prune(self, queue: str, *, limit: int = 1000, now: int | None = None) -> int:
        removed = await super().prune(queue, limit=limit, now=now)
        return removed + (await self._prune_circuits(now) if self._circuits_known else 0)

    async def extend(self, leases: Sequence[Lease], *, ttl: int, now: int | None = None) -> Extended:
        bounded(leases)
        whole("ttl", ttl, 1, 2**42)
        arguments: list[Any] = [ttl]
        for lease in leases:
            arguments += (self._base(lease.queue), lease.id, lease.token)
        lost, stopped = await self._read("extend", "", arguments, now)
        return Extended(
            tuple(leases[place] for place in lost),
            tuple(Cancellation(leases[place], reason) for place, reason in stopped),
        )

    async def wait(self, queues: Sequence[str], *, timeout: int) -> set[str]:
        names = {self._marker(name): name for name in queues}
        self._check_open()
        rung = await self._bell.wait(names, timeout / 1000)
        return {names[key] for key in rung or ()}

    async def _ready(self, markers: list[str]) -> list[str]:
        """The markers of queues that have something to claim, whether or not anybody was told."""
        ending = KEYS["marker"]
        bases = [marker.removesuffix(ending) for marker in markers if marker.endswith(f":{ending}")]
        return [base + ending for base in (await self._read("ready", "", bases) if bases else ())]

    def _marker(self, name: object) -> str:
        """The key on which to block: a queue's marker, or what a worker is called by, as no queue can be."""
        if isinstance(name, str) and name.startswith(":"):
            return f"{self._fleet}{FLEET['poke']}{name[1:]}:poke"
        return self._base(check_queue_name(name)) + KEYS["marker"]

    async def report(
        self, queue: str, reports: Sequence[Report], *, call: Call | None = None, now: int | None = None
    ) -> list[Verdict]:
        bounded(reports)
        queue = check_queue_name(queue)
        arguments: list[Any] = []
        for each in reports:
            arguments += (each.lease.id, each.lease.token, *_reported(each))
        return [VERDICTS[verdict] for verdict in await self._write("report", queue, arguments, call, now)]

    async def finished(self, queue: str, ids: Sequence[str], *, timeout: int) -> list[Finished]:
        bounded(ids)
        queue = check_queue_name(queue)
        until = SYSTEM.monotonic() + timeout / 1000
        found = dict.fromkeys(ids, Pending()) | await self._ended(queue, ids)
        if _pending(found) and timeout > 0:
            async with self._ears.listening(self._base(queue) + KEYS["ended"], frozenset(ids)) as news:
                while _pending(found) and self._open and (left := until - SYSTEM.monotonic()) > 0:
                    await _set_before(news, min(left, _LOOK))
                    news.clear()
                    found |= await self._ended(queue, _pending(found))  # what was heard once stays heard
            self._check_open()
        return [Finished(identity, found[identity]) for identity in ids]

    async def _ended(self, queue: str, ids: Sequence[str]) -> dict[str, Ended]:
        possible = [identity for identity in dict.fromkeys(ids) if may_be_id(identity)]
        rows = await self._read("finished", queue, possible) if possible else []
        found = dict(zip(possible, rows, strict=True))
        return {identity: ended_of(found.get(identity)) for identity in ids}


def _added(answer: Any, count: int) -> list[Added]:
    """What `add.lua` answers: for plain jobs their first number."""
    if isinstance(answer, int):
        outcome, state = AddOutcome.ADDED, State.WAITING
        return [Added(str(number), outcome, state) for number in range(answer, answer + count)]
    return [Added(job_id, _OUTCOMES[outcome], State(state)) for job_id, outcome, state in answer]


def _gathered(runs: Sequence[Run], arguments: list[Any]) -> None:
    """Plain jobs as `add.lua` takes them: those of one name and one set of options behind one another share these."""
    before: tuple[str, str] | None = None
    place = 0
    for job, texts in runs:
        kind = (job.name, dump_options(job))
        if kind != before:
            place, before = len(arguments) + 2, kind
            arguments += (*kind, 0)
        arguments[place] += len(texts)
        arguments += texts


def _spelled_out(job: NewJob, data: str) -> tuple[Any, ...]:
    """A job of any kind, as `add.lua` takes it."""
    dedup = ("", "", "") if job.dedup is None else (job.dedup.key, job.dedup.mode, ttl_ms(job.dedup) or "")
    return (
        job.id or "", job.name, data, dump_options(job), job.delay, "" if job.due is None else job.due,
        job.priority, "1" if job.lifo else "", "" if job.expires is None else job.expires, job.metadata or "", *dedup,
        job.group or "",
    )  # fmt: skip


def _reported(each: Report) -> tuple[str, str]:
    match each:
        case Progress(_, value):
            return "progress", value
        case LogLine(_, line):
            return "log", line
        case Rewrite(_, data):
            return "data", data
        case Checkpoint(_, value):
            return "checkpoint", value
        case _:
            assert_never(each)


def _pending(found: Mapping[str, Ended]) -> list[str]:
    return [identity for identity, ended in found.items() if isinstance(ended, Pending)]


async def _set_before(news: asyncio.Event, timeout: float) -> None:
    try:
        async with asyncio.timeout(timeout):
            await news.wait()
    except TimeoutError:
        return
