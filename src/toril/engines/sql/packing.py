"""What leaves for another store is taken out of its place and put into the van, in one step. From there it is read, as
often as need be, until it is known to have arrived."""

import json
from collections.abc import Callable
from typing import Any, Final

from toril.engines.sql.crates import parcel_of
from toril.engines.sql.loading import Loader, is_held_up
from toril.engines.sql.options import load_options
from toril.engines.sql.recording import MINUTE, put_by
from toril.engines.sql.replay import letter_of
from toril.engines.sql.schedules import drop_run
from toril.engines.sql.schema import Place, first_key, run_key
from toril.engines.sql.statements import statement
from toril.engines.sql.step import Step
from toril.engines.sql.transaction import QueueRow, Tx, exists, keys_of
from toril.errors import WrongState
from toril.model import Ending, EventKind, Load, Part

__all__ = ["departure", "forget", "identity", "pack"]

_SQL: Final = {name: statement("moving", name) for name in (
    "fact", "set_fact", "load", "loaded", "empty", "departure", "depart", "has_departed", "has_left", "is_back", "line",
    "schedules", "letter", "letters", "is_open", "groups", "starts", "group_starts", "minutes", "run_records", "slices",
    "results", "ownerless", "forget_ownerless", "all_circuits", "forget_circuits", "forget_fact",
)}  # fmt: skip
_REMOVE_SCHEDULE: Final = statement("schedules", "remove")
_FORGET: Final = [statement("control", f"forget_{name}") for name in ("minutes", "slices", "results")]
_FORGET_RUNS: Final = statement("control", "forget_runs")
_LOAD: Final = "load"
# Those who come next come first, so that they are the first there too.
_PLACES: Final = (
    Place.SUSPECT, Place.WAITING, Place.PRIORITIZED, Place.PARKED_SUSPECT, Place.PARKED, Place.DELAYED,
    Place.WAITING_CHILDREN, Place.COMPLETED, Place.FAILED,
)  # fmt: skip


def identity(tx: Tx, fresh: str) -> str:
    """The name of this store among others: given once."""
    found = tx.one(_SQL["fact"], ("store",))
    if found is None:
        tx.run(_SQL["set_fact"], ("store", fresh))
        return fresh
    return str(found[0])


def departure(tx: Tx, queue: str) -> str | None:
    """The store for which a queue leaves, or has left."""
    row = tx.find(queue)
    found = None if row is None else tx.one(_SQL["departure"], (row.key,))
    return None if found is None else str(found[0])


def pack(tx: Tx, part: Part, queue: str, to: str, mark: str, limit: int) -> Load | None:
    """The load that is on its way, if there is one; else a new one, if there is something to load."""
    found = tx.one(_SQL["fact"], (_LOAD,))
    number, old_mark, target, under_way = (0, "", "", 0) if found is None else json.loads(found[0])
    if under_way and target != to:
        raise WrongState("a move to another store has not come to its end: finish that one first")
    if not under_way:
        parcels = _PACK[part](tx, queue, to, limit)
        if not parcels:
            return None
        number, old_mark = number + 1, mark
        tx.run_all(_SQL["load"], list(enumerate(parcels)))
        tx.run(_SQL["set_fact"], (_LOAD, json.dumps([number, mark, to, 1])))
    texts = [text for (text,) in tx.all(_SQL["loaded"])]
    return Load(number, old_mark, to, tuple(map(parcel_of, texts)))


def forget(tx: Tx, load: Load) -> bool:
    """The load has arrived."""
    found = tx.one(_SQL["fact"], (_LOAD,))
    if found is None or json.loads(found[0]) != [load.number, load.mark, load.to, 1]:
        return False
    tx.run(_SQL["empty"])
    tx.run(_SQL["set_fact"], (_LOAD, json.dumps([load.number, load.mark, load.to, 0])))
    return True


def _settings(tx: Tx, queue: str, to: str, _limit: int) -> list[str]:
    """Nothing more starts in the queue; how it was set before that is sent once."""
    row = tx.find(queue)
    if row is None:
        return []
    target, was_paused = tx.one(_SQL["departure"], (row.key,)) or ("", row.paused)
    paused = was_paused if row.paused else 0  # someone has let it go on since
    if not row.paused:
        row.paused = 1
        step = Step(tx, row)
        step.event(EventKind.PAUSED, None)
        step.flush()
    if target == to:
        return []
    tx.run(_SQL["depart"], (row.key, to, paused))
    tx.run(_SQL["is_back"], (row.key,))  # what has left for another store may be here again
    counted = [row.last_number, row.claims]
    settings = [paused, row.concurrency, row.rate, row.max_waiting, row.held_till, row.groups_set, row.groups_declared]
    more = [tx.all(_SQL[name], (row.key,)) for name in ("groups", "starts", "group_starts")]
    return [json.dumps(["settings", queue, settings, counted, *more], ensure_ascii=False)]


