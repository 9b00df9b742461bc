"""Flows on Redis."""

from collections.abc import Sequence
from typing import Any, Final

from toril.engines.redis.connection.client import Unconfirmed, uncertain
from toril.engines.redis.exchange import VERDICTS
from toril.engines.redis.records import dump_nodes, dump_refs, load_names, ref_of
from toril.engines.redis.runner import ScriptRunner
from toril.engines.shared import full, refused
from toril.errors import TorilError, unknown_cursor
from toril.model import (
    BUILDING,
    Added,
    AddOutcome,
    Call,
    Child,
    ChildCounts,
    ChildState,
    FlowNode,
    JobRef,
    Kept,
    Lease,
    Page,
    Verdict,
)
from toril.model.states import State
from toril.store.capabilities import FlowStore
from toril.store.checked import implements

__all__ = ["RedisFlows", "family_of"]

_FEW: Final = 10  # open children that are named
_STATES: Final = (ChildState.OPEN, ChildState.COMPLETED, ChildState.IGNORED, ChildState.FAILED)


@implements(FlowStore)
class RedisFlows:
    """Flows, in BullMQ's layout."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner

    async def add(
        self,
        nodes: Sequence[FlowNode],
        *,
        held: Sequence[JobRef] = (),
        hold_for: int = BUILDING,
        closed: Sequence[JobRef] = (),
        call: Call | None = None,
        now: int | None = None,
    ) -> list[Added]:
        queue = nodes[0].queue if nodes else closed[0].queue if closed else ""
        arguments = [dump_nodes(nodes), dump_refs(held), dump_refs(closed), hold_for]
        try:
            answer = _accepted(await self._runner.write("add_flow", queue, arguments, call, now))
        except Unconfirmed as error:
            ids = [identity for identity, *_ in _accepted(error.answer)]
            if not ids:  # the flow was only closed
                raise
            raise uncertain(self._runner.address.shown, error, ids) from None
        return [
            Added(identity, AddOutcome.DUPLICATE if taken else AddOutcome.ADDED, State(state))
            for identity, taken, state in answer
        ]

    async def add_children(
        self, lease: Lease, nodes: Sequence[FlowNode], *, call: Call | None = None, now: int | None = None
    ) -> Verdict:
        arguments = [lease.id, lease.token, dump_nodes(nodes)]
        verdict: int = _accepted(await self._runner.write("add_children", lease.queue, arguments, call, now))
        return VERDICTS[verdict]

    async def child_counts(self, job: JobRef, *, where: Kept = "queue") -> ChildCounts:
        key = self._runner.job_key(job.queue, job.id, where)
        row = None if key is None else await self._runner.read("child_counts", job.queue, [key, _FEW])
        return family_of(self._runner.address.prefix, row)

    async def children(
        self, job: JobRef, *, cursor: str | None = None, limit: int = 100, where: Kept = "queue"
    ) -> Page[Child]:
        kind, place = _place(cursor)
        key = self._runner.job_key(job.queue, job.id, where)
        if key is None:
            return Page(())
        found: list[Child] = []
        while kind <= len(_STATES) and len(found) < limit:
            left = limit - len(found)
            place, rows = await self._runner.read("children", job.queue, [key, kind, place, left])
            found += [Child(ref_of(self._runner.address.prefix, key), _STATES[kind - 1], text) for key, text in rows]
            if place == "0":
                kind += 1
        return Page(tuple(found), f"{kind}:{place}" if kind <= len(_STATES) else None)

    async def child_names(self, job: JobRef) -> list[tuple[JobRef, str]]:
        key = self._runner.job_key(job.queue, job.id, "queue")
        return [] if key is None else load_names(await self._runner.read("child_names", job.queue, [key]))


def family_of(prefix: str, row: Sequence[Any] | None) -> ChildCounts:
    if not row:
        return ChildCounts()
    *counts, first = row
    named = {state.value: count for state, count in zip(_STATES, counts, strict=True)}
    return ChildCounts(**named, first_open=tuple(ref_of(prefix, key) for key in first))


def _place(cursor: str | None) -> tuple[int, str]:
    kind, separator, place = (cursor or "1:0").partition(":")
    if not separator or kind not in {"1", "2", "3", "4"} or not place.isdecimal():
        raise unknown_cursor(cursor)
    return int(kind), place


def _accepted(answer: Any) -> Any:
    """The answer of a script, unless it refuses."""
    match answer:
        case ["refused", [*words]]:
            raise _refusal(words)
        case _:
            return answer


def _refusal(words: Sequence[Any]) -> TorilError:
    match words:
        case ["full", queue, most, held, count]:
            return full(queue, most=int(most), held=int(held), refused=int(count))
        case ["overfull", queue, group, most, held, count]:
            return full(queue, group, most=int(most), held=int(held), refused=int(count))
        case [why, job, other]:
            return refused(why, job, other)
        case _:
            raise AssertionError(words)
