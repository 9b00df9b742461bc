"""Pollers: started again when they die, and, where they are elected, in one process of the fleet."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from toril import App, JobContext, UsageError
from toril.events import Events
from toril.runtime.hooks import Poller
from toril.testing import ManualClock
from toril.worker.pollers import Elect, Pollers


async def nothing(ctx: JobContext[Any]) -> None: ...


class Stage:
    """One poller on a clock of its own, and what is told of it."""

    def __init__(self, fn: Callable[[], Awaitable[Any]], elect: Elect | None = None) -> None:
        self.clock = ManualClock()
        self.told: list[dict[str, Any]] = []
        self.events = Events()
        self.pollers = Pollers(
            [Poller("inbox", fn, None if elect is None else 30.0)], self.clock, self.events, "w", elect=elect,
            tell=lambda statuses: self.told.append(dict(statuses[0])),
        )  # fmt: skip

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            self.pollers.start(group)
            try:
                yield
            finally:
                await self.pollers.stop(5)

    async def until(self, state: str, restarts: int = 0) -> dict[str, Any]:
        """What is told, once it is this."""

        def last() -> tuple[Any, ...]:
            return (self.told[-1]["state"], self.told[-1]["restarts"]) if self.told else ()

        while last() != (state, restarts):  # noqa: ASYNC110 - turns of the loop are all it takes
            await asyncio.sleep(0)
        return self.told[-1]


@pytest.mark.covers("R004")
async def test_one_that_dies_again_and_again_is_started_ever_later_and_never_given_up() -> None:
    starts: list[float] = []

    async def fail() -> None:
        starts.append(stage.clock.monotonic())
        raise OSError("the line is cut, password=hunter2")

    stage = Stage(fail)
    async with stage.running():
        for number in range(12):
            await stage.until("restarting", number)
            while len(starts) == number + 1:
                stage.clock.advance(50)
                await asyncio.sleep(0)

    told = stage.told[-1]
    pauses = [later - earlier for earlier, later in pairwise(starts)]
    assert pauses[0] < 0.2
    assert pauses[0] < pauses[1] < pauses[3] < pauses[5] < pauses[7]
    assert max(pauses) < 40
    assert told["error"] == "OSError: the line is cut, password=***"
    began = ManualClock().now()
    assert began < told["died_at"] <= stage.clock.now(), "in ms, as all times over HTTP"


async def test_one_that_is_cancelled_by_its_own_doing_has_died() -> None:
    async def fail() -> None:
        raise asyncio.CancelledError

    stage = Stage(fail)
    async with stage.running():
        assert (await stage.until("restarting"))["error"].startswith("CancelledError")


async def test_one_that_returns_has_finished() -> None:
    async def finish() -> None: ...

    stage = Stage(finish)
    async with stage.running():
        await stage.until("finished")
        stage.clock.advance(60_000)
        await asyncio.sleep(0)

    assert [each["state"] for each in stage.told] == ["running", "finished"]


async def test_one_that_fails_while_it_is_stopped_is_not_started_again(caplog: pytest.LogCaptureFixture) -> None:
    starts: list[str] = []

    async def poll() -> None:
        starts.append("start")
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("cannot say goodbye")

    stage = Stage(poll)
    async with stage.running():
        await stage.until("running")
        await asyncio.sleep(0)
    stage.clock.advance(60_000)
    await asyncio.sleep(0)

    assert starts == ["start"]
    assert "poller inbox failed while stopping" in caplog.text


class FakeLead:
    """An election whose winner the test says."""

    leads = False

    def __init__(self, story: list[str]) -> None:
        self._story = story

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self._story.append("resigned")


async def test_an_elected_one_runs_while_its_process_leads_even_if_nobody_says_so() -> None:
    story: list[str] = []
    lead = FakeLead(story)

    async def poll() -> None:
        story.append("begins")
        try:
            await asyncio.Event().wait()
        finally:
            story.append("ends")

    stage = Stage(poll, elect=lambda *_: lead)
    async with stage.running():
        await stage.until("standby")
        for leads, state in ((True, "running"), (False, "standby"), (True, "running")):
            lead.leads = leads
            while stage.told[-1]["state"] != state:
                stage.clock.advance(1000)
                await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert story == ["begins", "ends", "begins", "ends", "resigned"]


@pytest.mark.covers("R004")
async def test_of_all_processes_one_runs_an_elected_poller_and_another_takes_over(tmp_path: Path) -> None:
    """Two apps on one file are two processes to the store."""
    running: list[int] = []
    most = 0
    began = [asyncio.Event(), asyncio.Event()]
    apps = [App(f"sqlite:///{tmp_path / 'jobs.db'}") for _ in began]
    for number, app in enumerate(apps):
        app.queue("q", [nothing])

        @app.poller(elected=True, lease=1)
        async def inbox(number: int = number) -> None:
            nonlocal most
            running.append(number)
            most = max(most, len(running))
            began[number].set()
            try:
                await asyncio.Event().wait()
            finally:
                running.remove(number)

    async with asyncio.timeout(60):
        works = [asyncio.create_task(app.run(signals="leave")) for app in apps]
        await asyncio.wait([asyncio.create_task(each.wait()) for each in began], return_when=asyncio.FIRST_COMPLETED)
        (first,) = running
        apps[first].stop()
        await works[first]
        await began[1 - first].wait()
        assert running == [1 - first]
        apps[1 - first].stop()
        await works[1 - first]

    assert (running, most) == ([], 1)


def test_elected_pollers_have_names_of_their_own() -> None:
    app = App("memory://")

    @app.poller(elected=True)
    async def inbox() -> None: ...

    with pytest.raises(UsageError, match="poller 'inbox' is already declared"):
        app.poller(elected=True)(inbox)
    app.poller(elected=True, name="another")(inbox)


async def test_of_two_processes_of_one_name_one_is_elected(tmp_path: Path) -> None:
    """Processes in containers often have the same number, and so the same name."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with App(url) as one, App(url) as two:
        made = [app._elections("shop-8") for app in (one, two)]
        elections: list[Any] = [make("poller", 30.0, lambda _: None) for make in made if make is not None]
        for election in elections:
            await election.stand()

        assert [election.leads for election in elections] == [True, False]
