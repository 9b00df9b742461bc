"""What a job's page and a dead letter's show alike: its attempts, its log, its progress and its flow."""

from dataclasses import dataclass
from typing import Any, Final

from toril.app import App
from toril.errors import TorilError
from toril.flow import Tree
from toril.job import Job
from toril.model import ChildState, JobRecord, JobRef
from toril.model.states import State
from toril.operate.lookup import find_job
from toril.web.api.common import Paging, attempt_errors, kept_in, log_page
from toril.web.pages.page import Looking
from toril.web.pages.remembered import remembered
from toril.web.tracebacks import Line, lines_of

__all__ = ["Attempt", "attempts_of", "ended_flow_of", "failed_children", "flow_of", "log_of", "progress_of"]

_LINES: Final = 1_000  # of a log
_A_PAGE: Final = 100
_MOST_PERCENT: Final = 1e15  # what is more is no share of anything, and may be more than a float can hold
_DEPTH, _WIDTH = 6, 20  # of a flow that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One that failed. `at` is not known of those that another library's worker made."""

    number: int
    at: int | None
    kind: str
    error: str
    traceback: list[Line]


async def attempts_of(job: Job[Any]) -> list[Attempt]:
    """Those that failed, the last first."""
    return [
        Attempt(
            number=each["attempt"], at=each["at"], kind=each["error_kind"], error=each["error"],
            traceback=lines_of(each["traceback"]),
        )
        for each in reversed(await attempt_errors(job))
    ]  # fmt: skip


async def log_of(job: Job[Any]) -> list[str]:
    """What it has logged, as it may be shown."""
    found: list[str] = []
    cursor: str | None = None
    while len(found) < _LINES:
        page = await log_page(job, Paging(cursor=cursor, limit=_A_PAGE))
        found += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            break
    return found


def progress_of(value: Any) -> dict[str, Any] | None:
    """A number is a share of 100; of a mapping `done` and `total`, or whatever it has, is told."""
    match value:
        case None | 0:
            return None
        case bool():
            return {"text": "", "value": None, "json": value}
        case int() | float() if abs(value) < _MOST_PERCENT:
            return {"text": f"{value:g}\u00a0%", "value": max(0, min(100, value))}
        case _:
            return {"text": "", "value": None, "json": value}


async def flow_of(asking: Looking, job: Job[Any], record: JobRecord) -> Tree | None:
    """The flow that a job belongs to, from its top, with what is remembered of jobs that are gone; None if it belongs
    to none."""
    app = asking.app
    if record.parent is None and record.state is not State.WAITING_CHILDREN:
        family = await app.store.family(JobRef(record.queue, record.id), where=kept_in(job))
        if not family.total:
            return None
    try:
        tree = await app.tree(job, depth=_DEPTH, width=_WIDTH)
    except TorilError:
        return None  # its parent may be gone while we look
    top = record
    if (tree.queue, tree.id) != (record.queue, record.id):
        top = await find_job(app.store, tree.queue, tree.id) or record
    known = await remembered(asking, record.queue)
    return known.filled(tree, top.parent, depth=_DEPTH, width=_WIDTH)


async def ended_flow_of(asking: Looking, ref: JobRef) -> Tree | None:
    """The flow of a job that is gone, as far as it is remembered."""
    return (await remembered(asking, ref.queue)).tree(ref, depth=_DEPTH, width=_WIDTH)


async def failed_children(app: App, job: Job[Any]) -> list[Tree]:
    """Children that have not succeeded, of a parent that has failed."""
    tree = await app.tree(job, whole=False, depth=1, width=_WIDTH)
    return [child for child in tree.children if child.known in {ChildState.FAILED, ChildState.IGNORED}]
