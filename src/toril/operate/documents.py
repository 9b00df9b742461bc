"""Jobs and related values as JSON documents for programs. Keys stay as they are; new ones may be added.

Payloads, results and errors go through the app's `redact`; each document is made with a given `Redaction`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from toril.codec.steps import load_rest
from toril.errors import Undecodable
from toril.flow import FlowTree
from toril.job import Job
from toril.model import (
    ChildState,
    Counts,
    DeadLetterRow,
    Declarations,
    EventRow,
    Finding,
    GroupLimits,
    JobRef,
    Keep,
    RateLimit,
    RunRow,
    RunStatus,
    ScheduleRow,
    SignalRow,
    SignalWait,
    age_ms,
    ms_of,
)
from toril.operate.metrics import Overview, QueueMetrics, QueueOverview, Spread
from toril.operate.search import Failures, MatchCount
from toril.operate.steps import STEP_KINDS, SignalWaiter, recorded_value, step_record
from toril.operate.why import Explanation
from toril.policy.redaction import UNSHOWN, showable
from toril.records import AttemptError, CircuitRecord, WorkerRecord
from toril.runtime.redaction import Part, Redaction

__all__ = [
    "of_children",
    "of_circuit",
    "of_counted",
    "of_counts",
    "of_declaration",
    "of_errors",
    "of_event",
    "of_explanation",
    "of_failures",
    "of_finding",
    "of_group_limits",
    "of_job",
    "of_letter",
    "of_metrics",
    "of_overview",
    "of_rate",
    "of_run",
    "of_scale",
    "of_schedule",
    "of_signal",
    "of_signals",
    "of_steps",
    "of_tree",
    "of_waiting",
    "of_worker",
    "standing",
    "stored",
]


def of_job(job: Job[Any]) -> dict[str, Any]:
    """A job, as of when it was read."""
    record, seen = job.row, job.queue.services.redaction
    if record is None:
        raise LookupError(f"{job!r} was not read from the store")
    return {
        "queue": record.queue,
        "id": job.id,
        "name": job.name,
        "state": record.state.value,
        "ending": None if record.ending is None else record.ending.value,
        "data": seen.seen(_plain(job.data), "data", record.queue, job.name),
        "priority": record.priority,
        "max_attempts": record.max_attempts,
        "attempts_made": record.attempts_made,
        "stalls": record.stalls,
        "progress": seen.seen(stored(record.progress or "null"), "progress", record.queue, job.name),
        "result": seen.seen(_result(job), "result", record.queue, job.name),
        "error": seen.text(job.error, "error", record.queue, job.name),
        "error_kind": None if record.failure is None else record.failure.kind,
        "cancelling": record.cancelling,
        "unreadable": record.unreadable,
        "metadata": seen.seen(stored(record.metadata or "{}"), "metadata", record.queue, job.name),
        "worker": record.worker,
        "added_at": record.added_at,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "due_at": record.due,
        "expires_at": record.expires_at,
        "rest": _of_rest(record.rest),
        "group": record.group,
        "subject": record.options.subject,
        "parent": _ref(record.parent),
        "dead_letter": record.dead_letter,
    }


def _of_rest(text: str | None) -> dict[str, Any] | None:
    """Why a job rests."""
    rest = load_rest(text)
    if rest is None:
        return None
    reasons = [
        {
            "key": each.key, "kind": STEP_KINDS[each.kind], "until": each.until, "signals": of_signals(each.signals),
        }
        for each in rest.reasons
    ]  # fmt: skip
    return {"since": rest.since, "until": rest.until, "children": rest.children, "for": reasons}


def of_signals(signals: Iterable[SignalWait]) -> list[dict[str, Any]]:
    """Signals that a job waits for."""
    return [{"name": each.name, "key": each.key} for each in signals]


def of_waiting(waiting: SignalWaiter) -> dict[str, Any]:
    """A job that waits for signals, and which."""
    row = waiting.job
    return {
        "queue": row.queue, "id": row.id, "name": row.name, "since": waiting.since, "until": waiting.until,
        "signals": of_signals(waiting.signals), "steps": [each.key for each in waiting.waits], "group": row.group,
        "subject": row.options.subject,
    }  # fmt: skip


def of_steps(rows: Iterable[tuple[str, str]], job: Job[Any]) -> list[dict[str, Any]]:
    """What a job has recorded of its durable steps. A row that this version of Toril cannot read is `unreadable`."""
    return [_of_step(key, text, job) for key, text in rows]


_STEP_PARTS: Final[Mapping[str, Part]] = {"step": "step", "signal": "signal"}


def _of_step(key: str, text: str, job: Job[Any]) -> dict[str, Any]:
    seen, of = job.queue.services.redaction, (job.queue.name, job.name)
    try:
        step = step_record(key, text, job.queue.options.serializer)
    except Undecodable:
        return {
            "key": key, "kind": "unreadable", "number": None, "at": None, "took": None, "attempt": None,
            "value": seen.seen(text, "step", *of), "error": None, "tries": None, "until": None,
        }  # fmt: skip
    value = [_ref(each) for each in step.value] if step.kind == "call" else _plain(step.value)
    part = _STEP_PARTS.get(step.kind)
    return {
        "key": key, "kind": step.kind, "number": step.number, "at": ms_of(step.at), "took": step.took,
        "attempt": step.attempt, "value": value if part is None else seen.seen(value, part, *of),
        "error": seen.text(step.error, "error", *of), "tries": step.tries, "until": ms_of(step.until),
    }  # fmt: skip


def of_signal(signal: SignalRow, job: Job[Any]) -> dict[str, Any]:
    """A signal of a job that nobody has read yet."""
    value = _plain(recorded_value(signal.payload, job.queue.options.serializer))
    return {
        "number": signal.number, "name": signal.name, "key": signal.key, "id": signal.id, "at": signal.at,
        "data": job.queue.services.redaction.seen(value, "signal", job.queue.name, job.name),
    }  # fmt: skip


def of_letter(letter: DeadLetterRow, seen: Redaction) -> dict[str, Any]:
    """A job that failed for good."""
    of, failure = (letter.queue, letter.name), letter.failure
    return {
        "id": letter.id,
        "queue": letter.queue,
        "job_id": letter.job_id,
        "name": letter.name,
        "data": seen.seen(stored(letter.data), "data", *of),
        "cause": letter.cause.value,
        "error": seen.text(failure.reason, "error", *of),
        "error_kind": failure.kind,
        "traceback": seen.text(failure.traceback, "traceback", *of),
        "max_attempts": letter.max_attempts,
        "attempts_made": letter.attempts_made,
        "stalls": letter.stalls,
        "stall_cause": letter.stall_cause,
        "priority": letter.priority,
        "metadata": None if letter.metadata is None else seen.seen(stored(letter.metadata), "metadata", *of),
        "progress": seen.seen(stored(letter.progress or "null"), "progress", *of),
        "group": letter.group,
        "subject": letter.options.subject,
        "parent": _ref(letter.parent),
        "worker": letter.worker,
        "added_at": letter.added_at,
        "started_at": letter.started_at,
        "failed_at": letter.failed_at,
    }


def _ref(job: JobRef | None) -> dict[str, str] | None:
    return None if job is None else {"queue": job.queue, "id": job.id}


def of_errors(errors: Sequence[AttemptError], job: Job[Any]) -> list[dict[str, Any]]:
    """Why each attempt of a job failed, oldest first."""
    seen, of = job.queue.services.redaction, (job.queue.name, job.name)
    return [
        {
            "attempt": each.attempt,
            "at": ms_of(each.at),
            "error": seen.text(each.error, "error", *of),
            "error_kind": each.kind,
            "traceback": seen.text(each.traceback, "traceback", *of),
        }
        for each in errors
    ]


def of_children(tree: FlowTree) -> dict[str, Any]:
    """The states of a job's children, and which of them have not succeeded."""
    family = tree.family
    others = [each for each in tree.children if each.known is not ChildState.COMPLETED]
    return {
        "open": family.open, "completed": family.completed, "ignored": family.ignored, "failed": family.failed,
        "not_completed": [
            {"queue": each.queue, "id": each.id, "name": each.name, "state": standing(each)} for each in others
        ],
    }  # fmt: skip


