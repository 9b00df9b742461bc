"""What a worker logs beside the ends of its jobs: lost jobs, a store that is away, results that are not kept."""

import asyncio
import logging
import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.worker.conftest import Seen, working
from toril import App, EngineUnavailable, JobContext
from toril.events import Events, tell_recovered
from toril.model import Claim, Recovered
from toril.runtime.logs import Contact, outages, watch
from toril.supervisor import Supervisor, SupervisorOptions


async def nothing(ctx: JobContext[None]) -> None: ...


@pytest.fixture
def no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(outages, "_reported_at", None)
    monkeypatch.setattr(outages, "_since", None)


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[tuple[str, str]]:
    found = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "toril"]
    return [(level, line) for level, line in found if text in line]


@pytest.mark.covers("R118")
async def test_a_job_that_stalled_once_too_often_is_logged_as_failed(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toril")
    queue = app.queue("q", [nothing], max_stalls=0)
    seen = Seen(app, "stalled")
    async with app:
        failed, cancelled = await queue.add(nothing), await queue.add(nothing)
        claim = Claim(want=2, token="gone", lease=1, worker="gone", max_stalls=0)
        await app.store.exchange("q", [], claim)
        await cancelled.cancel("enough")
        async with working(app):
            await seen.until("stalled", 2)

    (level, line), (other_level, other_line) = lines(caplog, "stalled")
    assert (level, other_level) == ("ERROR", "WARNING")
    assert line.startswith(f"job failed: its worker was lost too often queue=q job_id={failed.id} ")
    assert other_line.startswith(f"job stalled queue=q job_id={cancelled.id} ")
    assert "was cancelled" in other_line


def test_a_job_that_failed_by_stalling_is_logged_at_the_level_error_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "toril")
    events = Events()
    watch(events)

    tell_recovered(events, "q", Recovered(returned=("1",), failed=("2",)), "w")

    assert [line.split(" attempt=")[0] for _, line in lines(caplog, "job")] == [
        "job failed: its worker was lost too often queue=q job_id=2"
    ]


def test_an_id_of_any_length_makes_a_line_that_can_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """BullMQ has no bound for ids."""
    events, endless = Events(), "x" * 70_000
    watch(events)

    tell_recovered(events, "q", Recovered(returned=(endless,)), "w")

    ((_, line),) = lines(caplog, "job stalled")
    assert line.startswith(f"job stalled queue=q job_id={'x' * 500}… ")
    assert [vars(each)["job_id"] for each in caplog.records] == [endless]


@pytest.mark.usefixtures("no_outage")
@pytest.mark.parametrize("what", ["exchange", "recover", "heartbeat", "renew"])
async def test_the_log_says_once_when_the_store_answers_again(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Whoever missed it: a worker that claims, a round of maintenance, the one who renews leases."""
    monkeypatch.setattr("toril.worker.maintenance._AFTER_AN_ERROR", 0.01)
    monkeypatch.setattr("toril.worker.maintenance._HEARTBEAT", 0.01)
    again, go = asyncio.Event(), asyncio.Event()

    async def hold(ctx: JobContext[None]) -> None:
        await go.wait()

    queue = app.queue("q", [hold], lease=1)
    async with app:
        kind = type(app.store)
        original, tries, loop = getattr(kind, what), 0, asyncio.get_running_loop()

        async def missed(self: Any, *words: Any, **options: Any) -> Any:
            nonlocal tries
            tries += 1
            if tries <= 2:
                raise EngineUnavailable("nobody there")
            answer = await original(self, *words, **options)
            loop.call_soon_threadsafe(again.set)
            return answer

        monkeypatch.setattr(kind, what, missed)
        await queue.add(hold)
        async with working(app), asyncio.timeout(30):
            await again.wait()
            while not lines(caplog, "answers again"):  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.001)
            go.set()

    assert [line for _, line in lines(caplog, "does not answer")] == ["the store does not answer: nobody there"]
    ((level, line),) = lines(caplog, "answers again")
    assert level == "WARNING"
    assert re.fullmatch(r"the store answers again after \d+\.\d s", line)


@pytest.mark.usefixtures("no_outage")
def test_what_another_store_answers_ends_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    missing, other = Contact(), Contact()
    outages.tell("nobody there")
    missing.lost()

    other.made()
    assert not lines(caplog, "answers again")
    missing.made()
    missing.made()
    assert len(lines(caplog, "answers again")) == 1


async def test_times_in_the_log_have_a_unit(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toril")
    queue = app.queue("q", [nothing])
    async with app:
        await queue.add(nothing)
        await app.run(burst=True)

    ((_, line),) = lines(caplog, "job completed")
    (record,) = [each for each in caplog.records if "job completed" in each.getMessage()]
    assert f" duration={vars(record)['duration']}ms" in line


async def test_a_result_that_is_not_kept_is_told_with_its_queue_and_id(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    async def odd(ctx: JobContext[None]) -> Any:
        return object()

    queue = app.queue("q", [odd])
    async with app:
        job = await queue.add(odd)
        await app.run(burst=True)

    ((_, line),) = lines(caplog, "was dropped")
    assert line.startswith(f"q/{job.id} (odd) completed, but its result was dropped: ")


async def test_a_process_that_hung_is_told_of_once_however_long_it_takes_to_die(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toril.supervisor.supervisor._STACKS", 0.0)
    supervisor = Supervisor(SupervisorOptions(command=("true",), hang_timeout=1.0))
    child: Any = SimpleNamespace(
        table=SimpleNamespace(ticked=1e-9), draining=False, killed=None, pid=7, ask_for_stacks=lambda: None,
        stacks=lambda: "", kill=lambda why: setattr(child, "killed", why),
    )  # fmt: skip

    for _ in range(3):  # looks, while the system takes its time to end it
        supervisor._look_at(child)
        await asyncio.gather(*supervisor._tasks)

    assert child.killed.startswith("its process hung")
    assert len(lines(caplog, "worker process 7 is hung")) == 1
