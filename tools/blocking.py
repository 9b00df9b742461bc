"""Writes `src/toril/sync.py`: the blocking twins of `Queue` and `Job`, read off their source.

python -m tools.blocking --write
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_JOB = re.compile(r"(?<!\w)Job\[")
ROOT = Path(__file__).parents[1] / "src" / "toril"
TARGET = ROOT / "sync.py"

HEAD = '''"""`Queue`, `Task` and `Job` with blocking methods, for code without an event loop.

Written by `python -m tools.blocking --write` from `queue.py`, `task.py`, `schedule.py`,
`operate/groups.py` and `job.py`: change those.
"""

{imports}

__all__ = ["SyncGroups", "SyncJob", "SyncQueue", "SyncSchedules", "SyncTask"]

T = TypeVar("T")
D = TypeVar("D", contravariant=True)
R = TypeVar("R", covariant=True)
S = TypeVar("S")


class SyncJob(Generic[R]):
    """`Job` with blocking methods."""

    def __init__(self, job: Job[R], run: RunBlocking) -> None:
        self._job = job
        self._run = run

    def __repr__(self) -> str:
        return repr(self._job)

{job}

class SyncQueue:
    """`Queue` with blocking methods."""

    def __init__(self, queue: Queue, run: RunBlocking) -> None:
        self._queue = queue
        self._run = run

    def __repr__(self) -> str:
        return repr(self._queue)

{queue}

    def scoped(self, **metadata: Any) -> "SyncQueue":
        """The same queue, but every job added through it gets these metadata fields, such as the user."""
        return SyncQueue(self._queue.scoped(**metadata), self._run)

    @property
    def schedules(self) -> "SyncSchedules":
        """The schedules in the store: list them, and create, change or remove them at run time."""
        return SyncSchedules(self._queue.schedules, self._run)

    @property
    def groups(self) -> "SyncGroups":
        """The groups of this queue: look at them, pause them, and limit them at run time."""
        return SyncGroups(self._queue.groups, self._run)

    @overload
    def task(self, handler: HandlerOf[T, R]) -> "SyncTask[T, R]": ...

    @overload
    def task(self, handler: RawHandler[R]) -> "SyncTask[Any, R]": ...

    def task(self, handler: Any) -> "SyncTask[Any, Any]":
        """Bind a handler to this queue; see `Queue.task`."""
        return SyncTask(self._queue.task(handler), self._run)

    def _sync(self, job: Job[S]) -> SyncJob[S]:
        return SyncJob(job, self._run)


class SyncTask(Generic[D, R]):
    """`Task` with blocking methods."""

    def __init__(self, task: Task[D, R], run: RunBlocking) -> None:
        self._task = task
        self._run = run

    def __repr__(self) -> str:
        return repr(self._task)

{task}

    def _sync(self, job: Job[S]) -> SyncJob[S]:
        return SyncJob(job, self._run)


class SyncSchedules:
    """`QueueSchedules` with blocking methods."""

    def __init__(self, schedules: QueueSchedules, run: RunBlocking) -> None:
        self._schedules = schedules
        self._run = run

{schedules}

    def _sync(self, job: Job[S]) -> SyncJob[S]:
        return SyncJob(job, self._run)


class SyncGroups:
    """`QueueGroups` with blocking methods."""

    def __init__(self, groups: QueueGroups, run: RunBlocking) -> None:
        self._groups = groups
        self._run = run

{groups}
'''

# What `Job.__init__` sets, which no annotation in the class body tells.
FIELDS = {"id": "str", "name": "str", "data": "Any", "added": "bool", "outcome": "AddOutcome"}
NOT_TWINNED = {
    "queue", "sync", "store", "name", "schedules", "groups", "row", "task",
}  # fmt: skip

AS_THEY_ARE = {"new"}  # methods that do not wait for anything

Method = ast.FunctionDef | ast.AsyncFunctionDef


def methods(path: str, name: str) -> Iterator[Method]:
    """The public methods of a class, overloads included, in their order."""
    found = [node for node in ast.parse((ROOT / path).read_text("utf-8")).body if getattr(node, "name", None) == name]
    if not found:
        raise LookupError(f"there is no {name} in {path}")
    for item in getattr(found[0], "body", ()):
        if isinstance(item, Method) and not item.name.startswith("_") and item.name not in NOT_TWINNED:
            yield item


def decorated(method: Method, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in method.decorator_list)


def twin(method: Method, inner: str) -> str:
    """One property or method of the blocking class; nothing for what has no twin."""
    if decorated(method, "property") and not decorated(method, "abstractmethod"):
        return _property(method.name, _annotation(method), inner, ast.get_docstring(method))
    if not isinstance(method, ast.AsyncFunctionDef) and method.name not in AS_THEY_ARE:
        return ""
    arguments = ast.unparse(method.args).replace("'Task[None, R]'", '"SyncTask[None, R]"')
    signature = f"def {method.name}({arguments}) -> {_annotation(method)}:"
    if decorated(method, "overload"):
        return f"    @overload\n    {signature} ...\n"
    call = f"self.{inner}.{method.name}({_passed(method.args)})"
    call = f"self._run({call})" if isinstance(method, ast.AsyncFunctionDef) else call
    return f"    {signature}\n{_documented(ast.get_docstring(method))}        {_answer(_annotation(method), call)}\n"


def _property(name: str, annotation: str, inner: str, docstring: str | None = None) -> str:
    head = f"    @property\n    def {name}(self) -> {annotation}:\n"
    return f"{head}{_documented(docstring)}        return self.{inner}.{name}\n"


def _documented(docstring: str | None) -> str:
    if docstring is None:
        return ""
    lines = docstring.splitlines()
    return '        """' + "\n".join([lines[0], *("        " + line if line else "" for line in lines[1:])]) + '"""\n'


def _annotation(method: Method) -> str:
    """The return type, with the blocking job in place of the other."""
    assert method.returns is not None  # noqa: S101 - mypy --strict sees to it
    node = method.returns
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)
    blocking = _JOB.sub("SyncJob[", text)
    return text if blocking == text else f'"{blocking}"'


def _passed(arguments: ast.arguments) -> str:
    names = [argument.arg for argument in arguments.args if argument.arg != "self"]
    names += [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]
    return ", ".join(names + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else []))


def _answer(annotation: str, call: str) -> str:
    """What a method does with the answer: jobs in it become blocking jobs."""
    made = _MADE.get(annotation.strip('"'), "return {call}")
    return made.format(call=call)


_MADE = {
    "None": "{call}",
    "SyncJob[R]": "{call}\n        return self",
    "SyncJob[Any]": "return self._sync({call})",
    "SyncJob[Any] | None": "job = {call}\n        return None if job is None else self._sync(job)",
    "list[SyncJob[Any]]": "return [self._sync(job) for job in {call}]",
    "list[SyncJob[R]]": "return [self._sync(job) for job in {call}]",
    "Page[SyncJob[Any]]": "page = {call}\n"
    "        return Page(tuple(self._sync(job) for job in page.items), page.cursor)",
    "SearchPage[SyncJob[Any]]": "page = {call}\n"
    "        return SearchPage(tuple(self._sync(job) for job in page.items), page.cursor, page.looked)",
}


IMPORTS = """from collections.abc import Iterable
from typing import Any, Generic, Literal, TypeVar, Unpack, overload
from collections.abc import Mapping, Sequence
from datetime import datetime

