"""A duration is seconds, a timedelta or a string such as "10m", wherever one is given."""

import inspect
import types
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

import toril
from toril import (
    AddOptions,
    App,
    Breaker,
    Dedup,
    Duration,
    Exponential,
    Fixed,
    InvalidOption,
    JobContext,
    Keep,
    Queue,
    RateLimit,
    Retry,
    Snooze,
    SyncJobContext,
    TransientError,
    handler,
)
from toril.alerts import AlertRules
from toril.model.durations import seconds_of, seconds_written
from toril.operate.breakers import Breakers
from toril.operate.dead_letters import DeadLetters
from toril.schedule import Timing
from toril.testing import Memory, memory


async def work(ctx: JobContext[Any]) -> None: ...


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(90, 90), (0.5, 0.5), (timedelta(minutes=10), 600), ("500ms", 0.5), ("1.5s", 1.5), ("10m", 600), ("2h", 7200),
     ("7d", 604_800), ("0s", 0)],
)  # fmt: skip
def test_a_duration_is_seconds_a_timedelta_or_a_text_with_a_unit(given: Duration, seconds: float) -> None:
    assert seconds_of(given) == seconds


@pytest.mark.parametrize(
    "given",
    ["", "5", "m", "-1m", "1 m", "1h30m", "10M", "1e3s", "٣s", "1.s", "inf", b"10m", None, True, [1]],
    ids=ascii,
)
def test_what_is_no_duration_is_known_as_such(given: object) -> None:
    assert seconds_of(given) is None


def test_a_bare_number_is_seconds_where_all_there_is_is_text() -> None:
    assert [seconds_written(text) for text in ("90", "1.5", "10m", "")] == [90, 1.5, 600, None]


def test_values_hold_seconds_however_they_were_given() -> None:
    assert Keep(age="1h") == Keep(age=3600) == Keep(age=timedelta(hours=1))
    assert RateLimit(5, per="1m") == RateLimit(5, per=60) == RateLimit(5, timedelta(minutes=1))
    assert Dedup("k", ttl="500ms") == Dedup("k", ttl=0.5)
    assert (Keep(age="1h").age, RateLimit(5, "1m").per, Dedup("k", "1d").ttl) == (3600, 60, 86_400)
    assert Fixed("2s").wire() == Fixed(2).wire()
    assert Exponential("1s", cap="1m").wire() == Exponential(1, cap=60).wire()
    assert Breaker(window="5m", pause="1m").terms() == Breaker(window=300, pause=60).terms()


async def test_a_queue_and_its_jobs_take_texts() -> None:
    app = App("memory://")
    queue = app.queue(
        "q", {"work": handler(work, timeout="30s")}, lease="20s", renew="5s", timeout="1m", target_wait="1m"
    )  # fmt: skip
    async with memory(app) as test:
        job = await queue.add("work", delay="10m", timeout="2m", expires="1h", result_ttl="1d")
        record = (await job.refresh()).record
        queue.schedule("often", work, every="5m", jitter="1s", offset="2s", min_interval="1m", window="10m")
        schedule = await queue.schedules.put("now", work, every="5m", jitter="1s", window="10m")
        await job.set_delay("5m")
        await test.after("5m")
        state = await job.state()

    assert (queue.options.lease, queue.options.renew, queue.options.timeout) == (20_000, 5_000, 60_000)
    assert record is not None
    assert (record.delay, record.timeout, record.result_ttl) == (600, 120, 86_400)
    assert record.expires_at == record.added_at + timedelta(hours=1)
    assert (schedule.every, schedule.jitter, schedule.window) == (300, 1, 600)
    assert state is None  # it has run


async def test_a_handler_asks_for_time_in_texts() -> None:
    app, runs = App("memory://"), list[str]()

    async def later(ctx: JobContext[None]) -> None:
        runs.append("later")
        if len(runs) < 2:
            raise Snooze("10m")

    def child(ctx: SyncJobContext[None]) -> None:
        assert not ctx.wait_for_cancel("1ms")
        runs.append("child")

    async def again(ctx: JobContext[None]) -> None:
        if ctx.attempt == 1:
            raise TransientError("away", retry_after="10m")
        runs.append("again")

    queue = app.queue("q", [later, child, again], retry=Retry(2, Fixed(1)))
    async with memory(app) as test:
        await queue.add_many([(later, None), (again, None), (child, None)])
        await test.after("9m")
        assert sorted(runs) == ["child", "later"]
        await test.after("1m")

    assert sorted(runs) == ["again", "child", "later", "later"]


async def test_a_text_that_is_no_duration_is_refused_with_its_option(app: App, queue: Queue) -> None:
    for option in ("delay", "timeout", "expires", "result_ttl"):
        options: Any = {option: "soon"}
        with pytest.raises(InvalidOption, match=f'{option} must be seconds, a timedelta or a string such as "10m"'):
            await queue.add("send", **options)
    makes: list[Callable[[], object]] = [
        lambda: Keep(age="5"), lambda: RateLimit(1, "5"), lambda: Dedup("k", "5"), lambda: Fixed("5"),
    ]  # fmt: skip
    for make in makes:
        with pytest.raises(InvalidOption, match="a string such as \"10m\", not '5'"):
            make()


def spans(hint: Any) -> Iterator[Any]:
    """The members of a union, or the one type that a hint is."""
    yield from get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)


DURATIONS = {
    "age", "after", "cap", "cooldown", "delay", "election_interval", "every", "expires", "grace", "hang_timeout",
    "jitter", "lease", "min_interval", "offset", "older_than", "patience", "pause", "per", "renew", "result_ttl",
    "retry_after", "seconds", "stall_interval", "target_wait", "threshold", "time", "timeout", "ttl", "window",
}  # fmt: skip
# A rate's `window` says how it counts, `after` is a place in a history, a `jitter` is a share, a `threshold` a count.
OTHERS = {
    "RateLimit.__init__.window", "Queue.events.after", "Exponential.__init__.jitter", "AlertRules.__init__.threshold",
    "DeadLetterFilter.__init__.after",
}  # fmt: skip


def parameters() -> Iterator[tuple[str, Any]]:
    """Every parameter of the public API that is named like a duration, and its type."""
    public = [getattr(toril, name) for name in toril.__all__]
    read = {"toril.events", "toril.operate.metrics", "toril.records"}  # what programs are given, and do not make
    kinds = [each for each in public if isinstance(each, type) and each.__module__ not in read]
    for kind in [*kinds, AlertRules, Breakers, DeadLetters, Memory]:
        for name, function in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("_") and name != "__init__":
                continue
            for parameter in inspect.signature(function).parameters.values():
                where, hint = f"{kind.__name__}.{name}.{parameter.name}", parameter.annotation
                if parameter.name in DURATIONS and where not in OTHERS:
                    yield where, eval(hint, {"Duration": Duration}) if isinstance(hint, str) else hint  # noqa: S307 - our own text
    for options in (AddOptions, Timing):
        yield from ((f"{options.__name__}.{n}", hint) for n, hint in get_type_hints(options).items() if n in DURATIONS)


def test_every_duration_of_the_public_api_has_the_one_type() -> None:
    found = dict(parameters())

    assert {where: hint for where, hint in found.items() if not set(spans(hint)) >= set(spans(Duration))} == {}
    assert len(found) > 50
