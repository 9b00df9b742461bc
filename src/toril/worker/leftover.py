"""Logs what a burst leaves for later."""

import logging
from collections.abc import Iterable

from toril.errors import TorilError
from toril.model import Counts
from toril.model.states import State
from toril.runtime.clock import Clock
from toril.runtime.logs import log
from toril.store.engine import Store

__all__ = ["log_leftover"]


async def log_leftover(store: Store, queues: Iterable[str], clock: Clock) -> None:
    """Log what is in these queues, if anything is."""
    if not log.isEnabledFor(logging.INFO):
        return
    try:
        found = {name: await _words(store, name, clock) for name in queues}
    except TorilError as error:
        log.warning("could not list the jobs that are left: %s", error)
        return
    left = [f"{name}: {words}" for name, words in found.items() if words]
    if left:
        log.info("no more jobs to run now; left for later: %s", "; ".join(left))


async def _words(store: Store, queue: str, clock: Clock) -> str:
    counts = await store.counts(queue)
    waiting = counts.waiting + counts.prioritized
    parts = [
        f"{waiting} waiting{' (the queue is paused)' if counts.paused else ''}" if waiting else "",
        f"{counts.active} running elsewhere" if counts.active else "",
        await _delayed(store, queue, counts, clock) if counts.delayed else "",
        f"{counts.waiting_children} waiting for children" if counts.waiting_children else "",
    ]
    return ", ".join(filter(None, parts))


async def _delayed(store: Store, queue: str, counts: Counts, clock: Clock) -> str:
    first = (await store.page(queue, State.DELAYED, limit=1)).items
    due = first[0].due if first else None
    when = "" if due is None else f" (the next is due in {max(0.0, (due - clock.now()) / 1000):.1f} s)"
    return f"{counts.delayed} delayed{when}"