def _jobs(tx: Tx, queue: str, _to: str, limit: int) -> list[str]:
    row = tx.find(queue)
    if row is None:
        return []
    loader = Loader(tx, limit)
    for place in _PLACES:
        if place <= Place.WAITING_CHILDREN and is_held_up(row):
            continue
        for (key,) in tx.each(_SQL["line"], (row.key, place)):
            if loader.is_full:
                return loader.flush()
            loader.take(queue, key)
    return loader.flush()


def _schedules(tx: Tx, queue: str, _to: str, limit: int) -> list[str]:
    row = tx.find(queue)
    if row is None or is_held_up(row):
        return []
    loader = Loader(tx, limit)
    for entry in tx.all(_SQL["schedules"], (row.key,)):
        if loader.is_full:
            break
        if tx.one(_SQL["has_departed"], (row.key, entry[0])) is not None:
            drop_run(Step(tx, row), entry[0])
            tx.run(_REMOVE_SCHEDULE, (row.key, entry[0]))
        else:
            _schedule(loader, row, entry)
    return loader.flush()


def _schedule(loader: Loader, row: QueueRow, entry: tuple[Any, ...]) -> None:
    """A schedule leaves with the run that it still has to do with, unless that runs."""
    *told, run, last = entry
    tx, schedule = loader.step(row.name).tx, entry[0]
    waiting = None if run is None else loader.member(row.name, run)
    waits = waiting is not None and not waiting.is_running and not waiting.has_ended and waiting.starts == 0
    members = {key: loader.member(row.name, key) for key in (run, last) if key is not None}
    if any(found is not None and found.is_running for found in members.values()):
        return
    started = None
    for key, found in members.items():
        if found is None or found.has_ended or (key == run and waits):
            continue
        if not loader.take(row.name, key, for_schedule=True):
            return
        started = found.id if key == last else started
    if waits and waiting is not None:
        step = loader.step(row.name)
        step.leave(waiting.key, waiting.place, waiting.row[5])
        step.delete(waiting.key, waiting.chosen, waiting.row[-2])
    tx.run(_REMOVE_SCHEDULE, (row.key, schedule))
    tx.run(_SQL["has_left"], (row.key, schedule))
    loader.put("schedule", [row.name, told, waits, started])


def _letters(tx: Tx, _queue: str, _to: str, limit: int) -> list[str]:
    """Those that nobody waits for; the others leave with whom they are waited for by."""
    loader = Loader(tx, limit)
    for (letter,) in tx.all(_SQL["letters"]):
        if loader.is_full:
            break
        if not _is_waited_for(tx, tx.one(_SQL["letter"], (letter,))):
            loader.take_letter(letter)
    return loader.flush()


def _is_waited_for(tx: Tx, found: tuple[Any, ...]) -> bool:
    letter, parent = letter_of(found[:-3]), load_options(found[16]).parent
    row = None if parent is None else tx.find(parent.queue)
    if parent is None or row is None:
        return False
    key = keys_of(tx, row, (parent.id,)).get(parent.id)
    there = key is not None and exists(tx, key, parent.id)
    return there and tx.one(_SQL["is_open"], (key, letter.queue, letter.job_id)) is not None


def _ledger(tx: Tx, queue: str, _to: str, _limit: int) -> list[str]:
    row = tx.find(queue)
    if row is None:
        return []
    if row.figures:
        under_way = json.loads(row.figures)
        put_by(tx, row, under_way.pop(MINUTE), under_way)
        row.figures = None
    runs = []
    for ending in Ending:
        bounds = (run_key(row.key, ending, 0), run_key(row.key, ending, first_key(1) - 1))
        runs.append(tx.all(_SQL["run_records"], bounds))
        tx.run(_FORGET_RUNS, bounds)
    found = [tx.all(_SQL[name], (row.key,)) for name in ("minutes", "slices", "results", "ownerless")]
    for sql in _FORGET:
        tx.run(sql, (row.key,))
    tx.run(_SQL["forget_ownerless"], (row.key,))
    totals = [row.total(ending) for ending in Ending]
    row.completed_total = row.failed_total = row.cancelled_total = 0
    if not any([*totals, *runs, *found]):
        return []
    return [json.dumps(["ledger", queue, totals, runs, *found], ensure_ascii=False)]


def _facts(tx: Tx, _queue: str, _to: str, _limit: int) -> list[str]:
    kept, circuits = tx.one(_SQL["fact"], ("letters",)), tx.all(_SQL["all_circuits"])
    tx.run(_SQL["forget_circuits"])
    tx.run(_SQL["forget_fact"], ("letters",))
    if kept is None and not circuits:
        return []
    return [json.dumps(["facts", None if kept is None else kept[0], circuits])]


_PACK: Final[dict[Part, Callable[[Tx, str, str, int], list[str]]]] = {
    Part.SETTINGS: _settings,
    Part.SCHEDULES: _schedules,
    Part.JOBS: _jobs,
    Part.LETTERS: _letters,
    Part.LEDGER: _ledger,
    Part.FACTS: _facts,
}
