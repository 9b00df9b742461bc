"""Pictures of the dashboard for the README and the docs: a filled store, a real browser. `make screenshots`."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from playwright.async_api import async_playwright
from tests.dashboard.guests import PHONE, WIDE, Guest, Theme, launched
from tests.dashboard.stage import Stage

__all__: list[str] = []

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
LARGEST = 250_000  # bytes
Pictures = dict[str, tuple[str, Theme, tuple[int, int]]]
EXAMPLE: Pictures = {"helpdesk": ("/", "light", (1280, 900))}
PICTURES: Pictures = {
    "overview": ("/", "light", WIDE),
    "dead-letters": ("/dead", "light", WIDE),
    "flows": ("/flows", "dark", WIDE),
    "answer": ("/queues/refunds/jobs/1/signals/approval", "light", WIDE),
    "workers-phone": ("/workers", "dark", PHONE),
}


async def taken(base: str, pictures: Pictures) -> None:
    FOLDER.mkdir(exist_ok=True)
    async with async_playwright() as playwright:
        browser = await launched(playwright)
        guest = Guest(browser, base)
        for name, (path, theme, size) in pictures.items():
            page = await guest(path, theme=theme, size=size)
            await page.locator("h1").wait_for()
            picture = await page.screenshot(path=FOLDER / f"{name}.png")
            if len(picture) > LARGEST:
                raise SystemExit(f"{name}.png has {len(picture):,} bytes: more than a page should carry")
            print(f"docs/pictures/{name}.png  {len(picture):,} bytes")
        await guest.leave()
        await browser.close()
        if guest.complaints:
            raise SystemExit(f"the browser complains: {guest.complaints}")


@asynccontextmanager
async def helpdesk(url: str) -> AsyncIterator[Any]:
    """The example at work, in a morning on which something is wrong."""
    sys.path.insert(0, str(ROOT / "examples"))
    folder = Path(url.removeprefix("sqlite:///")).parent
    os.environ |= {"TORIL_URL": url, "HELPDESK_PACE": "0.1", "HELPDESK_DATABASE": str(folder / "helpdesk.db")}
    from helpdesk import database  # noqa: PLC0415 - it reads the environment when it is imported
    from helpdesk.fake_api import BROKEN, FakeApi, Trouble  # noqa: PLC0415
    from helpdesk.worker import app  # noqa: PLC0415
    from helpdesk.workload import Workload  # noqa: PLC0415

    database.prepare()
    with FakeApi(trouble=0.2) as api:
        os.environ["HELPDESK_API"] = api.url
        api.down |= {"/oauth/letterbox": BROKEN, "/hooks/crm": Trouble(404)}
        async with app:
            await Workload(size=12).add()
            work = asyncio.create_task(app.run(grace=1, signals="leave"))
            async with asyncio.timeout(120):
                while len(api.done["/email"]) < 60 or not await app.breakers.list():  # noqa: ASYNC110 - of other threads
                    await asyncio.sleep(0.1)
            yield SimpleNamespace(app=app)
            app.stop()
            await work


def main() -> None:
    for scene, pictures in ((None, PICTURES), (helpdesk, EXAMPLE)):
        with tempfile.TemporaryDirectory(prefix="toril-pictures-") as folder:
            url = f"sqlite:///{Path(folder) / 'jobs.db'}"
            stage = (Stage(url) if scene is None else Stage(url, scene)).start()
            try:
                asyncio.run(taken(stage.base, pictures))
            finally:
                stage.stop()


if __name__ == "__main__":
    main()
