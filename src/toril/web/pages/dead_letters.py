"""The page of dead letters: by error or one by one, to replay or discard."""

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toril.app import App
from toril.model import DeadLetterRow, job_of
from toril.operate.documents import stored
from toril.policy.error_groups import ErrorGroup, FailureSample, grouped
from toril.policy.redaction import redacted
from toril.policy.search import DeadLetterFilter
from toril.web.api.common import A_LOOK, shortened
from toril.web.api.dead_letters import letter_document
from toril.web.pages.drawing import EVERY
from toril.web.pages.job import attempts_of, failed_children, flow_of, log_of, progress_of
from toril.web.pages.page import PageRequest, PageSpec, View
from toril.web.pages.search_box import SearchTerms, quoted, typed
from toril.web.routing import Request

__all__ = ["DEAD"]

_A_PAGE: Final = 50
_GROUPED: Final = 500  # newest letters that are grouped
_COUNTED: Final = 5_000  # letters to count for a filter
_GROUPS: Final = 9
_BACK: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


class DeadView(View):
    """A search, a queue, a type and text of errors, a time range, and where to start."""

    q: Annotated[str, Field(max_length=200)] = ""
    queue: Annotated[str, Field(max_length=512)] = ""
    kind: Annotated[str, Field(max_length=200)] = ""
    error: Annotated[str, Field(max_length=200)] = ""
    since: Literal["", "hour", "day", "week"] = ""
    after: Annotated[str, Field(max_length=1024)] = ""


async def dead(asking: Request) -> dict[str, Any]:
    view: DeadView = asking.query
    app, now = asking.app, (await asking.app.store.health()).now
    where, body = _meant(view, now)
    page = await app.dead_letters.rows(where, cursor=view.after or None, limit=_A_PAGE, patience=A_LOOK)
    total = await app.dead_letters.count()
    match, exact = (total, True) if where == DeadLetterFilter() else await _counted(app, where)
    newest = (await app.dead_letters.rows(limit=_GROUPED, patience=A_LOOK)).items
    return {
        "title": "Dead letters", "view": view, "total": total, "match": match, "exact": exact, "next": page.cursor,
        "rows": [letter_document(letter, app.redaction) | _more(letter) for letter in page.items],
        "groups": _groups(app, newest, view), "grouped": len(newest), "about": _about(view),
        "queues": sorted({letter.queue for letter in newest} | ({view.queue} - {""})),
        "filter": json.dumps({"where": body, "asked_at": now}), "filtered": where != DeadLetterFilter(),
    }  # fmt: skip


def _meant(view: DeadView, now: int) -> tuple[DeadLetterFilter, dict[str, str]]:
    """The selected letters, as a filter and as the API takes it."""
    parts = typed(view.q)
    body = parts.body() | {"queue": view.queue, "kind": view.kind, "q": _text(parts)}
    given = {name: text for name, text in (body | ({"error": view.error} if view.error else {})).items() if text}
    after = datetime.fromtimestamp(now / 1000, UTC) - _BACK[view.since] if view.since else None
    where = DeadLetterFilter(
        queue=given.get("queue"),
        kind=given.get("kind"),
        error=given.get("error"),
        name=given.get("name"),
        key=given.get("key"),
        text=given.get("q"),
        group=given.get("group"),
        subject=given.get("subject"),
        after=after,
    )
    return where, given | ({"after": after.isoformat()} if after else {})


def _text(asked: SearchTerms) -> str:
    """The text to find anywhere; an id too is searched as text, because a letter's id contains its queue's name."""
    return " ".join(filter(None, (asked.id, asked.filter.text)))


def _about(view: DeadView) -> str:
    """The filter in words."""
    last = {"": "", "hour": "last hour", "day": "last day", "week": "last week"}[view.since]
    said = [f"{what} {text}" for what, text in (("queue", view.queue), ("error", view.error), ("text", view.q)) if text]
    return ", ".join([*said, *([view.kind] if view.kind else []), *([last] if last else [])]) or "all"


async def _counted(app: App, where: DeadLetterFilter) -> tuple[int, bool]:
    """How many match, and whether that is all, because a count is limited."""
    found = await app.dead_letters.rows(where, limit=_COUNTED, patience=A_LOOK)
    return len(found.items), found.cursor is None


def _groups(app: App, letters: tuple[DeadLetterRow, ...], view: DeadView) -> list[dict[str, Any]]:
    seen = app.redaction
    failed = [
        FailureSample(
            each.queue,
            each.failure.kind,
            redacted(seen.text(each.failure.reason, "error", each.queue, each.name) or ""),
            each.failed_at,
        )
        for each in letters
    ]
    found = grouped(failed)[:_GROUPS]
    most = max((group.count for group in found), default=1)
    return [_facet(group, most, view) for group in found]


def _facet(group: ErrorGroup, most: int, view: DeadView) -> dict[str, Any]:
    """A link to the letters of a group: by their type, and the longest text that they share."""
    shared = max(group.error.split("#"), key=len).strip()
    return {
        "kind": group.kind or "Failed", "queue": group.example, "error": group.error, "count": group.count,
        "width": f"{group.count / most * 100:.1f}%", "query": {"kind": group.kind, "error": shared},
        "chosen": bool(view.kind or view.error) and (view.kind, view.error) == (group.kind, shared),
    }  # fmt: skip


def _more(letter: DeadLetterRow) -> dict[str, Any]:
    """Why it failed for good, in a word or two, and its group."""
    if letter.cause == "stalled":
        gave_up = f"stalled {letter.stalls} times" if letter.stalls != 1 else "stalled"
    elif letter.started_at is None:
        gave_up = "never started"
    else:
        gave_up = "out of attempts" if letter.attempts_made >= letter.max_attempts else "permanent error"
    return {"gave_up": gave_up, "group": letter.group}


async def letter(asking: PageRequest) -> dict[str, Any]:
    found = await asking.app.dead_letters.row(asking.path["id"])
    fits = asking.app.dead_letters.fits(found)
    document = shortened(letter_document(found, asking.app.redaction) | _more(found))
    covered = document["data"] != stored(found.data)  # masked, or changed by the app's own function
    job, record = asking.app.dead_letters.as_job(found), job_of(found)
    return {
        "title": found.name, "letter": document, "fits": fits, "covered": covered, "backoff": found.options.backoff,
        "ids": json.dumps({"ids": [found.id]}), "text": json.dumps(document["data"], indent=2, ensure_ascii=False),
        "queue": found.queue, "id": found.job_id, "looks": EVERY, "attempts": await attempts_of(job),
        "lines": await log_of(job), "progress": progress_of(document["progress"]),
        "by_subject": quoted("subject", found.options.subject or ""), "tree": await flow_of(asking, job, record),
        "failed": await failed_children(asking.app, job),
    }  # fmt: skip


DEAD: Final = (
    PageSpec(path="/dead", template="dead.html", show=dead, query=DeadView, nav="dead"),
    PageSpec(path="/dead/{id}", template="letter.html", show=letter, nav="dead"),
)
