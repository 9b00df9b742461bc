"""Every engine against the oracle: whatever is done in whatever order, both agree after each step."""

import asyncio
import os
import tempfile
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.conformance.dumps import keys_of
from tests.conformance.oracle import Oracle, OracleJob, OracleRow
from tests.kinds import ASKED_FOR, GUARDED, POSTGRES, REDIS, postgres_of, redis_of
from tests.proof import prove
from toril.codec.steps import dump_waits, load_step
from toril.engines.postgres import PostgresEngine
from toril.engines.redis import RedisEngine
from toril.engines.sql.transaction import Transaction
from toril.engines.sqlite import SqliteEngine
from toril.engines.sqlite.url import parse
from toril.errors import QueueFull
from toril.model import (
    KEEP_ALL,
    AddOutcome,
    Call,
    Cancelled,
    Claim,
    Claimed,
    Completed,
    Failed,
    Failure,
    JobOptions,
    Keep,
    Lease,
    Limits,
    NewJob,
    NewSignal,
    Outcome,
    Pause,
    Precedence,
    Released,
    Rest,
    Rested,
    Resume,
    Retried,
    RunStatus,
    SetConcurrency,
    SetData,
    SetDelay,
    SetMaxWaiting,
    SetPriority,
    Settlement,
    SignalOutcome,
    SignalWait,
    Snoozed,
    StepKind,
    StepReport,
    StepVerdict,
    Verdict,
)
from toril.model.states import NOT_STARTED, State
from toril.store.engine import Store
from toril.testing import ManualClock

T = TypeVar("T")

WAITS = (SignalWait("s"),)
KEEPS = st.sampled_from([Keep(count=0), KEEP_ALL, Keep(count=3)])
JOBS = st.builds(
    NewJob,
    name=st.just("n"),
    id=st.sampled_from([None, None, None, "x", "y", "z"]),
    delay=st.sampled_from([0, 0, 0, 1, 50, 500]),
    priority=st.sampled_from([0, 0, 0, 1, 2, 2_097_151]),
    lifo=st.booleans(),
    attempts=st.integers(1, 4),
    expires=st.sampled_from([None, None, None, 100]),
    options=st.builds(JobOptions, keep_completed=KEEPS, keep_failed=KEEPS),
)
OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        Completed(), Completed('"r"'), Failed(Failure("f")), Retried(Failure("r")), Retried(Failure("r"), 50),
        Snoozed(20),
        Released(), Cancelled("c"),
        Rested(rests=(Rest(key="nap", kind=StepKind.SLEEP, delay=20),)),
        Rested(rests=(Rest(key="wait", kind=StepKind.WAIT, text=dump_waits(WAITS), signals=WAITS),)),
        Rested(rests=(
            Rest(key="nap", kind=StepKind.SLEEP, delay=300),
            Rest(key="wait", kind=StepKind.WAIT, text=dump_waits(WAITS), delay=50, signals=WAITS),
        )),
    ]
)  # fmt: skip


