"""Jobs that failed for good are not gone: they can be looked at, mended and run again."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from tests import servers
from toril import (
    App,
    DeadLetterFilter,
    Exponential,
    Fixed,
    InvalidOption,
    InvalidPayload,
    JobContext,
    Keep,
    NotFound,
    PermanentError,
    Retry,
    WrongState,
)
from toril.model import Claim, Failed, Failure, JobRef, NewJob, Refused, Settlement
from toril.records import RetryDelay
from toril.testing import memory
from toril.testing.clock import ManualClock


class Order(BaseModel):
    number: int


@pytest.mark.covers("R063", "R072", "R074", "R075", "Q6")
async def test_a_permanent_error_goes_straight_to_the_dead_letters() -> None:
    app, ran = App("memory://"), []

    async def order(ctx: JobContext[int]) -> None:
        ran.append(ctx.attempt)
        raise PermanentError("no such article")

    queue = app.queue("orders", {"order": order}, retry=Retry(5))
    async with memory(app) as test:
        job = await queue.add("order", 7)
        await test.drain()
        letter = await app.dead_letters.show(f"orders/{job.id}")

    assert ran == [1]
    assert (letter.queue, letter.job_id, letter.name, letter.data) == ("orders", job.id, "order", 7)
    assert (letter.failure.reason, letter.failure.kind) == ("no such article", "PermanentError")
    assert (letter.max_attempts, letter.attempts_made, letter.failed_at) == (5, 1, test.now)
    assert letter.worker is not None
    assert "in order" in letter.failure.traceback


async def _failing(test_app: App, clock: ManualClock) -> Any:
    """A queue of jobs that fail for different reasons, at different times, and have."""
    good: list[tuple[str, Any, int]] = []
    mended: set[str] = set()

    async def work(ctx: JobContext[dict[str, Any]]) -> None:
        reason = ctx.data["fails"]
        if ctx.job_id not in mended and reason:
            raise (OSError if "limited" in reason else KeyError)(reason)
        good.append((ctx.job_id, ctx.data, ctx.attempt))

    queue = test_app.queue("q", {"a": work, "b": work}, retry=Retry(1))
    for n, reason in enumerate(["Rate limited: 1", "no user", "rate limited: 2", "no user"]):
        await queue.add("ab"[n % 2], {"fails": reason, "user": {"id": n // 2}}, job_id=f"j{n}")
        await test_app.run(burst=True)
        clock.advance(60_000)
    return good, mended


@pytest.mark.covers("R076")
async def test_letters_are_found_by_queue_name_error_time_and_payload() -> None:
    app = App("memory://")
    async with memory(app) as test:
        start = test.clock.now()
        await _failing(app, test.clock)

        async def found(**where: Any) -> list[str]:
            return [letter.job_id for letter in (await app.dead_letters.page(DeadLetterFilter(**where))).items]

        assert await found() == ["j3", "j2", "j1", "j0"]
        assert await found(queue="other") == []
        assert await found(name="a") == ["j2", "j0"]
        assert await found(error="rate LIMITED") == ["j2", "j0"]
        assert await found(kind="KeyError") == ["j3", "j1"]
        assert await found(payload={"user.id": 1}) == ["j3", "j2"]
        assert await found(payload={"user.name": None}) == []
        assert await found(after=_at(start + 60_000), before=_at(start + 180_000)) == ["j2", "j1"]
        assert await app.dead_letters.count() == 4
        assert await app.dead_letters.count(DeadLetterFilter(name="b")) == 2
        first = await app.dead_letters.page(DeadLetterFilter(name="a"), limit=1)
        rest = await app.dead_letters.page(DeadLetterFilter(name="a"), limit=1, cursor=first.cursor)
        assert [letter.job_id for letter in (*first.items, *rest.items)] == ["j2", "j0"]
        assert rest.cursor is None


def _at(ms: int) -> Any:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


async def test_the_payload_of_a_letter_is_read_as_that_of_a_job_is() -> None:
    app = App("memory://")

    async def order(ctx: JobContext[Order]) -> None:
        raise PermanentError("no such article")

    queue = app.queue("orders", {"order": order})
    async with memory(app) as test:
        job = await queue.add("order", Order(number=7), metadata={"tenant": "a"}, timeout=30)
        await app.store.add("orders", [NewJob(name="order", data='{"number": "x"}'), NewJob(name="other", data="[1]")])
        await app.store.add("foreign", [NewJob(name="n", data='{"a": 1}', metadata="[]")])
        await test.drain()
        one, none = (Claim(want=want, token="t", lease=1000, worker="w") for want in (1, 0))
        (claimed,) = (await app.store.exchange("foreign", [], one)).jobs
        await app.store.exchange("foreign", [Settlement(claimed.lease, Failed(Failure("no")))], none)
        letters = {letter.id: letter for letter in await app.dead_letters.page()}

    first = letters[f"orders/{job.id}"]
    assert first.data == job.data == Order(number=7)
    assert (first.metadata, first.checkpoint, first.timeout) == ({"tenant": "a"}, None, 30)
    assert first.failed_at == first.added_at == first.started_at == test.now
    assert letters["orders/2"].data == '{"number": "x"}', "it is not what the handler takes"
    assert letters["orders/3"].data == [1], "there is no handler of that name"
    assert (letters["foreign/1"].data, letters["foreign/1"].metadata) == ({"a": 1}, {}), "the queue is not declared"


@pytest.mark.covers("R077", "R078")
async def test_those_with_an_error_run_again_in_their_queue_under_their_name() -> None:
    app = App("memory://")
    async with memory(app) as test:
        good, mended = await _failing(app, test.clock)
        mended |= {"j0", "j2"}

        done = await app.dead_letters.replay(DeadLetterFilter(error="Rate limited"), attempts=5, backoff=Exponential(5))
        job = await app.queues["q"].job("j0")
        assert job is not None
        assert job.record is not None
        assert (job.name, job.record.max_attempts) == ("a", 5)
        assert job.record.backoff == RetryDelay(kind="exponential", delay=5)
        await test.drain()
        left = [letter.job_id for letter in (await app.dead_letters.page()).items]

    assert done.count == 2
    assert [(job_id, attempt) for job_id, _, attempt in good] == [("j0", 1), ("j2", 1)]
    assert left == ["j3", "j1"]


@pytest.mark.covers("R077")
async def test_a_replay_takes_each_letter_once_though_it_fails_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toril.operate.dead_letters._A_CALL", 2)
    monkeypatch.setattr("toril.operate.dead_letters._A_PAGE", 2)
    app = App("memory://")
    async with memory(app) as test:
        await _failing(app, test.clock)
        letters = app.store.dead_letters.page
        told: list[int] = []

        async def slowly(**how: Any) -> Any:  # between two pages of the walk what was replayed fails again
            await test.drain()
            test.clock.advance(1)
            assert len(told) < 5, "it goes on for ever"
            return await letters(**how)

        monkeypatch.setattr(app.store.dead_letters, "page", slowly)
        done = await app.dead_letters.replay(DeadLetterFilter(queue="q"), on_progress=told.append)
        await test.drain()

        assert (done.count, told) == (4, [2, 4])
        assert await app.dead_letters.count() == 4


async def test_an_edit_that_fails_spoils_its_own_letter_only() -> None:
    app = App("memory://")
    async with memory(app) as test:
        await _failing(app, test.clock)
        done = await app.dead_letters.replay(
            DeadLetterFilter(), edit=lambda data: {"fails": {"no user": ""}[data["fails"]], "user": None}
        )

    assert done.count == 2
    assert sorted(done.invalid) == ["q/j0", "q/j2"]
    assert "KeyError('Rate limited: 1')" in done.invalid["q/j0"]


async def test_a_page_that_finds_little_ends_and_can_be_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toril.operate.dead_letters._A_PAGE", 1)
    monkeypatch.setattr("toril.operate.dead_letters.LOOKED", 3)
    app = App("memory://")
    async with memory(app) as test:
        await _failing(app, test.clock)
        oldest = DeadLetterFilter(payload={"fails": "Rate limited: 1"})
        first = await app.dead_letters.page(oldest)
        rest = await app.dead_letters.page(oldest, cursor=first.cursor)

    assert (first.items, first.cursor is None) == ((), False)
    assert ([letter.job_id for letter in rest.items], rest.cursor) == (["j0"], None)


@pytest.mark.covers("R082")
async def test_a_payload_is_mended_on_the_way_back_and_held_to_its_type() -> None:
    app, ran = App("memory://"), []

    async def order(ctx: JobContext[Order]) -> None:
        ran.append(ctx.data)

    queue = app.queue("q", {"order": order}, retry=Retry(1))
    async with memory(app) as test:
        other = app.queue("elsewhere")
        await test.app.store.add("q", [_raw("order", '{"number": "seven"}')])
        await test.drain()
        (letter,) = (await app.dead_letters.page()).items
        assert letter.failure.kind == "InvalidPayload"

        refused = await app.dead_letters.replay(letter.id)
        assert (refused.count, list(refused.invalid)) == (0, [letter.id])
        refused = await app.dead_letters.replay(letter.id, edit=lambda _: {"number": "eight"})
        assert (refused.count, list(refused.invalid)) == (0, [letter.id])
        with pytest.raises(InvalidOption, match="unknown backoff strategy 'unknown'"):
            await app.dead_letters.replay(letter.id, backoff="unknown")
        done = await app.dead_letters.replay(letter.id, edit=lambda data: {**data, "number": 7})
        await test.drain()
        assert await app.dead_letters.count() == 0
        assert (await other.counts()).waiting == 0

    assert done.count == 1
    assert ran == [Order(number=7)]
    assert queue.name == "q"


def _raw(name: str, data: str) -> Any:
    return NewJob(name=name, data=data)


@pytest.mark.covers("R080", "R081")
async def test_letters_stay_until_someone_discards_them_or_bounds_them() -> None:
    app = App("memory://")
    async with memory(app) as test:
        await _failing(app, test.clock)
        test.clock.advance(400 * 86_400_000)
        await app.store.prune("q")
        assert await app.dead_letters.count() == 4

        assert (await app.dead_letters.discard(DeadLetterFilter(name="b"))).count == 2
        gone = await app.dead_letters.discard(["q/j0", "q/j1"])
        assert (gone.count, gone.refused) == (1, (Refused("q/j1", None),))
        await app.dead_letters.keep(Keep(0))
        await app.store.prune("q")
        assert await app.dead_letters.count() == 0


async def test_what_is_not_there_is_said_to_be_not_there() -> None:
    async def work(ctx: JobContext[None]) -> None: ...

    app = App("memory://")
    with pytest.raises(InvalidOption, match=r"app\.dead_letters"):
        app.queue("dead-letter", {"n": work})
    with pytest.raises(InvalidOption, match=r"'dead-letter' holds the dead letters and cannot be used as a queue"):
        app.queue("dead-letter").handler(work)
    with pytest.raises(InvalidOption, match="time zone"):
        DeadLetterFilter(after="yesterday")  # type: ignore[arg-type]
    async with memory(app):
        with pytest.raises(NotFound, match="q/9"):
            await app.dead_letters.show("q/9")
        assert (await app.dead_letters.replay(["q/9"])).refused == (Refused("q/9", None),)


async def test_more_than_a_step_can_carry_are_replayed_in_several() -> None:
    app, ran = App("memory://"), []
    told: list[int] = []

    async def work(ctx: JobContext[int]) -> None:
        ran.append(ctx.data)
        if len(ran) <= 250:
            raise ValueError

    queue = app.queue("q", {"work": work}, retry=Retry(1), concurrency=50)
    async with memory(app) as test:
        await queue.add_many([("work", n) for n in range(250)])
        await test.drain()
        done = await app.dead_letters.replay(DeadLetterFilter(), on_progress=told.append)
        await test.drain()

    assert done.count == 250
    assert told == [100, 200, 250]
    assert sorted(ran[250:]) == list(range(250))


@pytest.mark.covers("R074")
async def test_on_redis_a_dead_letter_is_a_waiting_job_of_a_paused_queue() -> None:
    """What Node's dashboards read: the hash, the list, the mark of the pause."""
    import json

    server = servers.running()
    server.tell("FLUSHALL")
    app = App(server.url)

    async def work(ctx: JobContext[dict[str, int]]) -> None:
        raise PermanentError("never")

    queue = app.queue("q", {"work": work})
    async with app:
        await queue.add("work", {"n": 1}, job_id="own")
        await app.run(burst=True)
        ask = app.store._runner.client.ask  # type: ignore[attr-defined]
        row = await ask("HGETALL", "bull:dead-letter:q/own")
        found = dict(zip(row[::2], row[1::2], strict=True))
        shown = json.loads(found["data"])
        assert await ask("LRANGE", "bull:dead-letter:wait", 0, -1) == ["q/own"]
        assert await ask("HGET", "bull:dead-letter:meta", "paused") == "1"
        assert await ask("EXISTS", "bull:q:own") == 0

    assert (found["name"], found["failedReason"], json.loads(found["opts"])["attempts"]) == ("work", "never", 5)
    assert shown["originalData"] == {"n": 1}
    assert (shown["originalQueue"], shown["originalJobId"], shown["originalName"]) == ("q", "own", "work")
    assert (shown["error"], shown["errorType"], shown["attempts"]) == ("never", "PermanentError", 1)
    from datetime import UTC, datetime

    failed_at = datetime.fromisoformat(shown["failedAt"])
    assert abs((datetime.now(UTC) - failed_at).total_seconds()) < 3600


