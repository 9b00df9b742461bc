"""Dead letters: look through them, run them again, throw them away."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toril.deadletters import Replayed
from toril.documents import of_letter
from toril.model import Cause, DeadLetter
from toril.policy.letters import LetterFilter
from toril.policy.masking import masked
from toril.policy.retry import Exponential, Fixed
from toril.web.access import Role
from toril.web.api.common import Cursor, Limit, Moment, Search
from toril.web.endpoint import Asking, Endpoint, Form
from toril.web.problems import Problem

__all__ = ["LETTERS"]


class Sought(Form):
    """What is not given is not asked for."""

    queue: Search = None
    name: Search = None
    error: Search = None
    kind: Search = None
    cause: Literal["failed", "stalled"] | None = None
    after: Moment | None = None
    before: Moment | None = None

    def filter(self) -> LetterFilter:
        return LetterFilter(
            queue=self.queue, name=self.name, error=self.error, kind=self.kind,
            cause=None if self.cause is None else Cause(self.cause), after=self.after, before=self.before,
        )  # fmt: skip


class LetterListing(Sought):
    """A page of those that are meant."""

    cursor: Cursor = None
    limit: Limit = 50


async def list_letters(asking: Asking) -> dict[str, Any]:
    form: LetterListing = asking.query
    page = await asking.app.dead_letters.page(form.filter(), cursor=form.cursor, limit=form.limit)
    return {"items": [_document(letter) for letter in page.items], "cursor": page.cursor}


async def show_letter(asking: Asking) -> dict[str, Any]:
    return _document(await asking.app.dead_letters.show(asking.path["id"]))


class Waiting(Form):
    """How long a job waits before each retry, in seconds."""

    type: Literal["fixed", "exponential"]
    seconds: Annotated[float, Field(ge=0)]


class LettersMeant(Form):
    """Either `ids`, or `where` with what they have in common."""

    ids: Annotated[list[Annotated[str, Field(min_length=1, max_length=1024)]], Field(max_length=1000)] | None = None
    where: Sought | None = None

    def which(self) -> "LetterFilter | list[str]":
        if (self.ids is None) == (self.where is None):
            raise Problem(422, "invalid", "say either which ids, or where", field="ids")
        return self.where.filter() if self.where is not None else list(self.ids or ())


class ReplayingLetters(LettersMeant):
    """`data` replaces the payload; that is for one letter at a time."""

    attempts: Annotated[int, Field(ge=1)] | None = None
    backoff: Waiting | None = None
    data: Any = None


async def replay_letters(asking: Asking) -> dict[str, Any]:
    form: ReplayingLetters = asking.body
    edit = None
    if "data" in form.model_fields_set:
        if form.ids is None or len(form.ids) != 1:
            raise Problem(422, "invalid", "new data is for one letter at a time", field="data")
        edit = lambda _: form.data  # noqa: E731 - it is handed on as it stands
    waiting = form.backoff
    backoff = None
    if waiting is not None:
        backoff = Fixed(waiting.seconds) if waiting.type == "fixed" else Exponential(waiting.seconds)
    return _done(await asking.app.dead_letters.replay(form.which(), attempts=form.attempts, backoff=backoff, edit=edit))


async def discard_letters(asking: Asking) -> dict[str, Any]:
    return _done(await asking.app.dead_letters.discard(asking.body.which()))


def _done(replayed: Replayed) -> dict[str, Any]:
    refused = [{"id": each.id, "state": each.state.value if each.state else None} for each in replayed.refused]
    return {"done": replayed.count, "refused": refused, "invalid": dict(replayed.invalid)}


def _document(letter: DeadLetter) -> dict[str, Any]:
    found = of_letter(letter)
    return {**found, "data": masked(found["data"]), "metadata": masked(found["metadata"])}


LETTERS: Final = (
    Endpoint(
        method="GET", path="/dead-letters", role=Role.READ, run=list_letters, query=LetterListing,
        does="Jobs that failed for good, the last first.",
    ),
    Endpoint(
        method="POST", path="/dead-letters/replay", role=Role.OPERATE, run=replay_letters, body=ReplayingLetters,
        does="Run them again in the queue that they came from.",
    ),
    Endpoint(
        method="POST", path="/dead-letters/discard", role=Role.ADMIN, run=discard_letters, body=LettersMeant,
        does="Delete them for good.",
    ),
    Endpoint(method="GET", path="/dead-letters/{id}", role=Role.READ, run=show_letter, does="One dead letter."),
)  # fmt: skip
