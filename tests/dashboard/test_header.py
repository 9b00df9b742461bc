"""What the header says of live updates: "Live" is green only while updates come."""

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.dashboard.guests import BROWSED, Guest
from tests.dashboard.stage import Stage
from toril.errors import EngineUnavailable

pytestmark = BROWSED


async def away(*_: Any, **__: Any) -> Any:
    raise EngineUnavailable("the store does not answer")


async def colours(page: Page) -> tuple[str, str]:
    """Of the header's dot, and of the one beside the store's name."""
    colour = "dot => getComputedStyle(dot).color"
    header, store = (page.locator(f"{place} .dot") for place in (".live", ".side .store"))
    return await header.evaluate(colour), await store.evaluate(colour)


@pytest.fixture
def gone(one_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The store is away until this is undone."""
    monkeypatch.setattr(one_stage.app.store, "queues", away)
    return monkeypatch


async def test_an_open_page_says_in_its_header_that_the_store_is_away(
    one_stage: Stage, guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = await guest("/")
    state, verdict = page.locator(".live"), page.locator("h1")
    await expect(state).to_have_attribute("data-state", "live")
    well, before = await colours(page), await verdict.inner_text()
    monkeypatch.setattr(one_stage.app.store.circuits, "list", away)

    await expect(state).to_have_text("Store unreachable")
    await expect(page.locator(".banner")).to_contain_text("Cannot reach the store")
    await expect(verdict).to_have_text("Status unknown")
    unwell = await colours(page)
    monkeypatch.undo()
    await expect(state).to_have_text("Live")
    await expect(page.locator(".banner")).to_have_count(0)
    await expect(verdict).to_have_text(before)

    assert well[0] == well[1] == "rgb(27, 115, 64)"
    assert unwell == ("rgb(217, 63, 63)", "rgb(191, 38, 38)")
    assert await colours(page) == well


async def test_a_page_that_is_opened_while_the_store_is_away_is_not_live(
    one_stage: Stage, guest: Guest, gone: pytest.MonkeyPatch
) -> None:
    guest.expected = ("503",)
    page = await guest("/groups")

    await expect(page.locator("h1")).to_contain_text("cannot reach its store")
    await expect(page.locator(".live")).to_have_text("Store unreachable")
    assert (await colours(page))[0] == "rgb(217, 63, 63)"

    gone.undo()
    await expect(page.locator("h1")).to_have_text("Groups")  # it tries again by itself
    await expect(page.locator(".live")).to_have_text("Live")


async def test_a_page_without_a_stream_does_not_claim_to_be_live(guest: Guest) -> None:
    guest.expected = ("404",)
    page = await guest("/nothing-is-here")

    await expect(page.locator("h1")).to_contain_text("Page not found")
    await expect(page.locator(".live")).to_have_count(0)