from toril.client.options import AddOptions, WaitOptions
from toril.runtime.calls import RunBlocking
from toril.context import HandlerOf, RawHandler
from toril.operate.groups import GroupOptions, QueueGroups
from toril.job import Cancelling, Job
from toril.operate.metrics import QueueMetrics
from toril.model import AddOutcome, Counts, SearchPage, GroupLimits, Page, RateLimit, Usage
from toril.records import AttemptError, CancelCounts, GroupRecord, JobRecord, EventRecord, QueueSettings, RunRecord
from toril.records import JobStack, QueueDeclaration, ScheduleRecord
from toril.records import StepRecord, WorkerRecord
from toril.policy.search import EndingName, JobFilter
from toril.operate.search import PATIENCE, MatchCount, Failures, StateName
from toril.policy.metrics import Range
from toril.model.durations import Duration
from toril.queue import Item, PreparedJob, Queue
from toril.schedule import QueueSchedules, Timing
from toril.model.states import State
from toril.signals import Signalled, SignalKind
from toril.task import Task
from toril.operate.why import Explanation"""


def written() -> str:
    """The module as it should be, before the formatter."""
    job = [_property(name, kind, "_job") for name, kind in FIELDS.items()]
    job += [twin(method, "_job") for method in methods("job.py", "Job")]
    queue = [_property("name", "str", "_queue")]
    queue += [twin(method, "_queue") for method in methods("queue.py", "Queue")]
    task = [_property("name", "str", "_task")]
    task += [twin(method, "_task") for method in methods("task.py", "Task")]
    schedules = [twin(method, "_schedules") for method in methods("schedule.py", "QueueSchedules")]
    groups = [twin(method, "_groups") for method in methods("operate/groups.py", "QueueGroups")]
    parts = {"job": job, "queue": queue, "task": task, "schedules": schedules, "groups": groups}
    return HEAD.format(imports=IMPORTS, **{name: "\n".join(filter(None, each)) for name, each in parts.items()})


def formatted() -> str:
    """The module as the formatter leaves it."""
    ruff = [str(Path(sys.executable).with_name("ruff")), "format", "--quiet", "--stdin-filename", str(TARGET), "-"]
    fix = [ruff[0], "check", "--fix", "--quiet", "--select", "I", "--stdin-filename", str(TARGET), "-"]
    text = written()
    for command in (fix, ruff):
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own text
    return text


if __name__ == "__main__":
    if "--write" in sys.argv:
        TARGET.write_text(formatted(), "utf-8")
    elif TARGET.read_text("utf-8") != formatted():
        sys.exit(f"{TARGET} is not up to date: run  python -m tools.blocking --write")