def stored(text: str) -> Any:
    """A stored value, or its text if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def of_run(queue: str, run: RunRow, seen: Redaction) -> dict[str, Any]:
    """The run record of a job that has ended."""
    return {
        "queue": queue,
        "id": run.id,
        "name": run.name,
        "ending": run.ending.value,
        "cause": run.cause.value,
        "attempts_made": run.attempts_made,
        "stalls": run.stalls,
        "worker": run.worker,
        "added_at": run.added_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "parent": _ref(run.parent),
        "text": _summary(queue, run, seen),
        "whole": run.whole,
    }


def _summary(queue: str, run: RunRow, seen: Redaction) -> str:
    """The beginning of a result, or the reason of a failure. A complete result is redacted as a value."""
    if run.ending is not RunStatus.COMPLETED:
        return seen.text(run.text, "error", queue, run.name) or ""
    value = stored(run.text) if run.whole else run.text
    found = seen.seen(value, "result", queue, run.name)
    return run.text if found == value else found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _result(job: Job[Any]) -> Any:
    text = None if job.row is None else job.row.result
    return None if text is None else _plain(job.queue.handlers.show_result(job.name, text))


def _plain(value: Any) -> Any:
    """What a handler declares, as JSON."""
    if value is None or isinstance(value, str | int | bool):
        return value
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - most commands do without

    try:
        return to_jsonable_python(showable(value), bytes_mode="base64", inf_nan_mode="strings", fallback=repr)
    except ValueError:  # a declared type that is nested too deeply
        return UNSHOWN


def of_schedule(view: ScheduleRow, seen: Redaction) -> dict[str, Any]:
    """A recurring job, and its progress."""
    made = view.schedule
    data = seen.seen(stored(made.job.data), "data", view.queue, made.job.name)
    state = "paused" if view.paused else "over" if view.over else "on"
    return {
        "schedule": made.id, "queue": view.queue, "job": made.job.name, "data": data, "state": state,
        "every_ms": made.every, "cron": made.cron, "tz": made.tz, "next_at": view.next, "runs": view.begun,
        "limit": made.limit, "start_at": made.start, "end_at": made.end, "jitter_ms": made.jitter,
        "overlap": made.overlap.value, "catch_up": made.catch_up.value, "owner": made.owner,
    }  # fmt: skip


def of_worker(view: WorkerRecord) -> dict[str, Any]:
    """A worker, as of its last heartbeat."""
    return {
        "worker": view.id,
        "queues": list(view.queues),
        "slots": view.slots,
        "running": view.running,
        "queue_slots": {
            queue: {"slots": slots, "running": running} for queue, (slots, running) in view.queue_slots.items()
        },
        "host": view.host,
        "pid": view.pid,
        "version": view.version,
        "started_at": ms_of(view.started_at),
        "seen_at": ms_of(view.seen_at),
        "orders": list(view.orders),
        "loop_lag_ms": round(view.lag * 1000),
        "silent_ms": round(view.silent * 1000),
    }


def of_declaration(found: Declarations) -> dict[str, Any] | None:
    """What the live workers of a queue declare, the newest values if they differ. Names that end in `_ms` are durations
    in ms; a rate's `per` is in seconds, as in the settings."""
    said = found.newest
    if said is None:
        return None
    return {
        "workers": found.workers,
        "slots": found.slots,
        "differs": list(found.differing),
        "declared_at": found.items[0].at,
        "concurrency": said.concurrency,
        "rate": of_rate(said.rate),
        "groups": None if said.groups is None else of_group_limits(said.groups),
        "max_waiting": said.max_waiting,
        "max_attempts": said.max_attempts,
        "backoff": {
            "kind": said.backoff.kind, "delay_ms": said.backoff.delay, "cap_ms": said.backoff.cap,
            "jitter": said.backoff.jitter, "strategy": said.backoff.strategy,
        },
        "timeout_ms": said.timeout,
        "lease_ms": said.lease,
        "max_stalls": said.max_stalls,
        "keep_completed": _of_keep(said.keep_completed),
        "keep_failed": _of_keep(said.keep_failed),
        "priority_first": said.priority_first,
        "target_wait_ms": said.target_wait,
        "handlers": None if said.handlers is None else sorted(said.handlers),
        "any_name": said.any_name is not None,
    }  # fmt: skip


