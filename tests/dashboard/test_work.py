"""A day's work in a browser: what is wrong, a queue, a job, and what is done with them."""

import re

import pytest
from playwright.async_api import Page, expect

from tests.dashboard.guests import BROWSED, PHONE, WIDE, Guest, findings, scrolls_sideways
from tests.dashboard.stage import Stage
from toril import Job, JobFilter, State
from toril.web import Role, Tokens

pytestmark = BROWSED
TOKEN = "0123456789abcdef0123456789abcdef"


def address(job: "Job[object]") -> str:
    return f"/queues/{job.queue.name}/jobs/{job.id}"


async def test_the_overview_says_what_is_wrong_first(stage: Stage, guest: Guest) -> None:
    page = await guest("/")

    await expect(page.locator("h1")).to_have_text(re.compile(r"thing.* attention"))
    await expect(page.locator(".problems li", has_text="embeddings.internal is open")).to_have_count(1)
    await expect(page.locator(".problems li").first).to_have_class(
        "s-crit"
    )  # after a while a queue without workers too
    await expect(page.locator("#r-queues tbody tr", has_text="data-import")).to_have_count(1)
    assert re.match(r"\(\d+\) Overview", await page.title())


async def test_a_figure_changes_while_one_looks(stage: Stage, guest: Guest) -> None:
    page = await guest("/")
    delayed = page.locator('[id="n-kb-sync-d"]')
    before = int(await delayed.inner_text())
    stage.do(stage.app.queue("kb-sync").add("check_links", None, delay=9_000))

    await expect(delayed).to_have_text(str(before + 1))


async def test_a_failed_job_is_retried_by_clicking(stage: Stage, guest: Guest) -> None:
    job = stage.do(_failed(stage))
    page = await guest(address(job))
    await expect(page.locator(".tb .err")).to_contain_text("550 5.1.1")
    await page.get_by_role("button", name="Retry", exact=True).click()

    await expect(page.locator(".toast")).to_contain_text("1 job retried")
    await stage.till(lambda: _ran_twice(job))


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_a_letter_is_read_on_any_screen(stage: Stage, guest: Guest, size: tuple[int, int]) -> None:
    page = await guest("/dead/webhooks%2F2", size=size)

    line = page.locator("#loglines li", has_text="of ticket 2").locator("span").last
    await expect(line).to_be_visible()
    box = await line.bounding_box()
    assert box is not None
    assert box["width"] > 200, "a line of the log is not squeezed into the column of its number"
    await expect(page.locator(".attempt[open] .tb")).to_contain_text("frames in toril")
    assert not await scrolls_sideways(page)
    assert await findings(page) == []


async def test_a_delayed_job_is_cancelled_after_a_question(stage: Stage, guest: Guest) -> None:
    job = stage.do(stage.app.queue("email").add("send_welcome", {"to": "x@example.org"}, delay=9_000))
    page = await guest(address(job))
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await page.get_by_role("button", name="Cancel this job").click()

    await expect(page.locator(".toast")).to_contain_text("1 job cancelled")
    await stage.till(lambda: _is_gone(stage, job))


async def test_a_queue_is_searched_and_all_that_match_are_promoted(stage: Stage, guest: Guest) -> None:
    queue = stage.app.queue("email")
    for n in range(3):
        stage.do(queue.add("send_welcome", {"to": f"bulk{n}@example.org"}, delay=9_000))
    page = await guest("/queues/email?state=delayed")
    await page.get_by_label("Search by id").fill("bulk")
    await expect(page.locator("#r-jobs tbody tr")).to_have_count(3)
    assert "q=bulk" in page.url
    await page.get_by_role("button", name="Promote all 3").click()
    dialog = page.locator("dialog")
    await expect(dialog).to_contain_text("queue email, state delayed, text bulk")
    await dialog.get_by_role("button", name=re.compile("Promote 3")).click()

    await expect(page.locator(".toast").last).to_contain_text("3 jobs promoted")


