"""Jobs, and what is around them, as programs get them. The keys stay; new ones may come."""

import json
from collections.abc import Sequence
from typing import Any

from toril.flow import Tree
from toril.job import Job
from toril.metrics import Overview, QueueMetrics, QueueOverview, Spread
from toril.model import Circuit, DeadLetter, Event, Finding, Run, ScheduleView, WorkerView

__all__ = [
    "of_circuit",
    "of_event",
    "of_finding",
    "of_job",
    "of_letter",
    "of_metrics",
    "of_overview",
    "of_run",
    "of_schedule",
    "of_tree",
    "of_worker",
    "standing",
]


def of_job(job: Job[Any]) -> dict[str, Any]:
    """A job, as of when it was read."""
    record = job.record
    if record is None:
        raise LookupError(f"{job!r} was not read from the store")
    return {
        "queue": record.queue,
        "id": job.id,
        "name": job.name,
        "state": record.state.value,
        "data": job.data,
        "priority": record.priority,
        "attempts": record.attempts,
        "attempts_made": record.attempts_made,
        "stalls": record.stalls,
        "progress": job.progress,
        "result": _value(job, record.result),
        "error": job.error,
        "error_kind": None if record.failure is None else record.failure.kind,
        "cancelling": record.cancelling,
        "metadata": dict(job.metadata),
        "worker": record.worker,
        "added_at": record.added_at,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "due_at": record.due,
        "expires_at": record.expires_at,
    }


def of_letter(letter: DeadLetter) -> dict[str, Any]:
    """A job that failed for good."""
    return {
        "id": letter.id,
        "queue": letter.queue,
        "job_id": letter.job_id,
        "name": letter.name,
        "data": _json(letter.data),
        "cause": letter.cause.value,
        "error": letter.failure.reason,
        "error_kind": letter.failure.kind,
        "traceback": letter.failure.traceback,
        "attempts": letter.attempts,
        "attempts_made": letter.attempts_made,
        "stalls": letter.stalls,
        "stall_cause": letter.stall_cause,
        "priority": letter.priority,
        "metadata": None if letter.metadata is None else _json(letter.metadata),
        "worker": letter.worker,
        "added_at": letter.added_at,
        "started_at": letter.started_at,
        "failed_at": letter.failed_at,
    }


def _json(text: str) -> Any:
    """A stored value; the text itself where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def of_run(queue: str, run: Run) -> dict[str, Any]:
    """What is remembered of a job that has ended."""
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
        "text": run.text,
        "whole": run.whole,
    }


def _value(job: Job[Any], text: str | None) -> Any:
    return None if text is None else job.queue.result_of(job.name, text)


def of_schedule(view: ScheduleView) -> dict[str, Any]:
    """A recurring job, and how far it has come."""
    made = view.schedule
    state = "paused" if view.paused else "over" if view.over else "on"
    return {
        "schedule": made.id, "queue": view.queue, "job": made.job.name, "data": _json(made.job.data), "state": state,
        "every_ms": made.every, "cron": made.cron, "tz": made.tz, "next_at": view.next, "runs": view.count,
        "limit": made.limit, "start_at": made.start, "end_at": made.end, "jitter_ms": made.jitter,
        "overlap": made.overlap.value, "catch_up": made.catch_up.value, "origin": made.origin.value,
    }  # fmt: skip


def of_worker(view: WorkerView) -> dict[str, Any]:
    """A worker, by its last sign of life."""
    return {
        "worker": view.id,
        "queues": list(view.queues),
        "slots": view.slots,
        "running": view.running,
        "host": view.host,
        "pid": view.pid,
        "version": view.version,
        "started_at": view.started_at,
        "seen_at": view.seen_at,
        "orders": list(view.orders),
        "loop_lag_ms": view.lag,
    }


def of_circuit(circuit: Circuit) -> dict[str, Any]:
    """A breaker's key, and how it stands."""
    return {
        "key": circuit.key,
        "state": circuit.state.value,
        "since": circuit.since or None,
        "till": circuit.till or None,
        "runs": circuit.runs,
        "failures": circuit.failures,
        "probes": len(circuit.probes),
        "passed": circuit.passed,
    }