def of_rate(rate: RateLimit | None) -> dict[str, Any] | None:
    return None if rate is None else {"max": rate.max, "per": rate.per, "window": rate.window}


def of_group_limits(limits: GroupLimits) -> dict[str, Any]:
    """The limits of each group of a queue, or of one of them."""
    return {
        "concurrency": limits.concurrency, "rate": of_rate(limits.rate_limit), "max_waiting": limits.max_waiting,
        "weight": limits.weight,
    }  # fmt: skip


def _of_keep(keep: Keep) -> dict[str, Any]:
    return {"count": keep.count, "age_ms": age_ms(keep)}


def of_circuit(circuit: CircuitRecord) -> dict[str, Any]:
    """A breaker's key and its state."""
    return {
        "key": circuit.key,
        "state": circuit.state.value,
        "since": ms_of(circuit.since),
        "till": ms_of(circuit.till),
        "runs": circuit.runs,
        "failures": circuit.failures,
        "probes": circuit.probes,
        "passed": circuit.passed,
    }


def of_counts(counts: Counts) -> dict[str, int]:
    """How many jobs are in each state, and how many of the delayed and of those that wait for children rest."""
    return {**counts, "resting": counts.resting}


def of_metrics(found: QueueMetrics) -> dict[str, Any]:
    """A queue's metrics. A point of a series is `step` seconds long, the first begins at `start`; those of `wait` and
    `run` are p50, p95 and p99 in seconds, null where no job ended."""
    completed, failed, cancelled = ([count for _, count in series.data] for series in found.series)
    return {
        "queue": found.queue,
        "range": found.range,
        "start": ms_of(found.start),
        "step": round(found.step),
        "workers": found.workers,
        "counts": of_counts(found.counts),
        "paused": found.counts.paused,
        "completed": found.completed,
        "failed": found.failed,
        "cancelled": found.cancelled,
        "failure_rate": found.failure_rate,
        "wait": _spread(found.wait),
        "run": _spread(found.run),
        "failures": dict(found.failures),
        "other_failures": found.other_failures,
        "retries": found.retries,
        "stalls": found.stalls,
        "lost_leases": found.lost_leases,
        "series": {
            "completed": [completed], "failed": [failed], "cancelled": [cancelled], "wait": _lines(found.waits),
            "run": _lines(found.runs),
        },
        "marks": [],
        "charts": [
            {"id": series.id, "data": [{"x": ms_of(x), "y": y} for x, y in series.data]} for series in found.series
        ],
    }  # fmt: skip


