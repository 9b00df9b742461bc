"""Queue: its charts, its jobs by state, and what can be done with them."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from toril.client.declaring import declaration_of
from toril.model import Backoff, Declaration, Ending, QueueView, RateLimit, Settings
from toril.model.states import State
from toril.policy.figures import RANGES, Range
from toril.queue import Queue
from toril.web.api.common import Cursor, Search, known_queue
from toril.web.api.queues import read_names
from toril.web.pages.attention import of_queue
from toril.web.pages.listing import Counted, Tabs, counted, facets, listed, remembered
from toril.web.pages.looks import ENDINGS, LOOKS, StateLook
from toril.web.pages.page import Looking, Page, View
from toril.web.pages.search_box import quoted, typed
from toril.web.words import number, plural, span

__all__ = ["QUEUE"]

Tab: TypeAlias = Literal[
    "waiting", "prioritized", "active", "delayed", "children", "completed", "failed", "cancelled",
]  # fmt: skip

_A_PAGE: Final = 50
_NAMES: Final = 8  # job names that are listed, if not all are wanted
_A_WHILE: Final = 10.0  # seconds that what is told of them may be old
_CANCELLED: Final = ENDINGS[Ending.CANCELLED]
# What workers can declare, in words.
_WORDS: Final = {
    "max_attempts": "retries", "rate": "the rate", "groups": "the limits of groups", "max_waiting": "how many may wait",
    "backoff": "the backoff", "priority_first": "the order of priorities", "target_wait": "the wait target",
    "keep_completed": "how many completed jobs stay", "keep_failed": "how many failed jobs stay", "lease": "the lease",
    "timeout": "the timeout", "max_stalls": "how often a job may stall", "subject": "the subject",
    "any_name": "whether they take jobs of any name", "serializer": "how payloads are written",
}  # fmt: skip
_STATES: Final = {look.key: state for state, look in LOOKS.items()}


class Sought(View):
    """Which jobs are listed, and over which time the charts go."""

    range: Range = "1h"
    state: Tab | None = None
    q: Search = None
    error: Search = None
    after: Cursor = None
    names: Literal["", "all"] = ""
    limit: Annotated[int, Field(ge=1, le=100)] = _A_PAGE


async def queue(asking: Looking) -> dict[str, Any]:
    found, query, around = await known_queue(asking.app, asking.path["queue"]), asking.query, asking.around
    view = await asking.app.store.queue(found.name)
    tabs = await counted(asking, found, view)
    look = _chosen(query.state, tabs)
    asked = typed(query.q or "", query.error if look.key == "failed" else None)
    if look is _CANCELLED:
        table = await remembered(asking, found, Ending.CANCELLED, asked)
    else:
        table = await listed(asking, found, _STATES[look.key], asked, view, tabs)
    declared = await asking.app.store.declarations(found.name)
    code = declared.newest or (declaration_of(found) if found.handlers.names else None)
    return {
        "title": found.name, "now": around.now, "name": found.name, "query": query, "view": view,
        "troubles": of_queue(around.needs, found.name), "ranges": list(RANGES),
        "facts": _facts(view.settings, code),
        "declared": declared, "code": code, "differing": [_WORDS.get(name, name) for name in declared.differing],
        "hour": next((each for each in around.overview.queues if each.queue == found.name), None),
        "tabs": _tabs(tabs, look), "look": look, "limits": _limits(view), "kept": tabs.kept, "buried": tabs.buried,
        "facets": await facets(asking, found, tabs) if look.key == "failed" and tabs.failed else [],
        "names": await _names(asking, found), "slots": _slots(asking, found.name), **table,
    }  # fmt: skip


async def _names(asking: Looking, found: Queue) -> dict[str, Any]:
    """What ended by job name; the first few of them, unless all are wanted."""
    names = await asking.recall(("names", found.name), _A_WHILE, lambda: read_names(found))
    shown = names.names if asking.query.names == "all" else names.names[:_NAMES]
    rows = [(each, quoted("name", each.name)) for each in shown]
    return {"since": names.since, "rows": rows, "of": len(names.names)}


def _chosen(key: str | None, tabs: Tabs) -> StateLook:
    """The tab that was asked for; else what failed, if something has."""
    if key == _CANCELLED.key:
        return _CANCELLED
    return LOOKS[_STATES[key] if key else State.FAILED if tabs.failed else State.WAITING]


def _tabs(tabs: Tabs, chosen: StateLook) -> list[tuple[StateLook, Counted]]:
    """All but those that few queues need and that are empty."""
    found = [(look, tabs.counts.get(look.key, Counted(0))) for look in (*LOOKS.values(), _CANCELLED)]
    rare = {LOOKS[State.PRIORITIZED], _CANCELLED}
    return [(look, count) for look, count in found if look is chosen or count.count or look not in rare]


def _slots(asking: Looking, queue: str) -> tuple[int, int]:
    """How many slots all workers have for the queue, and how many of them are in use."""
    slots = [worker.queue_slots.get(queue, (0, 0)) for worker in asking.around.overview.workers]
    return sum(all_ for all_, _ in slots), sum(used for _, used in slots)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that holds for the queue, and a note on where that comes from."""

    name: str
    value: str
    note: str = ""


def _facts(settings: Settings, declared: Declaration | None) -> list[Fact]:
    """What is set in the store, and what the code declares, where anyone knows that."""
    rate = None if declared is None else declared.rate
    facts = [_at_once(settings.concurrency, declared), _starts(settings.rate, rate)]
    if declared is not None:
        facts.append(Fact("Retries", plural(declared.max_attempts, "attempt"), _backoff(declared.backoff)))
        facts.append(Fact("Lease", span(declared.lease)))
        if declared.timeout is not None:
            facts.append(Fact("Timeout", span(declared.timeout)))
        facts.append(Fact("Wait target", span(declared.target_wait)))
    if settings.groups.concurrency:
        code = None if declared is None or declared.groups is None else declared.groups.concurrency
        note = f"set here, {_or_none(code)} in the code" if code != settings.groups.concurrency else ""
        facts.append(Fact("Groups", f"{settings.groups.concurrency} at once in each", note))
    return facts


def _at_once(limit: int | None, declared: Declaration | None) -> Fact:
    code = "" if declared is None else f"{number(declared.concurrency)} in each worker"
    if limit is None:
        return Fact("At once", code or "any")
    return Fact("At once", number(limit), "set here" + (f", {code} in the code" if code else ""))


def _starts(limit: RateLimit | None, code: RateLimit | None) -> Fact:
    if limit is None:
        return Fact("Rate", _rate(code), "in the code" if code else "")
    return Fact("Rate", _rate(limit), "set here" + (f", {_rate(code)} in the code" if code else ""))


def _rate(rate: RateLimit | None) -> str:
    return "any" if rate is None else f"{number(rate.max)} in {span(rate.per * 1000)}"


def _backoff(backoff: Backoff) -> str:
    return f"{backoff.strategy or backoff.kind} from {span(backoff.delay)}"


def _or_none(value: int | None) -> str:
    return "none" if value is None else number(value)


def _limits(view: QueueView) -> dict[str, Any]:
    rate = view.settings.rate
    before = None if rate is None else {"max": rate.max, "per": rate.per, "window": rate.window}
    return {"concurrency": view.settings.concurrency, "rate": before}


QUEUE: Final = (Page(path="/queues/{queue}", template="queue.html", show=queue, query=Sought),)
