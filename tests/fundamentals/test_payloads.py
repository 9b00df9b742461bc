"""What can be sent along with a job, and what cannot: rows B19 to B33, as users meet them."""

import asyncio
import sqlite3
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.fundamentals.apps import ADDS, drained, unchanged
from toril import App, JobContext, NotSerializable, PayloadTooLarge, Queue, UsageError
from toril.model import KEEP_ALL, Claim, JobOptions, NewJob

MiB = 1024 * 1024


class Colour(Enum):
    RED = 1


@dataclass
class Point:
    x: int


class Sly(dict[str, Any]):
    """Shows other things than it holds, and counts how often it is asked."""

    asked = 0

    def __iter__(self) -> Any:
        Sly.asked += 1
        return iter(())

    def items(self) -> Any:
        Sly.asked += 1
        return {}.items()


def circle() -> list[Any]:
    around: list[Any] = []
    around.append(around)
    return around


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


async def forgotten() -> None: ...


# What to send, made anew for each test, and what the message says about it.
UNFIT: dict[str, tuple[Callable[[], Any], str]] = {
    "B19-nan": (lambda: {"a": [1, float("nan")]}, r"data\.a\[1\] is nan"),
    "B19-infinity": (lambda: {"a": float("inf")}, r"data\.a is inf"),
    "B19-minus-infinity": (lambda: float("-inf"), "data is -inf"),
    "B21-digits": (lambda: {"n": 10**5000}, r"data\.n is a number of more than 4300 digits"),
    "B22-surrogate": (lambda: {"s": "a\ud800"}, r"data\.s contains a lone surrogate"),
    "B22-surrogate-key": (lambda: {"a\ud800": 1}, "a key of data contains a lone surrogate"),
    "B23-bytes": (lambda: {"b": b"x"}, r"data\.b is of type bytes.*serializer="),
    "B23-datetime": (
        lambda: {"items": [0, 0, 0, {"when": datetime(2026, 1, 1, tzinfo=UTC)}]},
        r"data\.items\[3\]\.when is of type datetime.*serializer=",
    ),
    "B23-decimal": (lambda: [Decimal("1.5")], r"data\[0\] is of type Decimal"),
    "B23-uuid": (lambda: UUID(int=5), "data is of type UUID"),
    "B23-set": (lambda: {"s": {1}}, r"data\.s is of type set"),
    "B23-dataclass": (lambda: Point(1), "data is of type Point"),
    "B23-enum": (lambda: {"c": Colour.RED}, r"data\.c is of type Colour"),
    "B24-keys": (lambda: {1: "a", "1": "b"}, "data has the key 1; in JSON, keys must be plain strings"),
    "B24-none-key": (lambda: {"a": {None: 1}}, r"data\.a has the key None"),
    "B25-circle": (circle, r"data\[0\] contains itself"),
    "B26-deep": (lambda: nested(101), "is nested more than 100 levels deep"),
    "B26-very-deep": (lambda: nested(5000), "is nested more than 100 levels deep"),
    "B30-generator": (lambda: (n for n in range(3)), "data is of type generator"),
    "B30-lambda": (lambda: {"f": len}, r"data\.f is of type builtin_function_or_method"),
    "B30-file": (lambda: Path("jobs.db"), "data is of type PosixPath"),
    "B31-sly": (lambda: {"d": Sly(a=1)}, r"data\.d is a Sly, which would come back as a plain dict"),
}


@pytest.mark.covers("B19", "B21", "B22", "B23", "B24", "B25", "B26", "B30", "B31")
async def test_what_json_cannot_carry_is_not_added(app: App, queue: Queue, way: str) -> None:
    for make, says in UNFIT.values():
        async with unchanged(app):
            with pytest.raises(NotSerializable, match=says) as caught:
                await ADDS[way](queue, "send", make())

        assert len(str(caught.value)) < 300
        assert Sly.asked == 0


@pytest.mark.covers("B23")
@pytest.mark.parametrize("metadata", [{"when": datetime(2026, 1, 1, tzinfo=UTC)}, {"n": float("nan")}, {1: 2}], ids=str)
async def test_metadata_is_checked_like_data(app: App, queue: Queue, way: str, metadata: Any) -> None:
    async with unchanged(app):
        with pytest.raises(NotSerializable, match="metadata"):
            await ADDS[way](queue, "send", 1, metadata=metadata)
        if 1 not in metadata:
            with pytest.raises(NotSerializable, match="metadata"):
                await queue.scoped(**metadata).add("send")


