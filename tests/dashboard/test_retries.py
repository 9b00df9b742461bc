"""Failed jobs are retried from pages: one by a click, all that match with a confirmation."""

import asyncio
from typing import Any

from playwright.async_api import expect

from tests.dashboard.guests import BROWSED, Guest
from tests.dashboard.seed import mended
from tests.dashboard.stage import Stage
from tests.dashboard.test_acts import state_is
from toril import Job

pytestmark = BROWSED


async def failed(stage: Stage, name: str, many: int) -> list[Job[Any]]:
    """Replies that failed, to an address that is there again since."""
    address = f"{name}-{stage.port}@gone.example"

    async def added() -> list[Job[Any]]:
        return await stage.app.queue("email").add_many([("send_reply", {"to": address})] * many)

    jobs = await asyncio.to_thread(stage.do, added())
    for job in jobs:
        await stage.till(state_is(job, "failed"))
    mended.add(address)
    return jobs


async def test_a_failed_job_is_retried_by_a_click(stage: Stage, guest: Guest) -> None:
    (job,) = await failed(stage, "one", 1)
    page = await guest(f"/queues/email/jobs/{job.id}")
    await page.locator("[data-act=retry]").first.click()
    await expect(page.locator(".toast").last).to_contain_text("1 job retried")
    await stage.till(state_is(job, "completed"))


async def test_all_that_match_are_retried_with_a_confirmation(stage: Stage, guest: Guest) -> None:
    jobs = await failed(stage, "many", 12)
    (other,) = await failed(stage, "other", 1)
    page = await guest(f"/queues/email?state=failed&q=many-{stage.port}")
    await page.click("button.btn[data-act=retry][data-all]")
    dialog = page.locator("dialog")
    await expect(dialog.locator("h2")).to_contain_text("12")
    await dialog.locator("button[value=ok]").click()
    await expect(page.locator(".toast").last).to_contain_text("12 jobs retried")
    for job in jobs:
        await stage.till(state_is(job, "completed"))

    assert await asyncio.to_thread(stage.do, other.state()) == "failed", "what does not match is left alone"
