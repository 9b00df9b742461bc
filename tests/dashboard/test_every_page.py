"""Every page in a real browser: readable by all, in both themes and at both widths, and without scrolling sideways."""

import asyncio

import pytest
from playwright.async_api import expect

from tests.dashboard.guests import BROWSED, PHONE, WIDE, Guest, Theme, findings, scrolls_sideways
from tests.dashboard.stage import Stage
from tests.dashboard.views import views
from toril.web.templates import NONE

pytestmark = BROWSED


@pytest.mark.covers("R238")
@pytest.mark.parametrize(("theme", "size"), [("light", WIDE), ("dark", PHONE)])
async def test_no_page_has_a_serious_fault_for_those_who_see_or_hear_it_otherwise(
    one_stage: Stage, guest: Guest, theme: Theme, size: tuple[int, int]
) -> None:
    page = await guest.window(theme=theme, size=size)
    wrong: dict[str, list[str]] = {}
    for path in views(one_stage.seeded):
        await page.goto(one_stage.base + path)
        found = await findings(page)
        if await scrolls_sideways(page):
            found.append("scrolls sideways")
        if await page.locator("h1").count() != 1:
            found.append("has not one heading")
        if found:
            wrong[path] = found

    assert wrong == {}


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("/dead", ["deliver", "ConnectionError", "webhooks", "out of attempts"]),
        ("/dead/webhooks%2F1", ["refused the connection", "Traceback", "ticket"]),
        ("/schedules", ["nightly-report", "Every day at 02:00", "Berlin", "Every 5 minutes", "Paused"]),
        ("/workers", ["29", "import_contacts", "64", "sync_orders"]),
        ("/flows", ["publish_handbook", "check_links", "render", "No Toril worker", "app-polling"]),
        ("/people", ["approval", "refund", "refunds", "4711", "***", "Answer"]),
        ("/groups", ["org:nordwind", "org:kestrel", "120 per minute", "storefront-sync"]),
        ("/breakers", ["embeddings.internal", "Next probe", "Close now"]),
        (
            "/audit",
            [
                "maya",
                "Retried 40\u00a0failed jobs in email, error 550; 2 refused",
                "Paused queue app-polling",
                "Tried to remove job 7 in email",
                "refused: job 7 is running",
            ],
        ),
    ],
)
async def test_a_page_shows_what_is_in_the_store(stage: Stage, guest: Guest, path: str, texts: list[str]) -> None:
    page = await guest(path)
    shown = await page.inner_text("main")

    assert [text for text in texts if text not in shown] == []


async def test_what_happens_in_the_store_reaches_an_open_page(stage: Stage, guest: Guest) -> None:
    page = await guest("/groups?queue=storefront-sync")
    cell = page.locator("[id='n-gw-storefront-sync/org:kestrel']")
    before = int(await cell.inner_text())
    queue = stage.app.queue("storefront-sync")
    job = await asyncio.to_thread(stage.do, queue.add("sync_orders", {"org": "x"}, group="org:kestrel"))
    await expect(cell).to_have_text(str(before + 1))
    await asyncio.to_thread(stage.do, job.remove())
    await expect(cell).to_have_text(str(before))


async def test_the_caption_of_a_chart_counts_the_minute_that_is_not_drawn(one_stage: Stage, guest: Guest) -> None:
    found = await asyncio.to_thread(one_stage.do, one_stage.app.queue("webhooks").metrics("1h"))
    page = await guest("/queues/webhooks")

    await expect(page.locator("[data-chart=failed] .val")).to_have_text(f"{found.failed} in 1h")
    await expect(page.locator("[data-chart=run] .val")).not_to_contain_text(NONE)


async def test_every_stop_of_the_tab_key_can_be_seen(one_stage: Stage, guest: Guest) -> None:
    """On each page one gets from the first stop to the last and each shows where one is."""
    for path in (
        "/",
        "/queues/email",
        "/dead",
        "/people",
        "/schedules",
        "/workers",
        "/flows",
        "/groups",
        "/breakers",
        "/audit",
    ):
        page = await guest(path)
        stops = []
        for _ in range(120):
            await page.keyboard.press("Tab")
            stop = await page.evaluate(_STOP)
            if stop is None:
                break
            stops.append(stop)
        assert len(stops) > 12, path
        assert [stop["what"] for stop in stops if not stop["ring"]] == [], path


_STOP = """() => {
  const at = document.activeElement;
  if (!at || at === document.body) return null;
  const style = getComputedStyle(at.closest('.field') || at);
  const ring = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1;
  return { what: at.outerHTML.slice(0, 120), ring };
}"""
