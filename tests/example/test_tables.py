"""How the queues of the example are worked: what its tables say is what happens."""

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest

import helpdesk
from helpdesk.tables import QUEUES
from helpdesk.worker import app
from toril import JobContext, Retry
from toril.testing import memory

FILES = sorted(Path(str(helpdesk.__file__)).parent.glob("queues/[a-z]*.py"))
PATIENCE = 240  # seconds
CONCURRENCY = {
    **dict.fromkeys(
        ["events", "event-handlers", "maintenance", "webhooks", "thumbnail", "oauth2-refresh", "dataset-maintenance",
         "scheduled-trigger", "message-processing", "storefront"], 1,
    ),
    "data-import": 2,
    **dict.fromkeys(["embedding", "recording-processing"], 3),
    "kb-sync": 4,
    **dict.fromkeys(
        ["email", "message-sync", "ai-agent", "document-processing", "ai-autofill", "calendar-sync"], 5,
    ),
    **dict.fromkeys(["polling-sync", "workflow-delay", "app-trigger", "app-polling-trigger", "recording-bot"], 10),
}  # fmt: skip


class Gate:
    """Jobs that wait until all are let go, and how many of each queue waited at once."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.changed = asyncio.Condition()
        self.opened = False

    async def pass_through(self, queue: str) -> None:
        async with self.changed:
            self.running[queue] += 1
            self.most[queue] = max(self.most[queue], self.running[queue])
            self.changed.notify_all()
            await self.changed.wait_for(lambda: self.opened)
            self.running[queue] -= 1

    async def open_when(self, reached: dict[str, int]) -> None:
        async with asyncio.timeout(PATIENCE), self.changed:
            await self.changed.wait_for(lambda: all(self.most[name] >= many for name, many in reached.items()))
            self.opened = True
            self.changed.notify_all()


gates: list[Gate] = []


async def hold(ctx: JobContext[None]) -> None:
    await gates[-1].pass_through(ctx.queue_name)


for each in app.queues.values():
    each.handler(hold)


@pytest.mark.covers("R253")
@pytest.mark.usefixtures("api")
async def test_each_queue_runs_as_many_at_once_as_its_row_says_and_no_more() -> None:
    gate = Gate()
    gates.append(gate)
    async with memory(app, on_failure="raise") as test, asyncio.TaskGroup() as group:
        for name, many in CONCURRENCY.items():
            await app.queues[name].add_many([(hold, None, {"subject": "none", "breaker": "none"})] * (2 * many + 1))
        group.create_task(gate.open_when(CONCURRENCY))
        await test.drain()

    assert gate.most == CONCURRENCY


@pytest.mark.covers("R034", "R253")
def test_the_tables_say_what_the_queues_are_declared_with() -> None:
    options = {name: queue.options for name, queue in app.queues.items()}

    assert len(options) == 25
    assert {name: each.concurrency for name, each in options.items()} == CONCURRENCY
    assert {name: each.lease for name, each in options.items()} == {
        name: row.lease * 1000 for name, row in QUEUES.items()
    }
    assert {name for name, each in options.items() if each.lease != 30_000} == {"message-sync", "polling-sync"}


@pytest.mark.covers("R055", "R056", "R057", "R058")
@pytest.mark.parametrize(
    ("queue", "waits"),
    [("email", [5, 10]), ("oauth2-refresh", [60, 120]), ("embedding", [2, 4]), ("polling-sync", [60, 120]),
     ("events", [1, 2, 4, 8]), ("ai-agent", [])],
)  # fmt: skip
def test_a_queue_waits_between_attempts_as_the_table_says(queue: str, waits: list[int]) -> None:
    retry: Retry = app.queues[queue].options.retry
    backoff = retry.backoff.wire()

    assert retry.attempts == len(waits) + 1
    assert [backoff.delay * 2**n for n in range(len(waits))] == [1000 * wait for wait in waits]


@pytest.mark.covers("R213", "R218")
def test_every_schedule_has_a_handler_and_there_are_thirty() -> None:
    declared = [each for queue in app.queues.values() for each in queue.declared.values()]

    without = [each.id for each in declared if each.job not in each.queue.handlers]

    assert without == []
    assert len(declared) == 30
    assert len({each.id for each in declared}) == 30


@pytest.mark.covers("R262")
def test_a_job_is_found_by_its_name_in_the_file_of_its_queue() -> None:
    texts = {path.stem.replace("_", "-"): path.read_text("utf-8") for path in FILES}
    scanners = {"stale-mailboxes", "failed-mailboxes", "forgotten-documents"}
    names = {(queue.name, name) for queue in app.queues.values() for name in queue.handlers.names if name != "hold"}

    found = {(queue, name) for queue, text in texts.items() for name in re.findall(r'"(\w+)": \w+', text)}

    assert set(texts) == set(app.queues)
    assert {(queue, name) for queue, name in names if name not in scanners} <= found
    assert len({name for _, name in names}) == len(names), "a name that two queues have is found twice"


@pytest.mark.covers("R030", "R031", "R263")
@pytest.mark.usefixtures("api")
@pytest.mark.parametrize(("mode", "schedules"), [("hosted", 30), ("self-hosted", 23)])
async def test_what_only_the_host_does_is_neither_scheduled_nor_done_elsewhere(
    mode: str, schedules: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELPDESK_MODE", mode)
    maintenance = app.queues["maintenance"]
    async with memory(app, on_failure="raise") as test:
        job = await maintenance.add("delete_demo_accounts", result_ttl=60)
        await test.drain()
        kept = [view for queue in app.queues.values() for view in (await queue.schedules.list()).items]
        result = await job.result(0)

    assert len(kept) == schedules
    assert (result == {"skipped": True, "reason": "Skipping delete_demo_accounts in self-hosted mode"}) is (
        mode == "self-hosted"
    )
