"""A day in the life of a queue: every call that an engine has, made once at least by one process."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from tests.sim.plan import QUEUE
from tests.sim.script import Kind, Script, outcome_of, script_of
from tests.sim.stage import LEASE, Process
from toril.errors import EngineUnavailable
from toril.model import (
    KEEP_ALL,
    REMOVE,
    Checkpoint,
    Claim,
    Claimed,
    Exchange,
    Heartbeat,
    JobOptions,
    LogLine,
    NewJob,
    Pause,
    Progress,
    Replay,
    Resume,
    SetConcurrency,
    SetData,
    SetDelay,
    SetPriority,
    Settlement,
    WorkerCommand,
)
from toril.model.states import State
from toril.runtime.calls import Caller

__all__ = ["UNNUMBERED", "Demolition", "Mourning", "Scenario"]

T = TypeVar("T")

# Calls that take no number. To repeat them at once does no harm; what they answer then is not the first answer.
UNNUMBERED: Final = frozenset(
    {
        "heartbeat",
        "configure",
        "renew",
        "once",
        "prune",
        "recover",
        "signal",
        "obliterate",
        "health",
        "finished",
        "letters",
        "wait",
    }
)
_TICK: Final = 0.3  # seconds between two calls: a late request falls before the next one, or after it
_SHORT: Final = 500


class Scenario:
    """The process under test. `answers` holds what its numbered calls were answered, without times."""

    def __init__(self, process: Process) -> None:
        self.answers: list[object] = []
        self._engine = process.engine
        self._process = process
        self._clock = process.clock
        self._caller = Caller("subject", process.clock)

    async def run(self) -> None:
        await self._begin()
        await self._work()
        await self._stall()
        await self._control()
        await self._finish()
        await self._sweep()

    async def _begin(self) -> None:
        engine = self._engine
        await self._plain(lambda: engine.configure(QUEUE, [SetConcurrency(10)]))
        await self._add(_job("a", keep=True), _job("b", Kind.FLAKY), _job("c", Kind.GIVEN_BACK))
        await self._add(
            _job("d", delay=LEASE), _job("e", job_id="chosen"), _job("f", Kind.FATAL, keep=True), _job("g"), _job("h"),
            _job("k", delay=LEASE),
        )  # fmt: skip
        beat = Heartbeat(worker="subject", queues=(QUEUE,), slots=4, running=0)
        await self._plain(lambda: engine.signal("subject", WorkerCommand.QUIET))
        await self._plain(lambda: engine.heartbeat(beat, ttl=LEASE))
        await self._plain(lambda: engine.once("daily", "w1", ttl=LEASE))
        await self._plain(lambda: engine.wait([QUEUE], timeout=100))

    async def _work(self) -> None:
        engine = self._engine
        jobs = await self._exchange((), 3)
        leases = [job.lease for job in jobs]
        await self._plain(lambda: engine.renew(leases, ttl=LEASE))
        reports = [
            each for lease in leases[:1] for each in (Progress(lease, "1"), LogLine(lease, "x"), Checkpoint(lease, "2"))
        ]
        verdicts = await self._caller.send(lambda call: engine.report(QUEUE, reports, call=call))
        await self._told(verdicts)
        jobs = await self._exchange(jobs, 2)
        jobs = await self._exchange(jobs, 1)
        await self._exchange(jobs, 1, lease=_SHORT)

    async def _stall(self) -> None:
        """One lease runs out, one is given up for dead."""
        engine = self._engine
        await self._clock.sleep(1)
        await self._plain(lambda: engine.recover(QUEUE))
        jobs = await self._exchange((), 1)
        dead = [job.lease for job in jobs]
        await self._plain(lambda: engine.recover(QUEUE, dead=dead, cause="killed"))

    async def _control(self) -> None:
        engine, make = self._engine, self._caller.send
        data = Script(nonce="d", kind=Kind.QUICK, ms=1).data
        changes = (SetDelay("4", LEASE), SetData("4", data), SetPriority("4", 2))
        await self._told(await make(lambda call: engine.update(QUEUE, changes, call=call)))
        await self._told(await make(lambda call: engine.promote(QUEUE, ["4", "no such"], call=call)))
        await self._told(await make(lambda call: engine.cancel(QUEUE, ["2"], reason="enough", call=call)))
        await self._told(await make(lambda call: engine.retry(QUEUE, ["1", "6"], call=call)))
        await self._told(await make(lambda call: engine.remove(QUEUE, ["6"], call=call)))
        states = frozenset({State.DELAYED})
        await self._told(await make(lambda call: engine.drain(QUEUE, states=states, call=call)))
        await self._plain(lambda: engine.configure(QUEUE, [Pause()]))
        await self._exchange((), 1)
        await self._plain(lambda: engine.configure(QUEUE, [Resume()]))

    async def _finish(self) -> None:
        """Those that stalled one by one, alone; then the rest."""
        jobs: Sequence[Claimed] = ()
        for _ in range(4):
            jobs = await self._exchange(jobs, 1, alone=True)
        await self._exchange(jobs, 0)
        await self._plain(lambda: self._engine.finished(QUEUE, ["1", "4"], timeout=100))

    async def _sweep(self) -> None:
        engine, make = self._engine, self._caller.send
        completed = State.COMPLETED
        await self._told(await make(lambda call: engine.clean(QUEUE, state=completed, grace=0, call=call)))
        await self._plain(lambda: engine.prune(QUEUE))
        await self._plain(engine.health)

    async def _add(self, *jobs: NewJob) -> None:
        journal = self._process.journal
        nonces = [script_of(job.data).nonce for job in jobs]
        journal.attempted.update(dict.fromkeys(nonces))
        answers = await self._caller.send(lambda call: self._engine.add(QUEUE, jobs, call=call))
        assert answers is not None
        journal.acknowledged.update(zip(nonces, (answer.id for answer in answers), strict=True))
        await self._told(answers)

    async def _exchange(
        self, done: Sequence[Claimed], want: int, *, lease: int = LEASE, alone: bool = False
    ) -> tuple[Claimed, ...]:
        """Hand in what `done` came to, take others and run them."""
        batch = [Settlement(job.lease, outcome_of(script_of(job.data), job)) for job in done]
        claim = Claim(want=want, token=self._clock.unique(), lease=lease, worker="subject", alone=alone)
        answer = await self._caller.send(lambda call: self._engine.exchange(QUEUE, batch, claim, call=call))
        assert isinstance(answer, Exchange)
        ran = [(job.lease, job.data, job.fence, job.attempts_made, job.stalls, job.suspect) for job in answer.jobs]
        await self._told((answer.verdicts, ran, answer.blocked_by, answer.suspects))
        for job in answer.jobs:
            self._process.journal.began(script_of(job.data).nonce, job.fence)
            self._process.journal.over(script_of(job.data).nonce, job.fence)
        return answer.jobs

    async def _plain(self, send: Callable[[], Awaitable[T]]) -> None:
        """A call without a number: made again until it is answered."""
        while True:
            try:
                await send()
            except EngineUnavailable:
                continue
            break
        await self._clock.sleep(_TICK)

    async def _told(self, answer: object) -> None:
        self.answers.append(answer)
        await self._clock.sleep(_TICK)


class Demolition(Scenario):
    """The one thing after which there is nothing left to compare."""

    async def run(self) -> None:
        await self._add(_job("y"), _job("z", delay=LEASE))
        for _ in range(3):
            await self._plain(lambda: self._engine.obliterate(QUEUE, limit=1))


class Mourning(Scenario):
    """Jobs fail for good, in their own fault and by stalling; they are looked at, run again, and thrown away."""

    async def run(self) -> None:
        engine, make = self._engine, self._caller.send
        await self._add(
            _job("m", Kind.FATAL), _job("n", Kind.HOPELESS), _job("o", Kind.FATAL, job_id="chosen"), _job("p")
        )
        jobs = await self._exchange((), 4)
        leases = [job.lease for job in jobs[:1]]
        verdicts = await make(lambda call: engine.report(QUEUE, [Checkpoint(each, "7") for each in leases], call=call))
        await self._told(verdicts)
        jobs = await self._exchange(jobs, 1)
        await self._exchange(jobs, 0)
        await self._plain(lambda: engine.dead_letters.page(limit=10))
        again = [Replay(f"{QUEUE}/{each}") for each in ("1", "chosen", "no such")]
        await self._told(await make(lambda call: engine.dead_letters.replay(QUEUE, again, call=call)))
        await self._exchange(await self._exchange((), 2), 0)
        more = [Replay(f"{QUEUE}/2", attempts=3)]
        await self._told(await make(lambda call: engine.dead_letters.replay(QUEUE, more, call=call)))
        away = [f"{QUEUE}/1", f"{QUEUE}/no such"]
        await self._told(await make(lambda call: engine.dead_letters.discard(away, call=call)))
        await self._exchange((), 1, lease=_SHORT)
        await self._clock.sleep(1)
        await self._plain(lambda: engine.recover(QUEUE))
        await self._plain(lambda: engine.prune(QUEUE))


def _job(
    nonce: str, kind: Kind = Kind.QUICK, *, delay: int = 0, job_id: str | None = None, keep: bool = False
) -> NewJob:
    script = Script(nonce=nonce, kind=kind, ms=1, times=1)
    kept = KEEP_ALL if keep else REMOVE
    return NewJob(
        name=script.name,
        data=script.data,
        delay=delay,
        id=job_id,
        attempts=2,
        options=JobOptions(keep_completed=kept, keep_failed=kept),
    )