class EngineMachine(RuleBasedStateMachine):
    """Rules that do the same to the engine and to the oracle."""

    url = "memory://"

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.folder = tempfile.TemporaryDirectory()
        self.engine = self.made()
        self.wait(self.engine.open())
        self.oracle = Oracle(self.clock.now())
        self.leases: list[Lease] = []
        self.calls = 0

    def made(self) -> Store:
        """The engine on an empty store."""
        url = self.url.format(folder=self.folder.name)
        return SqliteEngine(parse(url), clock=self.clock, inline=True)

    def teardown(self) -> None:
        prove("T12", examples=1)
        self.wait(self.engine.close())
        self.loop.close()
        self.folder.cleanup()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def call(self) -> Call:
        self.calls += 1
        return Call("machine", self.calls)

    def held(self) -> list[Lease]:
        return [lease for lease in self.leases if self.oracle.holds(lease) is Verdict.OK]

    def some_ids(self, data: st.DataObject) -> list[str]:
        known = [*self.oracle.jobs, "missing"]
        return data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True))

    @rule(jobs=st.lists(JOBS, min_size=1, max_size=6), again=st.booleans())
    def add(self, jobs: list[NewJob], again: bool) -> None:
        call = self.call()
        if not self.oracle.fits(jobs):
            with pytest.raises(QueueFull):
                self.wait(self.engine.add("q", jobs, call=call))
            return
        answers = self.wait(self.engine.add("q", jobs, call=call))
        for new, answer in zip(jobs, answers, strict=True):
            known = new.id is not None and new.id in self.oracle.jobs
            assert answer.outcome is (AddOutcome.DUPLICATE if known else AddOutcome.ADDED)
            assert answer.id == self.oracle.add(new)
        if again:
            assert self.wait(self.engine.add("q", jobs, call=call)) == answers

    @rule(
        want=st.integers(1, 5),
        lease=st.sampled_from([10, 100, 1000]),
        alone=st.booleans(),
        max_stalls=st.sampled_from([0, 1, 2]),
        precedence=st.sampled_from(Precedence),
        again=st.booleans(),
    )
    def claim(self, want: int, lease: int, alone: bool, max_stalls: int, precedence: Precedence, again: bool) -> None:
        call = self.call()
        claim = Claim(
            want=want, token=f"t{call.seq}", lease=lease, worker="w", alone=alone, max_stalls=max_stalls,
            limits=Limits(precedence=precedence),
        )  # fmt: skip
        answer = self.wait(self.engine.exchange("q", [], claim, call=call))
        taken, gate = self.oracle.claim(claim)
        assert [job.lease.id for job in answer.jobs] == taken
        assert answer.blocked_by is gate
        assert answer.suspects == len(self.oracle.suspects)
        for job in answer.jobs:
            known = self.oracle.jobs[job.lease.id]
            assert (job.starts, job.fence, job.attempts_made, job.stalls, job.data) == (
                known.starts, known.fence, known.attempts_made, known.stalls, known.data,
            )  # fmt: skip
            assert job.suspect is known.ran_alone
            self._must_have_steps(job, known)
        if again:
            assert self.wait(self.engine.exchange("q", [], claim, call=call)) == answer
        self.leases += [job.lease for job in answer.jobs]

    def _must_have_steps(self, job: Claimed, known: OracleJob) -> None:
        """What the claim brings of its steps."""
        if not (known.rows or known.reruns or known.epoch):
            assert job.steps is None
            return
        assert job.steps is not None
        assert (job.steps.reruns, job.steps.epoch) == (known.reruns, known.epoch)
        assert {key: _row(key, text) for key, text in job.steps.rows.items()} == known.rows

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        key=st.sampled_from(["a", "b", "nap"]),
        row=st.sampled_from([("d", "1"), ("e", '["K","r",[]]'), ("t", '[1,"K","r"]'), ("z", ""), ("v", "3")]),
        delay=st.sampled_from([0, 30]),
    )
    def record(self, data: st.DataObject, key: str, row: tuple[str, str], delay: int) -> None:
        lease, kind = data.draw(st.sampled_from(self.held() or self.leases)), StepKind(row[0])
        timed = kind in {StepKind.RETRY, StepKind.SLEEP}
        report = StepReport(lease, key, kind, row[1], delay=delay if timed else None)
        call = self.call()
        (answer,) = answers = self.wait(self.engine.steps.record("q", [report], call=call))
        until = self.clock.now() + delay if timed else None
        assert answer.verdict.value == self.oracle.record(lease, key, kind, until, row[1]).value
        if answer.verdict is StepVerdict.OK:
            assert answer.steps == len(self.oracle.jobs[lease.id].rows)
        assert self.wait(self.engine.steps.record("q", [report], call=call)) == answers

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def receive(self, data: st.DataObject) -> None:
        lease, call = data.draw(st.sampled_from(self.held())), self.call()
        answer = self.wait(self.engine.steps.receive(lease, "wait", WAITS, call=call))
        assert answer.verdict is StepVerdict.OK
        assert (None if answer.row is None else _row("wait", answer.row)) == self.oracle.receive(lease, "wait", "s")
        assert self.wait(self.engine.steps.receive(lease, "wait", WAITS, call=call)) == answer

    @rule(data=st.data(), payload=st.sampled_from(["1", '"x"']))
    def deliver(self, data: st.DataObject, payload: str) -> None:
        (identity, *_) = self.some_ids(data)
        call, signal = self.call(), NewSignal(name="s", payload=payload, job_id=identity)
        (answer,) = answers = self.wait(self.engine.steps.deliver("q", [signal], call=call))
        ended = {SignalOutcome.MISSING, SignalOutcome.ENDED}  # a dead letter has ended, for the oracle it is gone
        found = self.oracle.deliver(identity, "s", payload)
        assert answer.outcome is found or {answer.outcome, found} == ended
        assert self.wait(self.engine.steps.deliver("q", [signal], call=call)) == answers

    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        (identity, *_) = self.some_ids(data)
        job = self.oracle.jobs.get(identity)
        to = data.draw(st.sampled_from([None, *([] if job is None else job.rows)]))
        changed = self.wait(self.engine.steps.rewind("q", identity, to, call=self.call()))
        assert bool(changed.done) is (job is not None and job.state is not State.ACTIVE)
        if changed.done:
            self.oracle.rewind(identity, to)

    @precondition(lambda self: self.held())
    @rule(data=st.data(), outcomes=st.lists(OUTCOMES, min_size=1, max_size=4))
    def settle_what_is_held(self, data: st.DataObject, outcomes: list[Outcome]) -> None:
        held = self.held()
        self._exchange([Settlement(data.draw(st.sampled_from(held)), outcome) for outcome in outcomes], again=False)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), outcomes=st.lists(OUTCOMES, min_size=1, max_size=4), again=st.booleans())
    def settle_anything(self, data: st.DataObject, outcomes: list[Outcome], again: bool) -> None:
        known = st.sampled_from(self.leases)
        self._exchange([Settlement(data.draw(known), outcome) for outcome in outcomes], again=again)

    def _exchange(self, batch: list[Settlement], *, again: bool) -> None:
        call = self.call()
        claim = Claim(want=0, token=f"t{call.seq}", lease=1, worker="w")
        answer = self.wait(self.engine.exchange("q", batch, claim, call=call))
        assert list(answer.verdicts) == self._settled(batch)
        if again:
            assert self.wait(self.engine.exchange("q", batch, claim, call=call)) == answer

    def _settled(self, batch: list[Settlement]) -> list[Verdict]:
        """Released jobs go to the front together, in their order, after everything else of the batch."""
        verdicts, released, completed = [], [], []
        settled: set[str] = set()
        for settlement in batch:
            job = settlement.lease.id
            verdict = Verdict.LOST if job in settled else self.oracle.holds(settlement.lease)
            verdicts.append(verdict)
            if verdict is not Verdict.OK:
                continue
            settled.add(job)
            wanted_stopped = self.oracle.jobs[job].cancelling is not None
            match settlement.outcome:
                case Released() if not wanted_stopped:
                    released.append(settlement)
                    self.oracle.jobs[settlement.lease.id].state = State.WAITING  # no longer held by anyone
                case Rested(rests=rests) if not wanted_stopped:
                    if not self.oracle.rest(self.oracle.jobs[job], rests):
                        released.append(settlement)
                        self.oracle.jobs[job].state, self.oracle.jobs[job].ran_alone = State.WAITING, False
                case Completed():
                    completed.append(settlement)
                    self.oracle.jobs[settlement.lease.id].state = State.WAITING
                case _:
                    self.oracle.settle(settlement.lease, settlement.outcome)
        for settlement in [*completed, *reversed(released)]:
            self.oracle.jobs[settlement.lease.id].state = State.ACTIVE
            outcome = Released() if isinstance(settlement.outcome, Rested) else settlement.outcome
            assert self.oracle.settle(settlement.lease, outcome) is Verdict.OK
        return verdicts

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), ttl=st.sampled_from([1, 100, 5000]))
    def extend(self, data: st.DataObject, ttl: int) -> None:
        leases = data.draw(st.lists(st.sampled_from(self.leases), min_size=1, max_size=4, unique=True))
        answer = self.wait(self.engine.renew(leases, ttl=ttl))
        held = [lease for lease in leases if self.oracle.holds(lease) is Verdict.OK]
        assert answer.lost == tuple(lease for lease in leases if lease not in held)
        wishes = [(wish.lease, wish.reason) for wish in answer.cancelled]
        assert wishes == [(lease, r) for lease in held if (r := self.oracle.jobs[lease.id].cancelling) is not None]
        for lease in held:
            self.oracle.jobs[lease.id].deadline = self.clock.now() + ttl

    @rule(ms=st.sampled_from([1, 10, 100, 1000]))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)
        self.oracle.now = self.clock.now()

    @rule(data=st.data())
    def recover(self, data: st.DataObject) -> None:
        dead = data.draw(st.lists(st.sampled_from(self.leases), max_size=2, unique=True)) if self.leases else []
        answer = self.wait(self.engine.recover("q", dead=dead))
        ends = self.oracle.recover(dead, answer.taken_back)
        assert ([*answer.returned], [*answer.failed], [*answer.cancelled]) == ends
        deadlines = [job.deadline for job in self.oracle.jobs.values() if job.state is State.ACTIVE]
        assert answer.next_deadline == min(deadlines, default=None)

    @rule(
        data=st.data(),
        verb=st.sampled_from(["retry", "promote", "cancel", "remove", "set_priority", "set_delay_and_data", "drain"]),
    )
    def control(self, data: st.DataObject, verb: str) -> None:
        getattr(self, f"_{verb}")(data)

    def _retry(self, data: st.DataObject) -> None:
        ids, call = self.some_ids(data), self.call()
        changed = self.wait(self.engine.retry("q", ids, call=call))
        assert list(changed.done) == [identity for identity in ids if self.oracle.retry(identity)]
        assert self.wait(self.engine.retry("q", ids, call=call)) == changed

    def _promote(self, data: st.DataObject) -> None:
        ids = self.some_ids(data)
        changed = self.wait(self.engine.promote("q", ids, call=self.call()))
        delayed = [i for i in ids if i in self.oracle.delayed]
        assert list(changed.done) == delayed
        for identity in delayed:
            self.oracle.promote(self.oracle.jobs[identity])

    def _cancel(self, data: st.DataObject) -> None:
        ids = self.some_ids(data)
        states = {i: self.oracle.jobs[i].state for i in ids if i in self.oracle.jobs}
        changed = self.wait(self.engine.cancel("q", ids, reason="c", call=self.call()))
        assert list(changed.asked) == [i for i in ids if states.get(i) is State.ACTIVE]
        assert list(changed.done) == [i for i in ids if states.get(i) in NOT_STARTED]
        for identity in changed.asked:
            self.oracle.jobs[identity].cancelling = "c"
        for identity in changed.done:
            self.oracle.take_out(self.oracle.jobs[identity])
            self.oracle.end(self.oracle.jobs[identity], RunStatus.CANCELLED)

    def _remove(self, data: st.DataObject) -> None:
        ids = self.some_ids(data)
        changed = self.wait(self.engine.remove("q", ids, call=self.call()))
        idle = [i for i in ids if i in self.oracle.jobs and self.oracle.jobs[i].state is not State.ACTIVE]
        assert list(changed.done) == idle
        for identity in idle:
            self.oracle.take_out(self.oracle.jobs[identity])
            del self.oracle.jobs[identity]

    def _set_priority(self, data: st.DataObject) -> None:
        priority, lifo = data.draw(st.integers(0, 3)), data.draw(st.booleans())
        (identity, *_) = self.some_ids(data)
        changed = self.wait(self.engine.update("q", [SetPriority(identity, priority, lifo)], call=self.call()))
        job = self.oracle.jobs.get(identity)
        assert bool(changed.done) is (job is not None and job.state in NOT_STARTED)
        if job is not None and changed.done:
            job.priority = priority
            if job.state is not State.DELAYED and not job.suspect:
                self.oracle.take_out(job)
                (self.oracle.front if lifo else self.oracle.back)(job)

    def _set_delay_and_data(self, data: st.DataObject) -> None:
        delay = data.draw(st.sampled_from([0, 10, 300]))
        (identity, *_) = self.some_ids(data)
        changed = self.wait(self.engine.update("q", [SetDelay(identity, delay), SetData(identity, "[]")]))
        job = self.oracle.jobs.get(identity)
        if job is not None:
            job.data = "[]"
            if job.state is State.DELAYED and not job.rests:
                self.oracle.take_out(job)
                self.oracle.delay(job, self.clock.now() + delay)
        assert len(changed.done) == (0 if job is None else 2 if job.state is State.DELAYED and not job.rests else 1)

    def _drain(self, data: st.DataObject) -> None:
        states = data.draw(st.sets(st.sampled_from(sorted(NOT_STARTED)), min_size=1))
        swept = self.wait(self.engine.drain("q", states=frozenset(states), call=self.call()))
        gone = {i for state in states for i in self.oracle.order(state)} - self.oracle.resting()
        assert set(swept.ids) == gone
        for identity in gone:
            self.oracle.take_out(self.oracle.jobs[identity])
            del self.oracle.jobs[identity]

    @rule(
        paused=st.sampled_from([False, False, False, True]),
        concurrency=st.sampled_from([None, None, 1, 3]),
        max_waiting=st.sampled_from([None, None, 5, 20]),
    )
    def configure(self, paused: bool, concurrency: int | None, max_waiting: int | None) -> None:
        pause = Pause() if paused else Resume()
        self.wait(self.engine.configure("q", [pause, SetConcurrency(concurrency), SetMaxWaiting(max_waiting)]))
        self.oracle.paused, self.oracle.concurrency, self.oracle.max_waiting = paused, concurrency, max_waiting

    @initialize()
    def begin(self) -> None:
        self.wait(self.engine.configure("q", [Resume()]))
        self.work_comes_and_is_taken(6, 1000)

    @rule(count=st.integers(1, 6), lease=st.sampled_from([10, 1000]))
    def work_comes_and_is_taken(self, count: int, lease: int) -> None:
        """So that a run is not mostly about empty queues."""
        self.add([NewJob(name="n", attempts=3, options=JobOptions(keep_failed=KEEP_ALL))] * count, again=False)
        self.claim(count, lease, alone=False, max_stalls=1, precedence=Precedence.PLAIN_FIRST, again=False)

    @invariant()
    def every_job_is_in_one_state_and_in_order(self) -> None:
        assert self.wait(self.engine.counts("q")) == self.oracle.counts()
        for state in State:
            page = self.wait(self.engine.page("q", state, limit=1000))
            found, known = [job.id for job in page.items], self.oracle.order(state)
            assert (sorted(found) == sorted(known)) if state is State.ACTIVE else (found == known), state
            for job in page.items:
                expected = self.oracle.jobs[job.id]
                assert job.state is state is expected.state
                assert (job.attempts_made, job.stalls, job.priority) == (
                    expected.attempts_made, expected.stalls, expected.priority,
                )  # fmt: skip

    @invariant()
    def those_that_rest_are_listed(self) -> None:
        found = self.wait(self.engine.steps.resting("q", limit=1000)).items
        assert {job.id for job in found} == self.oracle.resting()

    @invariant()
    def every_end_is_recorded_once(self) -> None:
        for ending in RunStatus:
            runs = self.wait(self.engine.runs("q", ending, limit=1000)).items
            assert sorted(run.id for run in runs) == sorted(self.oracle.ended[ending])

    @invariant()
    def the_store_is_consistent(self) -> None:
        match self.engine:
            case SqliteEngine():
                assert check_tables(self.engine) == []
            case PostgresEngine():
                assert self.wait(check_relations(self.engine)) == []
            case RedisEngine():
                assert self.wait(check_keys(self.engine)) == []
            case _:
                raise AssertionError(f"nobody has said what contradicts itself in {self.engine!r}")


