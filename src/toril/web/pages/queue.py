"""Queue: its charts, its jobs by state, and what can be done with them."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from toril.model import QueueView, RateLimit
from toril.policy.figures import RANGES, Range
from toril.queue import Queue
from toril.states import State
from toril.web.api.common import Cursor, Search, known_queue
from toril.web.pages.asked import typed
from toril.web.pages.listing import counted, facets, listed
from toril.web.pages.looks import LOOKS
from toril.web.pages.page import Looking, Page, View
from toril.web.pages.troubles import of_queue
from toril.web.words import number, plural, span

__all__ = ["QUEUE"]

_A_PAGE: Final = 50
_STATES: Final = {look.key: state for state, look in LOOKS.items()}


class Sought(View):
    """Which jobs are listed, and over which time the charts go."""

    range: Range = "1h"
    state: Literal["waiting", "prioritized", "active", "delayed", "children", "completed", "failed"] | None = None
    q: Search = None
    error: Search = None
    after: Cursor = None
    limit: Annotated[int, Field(ge=1, le=100)] = _A_PAGE


async def queue(asking: Looking) -> dict[str, Any]:
    found, query, around = await known_queue(asking.app, asking.path["queue"]), asking.query, asking.around
    view = await asking.app.store.queue(found.name)
    counts, failed = await counted(asking, found, view)
    state = _STATES[query.state] if query.state else State.FAILED if failed else State.WAITING
    asked = typed(query.q or "", query.error if state is State.FAILED else None)
    return {
        "title": found.name, "now": around.now, "name": found.name, "query": query, "view": view,
        "troubles": of_queue(around.needs, found.name), "facts": _facts(found, view), "ranges": list(RANGES),
        "hour": next((each for each in around.overview.queues if each.queue == found.name), None),
        "tabs": [(look, counts[each]) for each, look in LOOKS.items() if _has_tab(each, view, state)],
        "look": LOOKS[state], "limits": _limits(view), "buried": failed - view.counts.failed,
        "facets": await facets(asking, found, view) if state is State.FAILED and failed else [],
        **await listed(asking, found, state, asked, view, failed),
    }  # fmt: skip


def _has_tab(state: State, view: QueueView, chosen: State) -> bool:
    return state is not State.PRIORITIZED or bool(view.counts.prioritized) or chosen is state


def _facts(found: Queue, view: QueueView) -> list[tuple[str, str]]:
    """What is set for the queue: in the store, and, where its code is here, in the code."""
    settings, options, declared = view.settings, found.options, bool(found.handlers.names)
    rate = settings.rate or (options.rate_limit if declared else None)
    facts = [
        ("Limit", f"{number(settings.concurrency)} at once" if settings.concurrency else "none"),
        ("Rate", _rate(rate)),
    ]
    if declared:
        facts.append(("Retries", plural(options.retry.attempts, "attempt")))
        facts.append(("Lease", span(options.lease)))
        facts.append(("Wait target", span(options.target_wait)))
    if settings.groups.concurrency:
        facts.append(("Groups", f"{settings.groups.concurrency} at once in each"))
    return facts


def _rate(rate: RateLimit | None) -> str:
    return "any" if rate is None else f"{number(rate.max)} in {span(rate.per * 1000)}"


def _limits(view: QueueView) -> dict[str, Any]:
    rate = view.settings.rate
    before = None if rate is None else {"max": rate.max, "per": rate.per, "window": rate.window}
    return {"concurrency": view.settings.concurrency, "rate": before}


QUEUE: Final = (Page(path="/queues/{queue}", template="queue.html", show=queue, query=Sought),)
