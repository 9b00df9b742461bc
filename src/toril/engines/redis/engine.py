"""`RedisEngine`: each method of the seam as one script."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, assert_never

from toril.engines.redis.audit import RedisAudit
from toril.engines.redis.breakers import RedisCircuits
from toril.engines.redis.connection.client import Unconfirmed, check_server, keeps_well, uncertain
from toril.engines.redis.connection.marker_listener import MarkerListener
from toril.engines.redis.connection.presence import WorkerPresence
from toril.engines.redis.connection.result_listener import ResultListener
from toril.engines.redis.connection.url import RedisAddress, parse
from toril.engines.redis.dead_letters import RedisDeadLetters
from toril.engines.redis.exchange import VERDICTS, arguments_of, exchange_of
from toril.engines.redis.faults import RedisRepairs
from toril.engines.redis.flows import RedisFlows
from toril.engines.redis.groups import RedisGroups
from toril.engines.redis.inspector import RedisInspector
from toril.engines.redis.layout import FLEET, KEYS, may_be_id
from toril.engines.redis.metrics import RedisMetrics
from toril.engines.redis.options import dump_options, is_plain
from toril.engines.redis.records import ended_of, settings_of
from toril.engines.redis.runner import ScriptRunner
from toril.engines.redis.schedules import RedisSchedules
from toril.engines.redis.steps import RedisSteps
from toril.engines.redis.transfer import RedisTransfers
from toril.errors import TorilError
from toril.model import (
    Added,
    AddOutcome,
    Call,
    Cancellation,
    Checkpoint,
    Claim,
    ControlResult,
    DataUpdate,
    DeclareGroups,
    Ended,
    Exchange,
    Finished,
    Health,
    Heartbeat,
    Hold,
    Lease,
    LogLine,
    NewJob,
    Pause,
    Pending,
    Progress,
    Recovered,
    Refused,
    Renewed,
    Report,
    Rested,
    Resume,
    SetConcurrency,
    SetData,
    SetDelay,
    SetGroups,
    SetMaxWaiting,
    SetPriority,
    SetRateLimit,
    Setting,
    Settings,
    Settlement,
    Swept,
    Update,
    Verdict,
    WorkerRequest,
    order_of,
    per_ms,
    ttl_ms,
)
from toril.model.jobs import AlikeJobs, runs_of
from toril.model.states import State
from toril.runtime.clock import SYSTEM, Clock
from toril.store.checked import implements
from toril.store.engine import Engine

__all__ = ["RedisEngine"]

_LOOK: Final = 1.0  # seconds between two checks for a result: other libraries' workers do not publish theirs
_OUTCOMES: Final = (AddOutcome.ADDED, AddOutcome.DUPLICATE, AddOutcome.DEDUPLICATED, AddOutcome.REPLACED)


@implements(Engine)
class RedisEngine(RedisInspector):
    """A store on a Redis server, shared by any number of machines, and with BullMQ."""

    inbox: str | None = None

    def __init__(self, address: RedisAddress, *, clock: Clock = SYSTEM) -> None:
        runner = ScriptRunner(address, clock=clock)
        super().__init__(runner)
        self.dead_letters = RedisDeadLetters(runner)
        self.circuits = RedisCircuits(runner)
        self.flows = RedisFlows(runner)
        self.groups = RedisGroups(runner)
        self.schedules = RedisSchedules(runner)
        self.steps = RedisSteps(runner)
        self.metrics = RedisMetrics(runner)
        self.audit = RedisAudit(runner)
        self.repairs = RedisRepairs(runner, self.recover)
        self.transfers = RedisTransfers(runner)
        self._circuits_known = 0
        self._assemble()

    def __repr__(self) -> str:
        return repr(self._runner)

    def _assemble(self) -> None:
        runner = self._runner
        runner.connect_to(runner.address)
        self._markers = MarkerListener(
            runner.topology, f"{runner.fleet}{FLEET['wake']}", runner.client.ask, self._ready
        )
        self._results = ResultListener(runner.topology)
        self._presence = WorkerPresence(runner.address, runner.topology)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        clock: Clock = SYSTEM,
        prefix: str = "bull",
        durability: str | None = None,
        dead_letter_queue: str | None = None,
    ) -> "RedisEngine":
        address = parse(url, prefix=prefix, durability=durability, dead_letter_queue=dead_letter_queue)
        return cls(address, clock=clock)

    async def open(self) -> None:
        if not self._runner.is_open:
            self._assemble()
            try:
                address = await check_server(self._runner.client, self._runner.address)
            except BaseException:
                await self._let_go()
                raise
            if address != self._runner.address:
                await self._let_go()
                self._runner.address = address
                self._assemble()
            self._runner.script("add")  # assembled now: the first job would wait for that for some milliseconds
            self._runner.is_open = True

    async def _let_go(self) -> None:
        await self._runner.client.close()
        await self._runner.topology.close()

    async def close(self) -> None:
        if not self._runner.is_open:
            return
        self._runner.is_open = False
        for part in (self._markers, self._results, self._presence, self._runner.client, self._runner.topology):
            await part.close()

    def twin(self) -> "RedisEngine":
        twin = RedisEngine(self._runner.address, clock=self._runner.clock)
        twin._runner.is_open = self._runner.is_open
        return twin

    async def health(self) -> Health:
        try:
            self._runner.check_open()
            seconds, micros = await self._runner.client.ask("TIME")
            if not await keeps_well(self._runner.client):
                await self._runner.client.ask(
                    "DEL", f"{self._runner.fleet}{FLEET['wake']}none"
                )  # no key: refused if writing is
        except TorilError as error:
            return Health(ok=False, detail=str(error), now=self._runner.clock.now())
        return Health(ok=True, now=int(seconds) * 1000 + int(micros) // 1000)

    async def add(
        self, queue: str, jobs: Sequence[NewJob], *, call: Call | None = None, now: int | None = None
    ) -> list[Added]:
        if not jobs and call is None:
            return []
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
            return _added(await self._runner.write("add", queue, arguments, call, now), len(jobs))
        except Unconfirmed as error:
            ids = [each.id for each in _added(error.answer, len(jobs))]
            if not ids:  # it only advanced the number
                raise
            raise uncertain(self._runner.address.shown, error, ids) from None

    async def exchange(
        self,
        queue: str,
        batch: Sequence[Settlement],
        claim: Claim,
        *,
        call: Call | None = None,
        now: int | None = None,
    ) -> Exchange:
        lasting = self._runner.address.replicas > 0 and any(type(each.outcome) is Rested for each in batch)
        answer = await self._runner.write("exchange", queue, arguments_of(batch, claim), call, now, lasting=lasting)
        return exchange_of(queue, claim.token, answer)

    async def renew(self, leases: Sequence[Lease], *, ttl: int, now: int | None = None) -> Renewed:
        arguments: list[Any] = [ttl]
        for lease in leases:
            arguments += (self._runner.base(lease.queue), lease.id, lease.token)
        lost, stopped = await self._runner.read("renew", "", arguments, now)
        return Renewed(
            tuple(leases[place] for place in lost),
            tuple(Cancellation(leases[place], reason) for place, reason in stopped),
        )

    async def wait(self, queues: Sequence[str], *, timeout: int) -> set[str]:
        names = {self._marker(name): name for name in queues}
        self._runner.check_open()
        rung = await self._markers.wait(names, timeout / 1000)
        return {names[key] for key in rung or ()}

    async def _ready(self, markers: list[str]) -> list[str]:
        """The markers of queues that have something to claim, whether or not anybody was notified."""
        ending = KEYS["marker"]
        bases = [marker.removesuffix(ending) for marker in markers if marker.endswith(f":{ending}")]
        return [base + ending for base in (await self._runner.read("ready", "", bases) if bases else ())]

    def _marker(self, name: str) -> str:
        """The key to block on: a queue's marker, or a worker's own key, which no queue's name can equal."""
        if name.startswith(":"):
            return f"{self._runner.fleet}{FLEET['poke']}{name[1:]}:poke"
        return self._runner.base(name) + KEYS["marker"]

    async def report(
        self, queue: str, reports: Sequence[Report], *, call: Call | None = None, now: int | None = None
    ) -> list[Verdict]:
        arguments: list[Any] = []
        for each in reports:
            arguments += (each.lease.id, each.lease.token, *_reported(each))
        return [VERDICTS[verdict] for verdict in await self._runner.write("report", queue, arguments, call, now)]

    async def finished(self, queue: str, ids: Sequence[str], *, timeout: int) -> list[Finished]:
        until = SYSTEM.monotonic() + timeout / 1000
        found = dict.fromkeys(ids, Pending()) | await self._ended(queue, ids)
        if _pending(found) and timeout > 0:
            async with self._results.listening(self._runner.base(queue) + KEYS["ended"], frozenset(ids)) as news:
                while _pending(found) and self._runner.is_open and (left := until - SYSTEM.monotonic()) > 0:
                    await _set_before(news, min(left, _LOOK))
                    news.clear()
                    found |= await self._ended(queue, _pending(found))  # what was received once is kept
            self._runner.check_open()
        return [Finished(identity, found[identity]) for identity in ids]

    async def _ended(self, queue: str, ids: Sequence[str]) -> dict[str, Ended]:
        possible = [identity for identity in dict.fromkeys(ids) if may_be_id(identity)]
        rows = await self._runner.read("finished", queue, possible) if possible else []
        found = dict(zip(possible, rows, strict=True))
        return {identity: ended_of(found.get(identity)) for identity in ids}

    # control

    async def retry(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        return await self._control("retry", queue, ids, [], call, now)

    async def promote(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        return await self._control("promote", queue, ids, [], call, now)

    async def cancel(
        self, queue: str, ids: Sequence[str], *, reason: str, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        return await self._control("cancel", queue, ids, [reason], call, now)

    async def remove(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        return await self._control("remove", queue, ids, [], call, now)

    async def _control(
        self, verb: str, queue: str, ids: Sequence[str], more: Sequence[str], call: Call | None, now: int | None
    ) -> ControlResult:
        unique = list(dict.fromkeys(ids))
        possible = [identity for identity in unique if may_be_id(identity)]
        return _changed(unique, await self._runner.write(verb, queue, [*more, *possible], call, now))

    async def update(
        self, queue: str, updates: Sequence[Update], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        arguments: list[Any] = []
        for each in updates:
            if may_be_id(each.id):
                arguments += _update(each)
        answer = await self._runner.write("update", queue, arguments, call, now)
        return _changed([each.id for each in updates], answer)

    async def drain(
        self,
        queue: str,
        *,
        states: frozenset[State],
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        return _swept(await self._runner.write("drain", queue, [limit, *sorted(states)], call, now))

    async def clean(
        self,
        queue: str,
        *,
        state: State,
        grace: int,
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        return _swept(await self._runner.write("clean", queue, [limit, state.value, grace], call, now))

    async def obliterate(
        self,
        queue: str,
        *,
        running: Literal["refuse", "remove"] = "refuse",
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        return _swept(await self._runner.write("obliterate", queue, [limit, running, queue], call, now))

    async def configure(
        self, queue: str, settings: Sequence[Setting], *, call: Call | None = None, now: int | None = None
    ) -> Settings:
        arguments: list[Any] = [queue]
        for setting in settings:
            arguments += _set(setting)
        return settings_of(await self._runner.write("configure", queue, arguments, call, now))

    # maintenance

    async def recover(
        self,
        queue: str,
        *,
        dead: Sequence[Lease] = (),
        cause: str | None = None,
        limit: int = 1000,
        now: int | None = None,
    ) -> Recovered:
        arguments: list[object] = [limit, cause or "", "" if cause is None else "1"]
        for lease in dead:
            arguments += (lease.id, lease.token)
        ended, deadline, more, moment = await self._runner.read("recover", queue, arguments, now)
        returned, failed, cancelled = map(tuple, ended)
        return Recovered(returned, failed, cancelled, deadline, more=more == 1, now=moment)

    async def prune(self, queue: str, *, limit: int = 1000, now: int | None = None) -> int:
        removed, self._circuits_known = await self._runner.read("prune", queue, [limit], now)
        return int(removed) + (await self.circuits.prune(now) if self._circuits_known else 0)

    async def heartbeat(self, beat: Heartbeat, *, ttl: int, now: int | None = None) -> tuple[WorkerRequest, ...]:
        heard = list(map(str, beat.heard))
        declared = [part for queue, said in (beat.declares or {}).items() for part in (queue, said.dump())]
        words = [ttl, beat.worker, beat.dump(), beat.started_at, len(heard), *heard, *declared]
        left = await self._runner.read("heartbeat", "", words, now)
        (self._presence.show if ttl else self._presence.hide)(beat.worker, list(beat.queues))
        return tuple(order_of(word) for word in left)

    async def signal(self, worker: str, order: WorkerRequest, *, now: int | None = None) -> bool:
        return bool(await self._runner.read("signal", "", [worker, str(order)], now))

    async def lead(self, role: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        return await self._claim_key("lead", "lead", role, [owner, ttl], now)

    async def resign(self, role: str, owner: str) -> bool:
        return await self._claim_key("resign", "lead", role, [owner], None)

    async def once(self, key: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        return await self._claim_key("once", "once", key, [owner, ttl], now)

    async def _claim_key(self, verb: str, kind: str, name: str, words: Sequence[object], now: int | None) -> bool:
        key = f"{self._runner.fleet}{FLEET[kind]}{name}:{kind}"
        return bool(await self._runner.run_on(key, verb, [self._runner.time_for(now), *words], again=True))


def _added(answer: Any, count: int) -> list[Added]:
    """Parse the answer of `add.lua`: for plain jobs, the first of their numbers."""
    if isinstance(answer, int):
        outcome, state = AddOutcome.ADDED, State.WAITING
        return [Added(str(number), outcome, state) for number in range(answer, answer + count)]
    return [Added(job_id, _OUTCOMES[outcome], State(state)) for job_id, outcome, state in answer]


def _gathered(runs: Sequence[AlikeJobs], arguments: list[Any]) -> None:
    """Plain jobs as arguments of `add.lua`: consecutive jobs with the same name and options share these."""
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
    """A job of any kind, as arguments of `add.lua`."""
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
        case DataUpdate(_, data):
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


def _update(each: Update) -> list[Any]:
    match each:
        case SetData(job_id, data):
            return ["data", job_id, data, ""]
        case SetPriority(job_id, priority, lifo):
            return ["priority", job_id, priority, "1" if lifo else ""]
        case SetDelay(job_id, delay):
            return ["delay", job_id, delay, ""]
        case _:
            assert_never(each)


def _set(setting: Setting) -> list[Any]:
    name, *values = _named(setting)
    return [name, *[*values, "", "", ""][:3]]


def _named(setting: Setting) -> list[Any]:  # noqa: PLR0911 - an arm a setting
    match setting:
        case Pause():
            return ["pause"]
        case Resume():
            return ["resume"]
        case SetConcurrency(limit) | SetMaxWaiting(limit):
            name = "concurrency" if isinstance(setting, SetConcurrency) else "max_waiting"
            return [name, "" if limit is None else limit]
        case Hold(ms):
            return ["hold", "" if ms is None else ms]
        case DeclareGroups(limits):
            return ["declared", limits.dump()]
        case SetGroups(limits):
            return ["groups", "" if limits is None else limits.dump()]
        case SetRateLimit(None):
            return ["rate"]
        case SetRateLimit(rate):
            assert rate is not None  # noqa: S101 - the case before
            return ["rate", rate.max, per_ms(rate), rate.window]
        case _:
            assert_never(setting)


def _changed(ids: Sequence[str], answer: Sequence[Any]) -> ControlResult:
    """Outcomes in the order of the ids; ids that no job can have were not sent."""
    done, asked, words = answer
    left, refused = deque(words), []
    for identity in ids:
        if not may_be_id(identity):
            refused.append(Refused(identity, None))
        elif left and left[0][0] == identity:
            word = left.popleft()[1]
            refused.append(Refused(identity, None if word is None else State(word)))
    return ControlResult(tuple(done), tuple(asked), tuple(refused))


def _swept(answer: Sequence[Any]) -> Swept:
    ids, more = answer
    return Swept(tuple(ids), more == 1)
