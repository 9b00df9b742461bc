"""Explains why a job does not run, in one sentence and the facts behind it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from toril.client.options import QueueOptions
from toril.codec.steps import load_rest
from toril.errors import NotFound, preview
from toril.model import (
    Cause,
    CircuitRow,
    CircuitState,
    Declaration,
    Declarations,
    Failure,
    JobBlockers,
    JobRow,
    Limits,
    Precedence,
    QueueSummary,
    RestReason,
    RestRow,
    RunRow,
    RunStatus,
    StepKind,
    WorkerRow,
    moment,
)
from toril.model.states import State
from toril.operate.lookup import find_job
from toril.operate.search import JobSearch
from toril.policy.redaction import redacted
from toril.runtime.redaction import Part

if TYPE_CHECKING:
    from toril.queue import Queue

__all__ = ["Explanation", "ended", "explain", "failed", "send_command", "why"]


_ENDED: Final = {Cause.COMPLETED: "completed", Cause.CANCELLED: "was cancelled", Cause.EXPIRED: "expired"}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job is where it is: `reason` is one word for programs, `sentence` is for people, `facts` are what it is
    based on."""

    reason: str
    sentence: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.sentence


async def explain(queue: "Queue", job_id: str) -> Explanation:
    """See `Queue.why`."""
    store, name = queue.store, queue.name
    row = await find_job(store, name, job_id)
    if row is None:
        return await _remembered(queue, job_id)
    if row.failure is not None:
        row = replace(row, failure=replace(row.failure, reason=JobSearch(queue).error_of(row)))
    if row.dead_letter is not None:
        return failed(row)
    declared = await store.declarations(name)
    blockers = await store.explain(name, job_id, _limits(queue.options, declared.newest))
    workers = [worker for worker in await store.workers(name) if not worker.silent]
    return why(row, await store.queue(name), blockers, workers, await _circuit_of(queue, row), declared)


def _limits(options: QueueOptions, declared: Declaration | None) -> Limits:
    """The limits that claims of the queue observe: those that its workers declare or, without workers, those in the
    code here."""
    rate, first = (
        (options.rate_limit, options.priority_first) if declared is None else (declared.rate, declared.priority_first)
    )
    return Limits(rate=rate, precedence=Precedence.PRIORITY_FIRST if first else Precedence.PLAIN_FIRST)


async def _circuit_of(queue: "Queue", row: JobRow) -> CircuitRow | None:
    """The circuit that a job depends on, if it is known. If the breaker is declared elsewhere, circuits named after the
    queue or the job are considered."""
    if row.state not in {State.WAITING, State.PRIORITIZED, State.DELAYED}:
        return None
    entry = queue.handlers.find(row.name)
    breaker = (entry.handler.breaker if entry else None) or queue.options.breaker
    own = row.options.breaker
    keys = {queue.name, f"{queue.name}/{row.name}"} if own is None else {own}
    if breaker is not None:
        try:
            data = queue.handlers.decode(row.name, row.data)
            keys = {breaker.key_for(queue.name, row.name, data, own)}
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return None  # its key depends on the payload, and this payload has none
    found = [each for each in await queue.store.circuits.list() if each.key in keys]
    return max(found, key=lambda each: each.till, default=None)


async def _remembered(queue: "Queue", job_id: str) -> Explanation:
    for ending in RunStatus:
        for run in (await queue.store.runs(queue.name, ending, limit=1000)).items:
            if run.id == job_id:
                part: Part = "result" if ending is RunStatus.COMPLETED else "error"
                seen = queue.services.redaction.text(run.text, part, queue.name, run.name)
                return ended(replace(run, text=redacted(seen or "")))
    raise NotFound(f"there is no job {preview(job_id)} in queue {queue.name!r}, and no run record of one")


def why(
    row: JobRow,
    queue: QueueSummary,
    blockers: JobBlockers,
    workers: Sequence[WorkerRow],
    circuit: CircuitRow | None = None,
    declared: Declarations = Declarations(),
) -> Explanation:
    """Why this job is where it is. `circuit` is the one that it depends on, `declared` is what the workers declare."""
    known = declared.handled(len(workers))
    match row.state:
        case State.ACTIVE:
            return _running(row, blockers)
        case State.COMPLETED:
            return Explanation(
                "completed", f"It completed at {_at(row.finished_at)}.", {"finished_at": moment(row.finished_at)}
            )
        case State.FAILED:
            return failed(row)
        case State.WAITING_CHILDREN:
            return _resting(row, known, blockers) or _waiting_for_children(blockers)
        case State.DELAYED if row.due is not None and row.due > blockers.now:
            return (
                _resting(row, known, blockers)
                or _cut_off(row, circuit, blockers.now)
                or _without_handler(row, known, blockers.now)
                or _not_due(row, blockers.now)
            )
        case State.DELAYED | State.WAITING | State.PRIORITIZED:
            return (
                _shut(row, queue, blockers, workers, known)
                or _held_up(queue, blockers)
                or _cut_off(row, circuit, blockers.now)
                or _alone(row, blockers)
                or _in_line(blockers)
            )


