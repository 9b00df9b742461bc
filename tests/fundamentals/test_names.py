"""What queues, jobs and ids may be called: rows B01 to B18, as users meet them."""

import socket
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from tests.fundamentals.apps import ADDS, drained, unchanged, working
from toril import App, InvalidName, InvalidOption, JobContext, Queue, UnknownQueue, handler

BAD_KEY_PARTS: dict[str, list[Any]] = {
    "B01": ["", " ", "   ", None, b"jobs", 5],
    "B02": ["a:b", ":"],
    "B03": ["a{b", "{a}", "a}"],
    "B04": ["a*", "a?", "[a", "a]", "a\\b"],
    "B05": ["a\x00", "a\nb", "\x1b[31m", "a\u202ab", "a\u202eb", "a\u200bb"],
    "B06": ["a/b", "..", "%2e%2e", ".hidden"],
    "B07": ["x" * 129, "\u00fc" * 65],
}
BAD_NAMES = [pytest.param(name, id=f"{row}-{name!a:.20}") for row, names in BAD_KEY_PARTS.items() for name in names]
BAD_JOB_NAMES = [
    "",
    "  ",
    "x" * 256,
    "\u00fc" * 128,
    "a\nb",
    "a\x00b",
    "\x1b[31m",
    "\ud800",
    None,
    5,
    b"send",
    ["send"],
]
BAD_IDS: dict[str, list[Any]] = {
    "B12": ["1", "123", "-5"],
    "B13": ["0", "0:1", "0:1:2"],
    "B14": ["a:b", "a:b:c:d", ":", "meta:a:b", "repeat:nightly:1800000000000", "repeat:a:b"],
    "B15": ["x" * 257, "\u00fc" * 129, "a\ud800", "a\x00", "a\nb", "", 5, 1.5],
    "B09": ["meta", "wait", "id", "events", "limiter", "repeat"],
}
IDS = [pytest.param(job_id, id=f"{row}-{job_id!a:.20}") for row, ids in BAD_IDS.items() for job_id in ids]


def shown_safely(error: BaseException) -> bool:
    """One sentence of a bounded length that no terminal would choke on."""
    return str(error).isprintable() and len(str(error)) < 300


async def send(ctx: JobContext[Any]) -> None: ...


@pytest.mark.covers("B01", "B02", "B03", "B04", "B05", "B06", "B07")
@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_queue_that_cannot_be_called_so_is_not_declared(app: App, name: Any) -> None:
    async with unchanged(app):
        with pytest.raises(InvalidName, match="a queue name must ") as caught:
            app.queue(name, [send])

    assert shown_safely(caught.value)
    assert len(app.queues) == 0


@pytest.mark.covers("B07", "B09")
@pytest.mark.parametrize(
    "name", ["x", "x" * 128, "\u00fc" * 64, "two words", "meta", "wait", "id", "events", "limiter", "repeat"]
)
async def test_a_queue_may_have_any_other_name(app: App, name: str) -> None:
    queue = app.queue(name, [send])
    job = await queue.add(send, None)
    await drained(app)

    assert [run.id for run in await queue.runs()] == [job.id]


@pytest.mark.covers("B08")
async def test_two_spellings_of_a_name_are_one_queue(app: App) -> None:
    composed, apart = "b\u00fccher", "bu\u0308cher"

    assert app.queue(composed) is app.queue(apart)
    assert app.queues[composed].name == composed


