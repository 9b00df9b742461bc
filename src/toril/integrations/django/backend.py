"""A backend for django-tasks: `TASKS = {"default": {"BACKEND": "toril.integrations.django.backend.TorilBackend"}}`."""

from datetime import datetime
from functools import partial
from typing import Any, Final

from django.db import transaction
from django.utils import timezone
from django.utils.crypto import get_random_string
from django_tasks.backends.base import BaseTaskBackend
from django_tasks.base import TASK_MAX_PRIORITY, Task, TaskResult, TaskResultStatus
from django_tasks.exceptions import TaskResultDoesNotExist
from django_tasks.signals import task_enqueued

from toril.client.adding import AddOptions
from toril.errors import InvalidName
from toril.integrations.django.commits import add
from toril.integrations.django.configured import get_app
from toril.integrations.django.results import result_of
from toril.model import Keep
from toril.queue import Planned, Queue

__all__ = ["TorilBackend", "priority_of"]

_DAY: Final = 86_400


class TorilBackend(BaseTaskBackend):
    """Tasks as jobs of the app of the settings. `OPTIONS` may have `ON_COMMIT` (a task is added when its transaction
    commits), `KEEP` (seconds that results are kept, a day by default) and `ATTEMPTS` (else as the queue says)."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Task[Any, Any], args: Any, kwargs: Any) -> TaskResult[Any]:
        self.validate_task(task)
        job_id = get_random_string(32)
        result: TaskResult[Any] = TaskResult(
            task=task, id=f"{task.queue_name}:{job_id}", status=TaskResultStatus.READY, enqueued_at=timezone.now(),
            started_at=None, finished_at=None, last_attempted_at=None, args=list(args), kwargs=dict(kwargs),
            backend=self.alias, errors=[], worker_ids=[],
        )  # fmt: skip
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

    def _add(self, planned: Planned[Any], result: TaskResult[Any]) -> None:
        add(planned)
        task_enqueued.send(type(self), task_result=result)

    def _planned(self, task: Task[Any, Any], result: TaskResult[Any], job_id: str) -> Planned[Any]:
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
    """Of -100 to 100, where more is sooner, as a job has it: 1 to 201, where less is. None is without a priority: those
    go before all others, and a task of priority 100 would wait for them."""
    return int(TASK_MAX_PRIORITY + 1 - priority)


def _aware(time: datetime) -> datetime:
    found: datetime = time if timezone.is_aware(time) else timezone.make_aware(time)
    return found
