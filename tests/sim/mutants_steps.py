"""Bugs to plant in durable steps, which the rules S1 to S11 find: in the SQL engine, in the worker, in the scripts."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

from tests.sim.mutants import Mutant, instead, known, reworded
from tests.sim.mutants_scripts import Edit
from tests.sim.mutants_worker import nothing_soon
from toril.engines.sql import add, control, dead_letters, groups, recorded, replay, rests, settle, signals
from toril.engines.sql.schema import Place
from toril.model import Rest, StepAnswer, StepKind, StepVerdict
from toril.model.states import State
from toril.worker import steps as worker_steps
from toril.worker.reports import AttemptReports
from toril.worker.steps import AttemptSteps

__all__ = ["STEP_BUGS", "STEP_MUTANTS"]

Original = Callable[..., Any]


# rows


def _before_it_is_stored(original: Original) -> Original:
    """The handler goes on as soon as the value is on its way."""

    async def record(self: AttemptSteps, report: Any) -> StepAnswer:
        if report.kind is not StepKind.DONE:
            found: StepAnswer = await original(self, report)
            return found
        self.__dict__.setdefault("sent", []).append(asyncio.ensure_future(original(self, report)))
        return StepAnswer(StepVerdict.OK, self._now)

    return record


def _numbered_when_awaited(original: Original) -> Original:
    def step(self: AttemptSteps, *args: Any, **options: Any) -> Coroutine[Any, Any, Any]:
        async def later() -> Any:
            return await original(self, *args, **options)

        return later()

    return step


def _with_its_time_anew(kind: StepKind) -> Callable[[Original], Original]:
    """The worker asks for a time again for a rest that has one."""

    def make(original: Original) -> Original:
        async def rest(self: AttemptSteps, rest: Rest, *args: Any, **options: Any) -> Any:
            if rest.kind is kind and rest.recorded:
                rest = replace(rest, recorded=False, delay=1000)
            return await original(self, rest, *args, **options)

        return rest

    return make


def _also(kind: StepKind) -> Callable[[Original], Original]:
    """The store lets a row of this kind take the place of one."""

    def make(original: Original) -> Original:
        def replaces(new: StepKind, before: str | None, **options: Any) -> bool:
            anew = before is not None and before[0] == kind and new is kind and not options.get("recorded")
            return anew or bool(original(new, before, **options))

        return replaces

    return make


def _by_its_own_clock(original: Original) -> Original:
    """Where that is ahead; behind, nothing would ever be over."""
    return lambda self: max(original(self), self._services.clock.now())


def _flushed_later(original: Original) -> Original:
    async def begin(self: AttemptSteps) -> None:
        failures, self._failures = self._failures, []
        await original(self)
        for each in failures:
            self.__dict__.setdefault("sent", []).append(asyncio.ensure_future(self._record(each)))

    return begin


def _forgotten_at_rest(original: Original) -> Original:
    async def record(self: AttemptSteps) -> None:
        if asyncio.current_task() is self._watch:
            self._failures.clear()
        await original(self)

    return record


def _whichever_attempt(_: Original) -> Original:
    def recorded(self: AttemptSteps, key: str, what: str, *kinds: StepKind) -> Any:
        text = self._rows.get(key)
        return None if text is None else self._row(key, text, what, *kinds)

    return recorded


def _only_anew(original: Original) -> Original:
    def run_again(tx: Any, row: Any, key: int, *, since: int | None) -> None:
        if since is not None:
            original(tx, row, key, since=since)

    return run_again


def _always_a_new_epoch(original: Original) -> Original:
    def run_again(tx: Any, row: Any, key: int, *, since: int | None) -> None:
        original(tx, row, key, since=10**12 if since is None else since)

    return run_again


def _one_row_less(original: Original) -> Original:
    def run_again(tx: Any, row: Any, key: int, *, since: int | None) -> None:
        original(tx, row, key, since=None if since is None else since + 1)

    return run_again


# signals


def _for_anything(original: Original) -> Original:
    """A delivery takes every delayed job for one that rests for it."""

    def rests_for(self: Any, wait: Any) -> bool:
        return bool(original(self, wait)) or self.place == Place.DELAYED

    return rests_for


def _nothing_of_the_time(original: Original) -> Original:
    def record(self: Any, tx: Any, row: Any, received: Any) -> StepAnswer:
        if received is not None:
            found: StepAnswer = original(self, tx, row, received)
            return found
        return StepAnswer(StepVerdict.OK, tx.now, None, self.job.count, self.job.bytes)

    return record


# rests


def _stood(*, stalls: bool, attempt: int) -> Callable[[Original], Original]:
    """A rest leaves stalls as they are, or spends an attempt."""

    def make(_: Original) -> Original:
        def rest(step: Any, job: Any, rested: Any, released: list[Any]) -> None:
            begun = rests.begin_rest(step, job, rested)
            assert isinstance(begun, bool)
            step.stand(job if stalls else job._replace(stalls=0), made=job.attempts_made + attempt, delay=0)
            if not begun:
                released.append(job)

        return rest

    return make


def _as_soon_as_one_rests(self: AttemptSteps) -> bool:
    return bool(self._open) and not any(entry.over.done() for entry in self._open) and self.rested is None


def _by_whoever_comes_first(original: Original) -> Original:
    """The scope of a branch is the number of branches that have asked for a step before it."""

    def count(self: AttemptSteps, *args: Any) -> Any:
        branch = worker_steps._branch.get()
        if branch is not None:
            seen: dict[str, list[Any]] = self.__dict__.setdefault("seen", {})
            came = seen.setdefault(branch.scope.rpartition("[")[0], [])
            if not any(branch is each for each in came):
                came.append(branch)
                branch.scope = f"{branch.scope.rpartition('[')[0]}[{len(came) - 1}]/"
        return original(self, *args)

    return count


def _rested_owners_too(original: Original) -> Original:
    def repeated(step: Any, job: Any, owner: Any) -> bool:
        resting = owner.place == Place.DELAYED and owner.rank is not None and owner.state is State.ACTIVE
        return bool(original(step, job, owner._replace(running=0) if resting else owner))

    return repeated


def _without_its_rows(original: Original) -> Original:
    def discard(tx: Any, identity: str) -> bool:
        tx.run("UPDATE letters SET recorded = NULL WHERE id = ?", (identity,))
        return bool(original(tx, identity))

    return discard


_NOT_AT_REST = "AND NOT EXISTS (SELECT 1 FROM rests r WHERE r.job = "


def _mutants() -> Iterator[Mutant]:
    held = reworded("a.token = ? AND a.deadline > ?", "(a.token = ? OR 1) AND (a.deadline > ? OR 1)")
    yield Mutant("row_without_lease", "a row is written without a lease", ((recorded._SQL, "held", held),))
    yield Mutant("value_first", "a value is returned before it is stored", (
        (AttemptSteps, "_record", _before_it_is_stored),
    ))  # fmt: skip
    yield Mutant("numbered_late", "a step's number is drawn when it is awaited", (
        (AttemptSteps, "step", _numbered_when_awaited), (worker_steps, "_task", instead(lambda: None)),
    ))  # fmt: skip
    yield Mutant("signal_overslept", "a job rests although its signal is there", (
        (rests, "_has_come", instead(lambda *_: False)),
    ))  # fmt: skip
    yield Mutant("signal_wakes_nobody", "a delivery wakes nobody", (
        (signals.Addressee, "rests_for", instead(lambda *_: False)),
    ))  # fmt: skip
    yield Mutant("signal_ends_backoff", "a delivery ends a backoff", ((signals.Addressee, "rests_for", _for_anything),))
    yield Mutant("signal_stays", "a signal that was read is there again", (
        (signals, "_take", instead(lambda *_, **__: None)),
    ))  # fmt: skip
    yield Mutant("timeout_not_recorded", "that the time is over is not recorded", (
        (signals._Reading, "record", _nothing_of_the_time),
    ))  # fmt: skip
    yield Mutant("timeout_anew", "a timeout begins anew at each rest", (
        (AttemptSteps, "_rest", _with_its_time_anew(StepKind.WAIT)), (rests, "replaces", _also(StepKind.WAIT)),
    ))  # fmt: skip
    yield Mutant("sleep_anew", "a second rest moves the time of a sleep", (
        (AttemptSteps, "_rest", _with_its_time_anew(StepKind.SLEEP)), (rests, "replaces", _also(StepKind.SLEEP)),
    ))  # fmt: skip
    yield Mutant("sleep_by_own_clock", "a sleep ends by the worker's clock", (
        (AttemptSteps, "_store_now", _by_its_own_clock),
    ))  # fmt: skip
    yield Mutant("failure_after_next", "a failure is recorded after the next step has begun", (
        (AttemptSteps, "begin", _flushed_later),
    ))  # fmt: skip
    yield Mutant("rests_without_failure", "a job rests before a failure that was caught is recorded", (
        (AttemptSteps, "_record_failures", _forgotten_at_rest),
    ))  # fmt: skip
    yield Mutant("old_failure", "the failure of an older attempt is believed", (
        (AttemptSteps, "_recorded", _whichever_attempt),
    ))  # fmt: skip
    yield Mutant("rerun_not_counted", "a retry does not count as a rerun", ((replay, "run_again", _only_anew),))
    yield Mutant("epoch_grows", "a retry begins a new epoch", ((replay, "run_again", _always_a_new_epoch),))
    yield Mutant("rewind_leaves_one", "a rewind leaves the row it goes to", ((replay, "run_again", _one_row_less),))
    yield Mutant("stalls_kept", "stalls are kept over a rest", ((settle, "_rest", _stood(stalls=True, attempt=0)),))
    yield Mutant("rest_spends", "a rest spends an attempt", ((settle, "_rest", _stood(stalls=False, attempt=1)),))
    yield Mutant("rests_beside_step", "a job rests while a step is under way", (
        (AttemptSteps, "_is_quiet", instead(_as_soon_as_one_rests)),
    ))  # fmt: skip
    yield Mutant("scopes_by_arrival", "branches have their scopes by who is first", (
        (AttemptSteps, "_count", _by_whoever_comes_first),
    ))  # fmt: skip
    yield Mutant("rest_swallowed", "a handler that catches its rest completes the job", (
        (AttemptReports, "end_steps", instead(nothing_soon)),
    ))  # fmt: skip
    yield Mutant("seat_kept", "a job that rests keeps the seat of its group", (
        (groups._SQL, "state", reworded(f"\n            {_NOT_AT_REST}j.key)", "")),
    ))  # fmt: skip
    yield Mutant("drain_takes_resting", "a drain removes jobs that rest", (
        (control._SQL, "drainable", reworded(f"{_NOT_AT_REST}l.key)", "")),
    ))  # fmt: skip
    yield Mutant("resting_owner_replaced", "a job that rests is replaced", ((add, "repeated", _rested_owners_too),))
    yield Mutant("letter_leaves_rows", "rows are left after a dead letter is discarded", (
        (dead_letters, "_discard", _without_its_rows),
    ))  # fmt: skip


# The seed that is known to find each, and the rule.
_FOUND_BY = {
    "row_without_lease": (6, "S3"),
    "value_first": (0, "S2"),
    "numbered_late": (1, "S2"),
    "signal_overslept": (6, "S4"),
    "signal_wakes_nobody": (0, "S5"),
    "signal_ends_backoff": (0, "S5"),
    "signal_stays": (1, "S5"),
    "timeout_not_recorded": (0, "S6"),
    "timeout_anew": (0, "S6"),
    "sleep_anew": (5, "S2"),
    "sleep_by_own_clock": (10, "S6"),
    "failure_after_next": (1, "S8"),
    "rests_without_failure": (4, "S8"),
    "old_failure": (3, "S2"),
    "rerun_not_counted": (6, "S8"),
    "epoch_grows": (6, "S8"),
    "rewind_leaves_one": (2, "S9"),
    "stalls_kept": (0, "S8"),
    "rest_spends": (0, "S8"),
    "rests_beside_step": (2, "S8"),
    "scopes_by_arrival": (0, "S2"),
    "rest_swallowed": (0, "S6"),
    "seat_kept": (0, "S7"),
    "drain_takes_resting": (2, "S7"),
    "resting_owner_replaced": (6, "S7"),
    "letter_leaves_rows": (1, "S10"),
}  # fmt: skip

STEP_MUTANTS: dict[str, Mutant] = known(_FOUND_BY, _mutants())

# Planted in the scripts: what they say, what they say instead; and a seed that finds it, by which rule.
STEP_BUGS: dict[str, Edit] = {
    "a row is written without a lease": Edit("record.lua", "  if held then\n", "  if true then\n", 6, "S3"),
    "a rest does not look for signals": Edit(
        "lib/rests.lua", " or signals.oldest(id, list[i][6])) then return true", ") then return true", 3, "S4"
    ),
    "a delivery does not wake its job": Edit(
        "deliver.lua", "  if place then wake(job, place) end\n", "", 0, "S7"
    ),
    "a signal is read and stays": Edit("receive.lua", "    signals.take(id, signal, kept)\n", "", 1, "S5"),
    "the end of a wait is not recorded": Edit(
        "receive.lua", "  if till == '-' or tonumber(till) > now then return", "  if till then return", 0, "S6"
    ),
    "a second rest moves the time of a sleep": Edit(
        "lib/rests.lua", "    if r[7] ~= '1' and steps", "    if r[2] == 'z' or r[7] ~= '1' and steps", 1, "S7"
    ),
    "a retry does not count as a rerun": Edit(
        "lib/steps.lua", "(tonumber(reruns) or 0) + 1, ", "(tonumber(reruns) or 0) + (anew and 1 or 0), ", 6, "S8"
    ),
    "a retry begins a new epoch": Edit("lib/steps.lua", "+ (anew and 1 or 0)\n", "+ 1\n", 6, "S8"),
    "a rewind leaves the row it goes to": Edit("rewind.lua", "then from = i end", "then from = i + 1 end", 2, "S9"),
    "a rest keeps the stalls": Edit(
        "lib/settle.lua", "  if job.stalls > 0 then call('HSET', P .. id, F.stalls, 0) end\n", "", 1, "S8"
    ),
    "a job that rests keeps its seat": Edit(
        "lib/settle.lua", "if stays then return job.group and groups.give_up_seat(id, job.group) end",
        "if stays then return end", 0, "S7",
    ),
    "an end leaves who waits for a key": Edit("lib/signals.lua", "  signals.stop_awaiting(id)\nend", "end", 3, "S10"),
    "a resting owner is replaced": Edit(
        "lib/dedup.lua", "steps.rest_of(owner) and 'active' or state", "steps.used() and state or state", 1, "S7"
    ),
}  # fmt: skip
