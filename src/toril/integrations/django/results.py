"""From a job to the result of a task, and from its name to the task."""

from datetime import datetime
from typing import Any, Final

from django.utils.module_loading import import_string
from django_tasks.base import TASK_MAX_PRIORITY, Task, TaskError, TaskResult, TaskResultStatus

from toril.errors import PermanentError
from toril.model.states import State
from toril.records import JobDetails

__all__ = ["result_of", "task_named"]

_STATUS: Final = {
    State.ACTIVE: TaskResultStatus.RUNNING,
    State.COMPLETED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
}


def task_named(path: str) -> Task[Any, Any]:
    """The task that a job is named for. Whatever else may be found there is not run."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise PermanentError(f"there is no task {path!r}: {error}") from error
    if not isinstance(found, Task):
        raise PermanentError(f"{path!r} is not a task")
    return found


def result_of(record: JobDetails, backend: str) -> TaskResult[Any]:
    """What is known of a task, as of when its job was read."""
    sent = record.data
    status = _STATUS.get(record.state, TaskResultStatus.READY)
    result: TaskResult[Any] = TaskResult(
        task=_task(record, sent), id=f"{record.queue}:{record.id}", status=status, backend=backend,
        enqueued_at=record.added_at, started_at=record.started_at, args=sent["args"],
        finished_at=record.finished_at, last_attempted_at=record.started_at, kwargs=sent["kwargs"],
        errors=_errors(record), worker_ids=_workers(record),
    )  # fmt: skip
    if status is TaskResultStatus.SUCCESSFUL and record.result is not None:
        object.__setattr__(result, "_return_value", record.result)
    return result


def _task(record: JobDetails, sent: dict[str, Any]) -> Task[Any, Any]:
    due = sent.get("run_after")
    return task_named(record.name).using(
        priority=TASK_MAX_PRIORITY + 1 - record.priority if record.priority else None,
        queue_name=record.queue,
        run_after=None if due is None else datetime.fromisoformat(due),
    )


def _errors(record: JobDetails) -> list[TaskError]:
    """What each attempt raised, as the worker has noted it. One that died has noted nothing."""
    noted = record.checkpoint or []
    errors = [TaskError(exception_class_path=kind, traceback=trace) for kind, trace in noted]
    if record.failure is not None and record.state is State.FAILED and len(errors) < record.attempts_made:
        reason = record.failure.traceback or record.failure.reason
        errors.append(TaskError(exception_class_path="toril.errors.JobFailed", traceback=reason))
    return errors


def _workers(record: JobDetails) -> list[str]:
    """One for each attempt, of which the last is known by name."""
    return [record.worker or ""] * (record.attempts_made + (record.state is State.ACTIVE))
