"""Schedules on Redis, stored as BullMQ's job schedulers."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from toril.engines.redis.layout import FIELDS, KEYS, SCHEDULE_FIELDS
from toril.engines.redis.options import dump_options, load_options, moment, number, parsed
from toril.engines.redis.runner import ScriptRunner
from toril.errors import TorilError
from toril.model import (
    MAX_DELAY,
    MAX_PRIORITY,
    MIN_EVERY,
    CatchUp,
    Moved,
    NewJob,
    Overlap,
    Page,
    Schedule,
    ScheduleLookup,
)
from toril.model import ScheduleRow as View
from toril.model.schedules import MAX_TIME
from toril.store.capabilities import ScheduleStore
from toril.store.checked import implements

__all__ = ["RedisSchedules", "fields_of", "own_of", "view_of"]

_OWN = ("offset", "jitter", "min_interval", "window", "overlap", "catch_up", "owner")


@implements(ScheduleStore)
class RedisSchedules:
    """The schedules of a store. All of its steps can be sent twice."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner

    async def get(self, queue: str, schedule: str, *, now: int | None = None) -> ScheduleLookup:
        moment, found = await self._runner.read("schedules", queue, ["these", schedule], now)
        return ScheduleLookup(moment, view_of(queue, found[0]) if found else None)

    async def page(self, queue: str, *, cursor: str | None = None, limit: int = 100) -> Page[View]:
        names = sorted(name for name in await self._names(queue) if cursor is None or name > cursor)
        _, found = await self._runner.read("schedules", queue, ["these", *names[:limit]])
        return Page(tuple(_readable(queue, found)), names[limit - 1] if len(names) > limit else None)

    async def overdue(self, queue: str, *, limit: int = 100, now: int | None = None) -> list[View]:
        _, found = await self._runner.read("schedules", queue, ["overdue", limit], now)
        return _readable(queue, found)

    async def put(
        self, queue: str, schedule: Schedule, slot: int, *, expects: int | None, now: int | None = None
    ) -> Moved:
        at = ["" if expects is None else expects, json.dumps(own_of(schedule))]
        arguments = [queue, schedule.id, slot, *at, *fields_of(schedule, slot)]
        return Moved(await self._runner.read("schedule_put", queue, arguments, now))

    async def advance(
        self,
        queue: str,
        schedule: str,
        *,
        since: int,
        to: int | None,
        started: str | None = None,
        now: int | None = None,
    ) -> Moved:
        return await self._move("advance", queue, [schedule, since, "" if to is None else to, started or ""], now)

    async def resume(self, queue: str, schedule: str, *, since: int, to: int | None, now: int | None = None) -> Moved:
        return await self._move("resume", queue, [schedule, since, "" if to is None else to, ""], now)

    async def pause(self, queue: str, schedule: str, *, now: int | None = None) -> bool:
        return bool(await self._drop("pause", queue, [schedule], now))

    async def remove(self, queue: str, schedule: str, *, now: int | None = None) -> bool:
        return bool(await self._drop("remove", queue, [schedule], now))

    async def sync(self, queue: str, owner: str, keep: Sequence[str], *, now: int | None = None) -> list[str]:
        return await self._drop("sync", queue, [owner, *keep], now)

    async def _move(self, verb: str, queue: str, arguments: list[Any], now: int | None) -> Moved:
        return Moved(await self._runner.read("schedule_advance", queue, [verb, *arguments], now))

    async def _drop(self, verb: str, queue: str, schedules: list[str], now: int | None) -> list[str]:
        done: list[str] = await self._runner.read("schedule_remove", queue, [verb, *schedules], now)
        return done

    async def _names(self, queue: str) -> list[str]:
        self._runner.check_open()
        names: list[str] = await self._runner.client.ask("ZRANGE", self._runner.base(queue) + KEYS["repeat"], 0, -1)
        return names


def fields_of(schedule: Schedule, slot: int) -> list[Any]:
    """Fields and values of the scheduler's hash."""
    job = schedule.job
    given = {
        "name": job.name, "data": job.data, "opts": dump_options(job), "tz": schedule.tz, "limit": schedule.limit,
        "pattern": schedule.cron, "start": schedule.start, "end": schedule.end, "every": schedule.every,
        "offset": 0 if schedule.every is None else slot % schedule.every,
    }  # fmt: skip
    return [part for name, value in given.items() if value is not None for part in (FIELDS[name], value)]


def own_of(schedule: Schedule) -> dict[str, Any]:
    """What BullMQ's hash has no field for, or where another program may change it."""
    own = {name: getattr(schedule, name) for name in _OWN}
    own |= {"expires": schedule.job.expires, "metadata": schedule.job.metadata, "group": schedule.job.group}
    return {name: value for name, value in own.items() if value is not None}  # in a script, null would count as a value


def _readable(queue: str, rows: Sequence[Sequence[Any]]) -> list[View]:
    """The valid ones: one that another program wrote badly must not keep the others from running or being shown."""
    found = list[View]()
    for row in rows:
        with suppress(TorilError, ValueError):
            found.append(view_of(queue, row))
    return found


def view_of(queue: str, row: Sequence[Any]) -> View:
    schedule, slot, paused, over, busy, own, fields = row
    f, given = dict(zip(SCHEDULE_FIELDS, fields, strict=True)), parsed(own, {})
    return View(
        queue=queue,
        schedule=_schedule(schedule, f, given if isinstance(given, dict) else {}),
        slot=moment(slot),
        count=number(f["made"]),
        paused=paused == 1,
        busy=busy == 1,
        over=over == 1,
    )


def _schedule(identity: str, f: dict[str, Any], own: dict[str, Any]) -> Schedule:
    every = None if f["every"] is None else max(number(f["every"], MAX_DELAY), MIN_EVERY)
    given = {name: own[name] for name in ("offset", "jitter", "min_interval", "window") if name in own}
    return Schedule(
        id=identity,
        job=_job(f, own),
        every=every,
        cron=f["pattern"] if every is None else None,
        tz=f["tz"] or "UTC",
        start=_time(f["start"]),
        end=_time(f["end"]),
        limit=number(f["limit"]) or None,
        overlap=Overlap(own.get("overlap", "allow")),
        catch_up=CatchUp(own.get("catch_up", "one")),
        owner=own.get("owner"),
        **given,
    )


def _time(text: str | None) -> int | None:
    return None if text is None else number(text, MAX_TIME)


def _job(f: dict[str, Any], own: dict[str, Any]) -> NewJob:
    stored = load_options(f["opts"] or "{}")
    given = parsed(f["opts"], None)
    priority = number(given.get("priority"), MAX_PRIORITY) if isinstance(given, dict) else 0
    return NewJob(
        name=f["name"],
        data=f["data"] or "{}",
        priority=priority,
        attempts=stored.attempts,
        expires=own.get("expires"),
        metadata=own.get("metadata"),
        group=own.get("group"),
        options=stored.options,
    )
