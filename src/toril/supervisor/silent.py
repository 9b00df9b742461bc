"""Speaks for worker processes that cannot: those whose event loop is blocked, and those that died."""

import asyncio
from contextlib import suppress
from typing import Final

from toril.errors import TorilError
from toril.model import MAX_STACKS, Heartbeat, StackRequest, WorkerCommand, WorkerRow
from toril.runtime.clock import Clock
from toril.store.engine import Store
from toril.supervisor.child import ChildProcess

__all__ = ["SILENT", "sign_off", "speak_for"]

SILENT: Final = 5.0  # seconds without a tick after which heartbeats are sent for a child
_HEARTBEAT: Final = 2.0  # seconds between two heartbeats for it
_TTL: Final = 45_000
_WRITTEN: Final = 0.5  # seconds for a child to write its stacks
_PATIENCE: Final = 5.0  # seconds for a store to answer


async def speak_for(child: ChildProcess, store: Store, clock: Clock) -> None:
    """Send heartbeats until its loop runs again, or it has ended. Its commands wait for it, except requests for stacks:
    the supervisor can answer those for all of its threads."""
    view: WorkerRow | None = None
    answered: dict[str, str] = {}
    while not child.died.done() and not child.draining:
        silent = clock.monotonic() - child.table.ticked
        if silent <= SILENT:
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                view = view or await _last_heartbeat(child, store)
                asked = () if view is None else await store.heartbeat(_heartbeat(view, silent, answered), ttl=_TTL)
        except (TorilError, TimeoutError):
            asked = ()
        requests = [order for order in asked if isinstance(order, StackRequest)]
        stacks = await _stacks(child, silent, clock) if requests else ""
        answered = {str(request): stacks for request in requests}
        if not requests:
            await clock.sleep(_HEARTBEAT)


async def sign_off(child: ChildProcess, store: Store) -> None:
    """Report that a child which died runs nothing any longer. A store that does not answer soon finds out by itself."""
    with suppress(TorilError, TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            view = await _last_heartbeat(child, store)
            if view is not None:
                await store.heartbeat(_heartbeat(view, 0.0, {}), ttl=0)


async def _last_heartbeat(child: ChildProcess, store: Store) -> WorkerRow | None:
    """The last heartbeat that it sent itself."""
    return next((each for each in await store.workers() if each.id == child.worker), None)


def _heartbeat(view: WorkerRow, silent: float, answered: dict[str, str]) -> Heartbeat:
    return Heartbeat(
        worker=view.id,
        queues=view.queues,
        slots=view.slots,
        running=view.running,
        host=view.host,
        pid=view.pid,
        version=view.version,
        started_at=view.started_at,
        heard=tuple(map(StackRequest, answered)),
        lag=round(silent * 1000),
        queue_slots=view.queue_slots,
        stacks=answered,
        silent=round(silent * 1000),
        obeys=tuple(map(WorkerCommand, view.orders)),
        isolates=view.isolates,
    )


async def _stacks(child: ChildProcess, silent: float, clock: Clock) -> str:
    child.ask_for_stacks()
    await clock.sleep(_WRITTEN)
    heading = (
        f"The event loop of process {child.pid} has been blocked for {silent:.0f} s. Its threads, innermost first:\n"
    )
    return (heading + child.stacks())[:MAX_STACKS]
