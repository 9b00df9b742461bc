"""Someone with a browser, and what the browser complains of."""

import asyncio
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Playwright, Response, expect

__all__ = ["BROWSED", "PHONE", "WIDE", "Guest", "Theme", "findings", "launched", "scrolls_sideways"]

BROWSED = pytest.mark.asyncio(loop_scope="session")
WIDE, PHONE = (1440, 900), (390, 844)
_PATIENCE = 30_000  # milliseconds; an open page is read again every five seconds at the latest, later on busy cores
expect.set_options(timeout=_PATIENCE)
Theme = Literal["light", "dark"]

# What the policy refuses is told to the page; this has it said where the tests listen.
_TELL_REFUSED = """
document.addEventListener('securitypolicyviolation', e =>
  console.error(`refused by policy: ${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
"""


async def launched(playwright: Playwright) -> Browser:
    """The system's Chromium, without a window."""
    path = os.environ.get("TORIL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "there is no Chromium: run  make servers"
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--force-color-profile=srgb"]
    return await playwright.chromium.launch(executable_path=path, args=options)


@dataclass  # with slots Playwright could not hang its wrappers on it
class Guest:
    """`await guest("/path")` opens a page, in a window of this size and theme."""

    browser: Browser
    base: str
    complaints: list[str] = field(default_factory=list)
    windows: list[BrowserContext] = field(default_factory=list)
    expected: tuple[str, ...] = ()  # complaints with these words are what the test is about

    async def __call__(
        self, path: str = "/", *, size: tuple[int, int] = WIDE, theme: Theme = "light", base: str | None = None,
        **options: Any,
    ) -> Page:  # fmt: skip
        page = await self.window(size=size, theme=theme, **options)
        await page.goto((base or self.base) + path)
        return page

    async def window(self, *, size: tuple[int, int] = WIDE, theme: Theme = "light", **options: Any) -> Page:
        """An empty page that is listened to."""
        context = await self.browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=theme, reduced_motion="reduce",
            locale="en-GB", timezone_id="UTC", **options,
        )  # fmt: skip
        context.set_default_timeout(_PATIENCE)
        self.windows.append(context)
        page = await context.new_page()
        await page.add_init_script(_TELL_REFUSED)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._complain(f"error: {error}"))
        page.on("dialog", self._dialog)
        page.on("response", self._response)
        return page

    async def leave(self) -> None:
        for window in self.windows:
            with suppress(TimeoutError):  # what is not closed by then goes with the browser
                async with asyncio.timeout(5):
                    await window.close()
        self.windows.clear()

    def _complain(self, text: str) -> None:
        if not any(words in text for words in self.expected):
            self.complaints.append(text)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._complain(f"{message.type}: {message.text}")

    async def _dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")  # whatever is expected: ours are no such dialogs
        await dialog.dismiss()

    def _response(self, response: Response) -> None:
        if response.status >= 500:
            self._complain(f"{response.status}: {response.url}")


async def findings(page: Page) -> list[str]:
    """What axe finds that is serious or critical, each as one line."""
    results = await Axe().run(page)
    return [
        f"{found['impact']}: {found['id']} at {', '.join(str(node['target']) for node in found['nodes'][:5])}"
        for found in results.response["violations"]
        if found["impact"] in ("serious", "critical")
    ]


async def scrolls_sideways(page: Page) -> bool:
    """Whether the page itself, not a part of it, is wider than the window."""
    return bool(await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))