async def test_a_job_of_ours_that_node_failed_is_collected() -> None:
    """Node keeps it in `failed`, as its options say; the next round of upkeep moves it."""
    server = servers.running()
    server.tell("FLUSHALL")
    app = App(server.url)
    queue = app.queue("q")
    async with app:
        await queue.add("work", {"n": 1})
        await queue.add("work", {"n": 2}, keep_failed=True)
        ask = app.store._runner.client.ask  # type: ignore[attr-defined]
        for job_id in ("1", "2"):  # as BullMQ's worker leaves them
            await ask("LREM", "bull:q:wait", 1, job_id)
            await ask("ZADD", "bull:q:failed", 1_700_000_000_000, job_id)
            await ask(
                "HSET",
                f"bull:q:{job_id}",
                "failedReason",
                "node says no",
                "atm",
                5,
                "finishedOn",
                1,
                "stacktrace",
                '["at x"]',
            )
        await app.store.prune("q")
        await app.store.prune("q")
        letters = (await app.dead_letters.page()).items
        assert (await queue.counts()).failed == 1
        assert (await app.dead_letters.replay(DeadLetterFilter())).count == 1
        assert (await queue.counts()).waiting == 1

    assert [(letter.job_id, letter.failure.reason, letter.failure.traceback) for letter in letters] == [
        ("1", "node says no", "at x")
    ]


