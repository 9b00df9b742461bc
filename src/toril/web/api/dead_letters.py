"""Endpoints for dead letters: list, replay and discard them."""

from collections import Counter
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toril.model import Cause, DeadLetterRow
from toril.operate.dead_letters import Replayed
from toril.operate.documents import of_counted, of_failures, of_letter
from toril.policy.redaction import masked, redacted
from toril.policy.retry import Exponential, Fixed
from toril.policy.search import DeadLetterFilter
from toril.runtime.redaction import Redaction
from toril.web.access import Role
from toril.web.api.common import (
    SOON,
    After,
    AnyDuration,
    Cursor,
    Limit,
    Moment,
    PageQuery,
    Search,
    details,
    in_a_list,
    log_page,
)
from toril.web.messages import Problem
from toril.web.routing import Endpoint, Form, Request

__all__ = ["LETTERS", "letter_document"]

_FITTED: Final = 1000


class DeadLetterQuery(Form):
    """Filters, all of which a dead letter must match."""

    queue: Search = None
    name: Search = None
    error: Search = None
    kind: Search = None
    cause: Literal["failed", "stalled"] | None = None
    after: Moment | None = None
    before: Moment | None = None
    key: Search = None
    q: Search = None
    group: Search = None
    subject: Search = None

    def filter(self, until: int | None = None) -> DeadLetterFilter:
        """The filter. With `until`, in ms, only jobs that had failed by then."""
        before = self.before
        if until is not None:
            moment = datetime.fromtimestamp((until + 1) / 1000, UTC)
            before = moment if before is None else min(before, moment)
        return DeadLetterFilter(
            queue=self.queue,
            name=self.name,
            error=self.error,
            kind=self.kind,
            key=self.key,
            text=self.q,
            cause=None if self.cause is None else Cause(self.cause),
            after=self.after,
            before=before,
            group=self.group,
            subject=self.subject,
        )


class DeadLetterCountQuery(DeadLetterQuery):
    """Which dead letters to count, and where to continue."""

    cursor: Cursor = None


class DeadLetterPageQuery(DeadLetterQuery):
    """Which dead letters to list, and where to continue."""

    cursor: Cursor = None
    limit: Limit = 50


async def list_letters(asking: Request) -> dict[str, Any]:
    form: DeadLetterPageQuery = asking.query
    page = await asking.app.dead_letters.rows(form.filter(), cursor=form.cursor, limit=form.limit, patience=SOON)
    items = in_a_list(letter_document(letter, asking.app.redaction) for letter in page.items)
    return {"items": list(items), "cursor": page.cursor}


async def count_letters(asking: Request) -> dict[str, Any]:
    form: DeadLetterCountQuery = asking.query
    return of_counted(await asking.app.dead_letters.counted(form.filter(), cursor=form.cursor, patience=SOON))


async def letter_failures(asking: Request) -> dict[str, Any]:
    found = asking.query.filter()
    return of_failures(
        await asking.app.dead_letters.groups(None if found == DeadLetterFilter() else found, patience=SOON)
    )


async def letters_that_fit(asking: Request) -> dict[str, Any]:
    """Count among the first 1,000 that match. For jobs that the app does not declare, the answer is unknown."""
    letters = asking.app.dead_letters
    page = await letters.rows(asking.query.filter(), limit=_FITTED, order="oldest")
    answers = Counter(letters.fits(letter) for letter in page.items)
    return {
        "fit": answers[True], "unfit": answers[False], "unknown": answers[None], "looked": len(page.items),
        "more": page.cursor is not None,
    }  # fmt: skip


async def show_letter(asking: Request) -> dict[str, Any]:
    letters = asking.app.dead_letters
    found = await letters.row(asking.path["id"])
    return letter_document(found, asking.app.redaction) | await details(asking.app, letters.as_job(found))


async def letter_logs(asking: Request) -> dict[str, Any]:
    return await log_page(await asking.app.dead_letters.job(asking.path["id"]), asking.query)


class BackoffForm(Form):
    """The delay before each retry, in seconds or as text like `"10m"`."""

    type: Literal["fixed", "exponential"]
    seconds: AnyDuration


