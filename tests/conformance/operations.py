"""Every operation of the seam, each as one call on a furnished store: for tests that go through all of them."""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, get_type_hints

from tests.conformance.jobs import LEASE, claim, settle
from tests.conformance.plants import PLANTS
from tests.declared import declared
from toril.model import (
    KEEP_ALL,
    AuditEntry,
    Call,
    Checkpoint,
    CircuitSample,
    CircuitTerms,
    Claim,
    Completed,
    Failed,
    Failure,
    Fault,
    FaultKind,
    FlowNode,
    Heartbeat,
    JobOptions,
    JobRef,
    Keep,
    Lease,
    LogLine,
    NewJob,
    NewSignal,
    Pause,
    Progress,
    Released,
    Replay,
    Report,
    Rest,
    Rested,
    Schedule,
    SetConcurrency,
    SetData,
    SetGroup,
    Settlement,
    SignalWait,
    StepKind,
    StepReport,
    TransferBatch,
    TransferPart,
    WorkerCommand,
)
from toril.model.states import State
from toril.store.engine import Store
from toril.testing import ManualClock

__all__ = ["OPERATIONS", "READS", "SEAM", "TWICE", "VARIANTS", "Room", "broken", "furnished"]

TERMS: Final = CircuitTerms(failures=5, window=300_000, pause=60_000, probes=2)
NEXT: Final = 10_000


