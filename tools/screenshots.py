"""Pictures of the dashboard for the README and the docs: a filled store, a real browser. `make screenshots`."""

import asyncio
import tempfile
from pathlib import Path

from playwright.async_api import async_playwright
from tests.dashboard.guests import PHONE, WIDE, Guest, Theme, launched
from tests.dashboard.stage import Stage

__all__: list[str] = []

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
LARGEST = 250_000  # bytes
PICTURES: dict[str, tuple[str, Theme, tuple[int, int]]] = {
    "overview": ("/", "light", WIDE),
    "dead-letters": ("/dead", "light", WIDE),
    "flows": ("/flows", "dark", WIDE),
    "workers-phone": ("/workers", "dark", PHONE),
}


async def taken(base: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    async with async_playwright() as playwright:
        browser = await launched(playwright)
        guest = Guest(browser, base)
        for name, (path, theme, size) in PICTURES.items():
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


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="toril-pictures-") as folder:
        stage = Stage(f"sqlite:///{Path(folder) / 'helpdesk.db'}").start()
        try:
            asyncio.run(taken(stage.base))
        finally:
            stage.stop()


if __name__ == "__main__":
    main()
