"""What is done by clicking is done in the store; and all of it can be done without a mouse."""

import asyncio
from typing import Any

from playwright.async_api import Page, expect

from tests.dashboard.guests import BROWSED, PHONE, Guest
from tests.dashboard.seed import mended
from tests.dashboard.stage import Stage
from toril import Job
from toril.web import Role, Tokens

pytestmark = BROWSED


async def refused(stage: Stage, customer: str, many: int = 1) -> list[Job[Any]]:
    """Jobs of a customer whose card is refused: dead letters by now."""

    async def added() -> list[Job[Any]]:
        return await stage.app.queue("billing").add_many(
            [("charge", {"customer": customer, "n": n}) for n in range(many)]
        )

    jobs = await asyncio.to_thread(stage.do, added())
    await stage.till(lambda: _dead(stage, customer, many))
    return jobs


async def _dead(stage: Stage, customer: str, many: int) -> bool:
    from toril.policy.search import DeadLetterFilter

    return await stage.app.dead_letters.count(DeadLetterFilter(payload={"customer": customer})) == many


def state_is(job: Job[Any], state: str) -> Any:
    async def so() -> bool:
        return await job.state() == state

    return so


async def test_a_dead_letter_is_replayed_by_a_click(stage: Stage, guest: Guest) -> None:
    (job,) = await refused(stage, f"click-{stage.port}")
    mended.add(f"click-{stage.port}")
    page = await guest(f"/dead?q=click-{stage.port}")
    await page.click(f"tbody [data-act=replay][data-on='billing/{job.id}']")
    await expect(page.locator(".toast")).to_contain_text("1 dead letter replayed")
    await stage.till(state_is(job, "completed"))
    await expect(page.locator("main")).to_contain_text("No matching dead letters")


async def test_all_that_match_are_replayed_with_a_confirmation(stage: Stage, guest: Guest) -> None:
    customer = f"all-{stage.port}"
    jobs = await refused(stage, customer, 30)
    (other,) = await refused(stage, f"other-{stage.port}")
    mended.update({customer, f"other-{stage.port}"})
    page = await guest(f"/dead?q=data.customer:{customer}")
    await page.click("[data-act=replay][data-all]")
    dialog = page.locator("dialog")
    await expect(dialog.locator("h2")).to_have_text("Replay 30 dead letters?")
    await expect(dialog).to_contain_text(f"text data.customer:{customer}")
    await expect(dialog).to_contain_text("30 valid")
    await dialog.get_by_role("button", name="Replay 30 dead letters").click()
    await expect(page.locator(".toast").last).to_contain_text("30 dead letters replayed")
    await stage.till(state_is(jobs[-1], "completed"))

    assert await _is_dead(stage, other), "what does not match is left alone"


async def _is_dead(stage: Stage, job: Job[Any]) -> bool:
    letters = await asyncio.to_thread(stage.do, stage.app.dead_letters.page(limit=200))
    return f"billing/{job.id}" in {letter.id for letter in letters.items}


async def test_a_letter_is_replayed_with_other_data_and_options(stage: Stage, guest: Guest) -> None:
    (job,) = await refused(stage, f"edit-{stage.port}")
    page = await guest(f"/dead/billing%2F{job.id}")
    await page.get_by_role("button", name="Replay").click()
    await page.fill("dialog [name=data]", "{ no")
    await page.get_by_role("button", name="Replay", exact=True).last.click()
    await expect(page.locator("dialog .note")).to_contain_text("Invalid JSON")
    await page.fill("dialog [name=attempts]", "7")
    await page.fill("dialog [name=data]", f'{{"customer": "edit-{stage.port}", "card": "good"}}')
    await page.get_by_role("button", name="Replay", exact=True).last.click()
    await stage.till(state_is(job, "completed"))
    found = await asyncio.to_thread(stage.do, job.refresh())

    assert found.data == {"customer": f"edit-{stage.port}", "card": "good"}
    assert found.record is not None
    assert found.record.max_attempts == 7


async def test_many_are_discarded_only_after_their_number_was_typed(one_stage: Stage, guest: Guest) -> None:
    await refused(one_stage, "typed", 101)
    page = await guest("/dead?q=data.customer:typed")
    await page.click("[data-act=discard][data-all]")
    sure = page.get_by_role("button", name="Discard 101 dead letters")
    await expect(page.get_by_role("button", name="Back")).to_be_focused()
    await expect(sure).to_be_disabled()
    await page.keyboard.press("Shift+Tab")
    await page.keyboard.type("101")
    await expect(sure).to_be_enabled()
    await sure.click()
    await expect(page.locator(".toast").last).to_contain_text("101 dead letters discarded")

    assert await asyncio.to_thread(one_stage.do, _dead(one_stage, "typed", 0))