def _methods(protocol: type, prefix: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in inspect.getmembers(protocol):
        if isinstance(member, property):
            yield from _methods(get_type_hints(member.fget)["return"], f"{name}.")
        elif inspect.isfunction(member) and name[0] != "_":
            yield prefix + name, member


SEAM: Final = dict(_methods(Store))  # as "page", and as "dead_letters.page"


@dataclass(frozen=True, slots=True)
class Room:
    """A store with a job in every state, a flow, a group, a letter, a circuit, a schedule, a worker, jobs with steps
    and signals, and a load that is on its way to another store."""

    store: Store
    held: Lease
    parent: Lease
    stepping: Lease
    slot: int
    faults: tuple[Fault, ...] = ()


async def furnished(store: Store, *, elects: bool = True) -> Room:
    """`elects`: a store of several processes, which has leaders."""
    await store.add(
        "q",
        [
            NewJob(name="done", options=JobOptions(keep_completed=KEEP_ALL)),
            NewJob(name="bad", options=JobOptions(keep_failed=KEEP_ALL)),
        ],
    )
    await store.add("q", [NewJob(name="dead"), NewJob(name="held")])
    done, bad, dead, held = (await claim(store, 4)).jobs
    await settle(store, done.lease)
    await settle(store, bad.lease, Failed(Failure("no")))
    await store.report("q", [LogLine(dead.lease, "a line")])
    await settle(store, dead.lease, Failed(Failure("no")))
    await store.add("q", [NewJob(name="w"), NewJob(name="d", delay=60_000), NewJob(name="g", group="tenant")])
    await store.add("flows", [NewJob(name="parent")])
    (parent,) = (await claim(store, 1, queue="flows")).jobs
    await store.circuits.record("host", TERMS, "someone", CircuitSample.BAD)
    await store.heartbeat(Heartbeat(worker="alive", queues=("q",), slots=4, running=0), ttl=LEASE)
    now = (await store.schedules.get("q", "none")).now
    await store.schedules.put("q", _schedule("tick"), now + NEXT, expects=None)
    await store.schedules.put("q", _schedule("asleep"), now + NEXT, expects=None)
    await store.schedules.pause("q", "asleep")
    await store.add("away", [NewJob(name="leaves"), NewJob(name="too", group="tenant")])
    await store.transfers.export_batch(TransferPart.JOBS, "away", to="there", mark="first")
    if elects:
        await store.lead("reaper", "boss", ttl=LEASE)
    return Room(store, held.lease, parent.lease, await _stepping(store), now + NEXT)


async def _stepping(store: Store) -> Lease:
    """In a queue of their own: a job that runs, with steps and a signal; one that rests for a signal; one that was
    released."""
    await store.add("steps", [NewJob(name=name) for name in ("runs", "rests", "back")])
    runs, rests, back = (await claim(store, 3, queue="steps")).jobs
    for each in (runs, back):
        reports = [StepReport(each.lease, key, StepKind.DONE, "1") for key in ("a", "b")]
        await store.steps.record("steps", reports)
    await store.steps.deliver("steps", [NewSignal(name="ok", job_id=runs.lease.id, id="x")])
    await store.steps.deliver("steps", [NewSignal(name="ok", key="kept")])
    signals = (SignalWait("ok"), SignalWait("ok", "mine"))
    wait = Rest(key="w", kind=StepKind.WAIT, text='[["ok",null],["ok","mine"]]', signals=signals)
    await settle(store, rests.lease, Rested(rests=(wait,)))
    await settle(store, back.lease, Released())
    return runs.lease


async def broken(room: Room, clock: ManualClock) -> Room:
    """The same with something to mend in it."""
    how = next(how for kind, fault, how in PLANTS if kind is type(room.store) and fault is FaultKind.DEDUP)
    await PLANTS[type(room.store), FaultKind.DEDUP, how](room.store, clock)
    found = [fault async for look in room.store.repairs.scan(["q"]) for fault in look if fault.kind is FaultKind.DEDUP]
    return replace(room, faults=tuple(found))


def _schedule(name: str) -> Schedule:
    return Schedule(id=name, job=NewJob(name="n"), every=NEXT)


def _flow() -> list[FlowNode]:
    parent = FlowNode(queue="flows", job=NewJob(name="top", id="top"), waits=True)
    return [parent, FlowNode(queue="q", job=NewJob(name="child", id="child"), parent=parent.ref)]


def _exchange(room: Room, call: Call) -> Awaitable[Any]:
    claimed = Claim(want=2, token="next", lease=LEASE, worker="w")
    return room.store.exchange("q", [Settlement(room.held, Completed('"x"'))], claimed, call=call)


def _record(room: Room, call: Call) -> Awaitable[Any]:
    tries = StepReport(room.stepping, "t", StepKind.RETRY, '[1,"K","why"]', delay=NEXT)
    return room.store.steps.record("steps", [StepReport(room.stepping, "c", StepKind.DONE, "1"), tries], call=call)


def _receive(room: Room, call: Call) -> Awaitable[Any]:
    signals = [SignalWait("ok"), SignalWait("ok", "other")]
    return room.store.steps.receive(room.stepping, "w", signals, call=call)


def _deliver(room: Room, call: Call) -> Awaitable[Any]:
    """To a job that rests for it, to one by its key, to one that runs, and to nobody yet."""
    signals = [
        NewSignal(name="ok", job_id="2"), NewSignal(name="ok", key="mine"), NewSignal(name="ok", job_id="1", id="y"),
        NewSignal(name="ok", key="nobody"),
    ]  # fmt: skip
    return room.store.steps.deliver("steps", signals, call=call)


def _rest(room: Room, call: Call) -> Awaitable[Any]:
    """An exchange in which a job rests: for a time, a signal by a key, and a job that it calls."""
    parent = JobRef("steps", room.stepping.id)
    child = FlowNode(queue="flows", job=NewJob(name="called", id="called"), parent=parent)
    signal = SignalWait("ok", "another")
    rests = (
        Rest(key="s", kind=StepKind.SLEEP, delay=NEXT),
        Rest(key="w", kind=StepKind.WAIT, text='[["ok","another"]]', signals=(signal,)),
        Rest(key="c", kind=StepKind.CALLED, text='[["flows","called"]]'),
    )
    nothing = Claim(want=0, token="next", lease=LEASE, worker="w")
    settled = [Settlement(room.stepping, Rested((child,), 1, rests))]
    return room.store.exchange("steps", settled, nothing, call=call)


def _report(room: Room, call: Call) -> Awaitable[Any]:
    reports: list[Report] = [Progress(room.held, "1"), LogLine(room.held, "line"), Checkpoint(room.held, "2")]
    return room.store.report("q", reports, call=call)


def _add_children(room: Room, call: Call) -> Awaitable[Any]:
    parent = JobRef(room.parent.queue, room.parent.id)
    child = FlowNode(queue="q", job=NewJob(name="late", id="late"), parent=parent)
    return room.store.flows.add_children(room.parent, [child], call=call)


async def _export_batch(room: Room, _: Call) -> TransferBatch | None:
    """The load that is on its way has arrived; the next."""
    await room.store.transfers.confirm_export(TransferBatch(1, "first", "there", ()))
    return await room.store.transfers.export_batch(TransferPart.JOBS, "q", to="there", mark="second")


async def _import_batch(room: Room, _: Call) -> None:
    """What has left comes back, as if from another store."""
    load = await room.store.transfers.export_batch(TransferPart.JOBS, "away", to="there", mark="any")
    assert load is not None
    await room.store.transfers.import_batch(load, sender="there")


Operation = Callable[[Room, Call], Awaitable[Any]]
_BEAT: Final = Heartbeat(worker="w9", queues=("q",), slots=4, running=0, declares={"q": declared("n")})
_ENTRY: Final = AuditEntry(who="ada", address="::1", action="pause queue", target="q", detail="{}", ended="done")

# Each writes. A number is passed where the operation takes one.
OPERATIONS: Final[dict[str, Operation]] = {
    "add": lambda room, call: room.store.add("q", [NewJob(name="a"), NewJob(name="b", id="chosen")], call=call),
    "exchange": _exchange,
    "renew": lambda room, _: room.store.renew([room.held], ttl=LEASE * 2),
    "report": _report,
    "steps.record": _record,
    "steps.receive": _receive,
    "steps.deliver": _deliver,
    "steps.rewind": lambda room, call: room.store.steps.rewind("steps", "3", "b", call=call),
    "recover": lambda room, _: room.store.recover("q", dead=[room.held], cause="killed"),
    "prune": lambda room, _: room.store.prune("q"),
    "heartbeat": lambda room, _: room.store.heartbeat(_BEAT, ttl=LEASE),
    "lead": lambda room, _: room.store.lead("other", "w9", ttl=LEASE),
    "resign": lambda room, _: room.store.resign("reaper", "boss"),
    "signal": lambda room, _: room.store.signal("alive", WorkerCommand.QUIET),
    "once": lambda room, _: room.store.once("daily", "w9", ttl=LEASE),
    "retry": lambda room, call: room.store.retry("q", ["1", "2", "none"], call=call),
    "promote": lambda room, call: room.store.promote("q", ["6"], call=call),
    "cancel": lambda room, call: room.store.cancel("q", ["4", "5"], reason="enough", call=call),
    "remove": lambda room, call: room.store.remove("q", ["1", "5"], call=call),
    "update": lambda room, call: room.store.update("q", [SetData("5", '"new"')], call=call),
    "drain": lambda room, call: room.store.drain("q", states=frozenset({State.WAITING, State.DELAYED}), call=call),
    "clean": lambda room, call: room.store.clean("q", state=State.COMPLETED, grace=0, call=call),
    "obliterate": lambda room, call: room.store.obliterate("q", running="remove", call=call),
    "configure": lambda room, call: room.store.configure("q", [Pause(), SetConcurrency(3)], call=call),
    "dead_letters.replay": lambda room, call: room.store.dead_letters.replay("q", [Replay("q/3")], call=call),
    "dead_letters.discard": lambda room, call: room.store.dead_letters.discard(["q/3"], call=call),
    "dead_letters.keep": lambda room, _: room.store.dead_letters.keep(Keep(5)),
    "circuits.admit": lambda room, _: room.store.circuits.admit("host", TERMS, "w9", lease=LEASE),
    "circuits.record": lambda room, _: room.store.circuits.record("host", TERMS, "w9", CircuitSample.GOOD),
    "circuits.trip": lambda room, _: room.store.circuits.trip("host", pause=LEASE),
    "circuits.reset": lambda room, _: room.store.circuits.reset("host"),
    "audit.append": lambda room, _: room.store.audit.append(_ENTRY),
    "repairs.repair": lambda room, _: room.store.repairs.repair(room.faults, mode="repair"),
    "flows.add": lambda room, call: room.store.flows.add(_flow(), call=call),
    "flows.add_children": _add_children,
    "groups.set": lambda room, call: room.store.groups.set("q", SetGroup(name="tenant", paused=True), call=call),
    "transfers.store_id": lambda room, _: room.store.transfers.store_id(),
    "transfers.export_batch": _export_batch,
    "transfers.import_batch": _import_batch,
    "transfers.confirm_export": lambda room, _: room.store.transfers.confirm_export(
        TransferBatch(1, "first", "there", ())
    ),
    "schedules.put": lambda room, _: room.store.schedules.put("q", _schedule("new"), room.slot, expects=None),
    "schedules.advance": lambda room, _: room.store.schedules.advance(
        "q", "tick", since=room.slot, to=room.slot + NEXT
    ),
    "schedules.pause": lambda room, _: room.store.schedules.pause("q", "tick"),
    "schedules.resume": lambda room, _: room.store.schedules.resume("q", "asleep", since=room.slot, to=room.slot + 1),
    "schedules.remove": lambda room, _: room.store.schedules.remove("q", "tick"),
    "schedules.sync": lambda room, _: room.store.schedules.sync("q", "jobs", []),
}  # fmt: skip

# Other uses of these operations, with a body of their own.
VARIANTS: Final[dict[str, Operation]] = {"exchange": _rest}

# What only looks, waits or opens has no point at which it could be cut in two.
READS: Final = frozenset({
    "open", "close", "twin", "health", "wait", "finished", "queues", "queue", "counts", "jobs", "page", "logs",
    "errors", "events", "workers", "declarations", "runs", "explain", "usage", "dead_letters.page", "dead_letters.get",
    "dead_letters.count", "circuits.list", "audit.page", "repairs.facts", "repairs.scan", "transfers.destination",
    "flows.child_counts", "flows.children", "flows.child_names", "groups.get", "groups.page", "metrics.snapshot",
    "metrics.minutes", "steps.page", "steps.resting", "steps.inbox", "schedules.get", "schedules.page",
    "schedules.overdue",
})  # fmt: skip

# A second sending of these counts again: an entry, a sign, a call to wake up. Nothing hangs on their number.
TWICE: Final = frozenset({"audit.append", "circuits.record", "signal"})
