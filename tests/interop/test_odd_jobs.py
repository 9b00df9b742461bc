"""Jobs as other clients, and other hands, write them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.interop.node import Node, NodeEvents
from tests.interop.side import Steps, Toril
from toril import JobContext

ONE_MAJOR = "Node only reads here what became of jobs that are written by hand"


async def written(node: Node, job_id: str, place: str = "wait", **fields: Any) -> str:
    """A job put into Redis by hand, as the smallest of clients would."""
    given = {"name": "note", "data": "{}", "opts": "{}", "timestamp": 1_700_000_000_000, "delay": 0, "priority": 0}
    flat = [part for pair in {**given, **fields}.items() if pair[1] is not None for part in pair]
    await node.redis("HSET", f"bull:q:{job_id}", *flat)
    if place == "wait":
        await node.redis("LPUSH", "bull:q:wait", job_id)
    await node.redis("ZADD", "bull:q:marker", 0, 0)
    return job_id


async def ended(toril: Toril, events: NodeEvents, steps: Steps, *ends: tuple[str, str]) -> None:
    """A worker of Toril runs until these have happened: (event, job)."""
    async with toril.working("q", {"note": steps.note}):
        for event, job in ends:
            await events.until(event, jobId=job)


@pytest.mark.parametrize(
    "options",
    [
        "{}",
        '{"attempts":0}',
        '{"attempts":null,"delay":null,"priority":null,"backoff":null}',
        '{"backoff":5,"attempts":1}',
        '{"kl":5,"removeOnFail":{"age":3600,"count":10},"attempts":3,"lifo":true,"stackTraceLimit":3,"sizeLimit":1000}',
        '{"attempts":2.0,"priority":0.0}',
        '{"a\\/b":"\\/","group":{"id":"g"},"unheardOf":[1,{}],"repeat":{}}',
        '{"removeOnComplete":{}}',
        '{"removeOnComplete":[]}',
        '{"tm":"{\\"traceparent\\":\\"00-ab-cd-01\\"}","omc":true}',
        '{"backoff":{"type":"of-our-own","delay":10},"attempts":2}',
        '{"backoff":{"type":"exponential"},"attempts":2}',
        '{"backoff":{"type":"fixed","delay":1.5,"jitter":0.5},"attempts":2}',
    ],
)
async def test_odd_options_do_not_keep_a_job_from_running(node: Node, toril: Toril, options: str) -> None:
    steps, events = Steps(), await node.events("q")
    job = await written(node, "odd", opts=options)

    await ended(toril, events, steps, ("completed", job))

    assert steps.ran == [job]
    assert await node.redis("HGET", "bull:q:odd", "opts") == options


@pytest.mark.covers("F110")
@pytest.mark.parametrize("options", ["", "not json", "null", "7", '"text"', '{"attempts":', "[1,]"])
async def test_options_that_cannot_be_read_fail_a_job_once(node: Node, toril: Toril, options: str) -> None:
    steps, events = Steps(), await node.events("q")
    await written(node, "odd", opts=options)
    after = await written(node, "after")

    await ended(toril, events, steps, ("failed", "odd"), ("completed", after))

    assert steps.ran == [after]
    assert await node.redis("HGET", "bull:q:odd", "opts") == options
    assert await node.redis("ZCARD", "bull:q:failed") == 1
    assert (await node.redis("LLEN", "bull:q:active"), await node.redis("LLEN", "bull:q:wait")) == (0, 0)


async def test_float_delays_are_understood(node: Node, toril: Toril) -> None:
    steps, events = Steps(), await node.events("q")
    async with toril.working("q", {"note": steps.note}):
        for delay in (1.5, 250.75, 0.25):
            job = await node.queue("q").add("note", delay=delay)
            await events.until("completed", jobId=job["id"])
    late = await node.queue("q").add("note", delay=600_000.5)
    async with toril.queue("q") as queue:
        found = await queue.job(late["id"])

    assert len(steps.ran) == 3
    assert found is not None
    assert found.record is not None
    assert found.record.delay in {600, 600.001}


async def test_a_delayed_job_written_by_hand_runs(node: Node, toril: Toril) -> None:
    steps, events = Steps(), await node.events("q")
    now, _ = await node.redis("TIME")
    due = int(now) * 1000 + 300
    await written(node, "late", "delayed", delay=300)
    await node.redis("ZADD", "bull:q:delayed", due * 4096, "late")
    await node.redis("ZADD", "bull:q:marker", due + 0.5, 1)  # a fraction, as a float delay leaves it

    await ended(toril, events, steps, ("completed", "late"))

    assert steps.ran == ["late"]


async def test_a_delayed_job_without_a_priority_is_not_lost(node: Node, toril: Toril) -> None:
    steps, events = Steps(), await node.events("q")
    await written(node, "late", "delayed", priority=None)
    await node.redis("ZADD", "bull:q:delayed", 1_700_000_000_000 * 4096, "late")

    await ended(toril, events, steps, ("completed", "late"))

    assert steps.ran == ["late"]


@pytest.mark.covers("F110")
@pytest.mark.parametrize("data", ["", "not json", "{", "{'a': 1}", "NaN", "[1,]"])
async def test_data_that_is_not_json_fails_once(node: Node, toril: Toril, data: str) -> None:
    steps, events = Steps(), await node.events("q")
    await written(node, "bad", data=data, opts='{"attempts":5,"backoff":{"type":"fixed","delay":0}}')
    after = await written(node, "after")

    await ended(toril, events, steps, ("failed", "bad"), ("completed", after))

    assert steps.ran == ["after"]
    assert await events.names("bad") == ["active", "failed"]
    assert await node.redis("HGET", "bull:q:bad", "data") == data
    assert await node.redis("HGET", "bull:q:bad", "failedReason")


async def test_data_of_any_json_kind_is_handed_over(node: Node, toril: Toril) -> None:
    seen: dict[str, Any] = {}

    async def take(ctx: JobContext[Any]) -> None:
        seen[ctx.job_id] = ctx.data

    events = await node.events("q")
    texts = {"n": "null", "t": "true", "i": "7", "f": "1.5", "s": '"x"', "l": "[1]", "e": '"\\u00e9\\/"', "z": "[]"}
    for job, text in texts.items():
        await written(node, job, name="take", data=text)
    async with toril.working("q", {"take": take}):
        await events.until("completed", times=len(texts))

    assert seen == {job: json.loads(text) for job, text in texts.items()}


@pytest.mark.covers("F67")
async def test_an_id_without_a_hash_never_runs(node: Node, toril: Toril) -> None:
    steps, events = Steps(), await node.events("q")
    await node.redis("LPUSH", "bull:q:wait", "ghost")
    await node.redis("ZADD", "bull:q:prioritized", 1, "ghost-too")
    after = await written(node, "after")

    await ended(toril, events, steps, ("completed", after))
    later = await written(node, "later")
    await ended(toril, events, steps, ("completed", later))

    assert steps.ran == ["after", "later"]
    assert await node.redis("EXISTS", "bull:q:ghost", "bull:q:ghost-too", "bull:q:ghost:lock") == 0
    assert (await node.queue("q").counts())["active"] == 0


@pytest.mark.parametrize("missing", ["opts", "timestamp", "delay", "priority"])
async def test_a_field_that_is_missing_is_made_up_for(node: Node, toril: Toril, missing: str) -> None:
    steps, events = Steps(), await node.events("q")
    fields: Mapping[str, Any] = {missing: None}
    job = await written(node, "odd", **fields)

    await ended(toril, events, steps, ("completed", job))

    assert steps.ran == [job]


@pytest.mark.parametrize("text", ["", "x", "-1", "1e400"])
@pytest.mark.parametrize(
    "field", ["timestamp", "delay", "priority", "ats", "atm", "stc", "processedOn", "stacktrace", "toril:expires"]
)
async def test_a_field_that_is_no_number_stops_nobody(node: Node, toril: Toril, field: str, text: str) -> None:
    steps, events = Steps(), await node.events("q")
    fields: Mapping[str, Any] = {field: text}
    await written(node, "odd", **fields)
    after = await written(node, "after")

    await ended(toril, events, steps, ("completed", after))

    assert await events.names("odd") in (["active", "completed"], ["active", "failed"], ["failed"])
    assert (await node.redis("LLEN", "bull:q:active"), await node.redis("LLEN", "bull:q:wait")) == (0, 0)


@pytest.mark.parametrize("missing", ["name", "data"])
async def test_what_is_no_job_never_runs(node: Node, toril: Toril, missing: str) -> None:
    steps, events = Steps(), await node.events("q")
    fields: Mapping[str, Any] = {missing: None}
    await written(node, "odd", **fields)
    after = await written(node, "after")

    await ended(toril, events, steps, ("completed", after))

    assert steps.ran == ["after"]
    assert await node.redis("LRANGE", "bull:q:wait", 0, -1) == []
    assert await node.redis("LRANGE", "bull:q:active", 0, -1) == []


@pytest.mark.parametrize(
    "job_id", ["with space", "é", "a/b", "0", "-1", "x" * 200, "{braces}", "%s", "'quoted'", "1e3", "__proto__"]
)
async def test_ids_of_any_kind_run(node: Node, toril: Toril, job_id: str) -> None:
    steps, events = Steps(), await node.events("q")
    await written(node, job_id)

    await ended(toril, events, steps, ("completed", job_id))

    assert steps.ran == [job_id]
    assert await node.queue("q").state(job_id) == "completed"


async def test_an_old_spelling_of_attempts_is_read(node: Node, toril: Toril) -> None:
    job = await written(node, "old", attemptsMade=2)
    async with toril.queue("q") as queue:
        found = await queue.job(job)

    assert found is not None
    assert found.attempts_made == 2


async def test_a_job_nobody_knows_fails_once_and_says_so(node: Node, toril: Toril) -> None:
    events = await node.events("q")
    job = await node.queue("q").add("unheard-of", attempts=3)
    async with toril.working("q"):
        (failed,) = await events.until("failed", jobId=job["id"])

    assert "unheard-of" in failed["failedReason"]


async def test_much_data_passes(node: Node, toril: Toril) -> None:
    text = "é" * 400_000
    events = await node.events("q")
    job = await node.queue("q").add("echo", {"text": text})
    async with toril.working("q"):
        (completed,) = await events.until("completed", jobId=job["id"])

    assert completed["returnvalue"] == {"text": text}
