"""What can be asked for a job, a queue, a handler and an app: rows B42 to B62, as users meet them."""

import asyncio
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.fundamentals.apps import ADDS, drained, unchanged
from toril import (
    App,
    EngineUnusable,
    Exponential,
    Fixed,
    InvalidOption,
    JobContext,
    Keep,
    Queue,
    RateLimit,
    Retry,
    handler,
    only_if,
)

NAN, INF = float("nan"), float("inf")
TEN_YEARS = timedelta(days=3660)


class Nowhere(tzinfo):
    """A time zone that does not know its own offset."""

    def utcoffset(self, _: datetime | None) -> None: ...

    def dst(self, _: datetime | None) -> None: ...

    def tzname(self, _: datetime | None) -> None: ...


async def send(ctx: JobContext[Any]) -> None: ...


def plain(ctx: Any) -> None: ...


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "B42-negative": ({"delay": -1}, "delay must be between 0 s and .* not -1"),
    "B42-nan": ({"delay": NAN}, "delay must be between 0 s and .* not nan"),
    "B42-text": ({"delay": "5"}, "delay must be seconds, a timedelta or a string such as .10m., not '5'"),
    "B42-negative-timedelta": ({"delay": timedelta(seconds=-1)}, "delay must be between 0 s and .* not -1"),
    "B43-long": ({"delay": TEN_YEARS + timedelta(seconds=1)}, "delay must be between 0 s and .* not 316224001"),
    "B43-huge": ({"delay": 2**53}, "delay must be between 0 s and "),
    "B43-very-huge": ({"delay": 10**400}, "delay must be between 0 s and "),
    "B43-infinite": ({"delay": INF}, "delay must be between 0 s and .* not inf"),
    "B43-at-late": ({"at": datetime(2110, 1, 1, tzinfo=UTC)}, "at must be between 1970 and 2109, not datetime"),
    "B43-at-early": ({"at": datetime(1969, 1, 1, tzinfo=UTC)}, "at must be between 1970 and 2109"),
    "B43-at-first": ({"at": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))}, "at must be between 1970"),
    "B43-at-last": ({"at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))}, "at must be between 1970"),
    "B43-at-naive": ({"at": datetime(2030, 1, 1)}, "at must be a datetime with a time zone"),  # noqa: DTZ001
    "B43-at-nowhere": ({"at": datetime(2030, 1, 1, tzinfo=Nowhere())}, "at must be a datetime with a time zone"),
    "B43-at-text": ({"at": "tomorrow"}, "at must be a datetime with a time zone, not 'tomorrow'"),
    "B44-zero": ({"attempts": 0}, "attempts must be a whole number from 1 to 10000, not 0"),
    "B44-negative": ({"attempts": -1}, "attempts must be a whole number from 1 to 10000, not -1"),
    "B44-fraction": ({"attempts": 1.5}, "attempts must be a whole number from 1 to 10000, not 1.5"),
    "B44-many": ({"attempts": 10**9}, "attempts must be a whole number from 1 to 10000, not 1000000000"),
    "B44-bool": ({"attempts": True}, "attempts must be a whole number from 1 to 10000, not True"),
    "B45-text": ({"backoff": "exponential"}, r"unknown backoff strategy 'exponential'"),
    "B45-number": ({"backoff": 5}, r"backoff must be Fixed\(…\), .*, not 5"),
    "B45-function": ({"backoff": len}, r"backoff must be Fixed\(…\), .*, not <built-in"),
    "B45-retry": ({"retry": 3}, r"retry must be a Retry\(attempts, backoff\), not 3"),
    "B46-negative": ({"priority": -1}, "priority must be .* from 0 to 2097151, not -1. .* priority_first=True"),
    "B46-large": ({"priority": 2**21}, "priority must be a whole number from 0 to 2097151, not 2097152"),
    "B46-fraction": ({"priority": 1.5}, "priority must be a whole number from 0 to 2097151, not 1.5"),
    "B46-bool": ({"priority": True}, "priority must be a whole number from 0 to 2097151, not True"),
    "B46-lifo": ({"lifo": "yes"}, "lifo must be True or False, not 'yes'"),
    "B47-zero": ({"timeout": 0}, "timeout must be between 0.001 s and 7 days, not 0"),
    "B47-negative": ({"timeout": -5}, "timeout must be between 0.001 s and 7 days, not -5"),
    "B47-long": ({"timeout": timedelta(days=8)}, "timeout must be between 0.001 s and 7 days, not 691200"),
    "B47-expires": ({"expires": 0}, "expires must be between 0.001 s and "),
    "B47-result": ({"result_ttl": NAN}, "result_ttl must be between 0.001 s and .* not nan"),
    "B48-negative": ({"keep_completed": -1}, "keep_completed must be a count, .* not -1"),
    "B48-mapping": ({"keep_failed": {"age": "x"}}, "keep_failed must be a count, .* not {'age': 'x'}"),
    "B48-nan": ({"keep_completed": NAN}, "keep_completed must be a count, .* not nan"),
    "B48-fraction": ({"keep_failed": 1.5}, "keep_failed must be a count, .* not 1.5"),
    "B50-delay-and-at": ({"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "give delay or at, not both"),
    "B50-retry-and-attempts": ({"retry": Retry(2), "attempts": 3}, "give retry, or attempts and backoff, not both"),
    "B50-retry-and-backoff": ({"retry": Retry(2), "backoff": Fixed(1)}, "give retry, or attempts and backoff"),
    "metadata-text": ({"metadata": "x"}, "metadata must be a mapping of names to values, not 'x'"),
    "metadata-list": ({"metadata": [1]}, r"metadata must be a mapping of names to values, not \[1\]"),
    "metadata-empty": ({"metadata": []}, r"metadata must be a mapping of names to values, not \[\]"),
}


@pytest.mark.covers("B42", "B43", "B44", "B45", "B46", "B47", "B48", "B50")
async def test_an_option_out_of_its_range_adds_nothing(app: App, queue: Queue, way: str) -> None:
    for each, (options, says) in product((queue, queue.scoped(actor="me")), BAD.values()):
        async with unchanged(app):
            with pytest.raises(InvalidOption, match=says) as caught:
                await ADDS[way](each, "send", {}, **options)
        assert isinstance(caught.value, ValueError)
        assert len(str(caught.value)) < 300


@pytest.mark.covers("B42")
@pytest.mark.parametrize("option", ["delay", "timeout", "expires", "result_ttl"])
async def test_a_boolean_is_no_time(app: App, queue: Queue, way: str, option: str) -> None:
    async with unchanged(app):
        with pytest.raises(TypeError, match=f"{option} must be seconds, a timedelta or a string .* not True"):
            await ADDS[way](queue, "send", {}, **{option: True})


GOOD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "B42-timedelta": ({"delay": timedelta(minutes=2)}, {"delay": 120_000}),
    "B42-fraction": ({"delay": 0.5}, {"delay": 500}),
    "B43-longest": ({"delay": TEN_YEARS}, {"delay": 316_224_000_000}),
    "B44-least": ({"attempts": 1}, {"max_attempts": 1}),
    "B44-most": ({"attempts": 10_000}, {"max_attempts": 10_000}),
    "B46-most": ({"priority": 2_097_151}, {"priority": 2_097_151}),
    "B47-shortest": ({"timeout": 0.001}, {"timeout": 1}),
    "B47-longest": ({"timeout": timedelta(days=7)}, {"timeout": 604_800_000}),
    "B48-true": ({"keep_completed": True}, {"keep_completed": Keep()}),
    "B48-false": ({"keep_completed": False}, {"keep_completed": Keep(0)}),
    "B48-count": ({"keep_failed": 7}, {"keep_failed": Keep(7)}),
    "B48-age": ({"keep_failed": Keep(age=60)}, {"keep_failed": Keep(age=60)}),
    "metadata": ({"metadata": {"a": 1}}, {"metadata": '{"a":1}'}),
}


@pytest.mark.covers("B42", "B43", "B44", "B46", "B47", "B48", "R013")
@pytest.mark.parametrize(("options", "stored"), GOOD.values(), ids=GOOD)
async def test_an_option_within_its_range_is_stored_with_the_job(
    queue: Queue, options: Any, stored: dict[str, Any]
) -> None:
    job = await (await queue.add("send", {}, **options)).refresh()

    assert job.row is not None
    assert {n: getattr(job.row if hasattr(job.row, n) else job.row.options, n) for n in stored} == stored


ODD: dict[str, list[tuple[Any, tuple[Any, ...], dict[str, Any]]]] = {
    "B45": [
        (Fixed, (-1,), {}), (Fixed, (NAN,), {}), (Fixed, ("1",), {}), (Exponential, (-1,), {}),
        (Exponential, (10**9,), {}), (Exponential, (1,), {"cap": -1}), (Exponential, (1,), {"jitter": 2}),
        (Exponential, (1,), {"jitter": NAN}), (Exponential, (1,), {"jitter": True}),
        (Exponential, (1,), {"jitter": []}),
        (Exponential, (1,), {"jitter": "some"}), (Retry, (0,), {}), (Retry, (1.5,), {}), (Retry, (3, "fixed"), {}),
        (Retry, (3, 5), {}),
    ],
    "B48": [(Keep, (-1,), {}), (Keep, (NAN,), {}), (Keep, (), {"age": "x"}), (Keep, (), {"age": -1})],
    "B58": [
        (RateLimit, (0,), {}), (RateLimit, (-1,), {}), (RateLimit, (1.5,), {}), (RateLimit, (1,), {"per": 0}),
        (RateLimit, (1,), {"per": -1}), (RateLimit, (1,), {"per": NAN}), (RateLimit, (1,), {"window": "hopping"}),
    ],
}  # fmt: skip


@pytest.mark.covers("B45", "B48", "B58", "B76")
@pytest.mark.parametrize(("kind", "given", "named"), [case for cases in ODD.values() for case in cases])
def test_an_option_of_odd_numbers_cannot_even_be_made(kind: Any, given: Any, named: Any) -> None:
    with pytest.raises(InvalidOption, match=r"must be .*, not "):
        kind(*given, **named)


@pytest.mark.covers("B49")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("attempt", "'attempt' is not a job option; did you mean attempts?"),
        ("dealy", "'dealy' is not a job option; did you mean delay?"),
        ("jobid", "'jobid' is not a job option; did you mean job_id?"),
        ("xyzzy", "'xyzzy' is not a job option; the options are "),
    ],
)
async def test_a_misspelt_option_is_named(app: App, queue: Queue, way: str, name: str, says: str) -> None:
    async with unchanged(app):
        with pytest.raises(TypeError, match=re.escape(says)):
            await ADDS[way](queue, "send", {}, **{name: 3})


