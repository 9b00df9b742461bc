"""A job waits for somebody, who answers in a browser; and it goes on."""

import asyncio
from typing import Any

import pytest
from playwright.async_api import expect

from tests.dashboard.guests import BROWSED, PHONE, Guest
from tests.dashboard.stage import Stage
from toril import Job

pytestmark = BROWSED


async def asked(stage: Stage, order: int) -> Job[Any]:
    """A job that waits for an approval by now."""
    job = await asyncio.to_thread(stage.do, stage.app.queue("refunds").add("refund", {"order": order}))

    async def rests() -> bool:
        found = await stage.app.store.steps.resting("refunds", signal="approval")
        return job.id in {row.id for row in found.items}

    await stage.till(rests)
    return job


def ended(job: Job[Any]) -> Any:
    async def so() -> bool:
        return await job.state() == "completed"

    return so


@pytest.mark.covers("R238")
async def test_somebody_answers_and_the_job_goes_on(stage: Stage, guest: Guest) -> None:
    guest.expected = ("422",)
    job = await asked(stage, 1)
    page = await guest("/people")
    await page.get_by_role("link", name=f"Answer refund {job.id}").click()
    await expect(page.locator("h1")).to_have_text("Answer approval")
    await page.get_by_label("By").fill("ada")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".answer .note")).to_contain_text("1 field needs a correction")
    await expect(page.locator(".entry.s-crit")).to_contain_text("Choose one.")
    await expect(page.get_by_label("By")).to_have_value("ada")
    await page.get_by_label("Yes").check()
    await page.get_by_label("Reason").select_option(label="late")
    await page.get_by_role("button", name="Send").dblclick()
    await expect(page.locator(".note")).to_contain_text(f"Sent. Job {job.id} in refunds goes on.")
    await stage.till(ended(job))

    assert await asyncio.to_thread(stage.do, job.result()) == "approved by ada"
    await page.get_by_role("link", name=job.id, exact=True).click()
    await expect(page.locator("#steps")).to_contain_text('"by": "ada"')


async def test_it_can_be_answered_by_keys_alone_and_on_a_phone(one_stage: Stage, guest: Guest) -> None:
    job = await asked(one_stage, 2)
    page = await guest("/", size=PHONE)
    await page.keyboard.press("g")
    await page.keyboard.press("p")
    await expect(page.locator("h1")).to_have_text("Waiting for people")
    await page.goto(f"{one_stage.base}/queues/refunds/jobs/{job.id}/signals/approval")
    await page.keyboard.press("ArrowRight")  # the first field has the focus: No
    await page.keyboard.press("Tab")
    await page.keyboard.type("grace")
    for _ in range(3):
        await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator(".note")).to_contain_text("Sent.")
    await one_stage.till(ended(job))

    assert await asyncio.to_thread(one_stage.do, job.result()) == "refused"


async def test_without_a_script_it_is_answered_too(one_stage: Stage, guest: Guest) -> None:
    job = await asked(one_stage, 3)
    page = await guest(f"/queues/refunds/jobs/{job.id}/signals/approval", java_script_enabled=False)
    await page.get_by_label("Yes").check()
    await page.get_by_label("By").fill("barbara")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".note")).to_contain_text("Sent.")
    await one_stage.till(ended(job))


async def test_an_answer_that_somebody_is_typing_stays_when_the_job_ends(one_stage: Stage, guest: Guest) -> None:
    job = await asked(one_stage, 4)
    page = await guest(f"/queues/refunds/jobs/{job.id}/signals/approval")
    await page.get_by_label("By").fill("a long text")
    await asyncio.to_thread(one_stage.do, job.signal("approval", {"ok": False, "by": "radia"}))
    await expect(page.locator("#r-waits")).to_contain_text("has ended")
    await expect(page.get_by_label("By")).to_have_value("a long text")


async def test_rows_of_all_signals_are_known_to_an_open_page(one_stage: Stage, guest: Guest) -> None:
    job = await asked(one_stage, 6)
    await asyncio.to_thread(one_stage.do, one_stage.app.queue("refunds").add("ask", "parcel"))
    page = await guest("/people")
    await expect(page.locator("h2", has_text="scan")).to_have_count(1)
    later = await asked(one_stage, 7)
    await expect(page.get_by_role("link", name=f"Answer refund {later.id}")).to_have_count(1)
    known = "newRows([...document.querySelectorAll('main tr[data-id]')].map(row => row.dataset.id))"
    await page.evaluate(known)  # as the stream tells it
    await expect(page.locator(".fresh")).to_have_count(0)
    for each in (job, later):
        await asyncio.to_thread(one_stage.do, each.cancel())


async def test_a_job_is_rewound_to_a_step(one_stage: Stage, guest: Guest) -> None:
    job = await asked(one_stage, 5)
    await asyncio.to_thread(one_stage.do, job.signal("approval", {"ok": True, "by": "frances"}))
    await one_stage.till(ended(job))
    page = await guest(f"/queues/refunds/jobs/{job.id}")
    await page.get_by_role("button", name="Rewind to approval").click()
    dialog = page.locator("dialog")
    await expect(dialog.locator("h2")).to_have_text("Rewind to approval?")
    await expect(dialog.locator("dd")).to_have_text("approval, pay back")
    await dialog.get_by_role("button", name="Rewind", exact=True).click()
    await expect(page.locator(".toast")).to_contain_text("Rewound; the job runs again")
    await expect(page.locator("h1")).to_contain_text("Waiting for approval")
    await expect(page.locator("#steps li").first).to_contain_text("look up")
    await asyncio.to_thread(one_stage.do, job.signal("approval", {"ok": False, "by": "ada"}))
    await one_stage.till(ended(job))