class Talkative:
    """An app whose jobs log, tell their progress and fail, until they are mended."""

    def __init__(self, url: str = "memory://", **options: Any) -> None:
        self.app, self.mended = App(url), False
        self.queue = self.app.queue("q", {"work": self.work}, retry=Retry(2, Fixed(0)), **options)

    async def work(self, ctx: JobContext[Any]) -> str:
        await ctx.log(f"attempt {ctx.attempt}")
        await ctx.update_progress(ctx.attempt * 10)
        if not self.mended:
            raise KeyError(f"no {ctx.data}, attempt {ctx.attempt}")
        return "fine"


@pytest.mark.parametrize("keep", [False, True], ids=["dead letter", "kept"])
async def test_a_failed_job_is_read_and_retried_alike_wherever_it_is(keep: bool) -> None:
    it = Talkative(keep_failed=keep)
    async with memory(it.app) as test:
        job = await it.queue.add("work", "stamp")
        await test.drain()

        found = await it.queue.job(job.id)
        assert found is not None
        assert found.dead_letter == (None if keep else f"q/{job.id}")
        assert (await job.state(), found.attempts_made, found.progress) == ("failed", 2, 20)
        assert (await job.refresh()).error == "'no stamp, attempt 2'"
        assert await job.logs() == ["attempt 1", "attempt 2"]
        errors = await job.errors()
        assert [(each.attempt, each.error, each.kind) for each in errors] == [
            (1, "'no stamp, attempt 1'", "KeyError"), (2, "'no stamp, attempt 2'", "KeyError"),
        ]  # fmt: skip
        assert all(each.at == test.now and "in work" in each.traceback for each in errors)
        assert not [event for event in await job.history() if event.kind == "completed"]

        it.mended = True
        await job.retry()
        assert (await job.state(), (await job.refresh()).dead_letter, await job.errors()) == ("waiting", None, [])
        await test.drain()
        assert (await it.queue.runs("completed")).items[0].id == job.id
        assert await it.app.dead_letters.count() == 0


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_a_job_is_retried_by_its_id_and_all_failed_ones_at_once(kind: str) -> None:
    url = "memory://"
    if kind == "redis":
        server = servers.running()
        server.tell("FLUSHALL")
        url = server.url
    it = Talkative(url)
    other = it.app.queue("other", {"work": it.work}, retry=Retry(1))
    async with it.app:
        ids = [(await it.queue.add("work", n, keep_failed=n == 3)).id for n in range(4)]
        await other.add("work", 0)
        await it.app.run(burst=True, signals="leave")
        assert await it.app.dead_letters.count() == 4

        await it.queue.retry(ids[0])
        with pytest.raises(WrongState, match="waiting and cannot be retried"):
            await it.queue.retry(ids[0])
        assert await it.queue.retry_failed() == 3
        assert (await it.queue.counts()).waiting == 4
        assert [letter.queue for letter in (await it.app.dead_letters.page()).items] == ["other"]
        with pytest.raises(NotFound, match="there is no job 'nobody'"):
            await it.queue.retry("nobody")