class DeadLetterChoice(Form):
    """Either `ids`, or `where` with filters; repeat the latter with the returned cursor until there is none. With
    `asked_at`, as returned by a count, dead letters that failed later are left alone."""

    ids: Annotated[list[Annotated[str, Field(min_length=1, max_length=1024)]], Field(max_length=1000)] | None = None
    where: DeadLetterQuery | None = None
    asked_at: Annotated[int, Field(ge=0, le=2**42)] | None = None
    cursor: After = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000

    async def which(self, asking: Request) -> tuple[list[str], str | None]:
        """The ids, oldest first, and where to continue."""
        if (self.ids is None) == (self.where is None):
            raise Problem(422, "invalid", "give either `ids` or `where`", field="ids")
        if self.where is None:
            return list(self.ids or ()), None
        letters, meant = asking.app.dead_letters, self.where.filter(self.asked_at)
        page = await letters.rows(meant, cursor=self.cursor, limit=self.limit, order="oldest")
        return [letter.id for letter in page.items], page.cursor


class ReplayForm(DeadLetterChoice):
    """`data` replaces the payload, for one dead letter at a time."""

    attempts: Annotated[int, Field(ge=1)] | None = None
    backoff: BackoffForm | None = None
    data: Any = None


async def replay_letters(asking: Request) -> dict[str, Any]:
    form: ReplayForm = asking.body
    edit = None
    if "data" in form.model_fields_set:
        if form.ids is None or len(form.ids) != 1:
            raise Problem(422, "invalid", "`data` needs exactly one id, as it replaces one payload", field="data")
        edit = lambda _: form.data  # noqa: E731 - it is handed on as it stands
    waiting = form.backoff
    backoff = None
    if waiting is not None:
        backoff = Fixed(waiting.seconds) if waiting.type == "fixed" else Exponential(waiting.seconds)
    ids, cursor = await form.which(asking)
    done = await asking.app.dead_letters.replay(ids, attempts=form.attempts, backoff=backoff, edit=edit)
    return _done(done, cursor)


async def discard_letters(asking: Request) -> dict[str, Any]:
    ids, cursor = await asking.body.which(asking)
    return _done(await asking.app.dead_letters.discard(ids), cursor)


def _done(replayed: Replayed, cursor: str | None) -> dict[str, Any]:
    refused = [{"id": each.id, "state": each.state.value if each.state else None} for each in replayed.refused]
    return {"done": replayed.count, "refused": refused, "invalid": dict(replayed.invalid), "cursor": cursor}


def letter_document(letter: DeadLetterRow, seen: Redaction) -> dict[str, Any]:
    """A dead letter as it may be shown."""
    found = of_letter(letter, seen)
    texts = {name: found[name] and redacted(found[name]) for name in ("error", "traceback")}
    return {**found, **texts, **{name: masked(found[name]) for name in ("data", "metadata", "progress")}}


LETTERS: Final = (
    Endpoint(
        method="GET", path="/dead-letters", role=Role.READ, run=list_letters, query=DeadLetterPageQuery,
        does="List dead letters, newest first.",
    ),
    Endpoint(
        method="GET", path="/dead-letters/count", role=Role.READ, run=count_letters, query=DeadLetterCountQuery,
        does="Count the matching dead letters. If a cursor is returned, the count is partial: repeat with it.",
    ),
    Endpoint(
        method="GET", path="/dead-letters/failures", role=Role.READ, run=letter_failures, query=DeadLetterQuery,
        does="Group dead letters by error. The groups cover the newest `looked` of `of`.",
    ),
    Endpoint(
        method="GET", path="/dead-letters/fit", role=Role.READ, run=letters_that_fit, query=DeadLetterQuery,
        does="Count the matching dead letters whose data their handlers still accept.",
    ),
    Endpoint(
        method="POST", path="/dead-letters/replay", role=Role.OPERATE, run=replay_letters, body=ReplayForm,
        does="Replay dead letters in their original queues.",
    ),
    Endpoint(
        method="POST", path="/dead-letters/discard", role=Role.ADMIN, run=discard_letters, body=DeadLetterChoice,
        does="Delete dead letters.",
    ),
    Endpoint(
        method="GET", path="/dead-letters/{id}", role=Role.READ, run=show_letter,
        does="Get a dead letter, with the errors of its attempts.",
    ),
    Endpoint(
        method="GET", path="/dead-letters/{id}/logs", role=Role.READ, run=letter_logs, query=PageQuery,
        does="Get the log lines of a dead letter's job.",
    ),
)  # fmt: skip
