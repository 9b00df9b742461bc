"""Deduplication as a producer uses it."""

from datetime import timedelta
from typing import Any

import pytest

from toril import App, Dedup, InvalidOption, JobContext, UsageError
from toril.client.options import content_key
from toril.testing import memory


async def index(ctx: JobContext[dict[str, int]]) -> None:
    """A handler."""


@pytest.mark.covers("R086")
async def test_a_second_add_of_the_same_key_names_the_job_that_there_is() -> None:
    app = App("memory://")
    queue = app.queue("q", [index])
    async with memory(app) as test:
        first = await queue.add(index, {"article": 1}, dedup=Dedup("article-1"))
        second = await queue.add(index, {"article": 2}, dedup=Dedup("article-1"))
        await test.drain()
        third = await queue.add(index, {"article": 1}, dedup=Dedup("article-1"))

    assert (first.added, first.outcome, second.added, second.outcome) == (True, "added", False, "deduplicated")
    assert (second.id, second.data) == (first.id, {"article": 1})
    assert third.added


async def test_without_a_key_equal_jobs_are_one() -> None:
    app = App("memory://")
    queue = app.queue("q", {"index": index, "other": index})
    async with memory(app):
        first = await queue.add("index", {"a": 1, "b": 2}, dedup=Dedup())
        same = await queue.add("index", {"b": 2, "a": 1}, dedup=Dedup())
        other_data = await queue.add("index", {"a": 1}, dedup=Dedup())
        other_name = await queue.add("other", {"a": 1, "b": 2}, dedup=Dedup())

    assert same.id == first.id
    assert [job.added for job in (first, same, other_data, other_name)] == [True, False, True, True]


@pytest.mark.covers("X06")
def test_a_key_made_of_the_content_is_128_bits_of_canonical_json() -> None:
    key = content_key("index", '{"b": 1, "a": {"y": [1, 2], "x": "\\u00e9"}}')

    assert key == content_key("index", '{"a":{"x":"é","y":[1,2]},"b":1}')
    assert len(bytes.fromhex(key)) == 16
    others = [
        ("index", '{"a":{"x":"é","y":[2,1]},"b":1}'),
        ("other", '{"a":{"x":"é","y":[1,2]},"b":1}'),
        ("index", "pickled"),
    ]
    assert len({key, *(content_key(*other) for other in others)}) == 4


async def test_a_debounced_job_runs_once_with_the_last_data() -> None:
    app = App("memory://")
    ran: list[object] = []

    async def save(ctx: JobContext[dict[str, int]]) -> None:
        ran.append(ctx.data)

    queue = app.queue("q", [save])
    async with memory(app) as test:
        outcomes = []
        for version in range(3):
            job = await queue.add(save, {"v": version}, delay=5, dedup=Dedup("doc", ttl=5, mode="replace"))
            outcomes.append((job.outcome, job.added))
            await test.after(2)
        await test.after(5)

    assert outcomes == [("added", True), ("replaced", True), ("replaced", True)]
    assert ran == [{"v": 2}]


@pytest.mark.covers("B51")
@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (lambda: Dedup("a:b"), "must not contain ':'"),
        (lambda: Dedup("k", ttl=0), "ttl must be between 0.001 s"),
        (lambda: Dedup("k", mode="first"), "mode must be 'drop', 'extend', 'replace'"),  # type: ignore[arg-type]
        (lambda: Dedup("k", mode="extend"), "needs a ttl to extend"),
        (lambda: Dedup("meta"), "is reserved and cannot be a deduplication key"),
    ],
)
def test_a_deduplication_that_makes_no_sense_is_refused(made: object, complaint: str) -> None:
    with pytest.raises((InvalidOption, ValueError), match=complaint):
        made()  # type: ignore[operator]


async def test_what_is_no_deduplication_is_refused() -> None:
    app = App("memory://")
    queue = app.queue("q", [index])
    async with memory(app):
        with pytest.raises(InvalidOption, match=r"dedup must be a Dedup\(key, ttl, mode\), not 'k'"):
            await queue.add(index, {"a": 1}, dedup="k")  # type: ignore[call-overload]


@pytest.mark.covers("X22")
async def test_a_job_is_added_once_for_a_time_even_when_it_has_ended_and_is_gone() -> None:
    app, ran = App("memory://"), list[int]()

    async def charge(ctx: JobContext[int]) -> None:
        ran.append(ctx.data)

    queue = app.queue("q", [charge])
    charging = queue.task(charge)
    async with memory(app) as test:
        first = await charging.add(7, once="order-7", for_=timedelta(days=1))
        await test.drain()
        again = await charging.add(7, once="order-7", for_="1d")
        batch = await charging.add_many([7, 8], once="order-7", for_="1d")
        other = await queue.add("charge", 9, once="order-9", for_=60)
        assert await first.state() is None
        await test.after("1d")
        later = await charging.add(7, once="order-7", for_="1d")
        await test.drain()

    answers = [(each.added, each.id == first.id, each.outcome) for each in (again, *batch)]
    assert answers == [(False, True, "deduplicated")] * 3
    assert (other.added, later.added) == (True, True)
    assert ran == [7, 9, 7]


async def test_an_id_protects_only_while_its_job_exists() -> None:
    app = App("memory://")
    queue = app.queue("q", [index])
    async with memory(app) as test:
        first = await queue.add(index, {"a": 1}, job_id="own")
        waiting = await queue.add(index, {"a": 1}, job_id="own")
        await test.drain()
        gone = await queue.add(index, {"a": 1}, job_id="own")

    assert (first.added, waiting.added, gone.added) == (True, False, True)


@pytest.mark.covers("B51")
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"once": "k"}, "once and for_ must be given together"),
        ({"for_": 60}, "once and for_ must be given together"),
        ({"once": "k", "for_": 60, "dedup": Dedup("k")}, "give once or dedup, not both"),
        ({"once": "k", "for_": 0}, "for_ must be between 0.001 s"),
        ({"once": "k", "for_": "soon"}, "for_ must be seconds, a timedelta or a string"),
        ({"once": "a:b", "for_": 60}, "a deduplication key must not contain ':'"),
    ],
)
async def test_once_without_a_time_or_with_another_key_is_refused(options: Any, complaint: str) -> None:
    app = App("memory://")
    queue = app.queue("q", [index])
    async with memory(app) as test:
        with pytest.raises(UsageError, match=complaint):
            await queue.add("index", {"a": 1}, **options)
        with pytest.raises(InvalidOption, match="schedules do not take once"):
            await queue.schedules.put("s", "index", {}, every=60, once="k", for_=60)
        assert test.added == []
