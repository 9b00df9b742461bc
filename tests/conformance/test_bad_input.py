"""Bad input is refused by every engine with the same error, and the store is left as it was."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import pytest

from tests.conformance.dumps import dump, unchanged
from tests.conformance.jobs import add, claim_one, job, settle
from tests.conformance.operations import SEAM
from toril.errors import InvalidName, InvalidOption, TorilError
from toril.model import (
    KEEP_ALL,
    AddOutcome,
    Call,
    Claim,
    Completed,
    Failed,
    Failure,
    Heartbeat,
    JobOptions,
    JobRef,
    Lease,
    Limits,
    LogLine,
    MetricsWindow,
    NewJob,
    NewSignal,
    Pause,
    Progress,
    RunStatus,
    Schedule,
    SetData,
    SetGroup,
    Settlement,
    StepKind,
    StepReport,
    TransferPart,
    Verdict,
    WorkerCommand,
)
from toril.model.states import State
from toril.store.engine import Store

Method = Callable[[Store, Any], Awaitable[object]]

NOTHING = Claim(want=0, token="nothing", lease=1000, worker="w")
BEAT = Heartbeat(worker="w", queues=["q"], slots=1, running=0)
SCHEDULE = Schedule(id="s", job=NewJob(name="n"), every=60_000)
STRANGER = Lease("q", "active_", "stranger")


async def all_refuse(
    store: Store, methods: dict[str, Method], values: Iterable[object], error: type[TorilError], match: str
) -> None:
    """Each method refuses each value with this error, and leaves the store as it was."""
    for name, method in methods.items():
        async with unchanged(store):
            for value in values:
                try:
                    with pytest.raises(error, match=match):
                        await method(store, value)
                except BaseException as failure:
                    failure.add_note(f"{name} with {value!r:.50}")
                    raise


@pytest.fixture
async def store(engine: Store) -> Store:
    """A store with a job in every state, the id saying which."""
    for name in ("completed_", "failed_", "active_"):
        await add(engine, NewJob(name="n", id=name, options=JobOptions(keep_completed=KEEP_ALL, keep_failed=KEEP_ALL)))
    await settle(engine, (await claim_one(engine)).lease, Completed("1"))
    await settle(engine, (await claim_one(engine)).lease, Failed(Failure("why")))
    held = (await claim_one(engine)).lease
    await engine.report("q", [LogLine(held, f"line {n}") for n in range(3)])
    await add(engine, *(NewJob(name="n", id=f"waiting_{n}") for n in range(3)))
    await add(engine, NewJob(name="n", id="prioritized_", priority=5), NewJob(name="n", id="delayed_", delay=1000))
    await engine.heartbeat(BEAT, ttl=60_000)
    return engine


BY_QUEUE: dict[str, Method] = {
    "add": lambda engine, queue: engine.add(queue, [NewJob(name="n")]),
    "exchange": lambda engine, queue: engine.exchange(queue, [], NOTHING),
    "wait": lambda engine, queue: engine.wait([queue], timeout=0),
    "report": lambda engine, queue: engine.report(queue, [Progress(STRANGER, "1")]),
    "finished": lambda engine, queue: engine.finished(queue, ["1"], timeout=0),
    "recover": lambda engine, queue: engine.recover(queue),
    "prune": lambda engine, queue: engine.prune(queue),
    "retry": lambda engine, queue: engine.retry(queue, ["1"]),
    "promote": lambda engine, queue: engine.promote(queue, ["1"]),
    "cancel": lambda engine, queue: engine.cancel(queue, ["1"], reason="why"),
    "remove": lambda engine, queue: engine.remove(queue, ["1"]),
    "update": lambda engine, queue: engine.update(queue, [SetData("1", "{}")]),
    "drain": lambda engine, queue: engine.drain(queue, states=frozenset({State.WAITING})),
    "clean": lambda engine, queue: engine.clean(queue, state=State.FAILED, grace=0),
    "obliterate": lambda engine, queue: engine.obliterate(queue),
    "configure": lambda engine, queue: engine.configure(queue, [Pause()]),
    "queue": lambda engine, queue: engine.queue(queue),
    "counts": lambda engine, queue: engine.counts(queue),
    "jobs": lambda engine, queue: engine.jobs(queue, ["1"]),
    "page": lambda engine, queue: engine.page(queue, State.WAITING),
    "logs": lambda engine, queue: engine.logs(queue, "1"),
    "events": lambda engine, queue: engine.events(queue),
    "runs": lambda engine, queue: engine.runs(queue, RunStatus.FAILED),
    "usage": lambda engine, queue: engine.usage(queue),
    "errors": lambda engine, queue: engine.errors(queue, "1"),
    "declarations": lambda engine, queue: engine.declarations(queue),
    "explain": lambda engine, queue: engine.explain(queue, "1", Limits()),
    "metrics.minutes": lambda engine, queue: engine.metrics.minutes(queue, minutes=1),
    "metrics.snapshot": lambda engine, queue: engine.metrics.snapshot([queue], MetricsWindow(1, 1, 1)),
    "dead_letters.replay": lambda engine, queue: engine.dead_letters.replay(queue, []),
    "flows.child_counts": lambda engine, queue: engine.flows.child_counts(JobRef(queue, "1")),
    "flows.child_names": lambda engine, queue: engine.flows.child_names(JobRef(queue, "1")),
    "flows.children": lambda engine, queue: engine.flows.children(JobRef(queue, "1")),
    "groups.get": lambda engine, queue: engine.groups.get(queue, "g"),
    "groups.page": lambda engine, queue: engine.groups.page(queue),
    "groups.set": lambda engine, queue: engine.groups.set(queue, SetGroup(name="g", paused=True)),
    "schedules.advance": lambda engine, queue: engine.schedules.advance(queue, "s", since=1, to=2),
    "schedules.get": lambda engine, queue: engine.schedules.get(queue, "s"),
    "schedules.overdue": lambda engine, queue: engine.schedules.overdue(queue),
    "schedules.page": lambda engine, queue: engine.schedules.page(queue),
    "schedules.pause": lambda engine, queue: engine.schedules.pause(queue, "s"),
    "schedules.put": lambda engine, queue: engine.schedules.put(queue, SCHEDULE, 1, expects=None),
    "schedules.remove": lambda engine, queue: engine.schedules.remove(queue, "s"),
    "schedules.resume": lambda engine, queue: engine.schedules.resume(queue, "s", since=1, to=2),
    "schedules.sync": lambda engine, queue: engine.schedules.sync(queue, "app", []),
    "steps.record": lambda engine, queue: engine.steps.record(queue, [StepReport(STRANGER, "a", StepKind.DONE)]),
    "steps.deliver": lambda engine, queue: engine.steps.deliver(queue, [NewSignal(name="ok", key="k")]),
    "steps.rewind": lambda engine, queue: engine.steps.rewind(queue, "1", None),
    "steps.page": lambda engine, queue: engine.steps.page(queue, "1"),
    "steps.resting": lambda engine, queue: engine.steps.resting(queue),
    "steps.inbox": lambda engine, queue: engine.steps.inbox(queue, "1"),
    "transfers.destination": lambda engine, queue: engine.transfers.destination(queue),
    "transfers.export_batch": lambda engine, queue: engine.transfers.export_batch(
        TransferPart.JOBS, queue, to="there", mark="m"
    ),
}


def test_each_method_that_takes_a_queue_is_tried_with_a_wrong_one() -> None:
    takes_one = {name for name, method in SEAM.items() if {"queue", "queues", "job"} & method.__annotations__.keys()}

    assert takes_one - BY_QUEUE.keys() == {"workers", "repairs.scan"}  # of queues that are not there they know nothing


@pytest.mark.covers("B01", "B02", "B03", "B04", "B05", "B06", "B07")
async def test_a_queue_that_cannot_be_named_so_is_refused(store: Store) -> None:
    names = ("", " ", None, b"q", 5, "a:b", "a{b}", "a*", "a\nb", "a\u202eb", "../a", "x" * 129, "\ud800")
    await all_refuse(store, BY_QUEUE, names, InvalidName, "a queue name must ")


async def test_two_spellings_of_a_name_are_one_queue(engine: Store) -> None:
    composed, apart = "b\u00fccher", "bu\u0308cher"
    await engine.add(apart, [NewJob(name="n", delay=1000)])
    await engine.add(composed, [NewJob(name="n", delay=1000)])

    assert await engine.queues() == [composed]
    assert (await engine.counts(apart)).delayed == (await engine.counts(composed)).delayed == 2
    assert (await engine.promote(apart, ["1"])).done == ("1",)


BY_NUMBER: dict[str, Method] = {
    "extend ttl": lambda engine, n: engine.renew([STRANGER], ttl=n),
    "recover limit": lambda engine, n: engine.recover("q", limit=n),
    "prune limit": lambda engine, n: engine.prune("q", limit=n),
    "beat ttl": lambda engine, n: engine.heartbeat(BEAT, ttl=n),
    "once ttl": lambda engine, n: engine.once("key", "w1", ttl=n),
    "lead ttl": lambda engine, n: engine.lead("role", "owner", ttl=n),
    "drain limit": lambda engine, n: engine.drain("q", states=frozenset({State.WAITING}), limit=n),
    "clean limit": lambda engine, n: engine.clean("q", state=State.COMPLETED, grace=0, limit=n),
    "obliterate limit": lambda engine, n: engine.obliterate("q", running="remove", limit=n),
    "page limit": lambda engine, n: engine.page("q", State.WAITING, limit=n),
    "logs limit": lambda engine, n: engine.logs("q", "active_", limit=n),
    "events limit": lambda engine, n: engine.events("q", limit=n),
    "runs limit": lambda engine, n: engine.runs("q", RunStatus.FAILED, limit=n),
    "metrics minutes": lambda engine, n: engine.metrics.minutes("q", minutes=n),
    "audit limit": lambda engine, n: engine.audit.page(limit=n),
    "circuit pause": lambda engine, n: engine.circuits.trip("key", pause=n),
    "dead letters limit": lambda engine, n: engine.dead_letters.page(limit=n),
    "children limit": lambda engine, n: engine.flows.children(JobRef("q", "1"), limit=n),
    "steps limit": lambda engine, n: engine.steps.page("q", "1", limit=n),
    "resting limit": lambda engine, n: engine.steps.resting("q", limit=n),
    "groups limit": lambda engine, n: engine.groups.page("q", limit=n),
    "schedules limit": lambda engine, n: engine.schedules.page("q", limit=n),
    "overdue limit": lambda engine, n: engine.schedules.overdue("q", limit=n),
    "export limit": lambda engine, n: engine.transfers.export_batch(TransferPart.JOBS, "q", to="x", mark="m", limit=n),
    "figures minutes": lambda engine, n: engine.metrics.snapshot(["q"], MetricsWindow(n, 1, 1)),
    "figures slices": lambda engine, n: engine.metrics.snapshot(["q"], MetricsWindow(1, 1, n)),
}


@pytest.mark.covers("B69", "B70")
async def test_a_length_or_a_limit_is_a_whole_number_from_1(store: Store) -> None:
    numbers = (0, -1, 1.5, float("nan"), float("inf"), True, "5", 10**30)
    methods = {name: call for name, call in BY_NUMBER.items() if name not in {"lead ttl", "beat ttl"}}
    await all_refuse(store, methods, numbers, InvalidOption, r"must be a whole number from 1 to \d+, not ")


async def test_a_term_of_leadership_is_a_whole_number_from_1(shared_engine: Store) -> None:
    numbers = (0, -1, 1.5, float("nan"), True, "5", 10**30)
    lead = {"lead ttl": BY_NUMBER["lead ttl"]}
    await all_refuse(shared_engine, lead, numbers, InvalidOption, r"must be a whole number from 1 to \d+, not ")


@pytest.mark.covers("B70")
async def test_a_grace_or_the_time_to_the_next_heartbeat_is_a_whole_number_from_0(store: Store) -> None:
    numbers = (-1, 1.5, float("nan"), True, "5", None, 10**30)
    methods: dict[str, Method] = {
        "clean": lambda engine, n: engine.clean("q", state=State.COMPLETED, grace=n),
        "beat ttl": BY_NUMBER["beat ttl"],
    }
    await all_refuse(store, methods, numbers, InvalidOption, "must be a whole number from 0 to ")


BY_CURSOR: dict[str, Method] = {
    "page": lambda engine, cursor: engine.page("q", State.WAITING, cursor=cursor),
    "page active": lambda engine, cursor: engine.page("q", State.ACTIVE, cursor=cursor),
    "logs": lambda engine, cursor: engine.logs("q", "active_", cursor=cursor),
    "runs": lambda engine, cursor: engine.runs("q", RunStatus.FAILED, cursor=cursor),
    "events": lambda engine, cursor: engine.events("q", after=cursor),
    "steps": lambda engine, cursor: engine.steps.page("q", "active_", cursor=cursor),
}


@pytest.mark.covers("B69", "B75")
async def test_a_cursor_that_was_never_given_out_is_refused(store: Store) -> None:
    odd = ("", "abc", "0-0", "$", "1.2", "1.2.3.4.5", "1\n", " 1", "1e3", "0x1", "\ud800", "9" * 10_000)
    like_numbers = ("--5", "0.--5.1.1", "9" * 19, f"0.{'9' * 19}.1.1", "9" * 20, "٣", 5)
    await all_refuse(store, BY_CURSOR, (*odd, *like_numbers), InvalidOption, "unknown cursor|is not from a page")


@pytest.mark.covers("B69")
async def test_a_state_that_does_not_exist_is_refused(store: Store) -> None:
    for queue in ("q", "never"):
        with pytest.raises(InvalidOption, match=r"'gone' must be one of "):
            await store.page(queue, "gone")  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="'gone' must be one of completed, failed, cancelled"):
            await store.runs(queue, "gone")  # type: ignore[arg-type]


async def test_a_state_may_be_given_by_its_name(store: Store) -> None:
    for state in State:
        assert await store.page("q", state.value) == await store.page("q", state)  # type: ignore[arg-type]


async def test_a_cursor_belongs_to_its_state(store: Store) -> None:
    cursor = (await store.page("q", State.WAITING, limit=1)).cursor

    assert cursor is not None
    for state in set(State) - {State.WAITING}:
        with pytest.raises(InvalidOption, match=r"cursor .* is not from a page|unknown cursor "):
            await store.page("q", state, cursor=cursor)


BY_BATCH: dict[str, tuple[int, Method]] = {
    "add": (1000, lambda engine, n: engine.add("q", [NewJob(name="n")] * n)),
    "exchange": (100, lambda engine, n: engine.exchange("q", [Settlement(STRANGER, Completed())] * n, NOTHING)),
    "retry": (1000, lambda engine, n: engine.retry("q", ["failed_"] * n)),
    "promote": (1000, lambda engine, n: engine.promote("q", ["delayed_"] * n)),
    "cancel": (1000, lambda engine, n: engine.cancel("q", ["waiting_0"] * n, reason="why")),
    "remove": (1000, lambda engine, n: engine.remove("q", ["waiting_0"] * n)),
    "update": (1000, lambda engine, n: engine.update("q", [SetData("waiting_0", "[]")] * n)),
    "renew": (1000, lambda engine, n: engine.renew([STRANGER] * n, ttl=1000)),
    "report": (1000, lambda engine, n: engine.report("q", [Progress(STRANGER, "1")] * n)),
    "recover": (1000, lambda engine, n: engine.recover("q", dead=[STRANGER] * n)),
    "jobs": (1000, lambda engine, n: engine.jobs("q", ["1"] * n)),
    "finished": (1000, lambda engine, n: engine.finished("q", ["1"] * n, timeout=0)),
}


@pytest.mark.covers("B71")
async def test_a_batch_over_its_bound_is_refused_whole(store: Store) -> None:
    for name, (most, method) in BY_BATCH.items():
        await all_refuse(store, {name: method}, [most + 1], InvalidOption, f"at most {most} jobs, not {most + 1}")


async def test_a_refused_call_is_not_remembered_as_answered(store: Store) -> None:
    call = Call("sender", 1)
    async with unchanged(store):
        with pytest.raises(InvalidOption):
            await store.drain("q", states=frozenset({State.WAITING}), limit=0, call=call)

    assert len((await store.drain("q", states=frozenset({State.WAITING}), call=call)).ids) == 3


@pytest.mark.covers("B69", "B70")
async def test_drain_removes_only_what_has_not_started(store: Store) -> None:
    async with unchanged(store):
        for state in sorted(set(State) - {State.WAITING, State.PRIORITIZED, State.DELAYED}):
            with pytest.raises(InvalidOption, match=f"drain removes delayed, prioritized, waiting jobs, not {state}"):
                await store.drain("q", states=frozenset({State.WAITING, state}))


@pytest.mark.covers("B69", "B70")
async def test_clean_removes_neither_running_jobs_nor_unknown_ones(store: Store) -> None:
    states: list[Any] = [State.ACTIVE, State.WAITING_CHILDREN, "gone"]
    async with unchanged(store):
        for state in states:
            with pytest.raises(InvalidOption, match=f"clean removes .* jobs, not {state} jobs"):
                await store.clean("q", state=state, grace=0)


async def test_a_misspelt_refusal_does_not_remove_running_jobs(store: Store) -> None:
    async with unchanged(store):
        with pytest.raises(InvalidOption, match="running must be 'refuse' or 'remove', not 'refused'"):
            await store.obliterate("q", running="refused")  # type: ignore[arg-type]


@pytest.mark.covers("B68")
async def test_a_token_that_holds_no_lease_changes_nothing(store: Store) -> None:
    for token in ("", "0", "stranger", "x" * 10_000):
        lease = Lease("q", "active_", token)

        async with unchanged(store):
            assert (await store.exchange("q", [Settlement(lease, Completed())], NOTHING)).verdicts == (Verdict.LOST,)
            assert await store.report("q", [Progress(lease, "1"), LogLine(lease, "x")]) == [Verdict.LOST] * 2
            assert (await store.renew([lease], ttl=1000)).lost == (lease,)
            assert (await store.recover("q", dead=[lease])).returned == ()


@pytest.mark.covers("B65")
async def test_an_id_that_nobody_has_is_answered_not_refused(store: Store) -> None:
    for job_id in ("unknown", "", "x" * 1_000_000, "0", "-1", "9" * 40, "\x00"):
        async with unchanged(store):
            assert await store.jobs("q", [job_id]) == [None], ascii(job_id[:8])
            assert [refused.state for refused in (await store.remove("q", [job_id])).refused] == [None]
            assert (await store.logs("q", job_id)).items == ()


@pytest.mark.covers("B22")
async def test_a_summary_that_no_store_can_keep_does_not_hold_up_the_job(engine: Store) -> None:
    await add(engine, NewJob(name="n"))
    verdict = await settle(engine, (await claim_one(engine)).lease, Completed("1", summary="a\ud800b"))

    assert verdict is Verdict.OK
    assert [run.text for run in (await engine.runs("q", RunStatus.COMPLETED)).items] == ["a?b"]


async def test_a_reason_to_cancel_is_made_fit_for_the_store(store: Store) -> None:
    assert (await store.cancel("q", ["active_"], reason="a\ud800b")).asked == ("active_",)
    assert (await job(store, "active_")).cancelling == "a?b"


BY_TEXT: dict[str, Method] = {
    "once": lambda engine, text: engine.once(text, "w1", ttl=1000),
    "once owner": lambda engine, text: engine.once("key", text, ttl=1000),
    "signal": lambda engine, text: engine.signal(text, WorkerCommand.STOP),
    "call": lambda engine, text: engine.add("q", [NewJob(name="n")], call=Call(text, 1)),
}


BY_LEADER: dict[str, Method] = {
    "lead": lambda engine, text: engine.lead(text, "owner", ttl=1000),
    "lead owner": lambda engine, text: engine.lead("role", text, ttl=1000),
    "resign": lambda engine, text: engine.resign(text, "owner"),
    "resign owner": lambda engine, text: engine.resign("role", text),
}

NO_NAMES: Final = ("", "a\nb", "\ud800", None, "x" * 1_000_000)


async def test_other_names_have_the_rules_of_a_queues(store: Store) -> None:
    await all_refuse(store, BY_TEXT, NO_NAMES, InvalidName, "must ")


async def test_roles_and_leaders_have_the_rules_of_a_queues_name(shared_engine: Store) -> None:
    await all_refuse(shared_engine, BY_LEADER, NO_NAMES, InvalidName, "must ")


@pytest.mark.covers("B16", "B71")
async def test_a_taken_id_in_a_batch_leaves_its_owner_and_stores_the_rest(store: Store) -> None:
    before = await dump(store)
    first, taken, last = await add(store, NewJob(name="a"), NewJob(name="b", id="failed_", data="2"), NewJob(name="c"))

    assert [each.outcome for each in (first, taken, last)] == [
        AddOutcome.ADDED, AddOutcome.DUPLICATE, AddOutcome.ADDED,
    ]  # fmt: skip
    after = await dump(store)
    assert set(before["jobs"]) < set(after["jobs"])
    assert len(after["jobs"]) == len(before["jobs"]) + 2
    assert (taken.id, taken.state) == ("failed_", State.FAILED)
