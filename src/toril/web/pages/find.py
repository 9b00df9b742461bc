"""The search page: queues by name; jobs, dead letters and run records of all queues by their contents."""

from typing import Any, Final

from toril.policy.search import JobFilter
from toril.web.api.common import Cursor, Search
from toril.web.api.search import LETTERS, SearchStep, look_everywhere, named
from toril.web.pages.drawing import EVERY, StateLook
from toril.web.pages.page import PageRequest, PageSpec, View
from toril.web.pages.search_box import typed
from toril.web.templates import Name, number, plural

__all__ = ["FIND"]

_QUEUES: Final = 50  # queues to list
_CACHED_FOR: Final = 10.0  # seconds for which results are kept
_LETTER: Final = StateLook("dead", "Dead letter", "dead", "dead")


class FindPageView(View):
    """What to find, and where to continue."""

    q: Search = None
    after: Cursor = None


async def find(asking: PageRequest) -> dict[str, Any]:
    text = (asking.query.q or "").strip()
    overview = asking.around.overview.queues
    names, asked = [each.queue for each in overview], typed(text)
    first = asking.query.after is None
    wanted = asked.id or (text if asked.filter == JobFilter(text=text) else None)
    by_id, looked_for = await named(asking.app, names, wanted) if wanted and first else ([], 0)
    look = SearchStep() if asked.filter.everything else await _looked(asking, asked.filter)
    known = {(each["queue"], each["id"]) for each in by_id}
    hits = [*by_id, *(each for each in look.hits if (each["queue"], each["id"]) not in known)]
    return {
        "title": "Search", "now": asking.around.now, "q": text, "look": look, "next": look.next,
        "queues": [name for name in names if text and first and text.casefold() in name.casefold()][:_QUEUES],
        "rows": [each | {"shown": _shown(each)} for each in hits], "told": _progress(look, looked_for, len(names)),
        "deeper": _deeper(look, text),
    }  # fmt: skip


async def _looked(asking: PageRequest, where: JobFilter) -> SearchStep:
    """Search. The result is kept for a while, because an open page is rendered again and again."""

    async def ask() -> SearchStep:
        counts = {each.queue: each.counts for each in asking.around.overview.queues}
        return await look_everywhere(asking.app, where, counts, asking.query.after)

    return await asking.recall(("find", where, asking.query.after), _CACHED_FOR, ask)


def _shown(hit: dict[str, Any]) -> StateLook:
    return _LETTER if hit["dead_letter"] else EVERY[hit["state"]]


def _progress(look: SearchStep, by_id: int, queues: int) -> str:
    """What was searched, and how much of it."""
    said = []
    if look.places:
        found = {place["queue"] for place in look.places if place["queue"]}
        where = f"{plural(len(found), 'queue')}" if found else "the dead letters"
        said.append(f"Searched {plural(look.looked, 'job')} and run records in {where}, newest first.")
    if by_id and by_id < queues:
        said.append(f"Looked up the id in {number(by_id)} of {plural(queues, 'queue')}.")
    return " ".join(said)


def _deeper(look: SearchStep, text: str) -> list[Name]:
    """Places with more items than were searched, each with the search that covers all of them."""
    found = []
    for place in look.places:
        if place["more"] and place["kind"] == LETTERS:
            found.append(Name("dead letters", ("dead",), {"q": text}))
        elif place["more"]:
            state = EVERY[place["kind"].removesuffix("_runs")]
            query = {"state": state.key, "q": text}
            found.append(Name(f"{place['queue']}, {state.word.lower()}", ("queues", place["queue"]), query))
    return found


FIND: Final = (PageSpec(path="/find", template="find.html", show=find, query=FindPageView),)
