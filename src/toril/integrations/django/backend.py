"""`TorilBackend`: runs the tasks of django-tasks as Toril jobs."""

from datetime import datetime
from functools import partial
from typing import Any, Final

from django.db import transaction
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.utils.module_loading import import_string
from django_tasks.backends.base import BaseTaskBackend
from django_tasks.base import TASK_MAX_PRIORITY, Task, TaskError, TaskResult, TaskResultStatus
from django_tasks.exceptions import TaskResultDoesNotExist
from django_tasks.signals import task_enqueued

from toril.client.options import AddOptions
from toril.errors import InvalidName, PermanentError
from toril.integrations.django.settings import add, get_app
from toril.model import Keep
from toril.model.states import State
from toril.queue import PreparedJob, Queue
from toril.records import JobRecord

__all__ = ["TorilBackend", "priority_of", "result_of", "task_named"]

_STATUS: Final = {
    State.ACTIVE: TaskResultStatus.RUNNING,
    State.COMPLETED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
}


def task_named(path: str) -> Task[Any, Any]:
    """The task with this path. Anything else found there is not run."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise PermanentError(f"there is no task {path!r}: {error}") from error
    if not isinstance(found, Task):
        raise PermanentError(f"{path!r} is not a task")
    return found


def result_of(record: JobRecord, backend: str) -> TaskResult[Any]:
    """The result of a task, as of when its job was read."""
    sent = record.data
    status = _STATUS.get(record.state, TaskResultStatus.READY)
    result: TaskResult[Any] = TaskResult(
        task=_task(record, sent),
        id=f"{record.queue}:{record.id}",
        status=status,
        backend=backend,
        enqueued_at=record.added_at,
        started_at=record.started_at,
        args=sent["args"],
        finished_at=record.finished_at,
        last_attempted_at=record.started_at,
        kwargs=sent["kwargs"],
        errors=_errors(record),
        worker_ids=_workers(record),
    )
    if status is TaskResultStatus.SUCCESSFUL and record.result is not None:
        object.__setattr__(result, "_return_value", record.result)
    return result


def _task(record: JobRecord, sent: dict[str, Any]) -> Task[Any, Any]:
    due = sent.get("run_after")
    return task_named(record.name).using(
        priority=TASK_MAX_PRIORITY + 1 - record.priority if record.priority else None,
        queue_name=record.queue,
        run_after=None if due is None else datetime.fromisoformat(due),
    )


def _errors(record: JobRecord) -> list[TaskError]:
    """What each attempt raised, as its worker recorded it. A worker that died recorded nothing."""
    noted = record.checkpoint or []
    errors = [TaskError(exception_class_path=kind, traceback=trace) for kind, trace in noted]
    if record.failure is not None and record.state is State.FAILED and len(errors) < record.attempts_made:
        reason = record.failure.traceback or record.failure.reason
        errors.append(TaskError(exception_class_path="toril.errors.JobFailed", traceback=reason))
    return errors


def _workers(record: JobRecord) -> list[str]:
    """One worker per attempt; only the last is known by name."""
    return [record.worker or ""] * (record.attempts_made + (record.state is State.ACTIVE))


_DAY: Final = 86_400


class TorilBackend(BaseTaskBackend):
    """A backend for django-tasks that runs tasks as jobs of the project's app.

    `OPTIONS` may have `ON_COMMIT` (add a task when its transaction commits), `KEEP` (how many seconds results are kept,
    a day by default) and `ATTEMPTS` (by default, as the queue says).
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Task[Any, Any], args: Any, kwargs: Any) -> TaskResult[Any]:
        self.validate_task(task)
        job_id = get_random_string(32)
        result: TaskResult[Any] = TaskResult(
            task=task,
            id=f"{task.queue_name}:{job_id}",
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        planned = self._planned(task, result, job_id)
        if self.options.get("ON_COMMIT", False):
            transaction.on_commit(partial(self._add, planned, result))
        else:
            self._add(planned, result)
        return result

    def get_result(self, result_id: str) -> TaskResult[Any]:
        queue, _, job_id = str(result_id).rpartition(":")
        try:
            job = self._queue(queue).sync.job(job_id) if queue in self.queues or not self.queues else None
        except InvalidName:
            job = None
        if job is None or job.record is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(job.record, self.alias)

    def _add(self, planned: PreparedJob[Any], result: TaskResult[Any]) -> None:
        add(planned)
        task_enqueued.send(type(self), task_result=result)

    def _planned(self, task: Task[Any, Any], result: TaskResult[Any], job_id: str) -> PreparedJob[Any]:
        keep = Keep(age=self.options.get("KEEP", _DAY))
        options: AddOptions = {
            "job_id": job_id, "priority": priority_of(task.priority), "keep_completed": keep, "keep_failed": keep
        }  # fmt: skip
        data: dict[str, Any] = {"args": result.args, "kwargs": result.kwargs}
        if task.run_after is not None:
            options["at"] = due = _aware(task.run_after)
            data["run_after"] = due.isoformat()
        if "ATTEMPTS" in self.options:
            options["attempts"] = self.options["ATTEMPTS"]
        return self._queue(task.queue_name).new(task.module_path, data, **options)

    def _queue(self, name: str) -> Queue:
        return get_app().queue(name)


def priority_of(priority: int) -> int:
    """Maps Django's priority, from -100 to 100 with larger numbers first, to a job's, from 1 to 201 with smaller
    numbers first. None stays without a priority: such jobs run before all others, and a task of priority 100 would wait
    for them."""
    return int(TASK_MAX_PRIORITY + 1 - priority)


def _aware(time: datetime) -> datetime:
    found: datetime = time if timezone.is_aware(time) else timezone.make_aware(time)
    return found