async def test_a_running_job_is_cancelled_by_a_click(stage: Stage, guest: Guest) -> None:
    queue = stage.app.queue("data-import")
    job = await asyncio.to_thread(stage.do, queue.add("import_contacts", {"rows": 1}))
    await stage.till(state_is(job, "active"))
    page = await guest("/workers")
    await page.click(f"tr[data-at='queues/data-import/jobs/{job.id}'] [data-act=cancel]")
    await page.get_by_role("button", name="Cancel this job").click()
    await expect(page.locator(".toast")).to_contain_text("1 running job told to stop")
    await stage.till(state_is(job, "failed"))


async def test_schedules_groups_and_circuits_are_stopped_and_let_go_on(stage: Stage, guest: Guest) -> None:
    app = stage.app
    await asyncio.to_thread(stage.do, app.queue("app-polling").schedules.put("mine", "poll", {"app": "x"}, every=3600))
    page = await guest("/schedules?q=mine")
    await _press(page, "[data-act=pause][data-on=mine]", "mine paused")
    await expect(page.locator("tbody")).to_contain_text("Paused")
    await _press(page, "[data-act=resume][data-on=mine]", "mine resumed")
    await _press(page, "[data-act=run][data-on=mine]", "Added a run of mine")
    await asyncio.to_thread(stage.do, app.queue("app-polling").schedules.remove("mine"))

    page = await guest("/groups?q=org:oakline")
    await _press(page, "[data-act=pause]", "org:oakline paused")
    await expect(page.locator("tbody .pill")).to_have_text("paused")
    await _press(page, "[data-act=resume]", "org:oakline resumed")

    await asyncio.to_thread(stage.do, app.breakers.trip("mine.example", 600))
    page = await guest("/breakers?q=mine.example")
    await _press(page, "[data-act=reset]", "Circuit mine.example closed")
    await expect(page.locator("main")).to_contain_text("No matching circuits")


async def _press(page: Page, button: str, told: str) -> None:
    await page.locator(button).first.click()
    await expect(page.locator(".toast").last).to_contain_text(told)


async def test_all_of_it_goes_without_a_mouse(stage: Stage, guest: Guest) -> None:
    customer = f"keys-{stage.port}"
    (one, two) = await refused(stage, customer, 2)
    mended.add(customer)
    page = await guest("/workers")
    await page.keyboard.press("g")
    await page.keyboard.press("d")
    await page.wait_for_url("**/dead")
    await _tab_to(page, "input[type=search]")
    await page.keyboard.type(customer)
    await page.wait_for_url(f"**/dead?q={customer}")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await _tab_to(page, "tbody input[type=checkbox]")
    await page.keyboard.press("j")
    await page.keyboard.press("r")
    await expect(page.locator(".toast").last).to_contain_text("1 dead letter replayed")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await _tab_to(page, "[data-act=replay][data-all]")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Replay this dead letter")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_contain_text("No matching dead letters")
    await stage.till(state_is(one, "completed"))
    await stage.till(state_is(two, "completed"))


async def _tab_to(page: Page, what: str) -> None:
    """Press Tab until that has the focus."""
    for _ in range(80):
        await page.keyboard.press("Tab")
        if await page.evaluate("what => document.activeElement.matches(what)", what):
            return
    raise AssertionError(f"the Tab key does not lead to {what}")


async def test_at_the_width_of_a_phone_the_acts_are_within_reach(one_stage: Stage, guest: Guest) -> None:
    await asyncio.to_thread(
        one_stage.do, one_stage.app.queue("app-polling").schedules.put("phone", "poll", {"app": "x"}, every=3600)
    )
    page = await guest("/schedules?q=phone", size=PHONE, has_touch=True)
    await page.get_by_role("button", name="Details of phone").tap()
    await page.locator("tr.more [data-act=pause]").tap()
    await expect(page.locator(".toast")).to_contain_text("phone paused")
    await asyncio.to_thread(one_stage.do, one_stage.app.queue("app-polling").schedules.remove("phone"))


async def test_what_the_store_refuses_is_told_and_put_back(one_stage: Stage, guest: Guest) -> None:
    (job,) = await refused(one_stage, "gone")
    guest.expected = ("404",)
    page = await guest("/dead?q=data.customer:gone")
    await asyncio.to_thread(one_stage.do, one_stage.app.dead_letters.discard([f"billing/{job.id}"]))
    await page.click("tbody [data-act=replay]")

    await expect(page.locator(".toast").last).to_contain_text("left unchanged")


async def test_who_may_only_look_sees_no_buttons(one_stage: Stage, guest: Guest) -> None:
    token = "read-0123456789abcdef"
    base = await asyncio.to_thread(one_stage.also, Tokens({token: Role.READ}))
    page = await guest("/dead", base=base, extra_http_headers={"authorization": f"Bearer {token}"})

    await expect(page.locator("tbody tr").first).to_be_visible()
    assert await page.locator("main [data-act], main tbody input").count() == 0