def failed(row: JobRow) -> Explanation:
    """Explain a failed job that is kept in its queue or is a dead letter."""
    failure = row.failure or Failure("the reason is unknown")
    facts = {
        "finished_at": moment(row.finished_at),
        "error": failure.reason,
        "attempts_made": row.attempts_made,
    }
    reason, what = ("cancelled", "was cancelled") if row.ending is RunStatus.CANCELLED else ("failed", "failed")
    if row.dead_letter is None:
        return Explanation(reason, f"It {what} at {_at(row.finished_at)}: {failure.reason}", facts)
    sentence = f"It failed at {_at(row.finished_at)} {_tried(row)} and is a dead letter: {failure.reason}"
    return Explanation("dead_letter", sentence, facts | {"dead_letter": row.dead_letter})


def _tried(row: JobRow) -> str:
    if row.never_started:
        return "before it started"
    tried = f"after {row.attempts_made} of {row.max_attempts} attempts"
    times = "once" if row.stalls == 1 else f"{row.stalls} times"
    return f"{tried}, its worker lost {times}," if row.stalls else tried


def ended(run: RunRow) -> Explanation:
    """Explain a job of which only the run record is left."""
    facts = {"finished_at": moment(run.finished_at), "cause": run.cause.value, "text": run.text}
    sentence = f"It {_ENDED.get(run.cause, 'failed')} at {_at(run.finished_at)} and is no longer stored."
    if run.ending is not RunStatus.COMPLETED and run.text:
        sentence += f" Reason: {run.text}"
    return Explanation("ended", sentence, facts)


def _waiting_for_children(blockers: JobBlockers) -> Explanation:
    family = blockers.family
    named = [str(ref) for ref in family.first_open]
    facts = {"open": family.open, "children": family.total, "waiting_for": named}
    if not family.total:
        return Explanation("waiting_children", "It is waiting for children: its flow is still being added.", facts)
    dots = ", …" if family.open > len(named) else ""
    sentence = f"It is waiting for {family.open} of {family.total} children: {', '.join(named)}{dots}."
    return Explanation("waiting_children", sentence, facts)


_RESTS: Final = {
    StepKind.SLEEP: "sleeping", StepKind.WAIT: "waiting_for_signal", StepKind.RETRY: "retry_step",
    StepKind.CALLED: "waiting_for_call",
}  # fmt: skip
_LISTED: Final = 3  # reasons to rest in a sentence


def _resting(row: JobRow, known: frozenset[str] | None, blockers: JobBlockers) -> Explanation | None:
    """It rests: which of its durable steps for what, and until when."""
    rest = load_rest(row.rest)
    if rest is None or not rest.reasons:
        return None
    now, kinds = blockers.now, {each.kind for each in rest.reasons}
    signals = list(dict.fromkeys(wait for each in rest.reasons for wait in each.signals))
    facts: dict[str, Any] = {
        "since": moment(rest.since), "until": moment(rest.until), "steps": [each.key for each in rest.reasons],
        "signals": [{"name": wait.name, "key": wait.key} for wait in signals],
    }  # fmt: skip
    said = [_rest_reason(each, rest, now) for each in rest.reasons[:_LISTED]]
    more = len(rest.reasons) - len(said)
    sentence = f"It {', and '.join(said)}" + (f", and rests for {more} more" if more else "") + "."
    if StepKind.CALLED in kinds and blockers.family.open:
        facts |= {"open": blockers.family.open, "waiting_for": [str(ref) for ref in blockers.family.first_open]}
        dots = ", …" if blockers.family.open > len(blockers.family.first_open) else ""
        sentence += f" Not ended: {', '.join(map(str, blockers.family.first_open))}{dots}."
    if known is not None and row.name not in known:
        sentence += f" No live Toril worker has a handler for {row.name!r} in queue {row.queue}, so it will not go on."
        facts |= {"handlers": sorted(known)}
    return Explanation(_RESTS[kinds.pop()] if len(kinds) == 1 else "resting", sentence, facts)