@pytest.mark.covers("B10")
@pytest.mark.parametrize("prefix", BAD_NAMES)
def test_a_bad_prefix_is_refused_before_anything_is_opened(prefix: Any, tmp_path: Path) -> None:
    if prefix == "{a}":
        return  # the form that a cluster needs
    with pytest.raises(InvalidOption, match="a prefix must ") as caught:
        App(f"sqlite:///{tmp_path}/jobs.db", prefix=prefix)

    assert shown_safely(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.covers("B11")
@pytest.mark.parametrize("name", BAD_JOB_NAMES, ids=lambda name: f"{name!a:.20}")
async def test_a_job_that_cannot_be_called_so_is_not_added(app: App, queue: Queue, way: str, name: Any) -> None:
    async with unchanged(app):
        with pytest.raises(InvalidName, match=r"a job name must |job must be a handler or the name of one") as caught:
            await ADDS[way](queue, name, {})

    assert shown_safely(caught.value)


DECLARATIONS: dict[str, Callable[[App, Any], object]] = {
    "mapping": lambda app, name: app.queue("q", {name: send}),
    "aliases": lambda app, name: app.queue("q", {"send": handler(send, aliases=[name])}),
    "decorator": lambda app, name: app.queue("q").handler(name=name)(send),
}


@pytest.mark.covers("B11")
@pytest.mark.parametrize("name", [name for name in BAD_JOB_NAMES if name not in (None, ["send"])], ids=ascii)
@pytest.mark.parametrize("declare", DECLARATIONS.values(), ids=DECLARATIONS)
async def test_a_handler_of_a_bad_name_is_not_registered(
    app: App, declare: Callable[[App, Any], object], name: Any
) -> None:
    with pytest.raises(InvalidName, match="a job name must "):
        declare(app, name)

    assert app.queue("q").handlers.names == []


@pytest.mark.covers("B11")
@pytest.mark.parametrize("name", ["x", "x" * 255, "a:b c/d*", "Sync.emails \u2709"])
async def test_a_job_may_have_any_name_of_one_line(app: App, name: str) -> None:
    queue = app.queue("q", {name: send})
    job = await queue.add(name)

    assert (await job.refresh()).name == name
    await drained(app)
    assert [run.name for run in await queue.runs()] == [name]


async def test_a_member_of_an_enum_is_the_name_that_it_stands_for(app: App) -> None:
    class Name(StrEnum):
        SEND = "send"

    handlers: Any = {Name.SEND: send}
    queue = app.queue("q", handlers)
    await queue.add(Name.SEND)

    assert queue.handlers.names == ["send"]
    assert [job.name for job in await queue.jobs("waiting")] == ["send"]


@pytest.mark.covers("B09", "B12", "B13", "B14", "B15", "P22")
@pytest.mark.parametrize("job_id", IDS)
async def test_a_job_whose_id_cannot_be_used_is_not_added(app: App, queue: Queue, way: str, job_id: Any) -> None:
    async with unchanged(app):
        with pytest.raises(InvalidName, match=r"a job id m(ust|ay) |is reserved and cannot be a job id") as caught:
            await ADDS[way](queue, "send", {}, job_id=job_id)

    assert shown_safely(caught.value)


@pytest.mark.covers("B14", "B15")
@pytest.mark.parametrize("job_id", ["x", "x" * 256, "user-5", "tenant:order:7", "a b", "\u00fc" * 128])
async def test_an_id_of_ones_own_is_kept_as_it_is(queue: Queue, job_id: str) -> None:
    job = await queue.add("send", job_id=job_id)
    found = await queue.job(job_id)

    assert (job.id, job.added) == (job_id, True)
    assert found is not None


@pytest.mark.covers("B16", "R086")
@pytest.mark.parametrize("state", ["waiting", "delayed", "prioritized", "completed", "failed"])
async def test_an_id_that_is_taken_answers_with_its_owner(app: App, state: str) -> None:
    async def work(ctx: JobContext[Any]) -> None:
        if state == "failed":
            raise ValueError("no")

    queue = app.queue("q", {"first": work}, keep_completed=10, keep_failed=10)
    first = await queue.add(
        "first", {"n": 1}, job_id="order-1", attempts=1, delay=3600 if state == "delayed" else 0,
        priority=5 if state == "prioritized" else 0,
    )  # fmt: skip
    if state in {"completed", "failed"}:
        await drained(app)
    before = (await first.refresh()).record

    again = await queue.add("second", {"n": 2}, job_id="order-1")
    (many,) = await queue.add_many([("second", {"n": 3}, {"job_id": "order-1"})])

    for job in (again, many):
        assert (job.id, job.added, job.name, job.data) == ("order-1", False, "first", {"n": 1})
    assert (await first.refresh()).record == before
    assert await first.state() == state


@pytest.mark.covers("B16")
async def test_an_id_whose_owner_runs_is_taken_too(app: App) -> None:
    seen: list[Any] = []

    async def work(ctx: JobContext[int]) -> None:
        again = await queue.add("work", 2, job_id="order-1")
        seen.append((again.added, again.data, await again.state()))

    queue = app.queue("q", {"work": work})
    await queue.add("work", 1, job_id="order-1")
    await drained(app)

    assert seen == [(False, 1, "active")]
    assert len(await queue.runs()) == 1


@pytest.mark.covers("B18")
async def test_a_host_of_any_name_makes_a_worker_that_can_be_listed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "evil host\nname=admin \x1b[31m\u00fc" + "x" * 300)
    queue = app.queue("q", [send])

    async with working(app):
        await queue.add_and_wait(send, None)  # by then it has given a sign of life
        (worker,) = await queue.workers()

    assert worker.id.isprintable()
    assert not set(worker.id) & set(" \n=")


@pytest.mark.covers("R007")
async def test_a_queue_that_was_never_declared_is_unknown(app: App) -> None:
    app.queue("email")

    with pytest.raises(UnknownQueue, match="there is no queue 'emial' in this app; its queues are 'email'"):
        app.queues["emial"]
    with pytest.raises(UnknownQueue, match="there is no queue 'emial'"):
        await app.run(queues={"emial": 1})
    assert "emial" not in app.queues
