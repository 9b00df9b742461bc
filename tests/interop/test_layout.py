"""The same things done by Toril and by Node leave the same things in Redis, and in the stream of events."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from tests.interop.node import Node, NodeQueue
from tests.interop.side import Toril
from toril import Exponential, Fixed, Job, JobContext, PermanentError, Queue

MINUTE = 60_000
FIELDS = {
    "name", "data", "opts", "timestamp", "delay", "priority", "processedOn", "pb", "ats", "atm", "stc", "progress",
    "returnvalue", "failedReason", "stacktrace", "finishedOn", "defa",
}  # fmt: skip
LISTS = ("wait", "active", "paused")
SORTED = ("delayed", "prioritized", "completed", "failed", "marker")


async def picture(node: Node, queue: str) -> dict[str, Any]:
    """What BullMQ knows of a queue, with times that need not be equal to the second, and nobody's name."""
    found: dict[str, Any] = {name: await node.redis("LRANGE", f"bull:{queue}:{name}", 0, -1) for name in LISTS}
    for name in SORTED:
        flat = await node.redis("ZRANGE", f"bull:{queue}:{name}", 0, -1, "WITHSCORES")
        found[name] = [(flat[at], _score(name, flat[at + 1])) for at in range(0, len(flat), 2)]
    for name in ("id", "limiter"):
        found[name] = await node.redis("GET", f"bull:{queue}:{name}")
    found["meta"] = _pairs(await node.redis("HGETALL", f"bull:{queue}:meta"), leave_out={"version"})
    ids = {each for name in LISTS for each in found[name]}
    ids |= {each for name in SORTED if name != "marker" for each, _ in found[name]}
    found["jobs"] = {each: await _hash(node, f"bull:{queue}:{each}") for each in sorted(ids)}
    found["events"] = [_event(fields) for _, fields in await node.redis("XRANGE", f"bull:{queue}:events", "-", "+")]
    return found