def _row(key: str, text: str) -> OracleRow:
    """A row as the store has it."""
    row = load_step(key, text)
    assert row is not None
    return OracleRow(row.kind, row.seq, row.reruns, row.attempt, row.until, row.text)


def check_tables(engine: SqliteEngine) -> list[str]:
    """What contradicts itself in the tables."""
    connection = engine._writer._open_connection()
    faults = []
    for name, place in (
        ("waiting", 0),
        ("suspects", 1),
        ("prioritized", 2),
        ("delayed", 3),
        ("completed", 5),
        ("failed", 6),
    ):
        (counted,) = connection.execute(f"SELECT {name} FROM queues").fetchone()
        (found,) = connection.execute("SELECT count(*) FROM line WHERE place = ?", (place,)).fetchone()
        if counted != found:
            faults.append(f"{name}: the queue says {counted}, the line has {found}")
    for what, sql in _CONTRADICTIONS.items():
        (found,) = connection.execute(sql).fetchone()
        if found:
            faults.append(f"{what}: {found}")
    return faults


_CONTRADICTIONS = {
    "active count": "SELECT (SELECT active FROM queues) - (SELECT count(*) FROM active)",
    "both in the line and active": "SELECT count(*) FROM line JOIN active USING (key)",
    "line without job": "SELECT count(*) FROM line l LEFT JOIN jobs j USING (key) WHERE j.key IS NULL",
    "active without job": "SELECT count(*) FROM active a LEFT JOIN jobs j USING (key) WHERE j.key IS NULL",
    "job in no place": """SELECT count(*) FROM jobs j WHERE NOT EXISTS (SELECT 1 FROM active a WHERE a.key = j.key)
        AND NOT EXISTS (SELECT 1 FROM line l WHERE l.place = j.place AND l.rank = j.rank AND l.key = j.key)""",
    "job in two places": "SELECT count(*) FROM (SELECT key FROM line GROUP BY key HAVING count(*) > 1) doubled",
    "id without job": "SELECT count(*) FROM ids i LEFT JOIN jobs j USING (key) WHERE j.key IS NULL",
    "chosen id not listed": """SELECT count(*) FROM jobs j WHERE j.id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM ids i WHERE i.id = j.id AND i.key = j.key)""",
    "logs without job": "SELECT count(*) FROM logs g LEFT JOIN jobs j USING (key) WHERE j.key IS NULL",
}


