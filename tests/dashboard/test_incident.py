"""An incident from the first alarm to the last act, on a desk and on a phone, by day and by night: each page says what
someone in a hurry needs, and shuts nobody out."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from tests.dashboard.guests import BROWSED, PHONE, WIDE, Guest, Theme, findings, scrolls_sideways
from tests.dashboard.incident import Incident, incident
from tests.dashboard.stage import Stage

pytestmark = BROWSED


@pytest.fixture(scope="module")
def one_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(f"sqlite:///{tmp_path_factory.mktemp('incident') / 'jobs.db'}", incident).start()
    yield stage
    stage.stop()


class Visit:
    """Goes from page to page in one window."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self._base = base

    async def see(self, path: str, *texts: "str | re.Pattern[str]", without: tuple[str, ...] = ()) -> Page:
        """A page with these texts, in which axe finds nothing, and that fits the window."""
        await self.page.goto(self._base + path)
        main = self.page.locator("main")
        for text in texts:
            await expect(main).to_contain_text(text)
        shown = await main.inner_text()
        assert [text for text in without if text in shown] == [], path
        assert await findings(self.page) == [], path
        assert not await scrolls_sideways(self.page), path
        return self.page


@pytest.mark.parametrize(
    ("theme", "size"),
    [
        ("light", WIDE), ("dark", PHONE),
        pytest.param("dark", WIDE, marks=pytest.mark.thorough),
        pytest.param("light", PHONE, marks=pytest.mark.thorough),
    ],
)  # fmt: skip
async def test_an_incident_is_understood_from_the_first_page_to_the_last(
    one_stage: Stage, guest: Guest, theme: Theme, size: tuple[int, int]
) -> None:
    found: Any = one_stage.seeded
    seeded: Incident = found
    visit = Visit(await guest.window(theme=theme, size=size), one_stage.base)
    letter, parent = (quote(each, safe="") for each in (seeded.letter, f"pages/{seeded.parent.id}"))

    overview = await visit.see("/", re.compile(r"\d+.% of jobs in mails failed"), without=("lost",))
    await expect(overview.locator('[id="n-mails-f"]')).to_be_visible()
    await expect(overview.locator('[id="n-mails-f"]')).to_have_text("20")
    await visit.see("/dead", "451 greylisted, attempt 3 for #@example.org", "20", "embedding service: 503 for page 1")
    page = await visit.see(f"/dead/{letter}", "Attempt 3", "Attempt 2", "attempt 1 for", "connecting for", "in toril")
    await expect(page.locator(".logs li")).to_have_count(3)
    await visit.see(f"/dead/{parent}", "1\u00a0child failed", "it never started", "View flow")
    await page.locator(".note a").click()
    await expect(page.locator("h1")).to_contain_text("embed")
    await visit.see(f"/queues/kept/jobs/{seeded.kept.id}", "Attempt 3", "Attempt 1", "Log", "3 lines", "in toril")
    await visit.see("/queues/mails?state=failed", "By job", "send_mail", "send_digest", "0 of 5 busy", "Replay all 20")
    await visit.see(
        f"/queues/orders/jobs/{seeded.waiting.id}", "Group org:nordwind of queue orders", "3 of 4\u00a0slots"
    )
    await visit.see("/flows?show=ended", "publish", re.compile(r"ended 2", re.IGNORECASE), "3 of 4")
    await visit.see(f"/flows?queue=pages&id={seeded.flow.id}", "publish", "embed", "took")
    await visit.see(f"/queues/pages/jobs/{seeded.flow.id}", "Completed, not kept", "Flow", "embed")
    await visit.see("/find?q=shop-1", "send_mail", "Searched", "mails")
    await visit.see("/find?q=error:greylisted", "send_mail", "451 greylisted")
    await visit.see("/workers", "make_report")
    page = await visit.see(f"/queues/reports/jobs/{seeded.stuck.id}", "make_report", "Running")
    await page.get_by_role("button", name="Stack").click()
    await expect(page.locator("dialog pre")).to_contain_text("in read_ledger")
    assert await findings(page) == []
    await page.get_by_role("button", name="Close").click()
    page = await visit.see("/queues/orders?state=waiting", "Cancel all 3")
    await page.get_by_role("button", name="Cancel all 3").click()
    await expect(page.locator("dialog")).to_contain_text("This cannot be undone")
    assert await findings(page) == []
    await page.get_by_role("button", name="Back").click()
    await visit.see("/audit", "Asked for the stack of job", "reports")