async def test_a_letter_whose_payload_no_longer_fits_is_not_retried() -> None:
    app = App("memory://")

    async def work(ctx: JobContext[Order]) -> None:
        raise PermanentError("no")

    queue = app.queue("q", {"work": work})
    async with memory(app) as test:
        await app.store.add("q", [NewJob(name="work", data='{"number": "many"}')])
        await test.drain()

        with pytest.raises(InvalidPayload, match="cannot be retried"):
            await queue.retry("1")
        assert await queue.retry_failed() == 0
        assert await app.dead_letters.count() == 1


async def test_what_cannot_be_done_to_a_dead_letter_says_so() -> None:
    it = Talkative()
    async with memory(it.app) as test:
        job = await it.queue.add("work", 1)
        await test.drain()

        for act in (job.cancel, job.promote):
            with pytest.raises(WrongState, match=r"job '1' is a dead letter and cannot be .*retry it first"):
                await act()
        with pytest.raises(WrongState, match="dead letter and cannot be changed"):
            await job.update_data(2)
        await job.remove()
        assert (await job.state(), await it.app.dead_letters.count()) == (None, 0)
        with pytest.raises(NotFound):
            await job.remove()


async def test_a_letter_is_meant_even_where_a_newer_job_has_its_id() -> None:
    it = Talkative()
    async with memory(it.app) as test:
        await it.queue.add("work", "old", job_id="own")
        await test.drain()
        await it.queue.add("work", "new", job_id="own", delay=60)

        dead = await it.app.dead_letters.job("q/own")
        living = await it.queue.job("own")
        assert living is not None
        assert (dead.data, living.data) == ("old", "new")
        assert (await dead.logs(), await living.logs()) == (["attempt 1", "attempt 2"], [])
        assert (len(await dead.errors()), await living.errors()) == (2, [])
        with pytest.raises(WrongState, match="delayed and cannot be retried"):
            await dead.retry()
        await dead.remove()
        assert (await living.state(), await it.app.dead_letters.count()) == ("delayed", 0)