@pytest.mark.covers("B30")
async def test_a_coroutine_that_nobody_awaited_is_refused_and_closed(app: App, queue: Queue, way: str) -> None:
    async with unchanged(app):
        with pytest.raises(NotSerializable, match=r"data\.r is a coroutine; await it first"):
            await ADDS[way](queue, "send", {"r": forgotten()})  # a warning would be an error here


@pytest.mark.covers("B20", "B29")
async def test_what_is_sent_comes_back_equal(app: App) -> None:
    sent: list[Any] = [
        None, 0, "", [], {}, False, -0.0, "null", [[]], [{}], {"a": []}, 2**53 + 1, -(2**64), 10**4000, 1e308, "\u2028",
        "\U0001f402", "a\x00b", {"": 1}, {"\u00fc": {"b": [None, True, 1.5]}},
    ]  # fmt: skip
    seen = {}

    async def note(ctx: JobContext[Any]) -> Any:
        seen[ctx.job_id] = ctx.data
        return ctx.data

    queue = app.queue("q", [note])
    jobs = [await queue.add(note, data, result_ttl=60) for data in sent]
    found = [await queue.job(job.id) for job in jobs]
    await drained(app)

    assert [each and each.data for each in found] == sent
    assert [await job.result(5) for job in jobs] == sent
    assert repr([seen[job.id] for job in jobs]) == repr(sent)


@pytest.mark.covers("B29", "B31")
async def test_a_tuple_or_an_ordered_dict_arrives_as_what_json_has(queue: Queue) -> None:
    job = await queue.add("send", OrderedDict(a=(1, 2)))

    assert (await job.refresh()).data == {"a": [1, 2]}


