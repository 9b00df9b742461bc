"""What people and programs do to jobs and queues."""

from collections import deque
from collections.abc import Sequence
from typing import Any, Literal, assert_never

from toril.engines.redis.inspector import RedisInspector
from toril.engines.redis.layout import may_be_id
from toril.engines.redis.records import settings_of
from toril.engines.redis.runner import bounded
from toril.errors import InvalidOption, shown
from toril.model import (
    MAX_REASON_BYTES,
    Call,
    Changed,
    DeclareGroups,
    Hold,
    Pause,
    Refused,
    Resume,
    SetConcurrency,
    SetData,
    SetDelay,
    SetGroups,
    SetMaxWaiting,
    SetPriority,
    SetRateLimit,
    Setting,
    Settings,
    Swept,
    Update,
    per_ms,
    storable,
    whole,
)
from toril.model.names import check_queue_name
from toril.model.states import FINISHED, NOT_STARTED, State

__all__ = ["RedisControls"]


class RedisControls(RedisInspector):
    """Controls of single jobs, sweeps over many, and the queue's settings."""

    async def retry(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        return await self._change("retry", queue, ids, "", call, now)

    async def promote(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        return await self._change("promote", queue, ids, "", call, now)

    async def cancel(
        self, queue: str, ids: Sequence[str], *, reason: str, call: Call | None = None, now: int | None = None
    ) -> Changed:
        return await self._change("cancel", queue, ids, storable(reason, MAX_REASON_BYTES), call, now)

    async def remove(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        return await self._change("remove", queue, ids, "", call, now)

    async def _change(
        self, verb: str, queue: str, ids: Sequence[str], reason: str, call: Call | None, now: int | None
    ) -> Changed:
        queue = check_queue_name(queue)
        bounded(ids, "changes")
        unique = list(dict.fromkeys(ids))
        possible = [identity for identity in unique if may_be_id(identity)]
        answer = await self._write("change", queue, [verb, reason, *possible], call, now)
        return _changed(unique, answer)

    async def update(
        self, queue: str, updates: Sequence[Update], *, call: Call | None = None, now: int | None = None
    ) -> Changed:
        queue = check_queue_name(queue)
        bounded(updates, "changes")
        arguments: list[Any] = []
        for each in updates:
            if may_be_id(each.id):
                arguments += _update(each)
        answer = await self._write("update", queue, arguments, call, now)
        return _changed([each.id for each in updates], answer)

    async def drain(
        self,
        queue: str,
        *,
        states: frozenset[State],
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        queue = check_queue_name(queue)
        if not states <= NOT_STARTED:
            raise InvalidOption(f"drain removes {_words(NOT_STARTED)} jobs, not {_words(states - NOT_STARTED)}")
        whole("limit", limit, 1, 10_000)
        return _swept(await self._write("drain", queue, [limit, *sorted(states)], call, now))

    async def clean(
        self,
        queue: str,
        *,
        state: State,
        grace: int,
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        queue = check_queue_name(queue)
        if state not in FINISHED | NOT_STARTED:
            raise InvalidOption(f"clean removes {_words(FINISHED | NOT_STARTED)} jobs, not {state} ones")
        whole("grace", grace, 0, 2**42)
        whole("limit", limit, 1, 10_000)
        return _swept(await self._write("clean", queue, [limit, state.value, grace], call, now))

    async def obliterate(
        self,
        queue: str,
        *,
        running: Literal["refuse", "remove"] = "refuse",
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        if running not in {"refuse", "remove"}:
            raise InvalidOption(f"running must be 'refuse' or 'remove', not {shown(running)}")
        queue = check_queue_name(queue)
        whole("limit", limit, 1, 10_000)
        return _swept(await self._write("obliterate", queue, [limit, running, queue], call, now))

    async def configure(
        self, queue: str, settings: Sequence[Setting], *, call: Call | None = None, now: int | None = None
    ) -> Settings:
        queue = check_queue_name(queue)
        arguments: list[Any] = [queue]
        for setting in settings:
            arguments += _set(setting)
        return settings_of(await self._write("configure", queue, arguments, call, now))


def _update(each: Update) -> list[Any]:
    match each:
        case SetData(job_id, data):
            return ["data", job_id, data, ""]
        case SetPriority(job_id, priority, lifo):
            return ["priority", job_id, priority, "1" if lifo else ""]
        case SetDelay(job_id, delay):
            return ["delay", job_id, delay, ""]
        case _:
            assert_never(each)


def _set(setting: Setting) -> list[Any]:
    name, *values = _named(setting)
    return [name, *[*values, "", "", ""][:3]]


def _named(setting: Setting) -> list[Any]:  # noqa: PLR0911 - an arm a setting
    match setting:
        case Pause():
            return ["pause"]
        case Resume():
            return ["resume"]
        case SetConcurrency(limit) | SetMaxWaiting(limit):
            name = "concurrency" if isinstance(setting, SetConcurrency) else "max_waiting"
            return [name, "" if limit is None else limit]
        case Hold(ms):
            return ["hold", "" if ms is None else ms]
        case DeclareGroups(limits):
            return ["declared", limits.dump()]
        case SetGroups(limits):
            return ["groups", "" if limits is None else limits.dump()]
        case SetRateLimit(None):
            return ["rate"]
        case SetRateLimit(rate):
            assert rate is not None  # noqa: S101 - the case before
            return ["rate", rate.max, per_ms(rate), rate.window]
        case _:
            assert_never(setting)


def _changed(ids: Sequence[str], answer: Sequence[Any]) -> Changed:
    """In the order of the ids; those that can be no job's were not asked about."""
    done, asked, words = answer
    left, refused = deque(words), []
    for identity in ids:
        if not may_be_id(identity):
            refused.append(Refused(identity, None))
        elif left and left[0][0] == identity:
            word = left.popleft()[1]
            refused.append(Refused(identity, None if word is None else State(word)))
    return Changed(tuple(done), tuple(asked), tuple(refused))


def _swept(answer: Sequence[Any]) -> Swept:
    ids, more = answer
    return Swept(tuple(ids), more == 1)


def _words(states: frozenset[State]) -> str:
    return ", ".join(sorted(states))
