"""The store as a process of a small world has it: every call goes over the wire, and its effect is noted."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from tests.sim.clock import EPOCH
from tests.sim.faults import Weather
from tests.sim.journal import Journal
from tests.sim.node import Node
from tests.sim.store import SimStore
from tests.sim.wire import Wire
from toril.model import AddOutcome, Call, Claimed, Moved
from toril.model.states import State
from toril.runtime.clock import Clock

__all__ = ["RemoteStore", "RemoteStorePart", "Watch"]

_RESTS: Final = frozenset({"wait", "finished", "health"})
_LOOK_EVERY: Final = 6  # effects between two looks into the store


class Watch:
    """What was seen of the store: which jobs were added under which keys, which was kept as the last, what ran."""

    def __init__(self, journal: Journal, store: SimStore, clock: Clock) -> None:
        self.journal = journal
        self.owners: defaultdict[str, set[str]] = defaultdict(set)
        self.last_kept: dict[str, str] = {}
        self.started: set[str] = set()
        self.given_up: set[str] = set()  # data of jobs that stalled more often than they may, be it before they ran
        self._handed_out: dict[str, str] = {}
        self.calm_at = 0
        self._store = store
        self._clock = clock
        self._effects = 0
        self._newest: dict[str, int] = {}
        self._slots: dict[str, int] = {}  # at which each schedule stands

    def now(self) -> int:
        return self._clock.now()

    def note(self, node: str, what: str, text: str) -> None:
        self.journal.note(f"{self.now() - EPOCH} {node} {what} {text}")

    def ran(self, nonce: str) -> None:
        self.started.add(nonce)

    def some_ids(self) -> list[str]:
        """Jobs that nobody counts on, though they may own a key."""
        return [identity for key in ("until-end", "throttle") for identity in sorted(self.owners[key])[-1:]]

    def refused(self, node: str, what: str, call: Call | None, error: Exception) -> None:
        """The store did not take a call. It may only refuse one that came too late."""
        self.note(node, what, "refused")
        if call is None or call.seq >= self._newest.get(call.sender, 0):
            self.journal.violated("error", f"{what} raised {error!r}")

    def saw(self, node: str, what: str, args: tuple[Any, ...], call: Call | None, answer: Any) -> None:
        shown = _in_order(what, answer)
        self.note(node, what, f"{args[1:] if what.startswith('schedules') else ''} {shown}")
        if what == "exchange":
            self._handed_out.update((job.lease.id, job.data) for job in answer.jobs)
        if what == "recover":
            self.given_up.update(self._handed_out.get(identity, "") for identity in (*answer.failed, *answer.cancelled))
        if what == "add" and (call is None or self._newest.get(call.sender) != call.seq):
            self._added(args[1], answer)
        if call is not None:
            self._newest[call.sender] = max(call.seq, self._newest.get(call.sender, 0))
        self._effects += 1
        if self._effects % _LOOK_EVERY == 0:
            self.look()

    def moved(self, schedule: str, since: int | None, to: int | None, answer: Moved) -> None:
        """A schedule was changed or went on, which only somebody may do who knows at which slot it stands. None is for
        one that is not there, or that does not go on."""
        if answer is not Moved.DONE:
            return
        stands = self._slots.get(schedule)
        if stands != since:
            self.journal.violated("T2", f"schedule {schedule} stands at {stands}, and went to {to} from {since}")
        if to is not None:
            self._slots[schedule] = to

    def removed(self, schedule: str) -> None:
        self._slots.pop(schedule, None)

    def _added(self, jobs: Any, answers: Any) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            if job.dedup is None:
                continue
            key = job.dedup.key
            if answer.outcome is not AddOutcome.DEDUPLICATED:
                self.owners[key].add(answer.id)
            elif job.dedup.mode == "keep_last" and answer.state is State.ACTIVE:
                self.last_kept[key] = job.data

    def look(self) -> None:
        for text in self._store.contradictions():
            self.journal.violated("I1", text)
        for text in self._store.stray_runs():
            self.journal.violated("T1", text)
        for text in self._store.stray_keys():
            self.journal.violated("T3", text)
        for key in ("until-end", "last"):
            unfinished = self._store.unfinished(self.owners[key])
            if len(unfinished) > 1:
                self.journal.violated("T4", f"jobs {sorted(unfinished)} have key {key} at once")


def _in_order(what: str, answer: Any) -> Any:
    """An answer in the same order on any server: Redis has the members of a set, and the fields of a hash, in any."""
    if what == "flows.children":
        return sorted(answer.items, key=str)
    if what != "exchange" or all(job.steps is None for job in answer.jobs):
        return answer
    return replace(answer, jobs=tuple(_with_rows_in_order(job) for job in answer.jobs))


def _with_rows_in_order(job: Claimed) -> Claimed:
    return (
        job if job.steps is None else replace(job, steps=replace(job.steps, rows=dict(sorted(job.steps.rows.items()))))
    )


class RemoteStore:
    """A store, as far as its user can tell."""

    def __init__(
        self, node: Node, store: SimStore, weather: Weather, watch: Watch,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:  # fmt: skip
        self.node = node
        self.watch = watch
        self._wire = Wire(node, store, weather, watch, spawn)  # type: ignore[arg-type]
        self.schedules, self.flows = RemoteStorePart(self, "schedules"), RemoteStorePart(self, "flows")
        self.circuits, self.groups = RemoteStorePart(self, "circuits"), RemoteStorePart(self, "groups")
        self.dead_letters, self.metrics = RemoteStorePart(self, "dead_letters"), RemoteStorePart(self, "metrics")
        self.steps = RemoteStorePart(self, "steps")

    def twin(self) -> "RemoteStore":
        return self

    def __getattr__(self, name: str) -> Any:
        return self.method(name, lambda store: getattr(store, name))

    def method(self, name: str, find: Callable[[Any], Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def send(*args: Any, **options: Any) -> Any:
            if name in _RESTS:
                return await self._wire.rest(name, lambda store: find(store)(*args, **options))
            call = options.get("call")
            return await self._wire.carry(
                name,
                lambda store: find(store)(*args, **options),
                lambda answer: self._saw(name, args, options, call, answer),
                call=call,
            )

        return send

    def _saw(self, name: str, args: tuple[Any, ...], options: dict[str, Any], call: Call | None, answer: Any) -> None:
        match name:
            case "schedules.put":
                self.watch.moved(args[1].id, options["expects"], args[2], answer)
            case "schedules.advance" | "schedules.resume":
                self.watch.moved(args[1], options["since"], options["to"], answer)
            case "schedules.remove":
                self.watch.removed(args[1])
            case "schedules.sync":
                for gone in answer:
                    self.watch.removed(gone)
            case _:
                pass
        self.watch.saw(self.node.name, name, args, call, answer)


class RemoteStorePart:
    """A part of the store, such as its schedules."""

    def __init__(self, store: RemoteStore, part: str) -> None:
        self.store = store
        self._part = part

    def __getattr__(self, name: str) -> Any:
        part = self._part
        return self.store.method(f"{part}.{name}", lambda store: getattr(getattr(store, part), name))
