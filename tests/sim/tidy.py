"""What must be so once all workers have stopped: of schedules, their runs, and keys of which one job is the owner."""

from collections import Counter

from tests.sim.journal import Journal
from tests.sim.plan import QUEUE
from tests.sim.remote_store import Watch
from toril.model import RunStatus, ScheduleRow, run_id, scheduled_run
from toril.model.states import State
from toril.policy.schedules import following
from toril.store.engine import Store

__all__ = ["check_keys", "check_schedules"]

_GAPLESS = ("each", "cron")  # those that make up for every time that was missed


async def check_schedules(journal: Journal, watch: Watch, store: Store) -> None:
    """Each has one run that has not started, which is its current one (T1); each slot had one run (T2)."""
    views = {view.schedule.id: view for view in (await store.schedules.page(QUEUE)).items}
    for missing in {"each", "skips", "cron"} - views.keys():
        journal.violated("T1", f"schedule {missing} is gone")
    if (await store.counts(QUEUE)).active:
        journal.violated("I15", "all have stopped, and something runs")
    unfinished = await _unfinished(store)
    for name, view in views.items():
        current = run_id(name, view.slot)
        wanted = [] if view.paused or view.over else [current]
        # A run that has started and waits for another attempt is none that is pending, unless no next one was made.
        pending = [each for each, starts in unfinished.pop(name, {}).items() if not starts or each == current]
        if pending != wanted:
            journal.violated("T1", f"schedule {name} must have {wanted} pending, and has {pending}")
        if not view.paused and not view.over and view.slot < watch.calm_at:
            journal.violated("T1", f"schedule {name} has stood still since {view.slot}")
    for name, runs in unfinished.items():
        if not all(runs.values()):
            journal.violated("T1", f"schedule {name} is gone, and its runs are not: {runs}")
    await _check_slots(journal, views, store)


async def _unfinished(store: Store) -> dict[str, dict[str, int]]:
    """By schedule, its runs that have not ended, and how often each was started."""
    found: dict[str, dict[str, int]] = {}
    for state in (State.WAITING, State.PRIORITIZED, State.DELAYED):
        for record in (await store.page(QUEUE, state, limit=1000)).items:
            of = scheduled_run(record.id)
            if of is not None:
                found.setdefault(of[0], {})[record.id] = record.starts
    return found


async def _check_slots(journal: Journal, views: dict[str, ScheduleRow], store: Store) -> None:
    ran: Counter[str] = Counter()
    for ending in RunStatus:
        ran.update(run.id for run in (await store.runs(QUEUE, ending, limit=1000)).items)
    twice = [identity for identity, times in ran.items() if scheduled_run(identity) is not None and times > 1]
    if twice:
        journal.violated("T2", f"slots with more than one run: {twice}")
    for runs in (await _unfinished(store)).values():
        ran.update(dict.fromkeys(runs, 1))
    for name in _GAPLESS:
        slots = sorted(of[1] for identity in ran if (of := scheduled_run(identity)) is not None and of[0] == name)
        if name not in views or not slots:
            journal.violated("T2", f"schedule {name} never ran")
            continue
        slot: int | None = slots[0]
        while slot is not None and slot < views[name].slot:
            if slot not in slots:
                journal.violated("T2", f"slot {slot} of schedule {name} had no run")
            slot = following(views[name].schedule, slot, slot)


async def check_keys(journal: Journal, watch: Watch, store: Store) -> None:
    """No key without its job (T3, T4), none without an end, and the last that was asked for has run (T5)."""
    watch.look()
    for key in ("until-end", "last"):
        for identity in watch.owners[key]:
            (record,) = await store.jobs(QUEUE, [identity])
            if record is not None:
                journal.violated("I15", f"job {identity} of key {key} has not ended: {record.state}")
    for key, data in watch.last_kept.items():
        if data not in watch.given_up and not any(f'"{nonce}"' in data for nonce in watch.started):
            journal.violated("T5", f"the last job of key {key} was kept and never ran: {data}")