def _rest_reason(reason: RestReason, rest: RestRow, now: int) -> str:
    until = None if reason.until is None else f"{_at(reason.until)}, in {_span(max(0, reason.until - now))}"
    match reason.kind:
        case StepKind.SLEEP:
            return f"sleeps ({reason.key}) until {until}"
        case StepKind.WAIT:
            names = " or ".join(wait.name + (f" by the key {wait.key}" if wait.key else "") for wait in reason.signals)
            ends = "without a timeout" if until is None else f"at most until {until}"
            return f"has waited for the signal {names} since {_at(rest.since)}, {ends}"
        case StepKind.RETRY:
            return f"will try step {reason.key} again at {until}"
        case _:
            return f"waits for what it called in step {reason.key}"


def send_command(row: JobRow) -> str | None:
    """The command that sends the first signal that a resting job waits for."""
    rest = load_rest(row.rest)
    wait = next((wait for each in rest.reasons for wait in each.signals), None) if rest else None
    if wait is None:
        return None
    if wait.key is None:
        return shlex.join(["toril", "job", "signal", row.queue, row.id, wait.name])
    return shlex.join(["toril", "signal", row.queue, wait.name, "--key", wait.key])


def _running(row: JobRow, blockers: JobBlockers) -> Explanation:
    started, deadline = moment(row.started_at), moment(row.deadline)
    facts = {"worker": row.worker, "started_at": started, "deadline": deadline}
    if row.deadline is not None and row.deadline <= blockers.now:
        return Explanation(
            "lease_over", f"Its worker {row.worker} is lost; it will be recovered within moments.", facts
        )
    if row.cancelling is not None:
        return Explanation(
            "cancelling", f"It is running on {row.worker} and was asked to stop: {row.cancelling}", facts
        )
    since = f"It has been running on {row.worker} since {_at(row.started_at)}"
    if blockers.alone:
        return Explanation("running_alone", f"{since}, alone because its worker died{_cause(row)}.", facts)
    return Explanation("running", f"{since}.", facts)


def _cause(row: JobRow) -> str:
    return f" ({row.stall_cause})" if row.stall_cause else ""


def _alone(row: JobRow, blockers: JobBlockers) -> Explanation | None:
    """A stalled job waits for a process that runs nothing else."""
    if not blockers.alone:
        return None
    facts = {"ahead": blockers.ahead, "stalls": row.stalls, "cause": row.stall_cause}
    sentence = (
        f"It must run alone because its worker died{_cause(row)}: it is waiting for a process that runs nothing else"
    )
    if blockers.ahead:
        sentence += f", behind {blockers.ahead} such {'job' if blockers.ahead == 1 else 'jobs'}"
    return Explanation("alone", f"{sentence}.", facts)


def _not_due(row: JobRow, now: int) -> Explanation:
    assert row.due is not None  # noqa: S101 - the caller has looked
    facts = {"due_at": moment(row.due), "attempts_made": row.attempts_made}
    when = f"until {_at(row.due)}, in {_seconds(row.due - now)}"
    if row.attempts_made:
        return Explanation("retry_later", f"Attempt {row.attempts_made} failed, and the next is not due {when}.", facts)
    return Explanation("not_due", f"It is not due {when}.", facts)


def _without_handler(row: JobRow, known: frozenset[str] | None, now: int) -> Explanation | None:
    """No live worker can run the job. A job that has not been offered to any worker waits for its time first."""
    waits = row.state is State.DELAYED and row.due is not None and row.due > now
    if known is None or row.name in known or (waits and not row.starts):
        return None
    facts = {"queue": row.queue, "name": row.name, "handlers": sorted(known), "due_at": moment(row.due)}
    sentence = f"No live Toril worker has a handler for {row.name!r} in queue {row.queue}."
    if waits:
        sentence += f" It will be offered again at {_at(row.due)}."
    return Explanation("no_handler", sentence, facts)


