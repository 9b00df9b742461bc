"""Bugs to plant in the real worker: here in its attempts and its judgement, in `mutants_loop` the others."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.sim.mutants import Change, Make, Mutant, instead, known, nothing
from tests.sim.mutants_loop import loop_mutants
from toril.context import StopReason
from toril.model import Cancelled, Completed, Failed, Failure, Renewed, Retried, Settlement, Snoozed, Verdict
from toril.worker import attempt
from toril.worker.events import AttemptEvents
from toril.worker.loop import Loop
from toril.worker.reports import AttemptReports
from toril.worker.worker import Worker

__all__ = ["WORKER_MUTANTS"]


async def nothing_soon(*_: Any, **__: Any) -> None:
    return None


# attempts and slots


def _drop_leaks(self: Worker, running: Any) -> None:
    if running.end():
        self._events.lost(running.job)


def _retried_by_hand(self: Worker) -> None:
    for running in list(self._running.values()):
        running.signal.fire(StopReason.SHUTDOWN, "the worker is shutting down")
        running.cancel()
        self._settle_unless_over(running, Retried(Failure("shut down")))


def _cancelled_only(self: Worker) -> None:
    for running in list(self._running.values()):
        running.cancel()


def _hears(*, lost: bool, cancelled: bool) -> Make:
    """Only a part of what the keeper found is heard."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def heard(self: Worker, found: Renewed) -> None:
            original(self, Renewed(found.lost if lost else (), found.cancelled if cancelled else ()))

        return heard

    return make


def _released_early(original: Callable[..., Any]) -> Callable[..., Any]:
    """A bug that a seed has found: between its end and its settlement a job's lease ran out."""

    def settle(self: Worker, job: Any, *rest: Any) -> None:
        self._services.keeper.release(job.lease)
        original(self, job, *rest)

    return settle


def _settled_first(original: Callable[..., Any]) -> Callable[..., Any]:
    async def attempt(self: Worker, running: Any) -> None:
        self._settle_unless_over(running, Completed(str(running.job.fence)))
        await original(self, running)

    return attempt


def _twice(original: Callable[..., Any]) -> Callable[..., Any]:
    def settle(self: Loop, settlement: Settlement) -> None:
        original(self, settlement)
        if isinstance(settlement.outcome, Retried):
            original(self, settlement)

    return settle


