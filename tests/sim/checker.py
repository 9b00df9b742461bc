"""The total-queue checker: what went in, what came out, and whether the one explains the other.

It believes the simulator's own log and the store as it is at the end, and nothing in between.
"""

from collections import Counter
from dataclasses import dataclass

from tests.sim.journal import Journal
from tests.sim.ledger import Entry
from tests.sim.witness import Witness
from toril.model import RunStatus
from toril.model.states import State
from toril.store.engine import Store

__all__ = ["Totals", "check", "total"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Jepsen's total-queue, with runs and accepted ends apart. Only `recovered` may be other than empty."""

    lost: tuple[str, ...]
    unexpected: tuple[str, ...]
    finished_twice: tuple[str, ...]
    unexplained: tuple[str, ...]
    recovered: tuple[str, ...]


def total(journal: Journal, entries: dict[str, Entry]) -> Totals:
    """From the log alone. A nonce that was acknowledged must have ended, or been removed by hand."""
    ended = {nonce for nonce, entry in entries.items() if not entry.open}
    seen = dict.fromkeys([*entries, *journal.started])
    return Totals(
        lost=tuple(nonce for nonce in journal.acknowledged if nonce not in ended),
        unexpected=tuple(nonce for nonce in seen if nonce not in journal.attempted),
        finished_twice=tuple(n for n, entry in entries.items() if entry.finishes > entry.acceptances),
        unexplained=tuple(
            nonce for nonce, runs in journal.started.items() if nonce in entries and runs - 1 > entries[nonce].causes
        ),
        recovered=tuple(nonce for nonce in entries if nonce not in journal.acknowledged),
    )


async def check(journal: Journal, witness: Witness, store: Store, queue: str) -> None:
    """Everything that can be said once all is over."""
    witness.look()
    totals = total(journal, witness.ledger.by_nonce)
    for row, what, nonces in (
        ("I2", "lost", totals.lost),
        ("I2", "unexpected", totals.unexpected),
        ("I3", "finished twice", totals.finished_twice),
        ("I5", "ran more often than is explained", totals.unexplained),
    ):
        if nonces:
            journal.violated(row, f"{what}: {nonces}")
    journal.tally["ambiguous add recovered"] += len(totals.recovered)
    await _check_store(journal, witness, store, queue)


async def _check_store(journal: Journal, witness: Witness, store: Store, queue: str) -> None:
    """The store's own pages and run records tell the same story."""
    held = {}
    for state in State:
        page = await store.page(queue, state, limit=1000)
        held.update({record.id: record for record in page.items})
        if len(page.items) != (await store.counts(queue)).of(state):
            journal.violated("I1", f"{state} has {len(page.items)} jobs and counts otherwise")
    for entry in witness.ledger.by_id.values():
        record = held.pop(entry.id, None)
        if (None if record is None else record.state) != entry.state:
            journal.violated("I1", f"{entry.id} must be {entry.state}, and the store has {record}")
        elif record is not None and (record.attempts_made, record.stalls) != (entry.made, entry.stalls):
            journal.violated("I6", f"{entry.id} made {entry.made} attempts, {entry.stalls} stalls; {record}")
    if held:
        journal.violated("I2", f"unexpected in the store: {sorted(held)}")
    await _check_runs(journal, witness, store, queue)
    await _check_letters(journal, witness, store)


async def _check_letters(journal: Journal, witness: Witness, store: Store) -> None:
    """A job that failed for good and was not kept is a dead letter, once; nothing else is."""
    found = [
        (each.job_id, each.data, each.attempts_made, each.stalls)
        for each in (await store.dead_letters.page(limit=1000)).items
    ]
    right = [(entry.id, entry.data, entry.made, entry.stalls) for entry in witness.ledger.letters.values()]
    if sorted(found) != sorted(right):
        journal.violated("letters", f"dead letters must be {sorted(right)}, and the store has {sorted(found)}")
    if await store.dead_letters.count() != len(found):
        journal.violated(
            "letters", f"{len(found)} dead letters, and the store counts {await store.dead_letters.count()}"
        )


async def _check_runs(journal: Journal, witness: Witness, store: Store, queue: str) -> None:
    """One run record for each accepted end (I3)."""
    ends: Counter[str] = Counter()
    for entry in witness.ledger.entries:
        ends[entry.id] += entry.finishes if entry.recorded else 0
    recorded: Counter[str] = Counter()
    for ending in RunStatus:
        page = await store.runs(queue, ending, limit=1000)
        recorded.update(run.id for run in page.items)
    if recorded != +ends:
        journal.violated("I3", f"ends seen and recorded differ: {+ends - recorded} and {recorded - ends}")