async def test_why_knows_a_dead_letter() -> None:
    it = Talkative()
    async with memory(it.app) as test:
        job = await it.queue.add("work", "stamp")
        await test.drain()

        answer = await it.queue.why(job.id)

    assert answer.reason == "dead_letter"
    assert "after 2 of 2 attempts and is a dead letter: 'no stamp, attempt 2'" in answer.sentence
    assert answer.facts["dead_letter"] == "q/1"


async def test_the_flow_of_dead_letters_can_be_drawn() -> None:
    app = App("memory://")

    async def child(ctx: JobContext[bool]) -> str:
        if not ctx.data:
            raise PermanentError("no such file")
        return "read"

    async def parent(ctx: JobContext[Any]) -> None: ...

    queue = app.queue("q", {"child": child, "parent": parent})
    async with memory(app) as test:
        top = await app.flow(
            queue.new("parent", job_id="top"),
            [queue.new("child", True, job_id="good"), queue.new("child", False, job_id="bad")],
        )
        await test.drain()

        bad = await queue.job("bad")
        assert bad is not None
        for tree in (await app.tree(top), await app.tree(bad)):
            assert (tree.id, tree.state, tree.dead_letter) == ("top", "failed", "q/top")
            assert {each.id: (each.state, each.dead_letter, each.known) for each in tree.children} == {
                "good": (None, None, "completed"), "bad": ("failed", "q/bad", "failed"),
            }  # fmt: skip
        letter = await app.dead_letters.show("q/bad")
        assert (letter.parent, letter.progress) == (JobRef("q", "top"), None)