@pytest.mark.covers("B49")
def test_a_misspelt_option_of_a_declaration_is_a_type_error() -> None:
    app: Any = App("memory://")
    decorate: Any = handler
    make: Any = App

    with pytest.raises(TypeError, match="concurency"):
        app.queue("q", concurency=3)
    with pytest.raises(TypeError, match="timout"):
        decorate(send, timout=3)
    with pytest.raises(TypeError, match="timout"):
        app.queue("p").handler(timout=3)(send)
    with pytest.raises(TypeError, match="prefx"):
        make("memory://", prefx="a")
    assert "q" not in app.queues


QUEUE_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"B56-{value}": ({"concurrency": value}, f"concurrency must be a whole number from 1 to 10000, not {value!r}")
        for value in (0, -1, 1.5, INF, 10**6, True, "5", None)
    },
    "B57-lease-short": ({"lease": 0.5}, "lease must be between 1 s and .* not 0.5"),
    "B57-lease-zero": ({"lease": 0}, "lease must be between 1 s and .* not 0"),
    "B57-lease-none": ({"lease": None}, "lease must be seconds, a timedelta or a string .* not None"),
    "B57-renew-equal": ({"lease": 10, "renew": 10}, "renew must be shorter than the lease of 10 s, not 10 s"),
    "B57-renew-long": ({"renew": 60}, "renew must be shorter than the lease of 30 s, not 60 s"),
    "B57-renew-zero": ({"renew": 0}, "renew must be between 0.1 s and .* not 0"),
    "B58-stalls": ({"max_stalls": -1}, "max_stalls must be a whole number from 0 to 1000, not -1"),
    "B58-stalls-none": ({"max_stalls": None}, "max_stalls must be a whole number from 0 to 1000, not None"),
    "B58-rate": ({"rate_limit": 5}, r"rate_limit must be a RateLimit\(max, per\), not 5"),
    "B44-retry": ({"retry": 3}, r"retry must be a Retry\(attempts, backoff\), not 3"),
    "B47-timeout": ({"timeout": 0}, "timeout must be between 0.001 s and 7 days, not 0"),
    "B48-keep": ({"keep_completed": -1}, "keep_completed must be a count, .* not -1"),
    "max-waiting": ({"max_waiting": 0}, r"max_waiting must be a whole number from 1 to \d+, not 0"),
    "unknown": ({"unknown": "ignore"}, "unknown must be 'fail' or 'release', not 'ignore'"),
    "priority-first": ({"priority_first": 1}, "priority_first must be True, False or None, not 1"),
    "cancellation": ({"cancellation": None}, "cancellation must be True or False, not None"),
    "serializer": ({"serializer": 5}, "serializer must have the methods dumps and loads; 5 does not"),
}