def _all_is_well(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, settlement, _: original(self, settlement, Verdict.OK)


def _reported_cancelled(original: Callable[..., Any]) -> Callable[..., Any]:
    """The bug that seed 0 finds: a handler that stops of its own accord after a timeout is taken for cancelled."""

    def told(signal: Any, job: Any, rules: Any) -> Any:
        if signal.kind is StopReason.TIMEOUT:
            return Cancelled(signal.reason or "")
        return original(signal, job, rules)

    return told


def _attempt_mutants() -> Iterator[Mutant]:
    yield Mutant(
        "slot_leaks", "an attempt whose lease is lost keeps its slot", ((Worker, "_drop", instead(_drop_leaks)),)
    )
    yield Mutant("timeout_not_armed", "no timeout ever ends an attempt", ((Worker, "_arm", instead(nothing)),))
    yield Mutant(
        "never_given_up", "an attempt that does not stop keeps its slot", ((Worker, "_give_up", instead(nothing)),)
    )
    yield Mutant(
        "cancel_ignored",
        "nobody is told that a job is to stop",
        ((Worker, "_heard", _hears(lost=True, cancelled=False)),),
    )
    yield Mutant(
        "loss_ignored",
        "an attempt goes on without its lease",
        ((Worker, "_heard", _hears(lost=False, cancelled=True)),),
    )
    yield Mutant(
        "not_given_back",
        "what runs at the end is cut off, not given back",
        ((Worker, "release", instead(_cancelled_only)),),
    )
    yield Mutant(
        "giving_back_counts",
        "giving a job back spends an attempt",
        ((Worker, "release", instead(_retried_by_hand)),),
    )
    yield Mutant(
        "released_early", "a lease is let go before its job is settled", ((Worker, "_settle", _released_early),)
    )
    yield Mutant("settled_first", "a job is settled before it has run", ((Worker, "_attempt", _settled_first),))
    yield Mutant("handed_in_twice", "a retry is handed in twice", ((Loop, "settle", _twice),))
    yield Mutant(
        "loss_told_as_success", "a refused settlement is told as accepted", ((AttemptEvents, "settled", _all_is_well),)
    )
    yield Mutant(
        "progress_not_flushed",
        "progress that was held back is lost",
        ((AttemptReports, "flush", instead(nothing_soon)),),
    )
    yield Mutant(
        "one_slot_more",
        "a worker runs one job more than it should",
        ((Worker, "free", instead(lambda self: self.concurrency + 1 - len(self._running))),),
    )
    yield Mutant(
        "timeout_cancels",
        "a timeout counts as a cancellation",
        ((attempt, "outcome_of_stop", _reported_cancelled),),
    )


# judgement


def _judgement(change: Callable[[Any], Any]) -> tuple[Change, ...]:
    """Every outcome of an error, changed."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **named: change(original(*args, **named))

    return ((attempt, "judge", make),)


def _snooze_spends(outcome: Any) -> Any:
    return Retried(Failure("snoozed"), outcome.delay) if isinstance(outcome, Snoozed) else outcome


def _never_for_good(outcome: Any) -> Any:
    return Retried(outcome.failure) if isinstance(outcome, Failed) else outcome


def _no_delay(outcome: Any) -> Any:
    return Retried(outcome.failure, 0) if isinstance(outcome, Retried) else outcome


def _one_attempt_less(original: Callable[..., Any]) -> Callable[..., Any]:
    def judge(error: Any, failure: Any, job: Any, **given: Any) -> Any:
        outcome = original(error, failure, job, **given)
        last = job.attempts_made + 2 >= job.max_attempts
        return Failed(failure) if isinstance(outcome, Retried) and last else outcome

    return judge


def _judgement_mutants() -> Iterator[Mutant]:
    yield Mutant("snooze_counts", "a snooze spends an attempt", _judgement(_snooze_spends))
    yield Mutant("never_fails", "a job that should fail for good is tried again", _judgement(_never_for_good))
    yield Mutant("delay_ignored", "a retry does not wait", _judgement(_no_delay))
    yield Mutant("one_attempt_less", "the last attempt is never made", ((attempt, "judge", _one_attempt_less),))


# Which seed finds which bug, so that no time is spent on looking for one; and by which check.
_FOUND_BY: Final[dict[str, tuple[int, str]]] = {
    "outbox_dropped": (1, "I14"), "resent_as_new": (3, "G2"), "token_reused": (0, "G2"), "never_alone": (0, "G6"),
    "wake_ignored": (0, "I15"), "news_lost": (0, "I15"), "watch_dies": (17, "I15"),
    "suspects_forgotten": (1932, "I15"), "rest_spins": (613, "I15"), "stops_too_soon": (1, "stop"),
    "outbox_left": (1, "stop"), "suspect_has_company": (1, "G6"), "isolation_for_ever": (849, "I15"),
    "never_renewed": (53, "lost lease"), "renewed_once": (1, "renewal"), "renewed_for_ever": (0, "renewal"),
    "no_postponing": (70, "lost lease"), "recovery_ends": (17, "I15"), "recovers_once": (3, "I15"),
    "orders_ignored": (1, "stop"), "call_as_new": (11, "I2"), "slot_leaks": (17, "I16"),
    "timeout_not_armed": (3, "outcome"), "never_given_up": (3, "outcome"), "cancel_ignored": (3, "cancel"),
    "loss_ignored": (70, "lost lease"), "not_given_back": (1, "outcome"), "giving_back_counts": (1, "outcome"),
    "released_early": (575, "stall"), "settled_first": (0, "outcome"),
    "handed_in_twice": (0, "error"), "loss_told_as_success": (18, "I14"), "progress_not_flushed": (2, "progress"),
    "one_slot_more": (3, "I7"), "timeout_cancels": (0, "outcome"), "snooze_counts": (0, "outcome"),
    "never_fails": (0, "outcome"), "delay_ignored": (0, "outcome"), "one_attempt_less": (0, "outcome"),
}  # fmt: skip

WORKER_MUTANTS: dict[str, Mutant] = known(_FOUND_BY, (*loop_mutants(), *_attempt_mutants(), *_judgement_mutants()))
