"""Jobs that returned: nearly all jobs take this road, so it is written for many at once."""

from collections.abc import Sequence
from typing import Any

from toril.engines.sql.options import DEFAULTS, load_options
from toril.engines.sql.schema import Place
from toril.engines.sql.step import JOB_COLUMNS, Job, Step
from toril.engines.sql.told import Told
from toril.model import Completed, EventKind
from toril.policy.retention import shortened

__all__ = ["complete"]


def complete(step: Step, ended: Sequence[tuple[list[Any], str, Completed]]) -> None:
    """Record each run, then keep or delete the job. An entry begins with the columns of `Job`."""
    now = step.tx.now
    number = step.completed(len(ended))
    runs: list[tuple[Any, ...]] = []
    returned: list[str] = []
    removed: list[int] = []
    for entry, identity, outcome in ended:
        key, chosen, name, _, _, made, stalls, _, _, added_at, started_at, worker, logs, options, *_ = entry
        text, whole = shortened(outcome.result)
        returned.append(text)
        if outcome.summary is not None:
            text, whole = shortened(outcome.summary)[0], False
        number += 1
        own = DEFAULTS if options is None else load_options(options)
        runs.append((
            number, identity, name, "completed", added_at, started_at, now, made + 1, stalls, worker, text, whole,
            own.subject, own.flow,
        ))  # fmt: skip
        if options is None and chosen is None and not logs:
            removed.append(key)  # by far the most: nothing is kept of it but the record
        else:
            _retain(step, entry, options, identity, outcome.result)
    step.write("run", runs)
    step.write("delete_job", [(key,) for key in removed])
    step.events(EventKind.COMPLETED, [identity for _, identity, _ in ended], returnvalue=returned)


def _retain(step: Step, entry: list[Any], text: str | None, identity: str, result: str) -> None:
    options = load_options(text)
    if options.parent is not None:
        step.told.append(Told(identity, options.parent, "completed", result))
    if options.dedup is not None and options.dedup.key is not None:
        step.ended_keys.append((entry[0], options.dedup.key))
    if options.result_ttl is not None:
        till = step.tx.now + options.result_ttl
        step.write("result", [(step.row.key, identity, till, "completed", result)])
    job = Job._make(entry[:JOB_COLUMNS])
    if options.keep_completed.count == 0:
        if options.parked is not None:
            step.write("orphan", [(job.key,)])
        step.delete(job.key, job.chosen, job.logs)
    else:
        step.keep(job, job.attempts_made + 1, Place.COMPLETED, options.keep_completed, result, None)