def _spread(found: Spread) -> dict[str, Any]:
    return {"count": found.count, "p50": found.p50, "p95": found.p95, "p99": found.p99}


def _lines(points: Sequence[Spread]) -> list[list[float | None]]:
    return [[each.p50 for each in points], [each.p95 for each in points], [each.p99 for each in points]]


def of_overview(found: Overview) -> dict[str, Any]:
    """All queues with their last hour, and the live workers."""
    return {
        "now": ms_of(found.now),
        "queues": [_of_hour(each) for each in found.queues],
        "workers": [of_worker(each) for each in found.workers],
    }


def of_scale(found: QueueOverview) -> dict[str, Any]:
    """What an autoscaler needs. `depth` is how many jobs could run now; durations are in seconds, 0 if nothing waits or
    has waited."""
    return {
        "queue": found.queue, "depth": found.counts.waiting + found.counts.prioritized, "running": found.counts.active,
        "oldest": found.oldest or 0.0, "wait_p95": found.wait_p95 or 0.0, "target_wait": found.target_wait,
        "rate": found.rate, "workers": found.workers, "paused": found.counts.paused,
    }  # fmt: skip


def _of_hour(each: QueueOverview) -> dict[str, Any]:
    return {
        "queue": each.queue, "paused": each.counts.paused,
        "counts": of_counts(each.counts), "workers": each.workers,
        "completed": list(each.completed), "failed": list(each.failed), "cancelled": each.cancelled,
        "failure_rate": each.failure_rate, "rate": each.rate,
        "wait_p95": each.wait_p95, "run_p95": each.run_p95, "oldest": each.oldest,
        "retries": each.retries, "stalls": each.stalls, "lost_leases": each.lost_leases,
        "target_wait": each.target_wait, "waits_too_long": each.waits_too_long,
    }  # fmt: skip