async def check_relations(engine: PostgresEngine) -> list[str]:
    """What contradicts itself in the tables of a schema."""

    def found(tx: Transaction) -> list[str]:
        counts = {
            what: tx.value(sql) for what, sql in (_CONTRADICTIONS | _OF_LEASES).items() if "FROM queues" not in sql
        }
        return [f"{what}: {count}" for what, count in counts.items() if count]

    return await engine._read_now(found)


_STANDING = "(SELECT * FROM toril.standing ORDER BY version DESC LIMIT 1)"
_OF_LEASES = {
    "more than one version": "SELECT count(*) - 1 FROM toril.standing",
    "a lease that counts wrong": """SELECT count(*) FROM toril.leases l WHERE l.open <> (
        SELECT count(*) FROM toril.jobs j
        WHERE j.queue = l.queue AND j.place = 0 AND j.rank BETWEEN l.low AND l.high)""",
    "leases that overlap": """SELECT count(*) FROM toril.leases a JOIN toril.leases b
        ON a.queue = b.queue AND (a.token, a.low) < (b.token, b.low) AND a.low <= b.high AND b.low <= a.high""",
    "a lease over jobs that wait": f"""SELECT count(*) FROM toril.leases l, {_STANDING} s
        WHERE l.high > s.head AND l.low > 0""",
    **{
        f"{name} count": f"SELECT s.{name} - (SELECT count(*) FROM toril.line WHERE place = {place}) FROM {_STANDING} s"
        for name, place in (("waiting", 0), ("suspects", 1), ("prioritized", 2), ("delayed", 3), ("completed", 5),
                            ("failed", 6))
    },
    "active count": f"SELECT s.active - (SELECT count(*) FROM toril.active) FROM {_STANDING} s",
}  # fmt: skip