@pytest.mark.covers("B27")
async def test_a_payload_has_up_to_a_mebibyte(app: App, queue: Queue, way: str) -> None:
    await queue.add("send", "x" * (MiB - 2))
    await queue.add("send", "\u00fc" * (MiB // 2 - 1))

    async with unchanged(app):
        for data in ("x" * (MiB - 1), "\u00fc" * (MiB // 2), ["x"] * (MiB // 4)):
            with pytest.raises(PayloadTooLarge, match="bytes; the limit is 1048576"):
                await ADDS[way](queue, "send", data)


@pytest.mark.covers("B28")
async def test_a_payload_of_100_mb_is_refused_without_a_copy(app: App, queue: Queue, way: str) -> None:
    import tracemalloc

    data = {"text": "x" * 100_000_000}
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge):
            await ADDS[way](queue, "send", data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 10_000_000
    assert (await queue.counts()).waiting == 0


class Base64:
    """A serializer that carries what JSON does not, and fails when told to."""

    def dumps(self, value: Any) -> bytes:
        if value == "refuse":
            raise ValueError("it does not want to")
        return str(value) if value == "text" else str(value).encode()  # type: ignore[return-value]

    def loads(self, data: bytes) -> Any:
        return data.decode()


@pytest.mark.covers("B23", "P9")
async def test_a_serializer_carries_what_json_does_not(app: App) -> None:
    seen = []

    async def note(ctx: JobContext[Any]) -> Any:
        seen.append(ctx.data)
        return Decimal("2.5")

    queue = app.queue("q", [note], serializer=Base64())
    job = await queue.add(note, Decimal("1.5"), result_ttl=60)
    await drained(app)

    assert seen == ["1.5"]
    assert await job.result(5) == "2.5"


async def test_a_serializer_that_makes_no_bytes_or_fails_stores_nothing(app: App) -> None:
    queue = app.queue("q", serializer=Base64())

    async with unchanged(app):
        with pytest.raises(NotSerializable, match="dumps must return bytes; for data it returned 'text'"):
            await queue.add("note", "text")
        with pytest.raises(NotSerializable, match="Base64 cannot serialize data: it does not want to"):
            await queue.add("note", "refuse")


# What others may have left in the store, and what is said of it.
RUBBISH = {
    "truncated": '{"a": [1, 2',
    "empty": "",
    "binary": "\x00\x01\x02",
    "gzip": "\x1f\x8b\x08\x00",
    "pickle": "cos\nsystem\n(S'touch /tmp/pwned'\ntR.",
    "nan": "[NaN]",
    "deep": "[" * 100_000,
    "digits": "9" * 5000,
    "words": "undefined",
}


@pytest.mark.covers("B33")
@pytest.mark.parametrize("typed", [True, False], ids=["typed", "untyped"])
async def test_a_stored_payload_that_is_no_json_fails_once(app: App, typed: bool) -> None:
    ran = []

    async def untyped(ctx: JobContext[Any]) -> None:
        ran.append(ctx.data)

    async def listed(ctx: JobContext[list[int]]) -> None:
        ran.append(ctx.data)

    queue = app.queue("q", {"work": listed if typed else untyped}, keep_failed=10)
    rubbish = [
        NewJob(name="work", data=data, attempts=5, options=JobOptions(keep_failed=KEEP_ALL))
        for data in RUBBISH.values()
    ]
    await app.store.add("q", rubbish)
    await queue.add("work", [1])
    await drained(app)

    failed = await queue.jobs("failed")
    assert {job.data for job in failed} == set(RUBBISH.values())
    assert {job.attempts_made for job in failed} == {1}
    assert all(job.error is not None and job.error.startswith("data") for job in failed)
    assert ran == [[1]]


@pytest.mark.covers("B32")
async def test_of_two_equal_keys_in_stored_json_the_last_one_counts(app: App) -> None:
    seen: list[Any] = []

    async def plain(ctx: JobContext[Any]) -> None:
        seen.append(ctx.data)

    async def typed(ctx: JobContext[dict[str, int]]) -> None:
        seen.append(ctx.data)

    app.queue("q", [plain, typed])
    await app.store.add("q", [NewJob(name=name, data='{"a":1,"a":2}') for name in ("plain", "typed")])
    await drained(app)

    assert seen == [{"a": 2}, {"a": 2}]


@pytest.mark.covers("B33", "F111")
async def test_a_stored_payload_too_large_to_read_fails_once(app: App) -> None:
    async def work(ctx: JobContext[Any]) -> None: ...

    queue = app.queue("q", [work], keep_failed=10)
    await app.store.add(
        "q", [NewJob(name="work", data='"' + "x" * MiB + '"', attempts=5, options=JobOptions(keep_failed=KEEP_ALL))]
    )
    await drained(app)

    (failed,) = await queue.jobs("failed")
    assert failed.attempts_made == 1
    assert failed.error == "data is too large: 1048578 characters; the limit is 1048576"


BAD_OPTIONS = [
    "rubbish",
    "[1]",
    "5",
    '{"backoff":[1]}',
    '{"timeout":"soon"}',
    '{"keep_failed":"x"}',
    '{"result_ttl":-1}',
]


@pytest.mark.covers("B35", "B36")
@pytest.mark.parametrize("text", [*BAD_OPTIONS, "[" * 100_000], ids=lambda text: text[:20])
async def test_a_job_whose_stored_options_are_rubbish_fails_once_and_stops_nobody(tmp_path: Path, text: str) -> None:
    seen: list[int] = []

    async def work(ctx: JobContext[int]) -> None:
        seen.append(ctx.data)

    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:
        queue = app.queue("q", [work])
        await queue.add_many([(work, 1), (work, 2), (work, 3)])
        _rewrite(tmp_path / "jobs.db", "options", text)
        await drained(app)

        (failed,) = await queue.jobs("failed")
        assert (failed.data, failed.attempts_made, failed.stalls) == (2, 1, 0)
        assert failed.error is not None
        assert failed.error.startswith("its stored options cannot be read: ")
    assert seen == [1, 3]


@pytest.mark.covers("B34", "B35")
@pytest.mark.parametrize("text", ["null", "{}", '{"of a later version": [1]}'])
async def test_options_that_say_nothing_mean_the_defaults(tmp_path: Path, text: str) -> None:
    seen: list[int] = []

    async def work(ctx: JobContext[int]) -> None:
        seen.append(ctx.data)

    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:
        queue = app.queue("q", [work])
        await queue.add_many([(work, 1), (work, 2), (work, 3)])
        _rewrite(tmp_path / "jobs.db", "options", text)
        await drained(app)

    assert seen == [1, 2, 3]


@pytest.mark.covers("B33")
@pytest.mark.parametrize("column", ["metadata", "checkpoint"])
async def test_what_a_handler_does_not_ask_for_may_be_rubbish(tmp_path: Path, column: str) -> None:
    async def work(ctx: JobContext[int]) -> Any:
        if ctx.data == 3:
            return None
        return dict(ctx.metadata) if column == "metadata" else ctx.last_checkpoint

    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:
        queue = app.queue("q", [work], keep_failed=True)
        await queue.add_many([(work, 1), (work, 2), (work, 3)])
        _rewrite(tmp_path / "jobs.db", column, "{rubbish")
        await drained(app)

        (failed,) = await queue.jobs("failed")
        assert (failed.data, failed.attempts_made) == (2, 1)
        assert str(failed.error).startswith(f"{column} is not JSON")


@pytest.mark.covers("R148")
async def test_a_record_that_is_rubbish_hides_no_lost_job(tmp_path: Path) -> None:
    seen: list[int] = []

    async def work(ctx: JobContext[int]) -> None:
        seen.append(ctx.data)

    async with App(f"sqlite:///{tmp_path}/jobs.db") as app:
        queue = app.queue("q", [work])
        await queue.add_many([(work, 1), (work, 2), (work, 3)])
        await app.store.exchange("q", [], Claim(want=3, token="t", lease=1_000, worker="gone"))
        _rewrite(tmp_path / "jobs.db", "data", "{rubbish")
        async with asyncio.timeout(20):
            while (await queue.counts()).active:
                await app.store.recover("q", limit=100)
                await asyncio.sleep(0.1)
        await drained(app)
        (letter,) = (await app.dead_letters.page()).items

    assert sorted(seen) == [1, 3]
    assert (letter.failure.kind, letter.data) == ("Undecodable", "{rubbish")


def _rewrite(path: Path, column: str, text: str) -> None:
    """As another program might: the second job's record is changed behind our back."""
    file = sqlite3.connect(path)
    file.execute(f"UPDATE jobs SET {column} = ? WHERE data = '2'", (text,))
    file.commit()
    file.close()


@pytest.mark.covers("B37", "F114")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_result_that_cannot_be_kept_does_not_undo_the_work(app: App, kind: str) -> None:
    ran = []

    async def on_the_loop(ctx: JobContext[str]) -> Any:
        ran.append((ctx.data, ctx.attempt))
        return UNFIT[ctx.data][0]()

    def in_a_thread(ctx: Any) -> Any:
        ran.append((ctx.data, ctx.attempt))
        return UNFIT[ctx.data][0]()

    queue = app.queue("q", {"work": on_the_loop if kind == "async" else in_a_thread}, keep_completed=100)
    jobs = [await queue.add("work", which) for which in UNFIT]
    await drained(app)

    records = [(await job.refresh()).record for job in jobs]
    assert sorted(ran) == sorted((which, 1) for which in UNFIT)
    assert [record and record.result for record in records] == [None] * len(UNFIT)
    runs = await queue.runs(limit=100)
    assert [run.text.partition(": ")[0] for run in runs] == ["the result was dropped"] * len(UNFIT)


def returns_a_set(ctx: Any) -> Any:
    return {1, 2}


@pytest.mark.covers("B37")
async def test_nor_does_one_from_a_process(app: App) -> None:
    from toril import handler

    queue = app.queue("q", {"work": handler(returns_a_set, executor="process")})
    await queue.add("work")
    await drained(app)

    (run,) = await queue.runs()
    assert run.text.startswith("the result was dropped: the result is of type set")
    assert len(await queue.runs("failed")) == 0


@pytest.mark.covers("B38")
@pytest.mark.parametrize("value", [float("nan"), "x" * 10_000_000, {1: 2}, b"x"], ids=["nan", "10 MB", "keys", "bytes"])
async def test_progress_that_cannot_be_kept_is_refused(app: App, value: Any) -> None:
    refused = []

    async def work(ctx: JobContext[Any]) -> None:
        try:
            await ctx.update_progress(value)
        except UsageError as error:
            refused.append(str(error))

    queue = app.queue("q", [work], keep_completed=1)
    job = await queue.add(work, None)
    await drained(app)

    assert len(refused) == 1
    assert refused[0].startswith("progress")
    assert (await job.refresh()).progress is None


@pytest.mark.covers("B39")
async def test_a_log_line_stays_one_entry_whatever_is_in_it(app: App) -> None:
    lines = ["x" * 1_000_000, "a\nb", "\x1b[31mred\x1b[0m", "ok\r\nINFO forged record", "\ud800", "\u202eabc", 5]

    async def work(ctx: JobContext[Any]) -> None:
        for line in lines:
            await ctx.log(line)  # type: ignore[arg-type]

    queue = app.queue("q", [work], keep_completed=1)
    job = await queue.add(work, None)
    await drained(app)

    kept = await job.logs()
    assert len(kept) == len(lines)
    assert all(line.isprintable() for line in kept)
    assert len(kept[0].encode()) == 16 * 1024
    assert kept[1:4] == [r"a\nb", r"\x1b[31mred\x1b[0m", r"ok\r\nINFO forged record"]


@pytest.mark.covers("B40", "R027")
async def test_of_many_log_lines_the_last_thousand_stay_in_order(app: App) -> None:
    async def work(ctx: JobContext[Any]) -> None:
        for number in range(1_050):
            await ctx.log(f"line {number}")

    queue = app.queue("q", [work], keep_completed=1)
    job = await queue.add(work, None)
    await drained(app)

    assert await job.logs() == [f"line {number}" for number in range(50, 1_050)]


SECRETS = {
    "assignment": "login failed: password=hunter2 user=me",
    "quoted": "PGPASSWORD='hunter2' psql",
    "query": "GET https://api.example.org/v1?api_key=hunter2&x=1",
    "userinfo": "cannot connect to redis://admin:hunter2@db.example.org:6379/0",
    "bearer": "401 for header Authorization: Bearer hunter2hunter2",
    "mapping": "bad settings {'client_secret': 'hunter2', 'port': 1}",
    "json": '{"access_token": "hunter2"}',
    "header": "403 for x-api-key: hunter2",
    "colon": "cannot log in with user: me, password: hunter2",
    "cookie": "refused Cookie: theme=dark; session=hunter2",
    "scheme": "refused Authorization: Digest username=me, response=hunter2",
    "JWT": "cannot verify eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.hunter2",
    "slash in userinfo": "cannot connect to postgres://admin:a/hunter2@db.example.org/jobs",
    "at in userinfo": "cannot connect to redis://admin:a@hunter2@db.example.org:6379/0",
    "both in userinfo": "cannot fetch https://admin:a@b/hunter2@example.org/x",
}


@pytest.mark.covers("B41")
async def test_a_secret_in_an_error_is_not_stored(app: App) -> None:
    async def work(ctx: JobContext[str]) -> None:
        raise RuntimeError(SECRETS[ctx.data])

    queue = app.queue("q", [work], keep_failed=100)
    jobs = [await queue.add(work, which, attempts=1) for which in SECRETS]
    await drained(app)

    for job in jobs:
        record = (await job.refresh()).record
        assert record is not None
        assert record.failure is not None
        assert "hunter2" not in str(record.failure), job.data
        assert "***" in record.failure.reason, job.data
    assert "hunter2" not in str(await queue.runs("failed"))


@pytest.mark.covers("B41")
async def test_an_ordinary_error_is_stored_as_it_is(app: App) -> None:
    message = (
        "unexpected token: name, at https://example.org/a?b=c (basic check, secretary@example.org), "
        "not at http://localhost:8080/@me or https://example.org/@scope/package"
    )

    async def work(ctx: JobContext[Any]) -> None:
        raise RuntimeError(message)

    queue = app.queue("q", [work], keep_failed=1)
    job = await queue.add(work, None, attempts=1)
    await drained(app)

    assert (await job.refresh()).error == message


async def test_a_huge_error_takes_no_time_to_store(app: App) -> None:
    class Awkward(Exception):
        def __str__(self) -> str:
            return "password" * 1_000_000 + "token" + "a" * 1_000_000

    async def work(ctx: JobContext[Any]) -> None:
        raise Awkward

    queue = app.queue("q", [work], keep_failed=1)
    job = await queue.add(work, None, attempts=1)
    async with asyncio.timeout(10):
        await drained(app)

    assert len((await job.refresh()).error or "") <= 64 * 1024


async def test_refusing_raises_no_warning(queue: Queue) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NotSerializable):
            await queue.add("send", {"r": forgotten()})
