"""What the other tests here rely on: the browser's complaints are heard."""

from tests.dashboard.guests import BROWSED, Guest, findings

pytestmark = BROWSED

_BAD = "<body><h1>Bad</h1><button></button><img src='/missing.png' onerror='alert(1)'><script>throw Error('x')</script>"


async def test_errors_dialogs_and_refused_content_are_heard(guest: Guest) -> None:
    page = await guest.window()
    await page.route("**/bad", lambda route: route.fulfill(content_type="text/html", body=_BAD))
    await page.route("**/strict", lambda route: route.fulfill(
        content_type="text/html", body=_BAD, headers={"content-security-policy": "default-src 'none'"}))  # fmt: skip
    await page.goto(guest.base + "/bad")
    serious = await findings(page)
    await page.goto(guest.base + "/strict")
    heard, guest.complaints = "\n".join(guest.complaints), []

    assert "dialog: 1" in heard
    assert "error: x" in heard
    assert "refused by policy: script-src" in heard
    assert any("button-name" in each for each in serious)


async def test_the_api_shows_what_was_made(guest: Guest) -> None:
    guest.expected = ("404",)  # JSON has no icon, for which the browser asks
    page = await guest("/api/v1/queues/data-import/jobs?state=active")
    text = await page.inner_text("body")

    assert '"progress":64' in text
    assert "very secret" not in text
