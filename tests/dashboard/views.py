"""Addresses of all pages, made from the table of pages itself: a new page cannot be left out."""

from urllib.parse import quote

from tests.dashboard.seed import Seeded
from toril import Job
from toril.model import letter_id
from toril.web.pages import PAGES

__all__ = ["views"]


def views(seeded: Seeded) -> list[str]:
    """Each page, with something on it; pages of one thing for each state that it can be in."""
    found: list[str] = []
    for page in PAGES:
        names = {part for part in page.path.split("/") if part.startswith("{")}
        if not names:
            found.append(page.path)
        elif page.path.startswith("/dead/"):
            found.append(page.path.replace("{id}", quote(letter_id("webhooks", "1"), safe="")))
        elif names == {"{queue}"}:
            queues = ("email", "app-polling", "webhooks", "storefront-sync")
            found += [page.path.replace("{queue}", name) for name in queues]
            found.append(page.path.replace("{queue}", "email") + "?state=cancelled")
            found.append(page.path.replace("{queue}", "refunds") + "?state=resting")
        elif "{name}" in names:
            found += [_of(page.path, job).replace("{name}", "approval") for job in (seeded.asking, seeded.done)]
        else:
            assert names == {"{queue}", "{id}"}, f"tests do not know how to open {page.path}: tell them here"
            found += [_of(page.path, job) for job in _jobs(seeded)]
    return found


def _jobs(seeded: Seeded) -> list[Job[object]]:
    return [
        seeded.failed, seeded.cancelled, seeded.delayed, seeded.waiting, seeded.running, seeded.deferred, seeded.flow,
        seeded.done, seeded.asking,
    ]  # fmt: skip


def _of(path: str, job: Job[object]) -> str:
    return path.replace("{queue}", quote(job.queue.name, safe="")).replace("{id}", quote(job.id, safe=""))
