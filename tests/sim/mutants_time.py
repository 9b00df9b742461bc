"""Bugs to plant in schedules and deduplication, which only the rules of schedules and keys find."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.sim.mutants import Mutant, instead, known, nothing
from tests.sim.mutants_scripts import Edit
from toril import schedule as steps
from toril.engines.sql import add, schedules
from toril.engines.sql.changes import QueueChanges
from toril.model import CatchUp, Moved, Schedule
from toril.policy import schedules as policy
from toril.worker.schedules import ScheduleRuns

__all__ = ["SCRIPT_BUGS", "TIME_MUTANTS"]

Original = Callable[..., Any]


def _from_anywhere(original: Original) -> Original:
    def advance(tx: Any, queue: str, schedule: str, since: int, to: int | None, *, started: bool) -> Moved:
        view = schedules._get(tx, queue, schedule).view
        moved: Moved = original(tx, queue, schedule, view.slot if view else 0, to, started=started)
        return moved

    return advance


def _always_expected(original: Original) -> Original:
    def put(tx: Any, queue: str, schedule: Schedule, slot: int, expects: int | None) -> Moved:
        before = schedules._get(tx, queue, schedule.id).view
        moved: Moved = original(tx, queue, schedule, slot, before.slot if before else None)
        return moved

    return put


def _only_the_next(original: Original) -> Original:
    def following(schedule: Schedule, slot: int, now: int, count: int = 0) -> int | None:
        found: int | None = original(replace(schedule, catch_up=CatchUp.ONE), slot, now, count)
        return found

    return following


def _one_further(original: Original) -> Original:
    """As if the run that a killed process left had been the next one's: what vanished is skipped twice."""

    async def catch_up(self: ScheduleRuns, queue: str) -> None:
        await original(self, queue)
        for view in (await self._schedules.page(queue)).items:
            if not view.paused and not view.busy:
                to = policy.following(view.schedule, view.slot, view.slot)
                await self._schedules.advance(queue, view.schedule.id, since=view.slot, to=to)

    return catch_up


def _unheard(original: Original) -> Original:
    def repeated(step: Any, job: Any, owner: Any) -> bool:
        if job.dedup.mode == "keep_last":
            return False
        return bool(original(step, job, owner))

    return repeated


def _fails_silently(original: Original) -> Original:
    def fail(self: QueueChanges, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self.ended_keys.clear()

    return fail


def _mutants() -> Iterator[Mutant]:
    yield Mutant("next_from_anywhere", "who is late makes a next run too", ((schedules, "_advance", _from_anywhere),))
    yield Mutant("put_from_anywhere", "a change does not look at what is", ((schedules, "_put", _always_expected),))
    yield Mutant(
        "old_run_stays", "a change, a pause and a removal leave the run", ((schedules, "drop_run", instead(nothing)),)
    )
    yield Mutant("nobody_catches_up", "what a dead worker left stays so", ((ScheduleRuns, "catch_up", instead(_soon)),))
    yield Mutant(
        "missed_is_missed", "times are left out that should be made up for", ((steps, "following", _only_the_next),)
    )
    yield Mutant(
        "caught_up_twice",
        "the round makes a next run where there is one",
        ((ScheduleRuns, "catch_up", _one_further),),
    )
    yield Mutant("key_kept_by_the_dead", "a job that fails keeps its key", ((QueueChanges, "fail", _fails_silently),))
    yield Mutant("key_kept_at_the_end", "a job that ends keeps its key", ((add, "next_jobs", instead(lambda *_: [])),))
    yield Mutant("owner_overlooked", "a key that is taken is given out", ((add, "owner_of", instead(nothing)),))
    yield Mutant("last_forgotten", "the last that was asked for is not kept", ((add, "repeated", _unheard),))


async def _soon(self: ScheduleRuns, queue: str) -> None:
    """Do not do it."""


# The seed that is known to find each, and the rule.
_FOUND_BY = {
    "next_from_anywhere": (33, "T2"), "put_from_anywhere": (110, "T2"), "old_run_stays": (2, "T1"),
    "nobody_catches_up": (1, "T1"), "missed_is_missed": (0, "T2"), "caught_up_twice": (0, "T1"),
    "key_kept_by_the_dead": (13, "T3"), "key_kept_at_the_end": (0, "T3"),
    "owner_overlooked": (1, "T4"), "last_forgotten": (3, "T5"),
}  # fmt: skip

TIME_MUTANTS: dict[str, Mutant] = known(_FOUND_BY, _mutants())

# Planted in the scripts: the file, what it says, what it says instead; and a seed that finds it, by which rule.
SCRIPT_BUGS: dict[str, Edit] = {
    "who is late makes a next": Edit(
        "schedule_advance.lua", "(schedule) ~= since or", "(schedule) == nil or", 15, "T2"
    ),
    "a change leaves the old run": Edit("schedule_put.lua", "schedules.drop_run(schedule)", "", 3, "T1"),
    "a removal leaves the run": Edit("schedule_remove.lua", "    schedules.drop_run(schedule)\n", "", 2, "T1"),
    "an end keeps the key": Edit("lib/finish.lua", "(owned[i][1], owned[i][2])", "(owned[i][1], '')", 0, "T3"),
    "a taken key is given out": Edit("lib/dedup.lua", "if not owner then return", "if owner then return", 1, "T4"),
    "the last is not kept": Edit("lib/dedup.lua", "if not f[1] or not f[4] or call", "if true or call", 3, "T5"),
}  # fmt: skip
