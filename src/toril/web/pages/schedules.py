"""The page of schedules: what runs when, in plain words, and how the last runs went."""

from collections import defaultdict
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import Field

from toril.app import App
from toril.model import RunStatus, ScheduleRow, scheduled_run
from toril.policy.schedule_text import in_words
from toril.policy.schedules import upcoming
from toril.runtime.redaction import Redaction
from toril.web.api.schedules import schedule_document, schedules_of_all
from toril.web.pages.drawing import last_runs
from toril.web.pages.page import PageSpec, View
from toril.web.routing import Request

__all__ = ["SCHEDULES"]

_LOOKED: Final = 200  # run records per queue and ending in which to look for runs of schedules
_SHOWN: Final = 200

_OVERLAPS: Final = {
    "allow": "Runs may overlap.",
    "skip": "Skips a run while the previous one has not ended.",
    "queue_one": "Each run waits for the previous one to end.",
}
_CATCHES_UP: Final = {
    "none": "Missed runs are skipped.",
    "one": "After downtime, it runs once for all missed runs.",
    "all": "After downtime, it makes up every missed run within its window.",
}
_CLOCKS: Final = "When the clocks change, a skipped time runs right after the change; a repeated time runs once."

Times = list[tuple[int, int, RunStatus]]


class SchedulesView(View):
    """A text to find in id, job or queue, and a state."""

    q: Annotated[str, Field(max_length=200)] = ""
    only: Literal["", "paused"] = ""


async def schedules(asking: Request) -> dict[str, Any]:
    view: SchedulesView = asking.query
    everything, more = await schedules_of_all(asking.app, _SHOWN)
    everything.sort(key=lambda each: (each.next is None, each.next or 0, each.queue, each.schedule.id))
    fitting = [each for each in everything if _fits(each, view)]
    shown = fitting[:_SHOWN]
    runs = await _runs(asking.app, {each.queue for each in shown})
    return {
        "title": "Schedules", "view": view, "total": len(everything), "more": more, "match": len(fitting),
        "rows": [_row(each, runs[each.queue, each.schedule.id], asking.app.redaction) for each in shown],
        "paused": sum(each.paused for each in everything),
    }  # fmt: skip


def _fits(found: ScheduleRow, view: SchedulesView) -> bool:
    words = f"{found.schedule.id} {found.schedule.job.name} {found.queue} {in_words(found.schedule)}".casefold()
    return (found.paused or not view.only) and all(word in words for word in view.q.casefold().split())


async def _runs(app: App, queues: set[str]) -> dict[tuple[str, str], Times]:
    """When the runs of each schedule began, how long they took, and how they ended, as far as remembered."""
    found: dict[tuple[str, str], Times] = defaultdict(list)
    for queue in queues:
        for ending in RunStatus:
            for run in (await app.store.runs(queue, ending, limit=_LOOKED)).items:
                of = scheduled_run(run.id)
                if of is not None:
                    took = run.finished_at - (run.started_at or run.finished_at)
                    found[queue, of[0]].append((of[1], took, ending))
    return found


def _row(view: ScheduleRow, times: Times, seen: Redaction) -> dict[str, Any]:
    schedule = schedule_document(view, seen)
    zoned = schedule["cron"] is not None and schedule["tz"] != "UTC"
    rules = [_OVERLAPS[schedule["overlap"]], _CATCHES_UP[schedule["catch_up"]], *([_CLOCKS] if zoned else [])]
    return schedule | {
        "last": max(times)[0] if times else None,
        "runs_drawn": last_runs(times),
        "rules": " ".join(rules),
        "zone": schedule["tz"].rpartition("/")[2].replace("_", " ") if zoned else "",
        "coming": [(at, _written(at, schedule["tz"])) for at in upcoming(view)],
    }


def _written(ms: int, tz: str) -> str:
    """A time in the schedule's own zone: `Tue 17 Nov, 02:00`."""
    moment = datetime.fromtimestamp(ms / 1000, UTC).astimezone(ZoneInfo(tz))
    return f"{moment:%a} {moment.day} {moment:%b, %H:%M}" + (f":{moment:%S}" if moment.second else "")


SCHEDULES: Final = (
    PageSpec(path="/schedules", template="schedules.html", show=schedules, query=SchedulesView, nav="schedules"),
)
