"""Find: jobs by their id in all queues, and queues by a part of their name."""

from typing import Any, Final

from toril.model import letter_id
from toril.web.api.common import Search
from toril.web.pages.looks import LOOKS
from toril.web.pages.page import Looking, Page, View

__all__ = ["FIND"]

_QUEUES: Final = 200  # that are looked through for an id


class Sought(View):
    """What is looked for."""

    q: Search = None


async def find(asking: Looking) -> dict[str, Any]:
    text = (asking.query.q or "").strip()
    names = [each.queue for each in asking.around.overview.queues]
    jobs = []
    if text:
        for name in names[:_QUEUES]:
            (record,) = await asking.app.store.jobs(name, [text])
            if record is not None:
                jobs.append({"queue": name, "id": text, "name": record.name, "look": LOOKS[record.state]})
    letters = [] if not text else await asking.app.store.letters_of([letter_id(n, text) for n in names[:_QUEUES]])
    return {
        "title": "Find", "now": asking.around.now, "q": text, "jobs": jobs,
        "letters": [letter for letter in letters if letter is not None],
        "queues": [name for name in names if text and text.casefold() in name.casefold()],
    }  # fmt: skip


FIND: Final = (Page(path="/find", template="find.html", show=find, query=Sought),)