def _cut_off(row: JobRow, circuit: CircuitRow | None, now: int) -> Explanation | None:
    """A circuit defers the job. If the circuit will have closed by the time the job is due, the job does not wait for
    it; deferred jobs come back up to a quarter of the pause later."""
    if circuit is None or circuit.state is CircuitState.CLOSED:
        return None
    state, terms = circuit.state, circuit.terms
    till = circuit.till if state is CircuitState.OPEN else now
    if (row.due or 0) > max(till, now) + max(terms.pause // 4, 2_000):
        return None
    facts = {
        "circuit": circuit.key, "state": state.value, "till": moment(circuit.till), "due_at": moment(row.due),
    }  # fmt: skip
    if state is CircuitState.OPEN and till > now:
        sentence = f"The circuit of {circuit.key} is open until {_at(till)} ({_seconds(till - now)} left)."
        return Explanation("circuit", sentence, facts)
    if state is CircuitState.HALF_OPEN:
        most = terms.probes
        sentence = (
            f"The circuit of {circuit.key} is half-open: {most} {'job probes' if most == 1 else 'jobs probe'} it first."
        )
        return Explanation("circuit", sentence, facts)
    return None


def _shut(
    row: JobRow,
    queue: QueueSummary,
    blockers: JobBlockers,
    workers: Sequence[WorkerRow],
    known: frozenset[str] | None,
) -> Explanation | None:
    """What stops the whole queue."""
    settings, now = queue.settings, blockers.now
    if settings.paused:
        return Explanation("paused", f"Queue {queue.name} is paused.", {"queue": queue.name})
    if not workers:
        return Explanation("no_worker", f"No Toril worker serves queue {queue.name}.", {"queue": queue.name})
    if unfit := _claims_nothing(queue.name, workers) or _without_handler(row, known, now):
        return unfit
    if settings.concurrency is not None and queue.counts.active >= settings.concurrency:
        held = ", ".join(blockers.running)
        facts = {"concurrency": settings.concurrency, "running": list(blockers.running), "ahead": blockers.ahead}
        return Explanation(
            "concurrency", f"Queue {queue.name} is at its limit of {settings.concurrency} running: {held}.", facts
        )
    till = max(settings.held_till or 0, blockers.rate_till or 0)
    if till > now:
        sentence = f"Queue {queue.name} is rate limited until {_at(till)} ({_seconds(till - now)} left)."
        return Explanation("rate", sentence, {"till": moment(till), "ahead": blockers.ahead})
    return None


def _claims_nothing(queue: str, workers: Sequence[WorkerRow]) -> Explanation | None:
    """No worker of the queue claims anything, so free slots do not help: they were told to be quiet or to stop, or run
    a job of another queue alone."""
    if not all(worker.orders or worker.isolates for worker in workers):
        return None
    names = [worker.id for worker in workers]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    facts = {"queue": queue, "workers": names}
    if all(worker.orders for worker in workers):
        return Explanation("quiet", f"All workers of queue {queue} were told to claim no more jobs: {shown}.", facts)
    sentence = f"The workers of queue {queue} start no jobs until a stalled job has run alone: {shown}."
    return Explanation("isolated", sentence, facts)


def _held_up(queue: QueueSummary, blockers: JobBlockers) -> Explanation | None:
    """What in its group keeps the job from starting. Once admitted, it is in the line like any other job."""
    group = blockers.group
    if group is None or group.let_in:
        return None
    limits, name = group.limits, f"Group {group.name} of queue {queue.name}"
    facts = {
        "group": group.name, "ahead": group.ahead, "holders": list(group.holders), "till": moment(group.till),
    }  # fmt: skip
    if group.paused:
        return Explanation("group_paused", f"{name} is paused.", facts)
    if limits.concurrency is not None and len(group.holders) >= min(limits.concurrency, 10):
        held = ", ".join(group.holders)
        return Explanation("group_limit", f"{name} is at its limit of {limits.concurrency} running: {held}.", facts)
    if group.till is not None and group.till > blockers.now:
        wait = f"until {_at(group.till)} ({_seconds(group.till - blockers.now)} left)"
        return Explanation("group_rate", f"{name} is rate limited {wait}.", facts)
    behind = f", behind {group.ahead} of its own jobs" if group.ahead else ""
    return Explanation("group_turn", f"It is waiting for group {group.name}'s turn{behind}.", facts)


def _in_line(blockers: JobBlockers) -> Explanation:
    facts = {"ahead": blockers.ahead, "running": list(blockers.running)}
    if not blockers.ahead:
        return Explanation("next", "It is next to start, as soon as a worker has a free slot.", facts)
    return Explanation("behind", f"It is behind {blockers.ahead} {'job' if blockers.ahead == 1 else 'jobs'}.", facts)


def _at(ms: int | None) -> str:
    return "an unknown time" if ms is None else f"{moment(ms):%Y-%m-%d %H:%M:%S} UTC"


def _span(ms: int) -> str:
    """A time that may take days."""
    for unit, size in (("days", 86_400_000), ("hours", 3_600_000)):
        if ms >= 2 * size:
            return f"{ms // size} {unit}"
    return _seconds(ms)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.3g} s" if ms < 120_000 else f"{ms // 60_000} min"