async def check_keys(engine: RedisEngine) -> list[str]:
    """What contradicts itself in the keys."""
    ask, base = engine._runner.client.ask, engine._runner.base("q")
    places = {name: await ask("LRANGE", base + name, 0, -1) for name in ("wait", "active")}
    for name in ("prioritized", "delayed", "completed", "failed"):
        places[name] = await ask("ZRANGE", base + name, 0, -1)
    faults = []
    standing = [job for jobs in places.values() for job in jobs]
    if len(standing) != len(set(standing)):
        faults.append(f"a job in two places: {places}")
    keys = set(await keys_of(engine, base + "*"))
    jobs = {
        key.removeprefix(base) for key in keys if await ask("TYPE", key) == "hash" and await ask("HEXISTS", key, "name")
    }
    if jobs != set(standing):
        faults.append(f"jobs without a place, or places without a job: {jobs ^ set(standing)}")
    running = set(places["active"])
    if running != set(await ask("ZRANGE", base + "toril:deadlines", 0, -1)):
        faults.append("running jobs and deadlines differ")
    if running != {key.split(":")[2] for key in keys if key.endswith(":lock")}:
        faults.append("running jobs and locks differ")
    if not set(await ask("ZRANGE", base + "toril:suspects", 0, -1)) <= set(places["wait"]):
        faults.append("a suspect that does not wait")
    return faults


