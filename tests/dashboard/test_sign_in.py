"""Whoever comes without credentials looks and cannot act; the link that was printed changes that, in a real browser."""

import asyncio
from itertools import pairwise

import pytest
from playwright.async_api import expect

from tests.dashboard.guests import BROWSED, PHONE, WIDE, Guest, Theme, findings, scrolls_sideways
from tests.dashboard.stage import Stage
from toril.testing import ManualClock
from toril.web import Role, Tokens
from toril.web.sign_in import SignInLink

pytestmark = BROWSED
CHANGES = "[data-act], main tbody input"


async def linked(stage: Stage, clock: ManualClock) -> tuple[str, list[str]]:
    """The stage's site as a server on loopback has it without credentials; its address, and the links it told."""
    access, told = SignInLink(clock), list[str]()
    base = await asyncio.to_thread(stage.also, access)
    access.start(base + "/", told.append)
    return base, told


@pytest.mark.covers("R238")
async def test_the_printed_link_lets_a_browser_act(one_stage: Stage, guest: Guest) -> None:
    base, told = await linked(one_stage, ManualClock())
    await asyncio.to_thread(
        one_stage.do, one_stage.app.queue("app-polling").schedules.put("link", "poll", {"app": "x"}, every=3600)
    )
    page = await guest("/schedules?q=link", base=base)
    await expect(page.locator(".readonly")).to_have_text("Read-only Sign in", use_inner_text=True)
    await expect(page.locator("tbody tr").first).to_be_visible()
    looking = await page.locator(CHANGES).count()

    await page.goto(told[0])
    landed = page.url
    await page.goto(base + "/schedules?q=link")
    await page.locator("[data-act=pause][data-on=link]").first.click()
    await expect(page.locator(".toast").last).to_contain_text("link paused")
    await asyncio.to_thread(one_stage.do, one_stage.app.queue("app-polling").schedules.remove("link"))

    assert looking == 0
    assert landed == base + "/", "the code does not stay in the address"
    await expect(page.locator(".readonly")).to_have_count(0)


async def test_a_reader_asks_for_a_new_link(one_stage: Stage, guest: Guest) -> None:
    clock = ManualClock()
    base, told = await linked(one_stage, clock)
    page = await guest("/", base=base)
    await page.get_by_role("link", name="Sign in").click()
    clock.advance(15 * 60_000)
    await page.get_by_role("button", name="Print a new link").click()
    await expect(page.get_by_role("status")).to_contain_text("A new link was printed")
    await page.goto(told[-1])

    assert len(told) == 2
    assert page.url == base + "/"
    await expect(page.locator("html")).to_have_attribute("data-role", "admin")


@pytest.mark.parametrize(("size", "theme"), [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light")])
async def test_the_card_of_the_sign_in_page_is_in_the_middle(
    one_stage: Stage, guest: Guest, size: tuple[int, int], theme: Theme
) -> None:
    guest.expected = ("401",)
    base = await asyncio.to_thread(one_stage.also, Tokens({"0123456789abcdef0123": Role.READ}))
    page = await guest("/", base=base, size=size, theme=theme)
    card = await page.locator("form.panel").bounding_box()

    assert card is not None
    assert card["width"] > 340, "not squeezed into the column of the navigation"
    assert abs(card["x"] + card["width"] / 2 - size[0] / 2) < 2
    assert not await scrolls_sideways(page)
    assert await findings(page) == []


async def test_on_a_phone_the_way_in_is_within_reach(one_stage: Stage, guest: Guest) -> None:
    base, _ = await linked(one_stage, ManualClock())
    page = await guest("/dead", base=base, size=PHONE, has_touch=True)
    top = [await each.bounding_box() for each in await page.locator(".top > *:visible").all()]
    boxes = sorted((box["x"], box["x"] + box["width"]) for box in top if box is not None)

    assert all(end <= start + 1 for (_, end), (start, _) in pairwise(boxes)), boxes
    assert boxes[-1][1] <= PHONE[0]
    assert await findings(page) == []
    await page.get_by_role("link", name="Sign in").tap()
    await expect(page).to_have_url(base + "/sign-in")