async def test_all_that_match_are_cancelled_after_a_question_that_says_it_is_final(stage: Stage, guest: Guest) -> None:
    queue = stage.app.queue("email")
    for n in range(3):
        stage.do(queue.add("send_welcome", {"to": f"stop{n}@example.org"}, delay=9_000))
    page = await guest("/queues/email?state=delayed&q=stop")
    await page.get_by_role("button", name="Cancel all 3").click()
    dialog = page.locator("dialog")
    await expect(dialog.locator("h2")).to_have_text("Cancel 3 delayed jobs?")
    await expect(dialog).to_contain_text("This cannot be undone")
    await expect(dialog).to_contain_text("queue email, state delayed, text stop")
    await expect(dialog.get_by_role("button", name="Back")).to_be_focused()
    await dialog.get_by_role("button", name="Cancel 3 delayed jobs").click()

    await expect(page.locator(".toast").last).to_contain_text("3 jobs cancelled")
    await expect(page.locator(".toast button", has_text="Undo")).to_have_count(0)
    await expect(page.locator("main")).to_contain_text("No matching jobs")
    assert stage.do(queue.count("delayed", JobFilter(text="stop"))).count == 0
    audit = await guest("/audit?q=cancelled")
    await expect(audit.locator("tbody tr").first).to_contain_text("Cancelled 3\u00a0delayed jobs in email, text stop")


async def test_a_queue_is_paused_and_undone(one_stage: Stage, guest: Guest) -> None:
    page = await guest("/queues/kb-sync")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Undo").click()

    await expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()


async def test_everything_is_reached_by_keys(one_stage: Stage, guest: Guest) -> None:
    page = await guest("/queues/email?state=completed")
    await page.keyboard.press("j")
    await page.keyboard.press("x")
    await expect(page.locator(".bulk")).to_contain_text("1 selected")
    await page.keyboard.press("/")
    await page.locator("dialog input").fill("data-imp")
    await expect(page.locator("#pal li").first).to_contain_text("data-import")
    await page.keyboard.press("Enter")

    await expect(page).to_have_url(re.compile("/queues/data-import"))


async def test_a_customer_is_found_in_all_queues_from_the_keyboard(stage: Stage, guest: Guest) -> None:
    page = await guest("/workers")
    await page.keyboard.press("/")
    await page.locator("dialog input").fill("group:org:nordwind")
    await expect(page.locator("#pal li").last).to_contain_text("Search for group:org:nordwind")
    await page.keyboard.press("Enter")

    await expect(page).to_have_url(re.compile(r"/find\?q=group%3Aorg%3Anordwind"))
    await expect(page.locator("tbody tr")).to_have_count(5)
    await expect(page.locator("tbody tr").first).to_contain_text("sync_orders")
    await expect(page.locator(".foot")).to_contain_text(re.compile(r"Searched \d+.jobs? and run records in \d+.queues"))
    await page.get_by_label("Search jobs and queues").fill("error:550")
    await expect(page.locator("tbody tr").first).to_contain_text("user unknown")
    phone = await guest("/find?q=user4@gone.example", size=PHONE)
    await expect(phone.locator("tbody tr").first).to_contain_text("email")


async def test_a_running_job_shows_progress_and_log(stage: Stage, guest: Guest) -> None:
    page = await guest(address(stage.seeded.running))

    await expect(page.locator("progress")).to_have_attribute("value", "64")
    await expect(page.locator(".logs li").last).to_contain_text("rows 801 to 1000 written")
    await expect(page.locator("pre#data")).to_contain_text("hidden")


async def test_a_running_job_shows_where_it_is(stage: Stage, guest: Guest) -> None:
    page = await guest(address(stage.seeded.running))
    await page.get_by_role("button", name="Stack").click()
    dialog = page.locator("dialog")

    await expect(dialog.locator("h2")).to_have_text("Stack")
    await expect(dialog.locator("pre")).to_contain_text("in import_contacts")
    await expect(dialog.locator("pre")).to_contain_text("await ctx.signal.wait()")
    await expect(dialog.locator("pre .lib").first).to_contain_text("in toril")
    assert await findings(page) == []
    await page.get_by_role("button", name="Refresh").click()
    await expect(page.locator("dialog")).to_have_count(1)
    await page.get_by_role("button", name="Close").click()
    audit = await guest("/audit?q=stack")
    await expect(audit.locator("tbody tr").first).to_contain_text("Asked for the stack of job")
    done = await guest(address(stage.seeded.done))
    await expect(done.get_by_role("button", name="Stack")).to_have_count(0)