class RedisMachine(EngineMachine):
    def made(self) -> Store:
        return redis_of(next((kind for kind in ASKED_FOR if kind in {*REDIS, *GUARDED}), "redis"), self.clock)


class PostgresMachine(EngineMachine):
    kind = POSTGRES[0]

    def made(self) -> Store:
        return postgres_of(self.kind, self.clock)


class GeneralPostgresMachine(PostgresMachine):
    kind = POSTGRES[1]


class MemoryMachine(EngineMachine):
    pass


class SqliteMachine(EngineMachine):
    url = "sqlite:///{folder}/jobs.db?synchronous=normal"


_SETTINGS = settings(
    max_examples=int(os.environ.get("TORIL_MACHINE_EXAMPLES", "15" if os.environ.get("TORIL_QUICK") else "50")),
    stateful_step_count=50,
    deadline=None,
    derandomize="TORIL_MACHINE_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.covers("R163", "I1", "I10")
class TestMemory(MemoryMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = _SETTINGS


@pytest.mark.covers("R163", "I1", "I10")
class TestSqlite(SqliteMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = _SETTINGS


@pytest.mark.covers("R163", "I1", "I10")
class TestRedis(RedisMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(_SETTINGS, max_examples=max(5, _SETTINGS.max_examples // 6))


@pytest.mark.covers("R163", "I1", "I10")
class TestPostgres(PostgresMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(_SETTINGS, max_examples=max(5, _SETTINGS.max_examples // 6))


@pytest.mark.covers("R163", "I1", "I10")
class TestGeneralPostgres(GeneralPostgresMachine.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(_SETTINGS, max_examples=max(5, _SETTINGS.max_examples // 6))