@pytest.mark.covers("B44", "B47", "B48", "B56", "B57", "B58", "R006")
@pytest.mark.parametrize(("options", "says"), QUEUE_OPTIONS.values(), ids=QUEUE_OPTIONS)
def test_a_queue_with_a_bad_option_is_not_declared(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    with pytest.raises(InvalidOption, match=says):
        app.queue("q", [send], **options)
    assert list(app.queues) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.covers("B57")
def test_a_lease_that_one_missed_renewal_would_lose_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="a lease of 10 s that is renewed every 6 s is lost if one renewal is missed"):
        App("memory://").queue("q", lease=10, renew=6)


async def generator(ctx: JobContext[Any]) -> Any:
    yield 1


def plain_generator(ctx: Any) -> Any:
    yield 1


class Class:
    def __init__(self, ctx: Any) -> None: ...


NOT_HANDLERS: dict[str, tuple[Any, str]] = {
    "number": (5, "a handler must be a function, not 5"),
    "none": (None, "a handler must be a function, not None"),
    "text": ("send", "a handler must be a function, not 'send'"),
    "class": (Class, "a handler must be a function, not <class"),
    "async generator": (generator, "a handler must return its result, but 'generator' is a generator"),
    "generator": (plain_generator, "a handler must return its result, but 'plain_generator' is a generator"),
    "no argument": (lambda: None, "a handler must take one argument, its context; '<lambda>' does not"),
    "two arguments": (isinstance, "a handler must take one argument, its context; 'isinstance' does not"),
    "keyword only": (lambda *, _: None, "a handler must take one argument, its context; '<lambda>' does not"),
    "builtin": (min, "a handler must take one argument, its context; 'min' does not"),
}