def _score(name: str, score: str) -> float:
    """What a score says; the order among equals is that of the list, whatever numbers are counted up for it."""
    unit = {"delayed": 4096, "prioritized": 2**32}.get(name, 1)
    return _time(float(score) // unit)


class Around(float):
    """A time that equals any other within a minute, since the two sides do not act at once."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Around) and abs(self - other) < MINUTE

    __hash__ = None  # type: ignore[assignment]


def _time(value: float) -> float:
    """A time; anything smaller is what it is."""
    return Around(value) if value > 1e12 else value


def _pairs(flat: Sequence[str], leave_out: set[str]) -> dict[str, Any]:
    return {flat[at]: flat[at + 1] for at in range(0, len(flat), 2) if flat[at] not in leave_out}


async def _hash(node: Node, key: str) -> dict[str, Any]:
    fields = {name: value for name, value in _pairs(await node.redis("HGETALL", key), set()).items() if name in FIELDS}
    fields["opts"] = _options(json.loads(fields["opts"]))
    fields["data"] = json.loads(fields["data"])
    for name in ("timestamp", "processedOn", "finishedOn"):
        if name in fields:
            fields[name] = _time(float(fields[name]))
    if "stacktrace" in fields:
        fields["stacktrace"] = len(json.loads(fields["stacktrace"]))
    if "pb" in fields:
        fields["pb"] = "somebody"
    return fields


def _options(options: dict[str, Any]) -> dict[str, Any]:
    """What both sides write; what only Toril says, and how each spells its defaults, is left out."""
    kept = {key: options[key] for key in ("delay", "priority", "lifo", "jobId") if options.get(key)}
    kept["attempts"] = max(1, options.get("attempts", 0))
    backoff = options.get("backoff")
    if backoff is not None:
        kept["backoff"] = (backoff["type"], backoff["delay"])
    return kept


def _event(fields: Sequence[str]) -> dict[str, Any]:
    found = _pairs(fields, set())
    if "delay" in found:
        found["delay"] = _time(float(found["delay"]))
    return found


# What the two do, in the words of each: (name, Toril's, Node's)

NONE: dict[str, Any] = {"attempts": 1, "keep_completed": True, "keep_failed": True}
ADDS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("plain", {}, {}),
    ("delayed", {"delay": 600}, {"delay": 600_000}),
    ("with a priority", {"priority": 7}, {"priority": 7}),
    ("with the highest priority number", {"priority": 2_097_151}, {"priority": 2_097_151}),
    ("first out", {"lifo": True}, {"lifo": True}),
    ("with an id", {"job_id": "mine"}, {"jobId": "mine"}),
    ("delayed with a priority", {"delay": 600, "priority": 3}, {"delay": 600_000, "priority": 3}),
    (
        "with retries",
        {"attempts": 4, "backoff": Fixed(2)},
        {"attempts": 4, "backoff": {"type": "fixed", "delay": 2000}},
    ),
    (
        "with growing retries",
        {"attempts": 4, "backoff": Exponential(2)},
        {"attempts": 4, "backoff": {"type": "exponential", "delay": 2000}},
    ),
]


@pytest.mark.covers("R043", "R172", "R176", "R177", "R178", "R179")
@pytest.mark.parametrize(("ours", "theirs"), [each[1:] for each in ADDS], ids=[each[0] for each in ADDS])
async def test_an_added_job_is_stored_alike(
    node: Node, toril: Toril, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    data = {"a": 1, "é": [None, 1.5, {}]}
    async with toril.queue("a") as queue:
        for _ in range(2):
            await queue.add("n", data, **{**NONE, **ours})
    for _ in range(2):
        await node.queue("b").add("n", data, **theirs)

    mine, others = await picture(node, "a"), await picture(node, "b")

    if "backoff" not in theirs:
        for job in mine["jobs"].values():
            job["opts"].pop("backoff", None)  # a queue of Toril has one by default; it says nothing to one attempt
    assert mine == others


async def fails(ctx: JobContext[Any]) -> None:
    raise ValueError("no such bull")


async def fails_for_good(ctx: JobContext[Any]) -> None:
    raise PermanentError("no such bull")


async def talks(ctx: JobContext[Any]) -> Any:
    await ctx.update_progress(50)
    return {"r": 1}


HANDLERS = {"talks": talks, "fails": fails, "fails_for_good": fails_for_good}
SCRIPT: dict[str, list[dict[str, Any]]] = {
    "talks": [{"progress": 50}, {"return": {"r": 1}}],
    "fails": [{"fail": "no such bull"}],
    "fails_for_good": [{"unrecoverable": "no such bull"}],
}
LIVES: list[tuple[str, dict[str, Any], str]] = [
    ("talks", {}, "completed"),
    ("talks", {"priority": 2}, "completed"),
    ("talks", {"delay": 50}, "completed"),
    ("fails", {}, "failed"),
    ("fails", {"attempts": 3}, "failed"),
    ("fails", {"attempts": 2, "priority": 2}, "failed"),
    ("fails", {"attempts": 2, "lifo": True}, "failed"),
    ("fails", {"attempts": 2, "backoff": {"type": "fixed", "delay": 50}}, "failed"),
    ("fails", {"attempts": 2, "backoff": {"type": "fixed", "delay": 600_000}}, "delayed"),
    ("fails_for_good", {"attempts": 3}, "failed"),
    ("talks", {"removeOnComplete": True}, "completed"),
    ("fails", {"removeOnFail": True}, "failed"),
]


@pytest.mark.covers("R174", "R175", "R186")
@pytest.mark.parametrize(("name", "options", "end"), LIVES, ids=str)
async def test_a_life_leaves_the_same_behind(
    node: Node, toril: Toril, name: str, options: dict[str, Any], end: str
) -> None:
    for queue in ("a", "b"):
        await node.queue(queue).add(name, {"a": 1}, **options)
    ours, theirs = await node.events("a"), await node.events("b")

    async with toril.working("a", HANDLERS):
        await ours.until(end)
    worker = await node.worker("b", SCRIPT, name="somebody")
    await theirs.until(end)
    await worker.close()

    mine, others = await picture(node, "a"), await picture(node, "b")
    # Who comes to the empty queue once more tells that it is drained, and takes the marker or leaves it: by chance.
    for one in (mine, others):
        del one["marker"]
        one["events"] = [event for event in one["events"] if event["event"] != "drained"]
    assert mine == others


async def _add(queue: Queue, **options: Any) -> Job[Any]:
    return await queue.add("n", {}, **{**NONE, **options})


async def _pause_and_resume(queue: Queue) -> None:
    await _add(queue)
    await queue.pause()
    await _add(queue)
    await queue.resume()


async def _their_pause_and_resume(queue: NodeQueue) -> None:
    await queue.add("n")
    await queue.call("pause")
    await queue.add("n")
    await queue.call("resume")


async def _change(queue: Queue) -> None:
    first, second, late = [await _add(queue, **each) for each in ({"priority": 3}, {}, {"delay": 600})]
    await second.set_priority(2)
    await first.set_priority(0)
    await late.set_delay(1200)


async def _their_change(queue: NodeQueue) -> None:
    first, second, late = [await queue.add("n", **each) for each in ({"priority": 3}, {}, {"delay": 600_000})]
    await queue.of_job(second["id"], "changePriority", {"priority": 2})
    await queue.of_job(first["id"], "changePriority", {"priority": 0})
    await queue.of_job(late["id"], "changeDelay", 1_200_000)


async def _remove(queue: Queue) -> None:
    jobs = [await _add(queue, **each) for each in ({}, {"priority": 3}, {"delay": 600}, {})]
    for job in jobs[:3]:
        await job.remove()


async def _their_remove(queue: NodeQueue) -> None:
    jobs = [await queue.add("n", **each) for each in ({}, {"priority": 3}, {"delay": 600_000}, {})]
    for job in jobs[:3]:
        await queue.of_job(job["id"], "remove")


async def _promote(queue: Queue) -> None:
    for options in ({"delay": 600}, {"delay": 600, "priority": 3}):
        await (await _add(queue, **options)).promote()


async def _their_promote(queue: NodeQueue) -> None:
    for options in ({"delay": 600_000}, {"delay": 600_000, "priority": 3}):
        await queue.of_job((await queue.add("n", **options))["id"], "promote")


async def _limit(queue: Queue) -> None:
    await queue.set_concurrency(3)
    await _add(queue)


async def _their_limit(queue: NodeQueue) -> None:
    await queue.call("setGlobalConcurrency", 3)
    await queue.add("n")


async def _drain(queue: Queue) -> None:
    for options in ({}, {"priority": 3}, {"delay": 600}):
        await _add(queue, **options)
    await queue.drain()


async def _their_drain(queue: NodeQueue) -> None:
    for options in ({}, {"priority": 3}, {"delay": 600_000}):
        await queue.add("n", **options)
    await queue.call("drain")


async def _clean(queue: Queue) -> None:
    for options in ({}, {}, {"delay": 600}):
        await _add(queue, **options)
    await queue.clean("delayed")
    await queue.clean("waiting", limit=1)


async def _their_clean(queue: NodeQueue) -> None:
    for options in ({}, {}, {"delay": 600_000}):
        await queue.add("n", **options)
    await queue.call("clean", 0, 1000, "delayed")
    await queue.call("clean", 0, 1, "wait")


ACTS = [
    (_pause_and_resume, _their_pause_and_resume),
    (_change, _their_change),
    (_remove, _their_remove),
    (_promote, _their_promote),
    (_limit, _their_limit),
    (_drain, _their_drain),
    (_clean, _their_clean),
]


@pytest.mark.parametrize(("ours", "theirs"), ACTS, ids=[ours.__name__ for ours, _ in ACTS])
async def test_control_leaves_the_same_behind(
    node: Node, toril: Toril, ours: Callable[[Queue], Awaitable[None]], theirs: Callable[[NodeQueue], Awaitable[None]]
) -> None:
    async with toril.queue("a") as queue:
        await ours(queue)
    await theirs(node.queue("b"))

    mine, others = await picture(node, "a"), await picture(node, "b")

    for one in (mine, others):
        for job in one["jobs"].values():
            job["opts"].pop("backoff", None)
    assert mine == others
