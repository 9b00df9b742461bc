"""The same done to many jobs of a queue: to those named, or to those that a search means, up to 1,000 a request."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toril.model import Call, Changed, letter_id, letter_parts
from toril.model.states import State
from toril.operate.documents import of_counted, of_failures
from toril.queue import Queue
from toril.web.access import Role
from toril.web.api.common import SOON, After, Searching, StateName, known_queue
from toril.web.endpoint import Asking, Endpoint
from toril.web.problems import Problem

__all__ = ["MANY"]

_A_CALL: Final = 100


class Meant(Searching):
    """Either `ids`, or a `state` with a search. With a search, ask again with the cursor until there is none; with
    `asked_at`, as a count tells it, what came to the state since is left alone."""

    ids: Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], Field(max_length=1000)] | None = None
    state: Literal["waiting", "prioritized", "delayed", "completed", "failed"] | None = None
    cursor: After = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000


class Cancelling(Meant):
    """The same, of jobs that have not ended."""

    state: Literal["waiting", "prioritized", "delayed", "active", "waiting_children"] | None = None  # type: ignore[assignment]
    reason: Annotated[str, Field(min_length=1, max_length=500)] | None = None


class Counting(Searching):
    """The jobs of a state that a search means."""

    state: StateName = "waiting"
    cursor: After = None


async def count_jobs(asking: Asking) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    form: Counting = asking.query
    return of_counted(await queue.count(form.state, form.filter(), cursor=form.cursor, patience=SOON))


async def list_failures(asking: Asking) -> dict[str, Any]:
    return of_failures(await (await known_queue(asking.app, asking.path["queue"])).failures(patience=SOON))


async def retry_jobs(asking: Asking) -> dict[str, Any]:
    """Those that are kept; of ids that are no jobs of the queue, the dead letters."""
    form: Meant = asking.body
    if form.state == "failed" and form.ending is None:
        form = form.model_copy(update={"ending": "failed"})  # whoever cancelled a job does not want it to run
    answer = await _each(asking, lambda queue, ids, call: queue.store.retry(queue.name, ids, call=call), form)
    gone = [each["id"] for each in answer["refused"] if each["state"] is None]
    if not gone:
        return answer
    queue = asking.path["queue"]
    replayed = await asking.app.dead_letters.replay([letter_id(queue, each) for each in gone])
    left = {letter_parts(each.id)[1]: each.state for each in replayed.refused}
    left |= {letter_parts(each)[1]: State.FAILED for each in replayed.invalid}
    refused = [each for each in answer["refused"] if each["state"] is not None]
    refused += [{"id": each, "state": state.value if state else None} for each, state in left.items()]
    return {"done": answer["done"] + replayed.count, "refused": refused, "cursor": answer["cursor"]}


async def promote_jobs(asking: Asking) -> dict[str, Any]:
    return await _each(asking, lambda queue, ids, call: queue.store.promote(queue.name, ids, call=call))


async def remove_jobs(asking: Asking) -> dict[str, Any]:
    return await _each(asking, lambda queue, ids, call: queue.store.remove(queue.name, ids, call=call))


async def cancel_jobs(asking: Asking) -> dict[str, Any]:
    reason = asking.body.reason or f"cancelled by {asking.who.name}"
    return await _each(asking, lambda queue, ids, call: queue.store.cancel(queue.name, ids, reason=reason, call=call))


Act = Callable[[Queue, Sequence[str], Call], Awaitable[Changed]]


async def _each(asking: Asking, act: Act, form: Meant | None = None) -> dict[str, Any]:
    queue = await known_queue(asking.app, asking.path["queue"])
    ids, cursor = await _ids(queue, form or asking.body)
    done, refused = 0, []
    for first in range(0, len(ids), _A_CALL):
        part = ids[first : first + _A_CALL]
        changed = await queue.call(lambda call, part=part: act(queue, part, call))  # type: ignore[misc]
        done += len(changed.done) + len(changed.asked)
        refused += [{"id": each.id, "state": each.state.value if each.state else None} for each in changed.refused]
    return {"done": done, "refused": refused, "cursor": cursor}


async def _ids(queue: Queue, form: Meant) -> tuple[list[str], str | None]:
    if (form.ids is None) == (form.state is None):
        raise Problem(422, "invalid", "say either which ids, or of which state", field="ids")
    if form.state is None:
        if not form.filter().everything or form.cursor is not None:
            raise Problem(422, "invalid", "a search goes with a state, not with ids", field="ids")
        return list(dict.fromkeys(form.ids or ())), None
    page = await queue.search(form.state, form.filter(), cursor=form.cursor, limit=form.limit)
    return [job.id for job in page.items], page.cursor


MANY: Final = (
    Endpoint(
        method="GET", path="/queues/{queue}/count", role=Role.READ, run=count_jobs, query=Counting,
        does="How many jobs a search means, and the moment of asking. With a cursor, of those looked at so far.",
    ),
    Endpoint(
        method="GET", path="/queues/{queue}/failures", role=Role.READ, run=list_failures,
        does="The failed jobs that are kept, by their error; `looked` of them, the last, of `of`.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/retry", role=Role.OPERATE, run=retry_jobs, body=Meant,
        does="Run many ended jobs again: those of a state that are kept, or those of some ids, dead letters too. "
        "Cancelled ones are left, unless `ending` asks for them.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/promote", role=Role.OPERATE, run=promote_jobs, body=Meant,
        does="Have many delayed jobs wait no longer.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/cancel", role=Role.OPERATE, run=cancel_jobs, body=Cancelling,
        does="Stop many jobs: those that wait never run, running ones are asked to stop. It cannot be undone.",
    ),
    Endpoint(
        method="POST", path="/queues/{queue}/remove", role=Role.ADMIN, run=remove_jobs, body=Meant,
        does="Delete many jobs that do not run.",
    ),
)  # fmt: skip
