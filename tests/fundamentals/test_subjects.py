"""Jobs are about someone: a tenant, an account. Their runs can be told apart by that."""

from dataclasses import dataclass
from typing import Any

import pytest

from toril import App, InvalidName, InvalidOption, JobContext, Retry
from toril.testing import memory


async def sync(ctx: JobContext[dict[str, Any]]) -> None:
    if ctx.data["bad"]:
        raise ConnectionError("the service is down")


@pytest.mark.covers("R093")
async def test_runs_are_found_by_whom_they_were_about() -> None:
    app = App("memory://")
    queue = app.queue("q", {"sync": sync}, retry=Retry(1), subject="account")
    async with memory(app) as test:
        for account, bad in (("a", True), ("b", True), ("a", False), ("a", True), ("b", True), ("a", True)):
            await queue.add("sync", {"account": account, "bad": bad})
            await test.drain()
            test.clock.advance(1)

        assert await queue.failures_in_a_row("a") == 2, "since the last that went well"
        assert await queue.failures_in_a_row("b") == 2
        assert await queue.failures_in_a_row("c") == 0
        first = await queue.runs("failed", limit=2, subject="a")
        rest = await queue.runs("failed", first.cursor, 2, subject="a")
        assert [run.id for run in (*first.items, *rest.items)] == ["6", "4", "1"]
        assert len((await queue.runs("failed")).items) == 5


async def test_failures_before_all_that_is_known_to_have_gone_well_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("toril.operate.search", "toril.engines.sql.changes"):
        monkeypatch.setattr(f"{module}.RUNS", 3)
    app = App("memory://")
    queue = app.queue("q", {"sync": sync}, retry=Retry(1), subject="account")
    async with memory(app) as test:
        for account, bad in [("a", True), ("a", True), ("a", False), ("b", False), ("b", False), ("a", True)]:
            await queue.add("sync", {"account": account, "bad": bad})
            await test.drain()
            test.clock.advance(1)
        assert await queue.failures_in_a_row("a") == 1
        await queue.add("sync", {"account": "b", "bad": False})
        await test.drain()
        assert await queue.failures_in_a_row("a") == 1, "that one of its own went well is no longer known"


@dataclass
class Invoice:
    account: int


async def test_the_subject_is_a_field_a_function_or_said_with_the_job() -> None:
    app = App("memory://")

    async def bill(ctx: JobContext[Invoice]) -> None: ...

    by_field = app.queue("field", {"bill": bill}, subject="account")
    by_function = app.queue("function", {"bill": bill}, subject=lambda invoice: f"no. {invoice.account}")
    async with app:
        jobs = [
            await by_field.add(bill, Invoice(7)),
            await by_function.add(bill, Invoice(7)),
            await by_field.add(bill, Invoice(7), subject="someone else"),
        ]
        told = [(await job.refresh()).record for job in jobs]
        with pytest.raises(InvalidOption, match="has no field 'account', which holds the job's subject"):
            await by_field.add("bill")
        with pytest.raises(InvalidName, match="subject"):
            await by_field.add(bill, Invoice(7), subject="two\nlines")

    assert [record.subject for record in told if record is not None] == ["7", "no. 7", "someone else"]
    with pytest.raises(InvalidOption, match="subject"):
        app.queue("odd", subject=5)  # type: ignore[arg-type]


async def test_a_scanner_may_live_in_a_queue_whose_jobs_have_a_subject() -> None:
    app = App("memory://")

    async def bill(ctx: JobContext[Invoice]) -> None: ...

    queue = app.queue("bills", {"bill": bill}, subject="account")
    app.scanner("unpaid", every=900, find=lambda _: [], reset=lambda _: None, queue=queue)
    async with memory(app, on_failure="raise") as test:
        await test.drain()
        (run,) = (await queue.runs("completed", subject="unpaid")).items

    assert run.name == "unpaid"