def of_counted(found: MatchCount) -> dict[str, Any]:
    """How many jobs match, as far as was searched."""
    return {"count": found.count, "looked": found.looked, "cursor": found.cursor, "asked_at": ms_of(found.asked_at)}


def of_failures(found: Failures) -> dict[str, Any]:
    """Failures grouped by error; the newest `looked` of `of` were examined."""
    items = [
        {
            "kind": each.kind,
            "error": each.error,
            "count": each.count,
            "first_at": ms_of(each.first_at),
            "last_at": ms_of(each.last_at),
            "example": each.example,
        }
        for each in found.groups
    ]
    return {"items": items, "looked": found.looked, "of": found.of}


def of_explanation(found: Explanation) -> dict[str, Any]:
    """Why a job is not running, or how it ended."""
    facts = {name: ms_of(fact) if isinstance(fact, datetime) else fact for name, fact in found.facts.items()}
    return {"reason": found.reason, "sentence": found.sentence, "facts": facts}


def of_finding(finding: Finding) -> dict[str, Any]:
    """A finding of the doctor, and what to do about it."""
    fault = finding.fault
    return {
        "severity": finding.severity.value, "code": finding.code, "finding": finding.summary, "where": finding.where,
        "fix": finding.fix, "queue": (fault.queue or None) if fault else None,
        "subject": fault.subject if fault else None, "repairable": fault is not None,
    }  # fmt: skip


_PARTS: Final[Mapping[str, Part]] = {"returnvalue": "result", "failedReason": "error", "data": "progress"}


def _detail(queue: str, field: str, text: str, seen: Redaction) -> str:
    if field not in _PARTS:
        return text
    value = text if field == "failedReason" else stored(text)
    found = seen.seen(value, _PARTS[field], queue, "")
    return text if found == value else found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def of_event(queue: str, event: EventRow, seen: Redaction) -> dict[str, Any]:
    """An event of a queue; `at` is its position. Events do not contain the job's name."""
    detail = {field: _detail(queue, field, text, seen) for field, text in event.detail.items()}
    return {
        "queue": queue, "kind": event.kind.value, "at": event.at, "time": event.time, "id": event.job_id,
        "detail": detail,
    }  # fmt: skip


def standing(tree: FlowTree) -> str:
    """The state of a job of a flow; if it is gone, what its parent knows."""
    if tree.state is not None:
        return (tree.ending or tree.state).value
    return "gone" if tree.known is None else tree.known.value


def of_tree(tree: FlowTree) -> dict[str, Any]:
    """A job of a flow, and those of its children that are shown; `children` counts all of them."""
    family = tree.family
    counts = {
        "open": family.open, "completed": family.completed, "ignored": family.ignored, "failed": family.failed,
    }  # fmt: skip
    return {
        "queue": tree.queue, "id": tree.id, "name": tree.name, "state": standing(tree), "dead_letter": tree.dead_letter,
        "children": counts, "tree": [of_tree(child) for child in tree.children],
    }  # fmt: skip