@pytest.mark.covers("B59")
@pytest.mark.parametrize(("fn", "says"), NOT_HANDLERS.values(), ids=NOT_HANDLERS)
def test_what_is_no_handler_is_refused_when_it_is_declared(fn: Any, says: str) -> None:
    app = App("memory://")
    ways: list[Callable[[], Any]] = [
        lambda: handler(fn),
        lambda: app.queue("mapping", {"send": fn}),
        lambda: app.queue("wrapped", {"send": handler(fn)}),
        lambda: app.queue("decorated").handler(name="send")(fn),
        lambda: app.queue("skipped", {"send": only_if(lambda: True, "why")(fn)}),
    ]

    for declare in ways:
        with pytest.raises(TypeError, match=re.escape(says)):
            declare()
    assert app.queues["decorated"].handlers.names == []


@pytest.mark.covers("B59")
async def test_a_plain_function_runs_in_a_thread(app: App) -> None:
    import threading

    def where(ctx: Any) -> str:
        return threading.current_thread().name

    queue = app.queue("q", [where])
    job = await queue.add("where", result_ttl=60)
    await drained(app)

    assert (await job.result(5)).startswith("toril-q-")


@pytest.mark.parametrize("handlers", [5, send, "send", b"send", [5], [None], ["send"], [lambda _: None]])
def test_handlers_are_a_mapping_or_a_list_of_functions_with_names(handlers: Any) -> None:
    app = App("memory://")

    with pytest.raises(TypeError, match=r"handlers must be a mapping|has no name; pass handlers"):
        app.queue("q", handlers)
    assert "q" not in app.queues


@pytest.mark.covers("B60")
def test_a_name_has_one_handler() -> None:
    app = App("memory://")
    ways: list[Callable[[], Any]] = [
        lambda: app.queue("list", [send, send]),
        lambda: app.queue("alias", {"plain": plain, "send": handler(send, aliases=["plain"])}),
        lambda: app.queue("itself", {"send": handler(send, aliases=["send"])}),
        lambda: app.queue("twice", {"send": handler(send, aliases=["post", "post"])}),
        lambda: app.queue("decorated", {"send": send}).handler(name="send")(plain),
        lambda: app.queue("partly", {"send": send}).handler(name="post", aliases=["send"])(plain),
    ]

    for declare in ways:
        with pytest.raises(InvalidOption, match=r"queue '\w+' has two handlers for '(send|plain|post)'"):
            declare()
    assert app.queues["partly"].handlers.names == ["send"]