async def test_a_token_opens_the_pages_and_a_reader_may_not_act(one_stage: Stage, guest: Guest) -> None:
    guest.expected = ("401",)
    page = await guest("/queues/email", base=one_stage.also(Tokens({TOKEN: Role.READ})))
    await page.get_by_label("Token").fill(TOKEN)
    await page.get_by_role("button", name="Sign in").click()

    await expect(page.locator("h1")).to_contain_text("email")
    await expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    await expect(page.locator("tbody input")).to_have_count(0)


async def test_without_the_script_pages_still_read(one_stage: Stage, guest: Guest) -> None:
    page = await guest("/queues/email?state=completed&q=send_welcome", java_script_enabled=False)

    await expect(page.locator("#r-jobs tbody tr").first).to_contain_text("send_welcome")
    await expect(page.locator(".tabs a[aria-current]")).to_contain_text("Completed")


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_nobody_is_shut_out(one_stage: Stage, guest: Guest, theme: str) -> None:
    seeded = one_stage.seeded
    for path in ("/", "/queues/email", address(seeded.failed), address(seeded.running), "/find?q=8", "/find?q=a"):
        page: Page = await guest(path, theme=theme, size=WIDE)  # type: ignore[arg-type]
        assert await findings(page) == [], path


async def test_no_page_is_wider_than_a_phone(one_stage: Stage, guest: Guest) -> None:
    for path in ("/", "/queues/email", address(one_stage.seeded.flow), address(one_stage.seeded.failed)):
        assert not await scrolls_sideways(await guest(path, size=PHONE)), path


async def test_a_phone_shows_which_queues_fail_and_cuts_no_label(one_stage: Stage, guest: Guest) -> None:
    page = await guest("/", size=PHONE)
    heads = await page.locator("#r-queues th:visible").all_inner_texts()
    cut = await page.locator(".strip dt").evaluate_all(
        "all => all.filter(each => each.scrollWidth > each.clientWidth).map(each => each.textContent)"
    )
    wide = await page.locator("#r-queues .tw").evaluate("box => box.scrollWidth - box.clientWidth")

    assert heads == ["Queue", "Waiting", "Failed", "Wait p95"]
    assert (cut, wide) == ([], 0)
    await expect(page.locator('[id="n-webhooks-f"]')).to_have_text("12")


async def test_the_table_of_queues_fits_a_window_of_1280_pixels(one_stage: Stage, guest: Guest) -> None:
    """With a name as long as the longest in the helpdesk example."""
    page = await guest("/", size=(1280, 900))
    name = page.locator("#r-queues tbody tr td:first-child a").first
    await name.evaluate("link => { link.textContent = 'document-processing' }")

    wide = await page.locator("#r-queues .tw").evaluate("box => box.scrollWidth - box.clientWidth")

    assert wide == 0


@pytest.mark.parametrize("size", [WIDE, (800, 900), PHONE])
async def test_no_figure_of_the_overview_runs_into_the_next(
    one_stage: Stage, guest: Guest, size: tuple[int, int]
) -> None:
    page = await guest("/", size=size)
    await expect(page.locator("#n-share")).to_contain_text("cancelled")

    out = await page.locator(".strip > div").evaluate_all(
        """all => all.flatMap(box => [...box.querySelectorAll('dd > *')].filter(each =>
            each.getBoundingClientRect().right > box.getBoundingClientRect().right - 4
        ).map(each => box.textContent.trim()))"""
    )

    assert out == []


async def _failed(stage: Stage) -> "Job[object]":
    queue = stage.app.queue("email")
    job = await queue.add("send_reply", {"to": "again@gone.example", "ticket": 1})
    await stage.app.store.finished("email", [job.id], timeout=30_000)
    return job


async def _ran_twice(job: "Job[object]") -> bool:
    found = await job.queue.job(job.id)
    return found is not None and found.record is not None and found.record.starts >= 2


async def _is_gone(stage: Stage, job: "Job[object]") -> bool:
    found = await stage.app.queue("email").job(job.id)
    return found is None or found.record is None or found.record.state is State.FAILED
