"""Texts that try to be scripts are shown as texts: on every page, in what opens there, and while it is live."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.async_api import Page

from tests.dashboard.guests import BROWSED, Guest
from tests.dashboard.hostile import PAYLOADS, hostile
from tests.dashboard.stage import Stage
from toril.web.pages import PAGES

pytestmark = BROWSED


@pytest.fixture(scope="module")
def one_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The hostile one, on SQLite: the pages do not know the store."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    stage = Stage(f"sqlite:///{folder / 'hostile.db'}", hostile).start()
    yield stage
    stage.stop()


def _views(stage: Stage) -> list[str]:
    found = [page.path for page in PAGES if "{" not in page.path]
    found += [f"/queues/{quote(name, safe='')}" for name in ("kept", "buried", "idle", PAYLOADS[2])]
    for job in (stage.seeded.failed, stage.seeded.running, stage.seeded.flow, stage.seeded.asking):
        found.append(f"/queues/{quote(job.queue.name, safe='')}/jobs/{quote(job.id, safe='')}")
    found += [f"{found[-1]}/signals/{quote(name, safe='')}" for name in (PAYLOADS[8], PAYLOADS[9], PAYLOADS[1])]
    letter = asyncio.run_coroutine_threadsafe(stage.app.dead_letters.page(limit=1), stage._loop).result(60)
    found.append("/dead/" + quote(letter.items[0].id, safe=""))
    evil = quote(PAYLOADS[3], safe="")
    known = {page.path for page in PAGES}
    found = [path for path in found if path.count("/") == 1 or _pattern(path) in known]
    return [*found, f"/dead?q={evil}&queue={evil}&kind={evil}&error={evil}", f"/workers?q={evil}&worker={evil}",
            f"/flows?q={evil}&queue={evil}&id={evil}", f"/nowhere/{evil}"]  # fmt: skip


def _pattern(path: str) -> str:
    parts = path.split("/")
    if parts[1] == "dead":
        return "/dead/{id}"
    if len(parts) == 7:
        return "/queues/{queue}/jobs/{id}/signals/{name}"
    return "/queues/{queue}" if len(parts) == 3 else "/queues/{queue}/jobs/{id}"


async def test_twenty_payloads_everywhere_open_no_dialog_and_break_no_policy(one_stage: Stage, guest: Guest) -> None:
    guest.expected = ("404",)  # for what is nowhere
    page = await guest.window()
    for path in await asyncio.to_thread(_views, one_stage):
        await page.goto(one_stage.base + path)
        await _poke(page)
        assert not await page.evaluate("[...document.scripts].some(script => !script.src)"), path
        hosts = await page.evaluate("performance.getEntriesByType('resource').map(e => new URL(e.name).host)")
        assert set(hosts) <= {one_stage.base.removeprefix("http://")}, path

    assert guest.complaints == []


async def _poke(page: Page) -> None:
    """Open and touch what can be: rows, menus, the palette, fields that catch the focus."""
    await page.evaluate("""() => {
      for (const b of [...document.querySelectorAll('button[aria-expanded=false]')].slice(0, 25)) b.click();
      const over = new MouseEvent('mouseover', { bubbles: true });
      for (const el of document.querySelectorAll('main *')) el.dispatchEvent(over);
    }""")


async def test_they_are_shown_as_what_they_are(one_stage: Stage, guest: Guest) -> None:
    page = await guest("/dead")
    shown = await page.inner_text("main")
    assert [text for text in PAYLOADS if text not in shown] == []

    await page.click("tbody tr:first-child [data-act=replay] >> nth=0")
    await page.locator(".toast").first.wait_for()
    await page.click("[data-act=discard][data-all]")
    assert "dead letters" in await page.inner_text("dialog h2")