HANDLER_OPTIONS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "timeout": (send, {"timeout": 0}, "timeout must be between 0.001 s and 7 days, not 0"),
    "retry": (send, {"retry": 3}, r"retry must be a Retry\(attempts, backoff\), not 3"),
    "executor": (send, {"executor": "gpu"}, "executor must be one of auto, loop, thread, process, not 'gpu'"),
    "async thread": (send, {"executor": "thread"}, "'send' is async and runs on the event loop; executor='thread'"),
    "plain loop": (plain, {"executor": "loop"}, "'plain' is a plain function and would block the event loop"),
    "aliases text": (send, {"aliases": "post"}, "aliases must be a list of names, not 'post'"),
    "aliases number": (send, {"aliases": 5}, "aliases must be a list of names, not 5"),
    "raw": (send, {"raw": "yes"}, "raw must be True or False, not 'yes'"),
    "raw process": (plain, {"raw": True, "executor": "process"}, "'plain' cannot be raw and have executor='process'"),
    "nameless process": (lambda _: None, {"executor": "process"}, "'<lambda>' cannot have executor='process'"),
}


@pytest.mark.covers("B44", "B47", "B59")
@pytest.mark.parametrize(("fn", "options", "says"), HANDLER_OPTIONS.values(), ids=HANDLER_OPTIONS)
def test_a_handler_with_a_bad_option_cannot_be_made(fn: Any, options: dict[str, Any], says: str) -> None:
    queue = App("memory://").queue("q")

    with pytest.raises(InvalidOption, match=says):
        handler(fn, **options)
    with pytest.raises(InvalidOption, match=says):
        queue.handler(name="send", **options)(fn)
    assert queue.handlers.names == []


async def always() -> bool:
    return True


@pytest.mark.parametrize(("predicate", "reason"), [(5, "why"), (None, "why"), (always, "why"), (lambda: True, None)])
def test_a_condition_is_a_plain_function_with_a_reason(predicate: Any, reason: Any) -> None:
    with pytest.raises(TypeError, match=r"predicate must be a plain function|reason must be a string"):
        only_if(predicate, reason)


URLS = {
    "empty": "",
    "no scheme": "jobs.db",
    "http": "http://user:hunter2@example.org",
    "unknown": "amqp://user:hunter2@example.org",
    "query": "kafka://example.org?password=hunter2",
    "number": 5,
    "bytes": b"memory://",
}


@pytest.mark.covers("B61")
@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
def test_a_url_of_no_store_is_refused_without_its_password(url: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        App(url)

    assert "hunter2" not in str(caught.value)


@pytest.mark.covers("B61", "B63", "R006")
def test_a_bad_setting_from_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORIL_URL", "amqp://user:hunter2@example.org")

    with pytest.raises(InvalidOption, match=r"TORIL_URL: unknown store URL") as caught:
        App()
    assert "hunter2" not in str(caught.value)


@pytest.mark.covers("R006", "R260")
def test_the_environment_says_where_the_store_is_unless_the_code_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TORIL_URL", raising=False)
    assert App().url == "sqlite:///toril.db"

    monkeypatch.setenv("TORIL_URL", f"sqlite:///{tmp_path}/env.db")
    assert App().url == f"sqlite:///{tmp_path}/env.db"
    assert App("memory://").url == "memory://"


@pytest.mark.covers("B62")
@pytest.mark.parametrize("kind", ["directory", "missing parent", "device", "fifo", "text"])
async def test_a_path_that_can_be_no_store_is_refused_by_the_app(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    match kind:
        case "directory":
            path.mkdir()
        case "missing parent":
            path = path / "jobs.db"
        case "device":
            path = Path("/dev/null")
        case "fifo":
            os.mkfifo(path)
        case _:
            path.write_text("not a database, and longer than its header would be" * 10)

    with pytest.raises(
        (InvalidOption, EngineUnusable), match=re.escape(str(tmp_path if kind == "missing parent" else path))
    ):
        async with asyncio.timeout(60), App(f"sqlite:///{path}"):
            pytest.fail("it was opened")


@pytest.mark.covers("B56", "R002", "R006")
@pytest.mark.parametrize(
    "options",
    [{"grace": -1}, {"grace": NAN}, {"queues": {"q": -1}}, {"queues": {"q": 1.5}}, {"queues": {"q": "5"}}],
    ids=str,
)
async def test_settings_of_a_run_are_checked_before_anything_is_opened(options: Any, tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    app.queue("q", [send])

    with pytest.raises(InvalidOption, match=r"grace must be|concurrency of 'q' must be"):
        await app.run(**options)
    assert not Path(f"{tmp_path}/jobs.db").exists()  # noqa: ASYNC240