def of_metrics(found: QueueMetrics) -> dict[str, Any]:
    """A queue in figures. A point of a series is `step` seconds long, the first begins at `start`; those of `wait` and
    `run` are in seconds, p50, p95 and p99, and null where no job ended."""
    completed, failed = ([count for _, count in series.data] for series in found.series)
    return {
        "queue": found.queue,
        "range": found.range,
        "start": found.start,
        "step": found.step,
        "workers": found.workers,
        "counts": {state: found.counts[state] for state in found.counts},
        "paused": found.counts.paused,
        "completed": found.completed,
        "failed": found.failed,
        "failure_rate": found.failure_rate,
        "wait": _spread(found.wait),
        "run": _spread(found.run),
        "failures": dict(found.failures),
        "other_failures": found.other_failures,
        "retries": found.retries,
        "stalls": found.stalls,
        "lost_leases": found.lost_leases,
        "series": {
            "completed": [completed], "failed": [failed], "wait": _lines(found.waits), "run": _lines(found.runs),
        },
        "marks": [],
        "charts": [{"id": series.id, "data": [{"x": x, "y": y} for x, y in series.data]} for series in found.series],
    }  # fmt: skip


def _spread(found: Spread) -> dict[str, Any]:
    return {"count": found.count, "p50": found.p50, "p95": found.p95, "p99": found.p99}


def _lines(points: Sequence[Spread]) -> list[list[float | None]]:
    return [[each.p50 for each in points], [each.p95 for each in points], [each.p99 for each in points]]


def of_overview(found: Overview) -> dict[str, Any]:
    """All queues with their last hour, and the workers that are alive."""
    return {
        "now": found.now,
        "queues": [_of_hour(each) for each in found.queues],
        "workers": [of_worker(each) for each in found.workers],
    }


def _of_hour(each: QueueOverview) -> dict[str, Any]:
    return {
        "queue": each.queue, "paused": each.counts.paused,
        "counts": {state: each.counts[state] for state in each.counts}, "workers": each.workers,
        "completed": list(each.completed), "failed": list(each.failed), "failure_rate": each.failure_rate,
        "rate": each.rate, "wait_p95": each.wait_p95, "run_p95": each.run_p95, "oldest": each.oldest,
        "retries": each.retries, "stalls": each.stalls, "lost_leases": each.lost_leases,
        "target_wait": each.target_wait, "waits_too_long": each.waits_too_long,
    }  # fmt: skip


def of_finding(finding: Finding) -> dict[str, Any]:
    """What a doctor found, and what to do about it."""
    fault = finding.fault
    return {
        "severity": finding.severity.value, "code": finding.code, "finding": finding.summary, "where": finding.where,
        "fix": finding.fix, "queue": (fault.queue or None) if fault else None,
        "subject": fault.subject if fault else None, "repairable": fault is not None,
    }  # fmt: skip


def of_event(queue: str, event: Event) -> dict[str, Any]:
    """Something that happened in a queue; `at` is its place there."""
    return {
        "queue": queue, "kind": event.kind.value, "at": event.at, "time": event.time, "id": event.job_id,
        "detail": dict(event.detail),
    }  # fmt: skip


def standing(tree: Tree) -> str:
    """How a job of a flow stands; of one that is gone, what its parent knows."""
    if tree.state is not None:
        return tree.state.value
    return "gone" if tree.known is None else tree.known.value


def of_tree(tree: Tree) -> dict[str, Any]:
    """A job of a flow, and those below it that are shown; `children` counts them all."""
    family = tree.family
    counts = {
        "open": family.open, "completed": family.completed, "ignored": family.ignored, "failed": family.failed,
    }  # fmt: skip
    return {
        "queue": tree.queue, "id": tree.id, "name": tree.name, "state": standing(tree), "children": counts,
        "tree": [of_tree(child) for child in tree.children],
    }  # fmt: skip
