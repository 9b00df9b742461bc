"""Dead letters on Redis: the jobs of a paused BullMQ queue."""

import json
from collections.abc import Sequence
from typing import Any

from toril.engines.redis.layout import FIELDS, KEYS, NUMBERS
from toril.engines.redis.options import dump_backoff, load_failure, load_options, moment, number, parsed
from toril.engines.redis.records import link_of
from toril.engines.redis.runner import ScriptRunner
from toril.model import (
    KEEP_ALL,
    MAX_PRIORITY,
    Call,
    Cause,
    ControlResult,
    DeadLetterRow,
    Failure,
    Keep,
    OnFailure,
    Page,
    Refused,
    Replay,
    age_ms,
    letter_parts,
)
from toril.model.states import State
from toril.policy.search import cursor_of, place_of
from toril.store.capabilities import DeadLetterStore, SortOrder
from toril.store.checked import implements

__all__ = ["RedisDeadLetters", "letter_of"]


@implements(DeadLetterStore)
class RedisDeadLetters:
    """Jobs that failed for good."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner

    @property
    def queue(self) -> str:
        return self._runner.dead_letter_queue

    async def page(
        self, *, order: SortOrder = "newest", cursor: str | None = None, limit: int = 50
    ) -> Page[DeadLetterRow]:
        time, last = place_of(order, cursor)
        rows: list[Any] = []
        room = NUMBERS["page"]
        while True:  # in steps that block the server only briefly
            size = min(limit + 1 - len(rows), NUMBERS["looks"])
            found, taken = await self._runner.read(
                "dead_letters", self._runner.dead_letter_queue, [order, size, time, last]
            )
            rows, room = rows + found, room - taken
            if len(rows) > limit or room < 0 or (len(found) < size and taken <= NUMBERS["look"]):
                break
            last, time = rows[-1][:2]
        items = tuple(map(letter_of, rows[:limit]))
        return Page(items, cursor_of(items[-1]) if room < 0 or len(rows) > limit else None)

    async def get(self, ids: Sequence[str]) -> list[DeadLetterRow | None]:
        rows = await self._runner.read("dead_letters", self._runner.dead_letter_queue, ["of", *ids]) if ids else []
        return [None if row is None else letter_of(row) for row in rows]

    async def count(self) -> int:
        self._runner.check_open()
        return int(
            await self._runner.client.ask("ZCARD", self._runner.base(self._runner.dead_letter_queue) + KEYS["letters"])
        )

    async def replay(
        self, queue: str, replays: Sequence[Replay], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        arguments: list[Any] = [queue]
        for each, options in zip(replays, await self._new_options(replays), strict=True):
            data = ("", "") if each.data is None else ("1", each.data)
            arguments += (each.id, letter_parts(each.id)[1], *data, options)
        return _changed(await self._runner.write("replay", queue, arguments, call, now))

    async def _new_options(self, replays: Sequence[Replay]) -> list[str]:
        """The new text of each job's options; empty for those that do not change."""
        changed = [each for each in replays if each.attempts is not None or each.backoff is not None]
        base = self._runner.base(self._runner.dead_letter_queue)
        texts = {each.id: await self._runner.client.ask("HGET", base + each.id, FIELDS["opts"]) for each in changed}
        return [_patched(texts[each.id], each) if each.id in texts else "" for each in replays]

    async def discard(self, ids: Sequence[str], *, call: Call | None = None, now: int | None = None) -> ControlResult:
        return _changed(
            await self._runner.write("discard", self._runner.dead_letter_queue, list(dict.fromkeys(ids)), call, now)
        )

    async def keep(self, keep: Keep | None, *, now: int | None = None) -> Keep:  # noqa: ARG002 - the seam's
        self._runner.check_open()
        key, field = self._runner.base(self._runner.dead_letter_queue) + KEYS["toril"], FIELDS["keep_letters"]
        if keep is not None:
            count, age = (-1 if each is None else each for each in (keep.count, age_ms(keep)))
            await self._runner.client.ask("HSET", key, field, f"{count} {age}")
        found = await self._runner.client.ask("HGET", key, field)
        if found is None:
            return KEEP_ALL
        count, age = map(int, found.split())
        return Keep(None if count < 0 else count, None if age < 0 else age / 1000)


def _patched(text: str | None, replay: Replay) -> str:
    options = parsed(text, {})
    options = options if isinstance(options, dict) else {}
    if replay.attempts is not None:
        options["attempts"] = replay.attempts
    if replay.backoff is not None:
        options["backoff"] = dump_backoff(replay.backoff)
    return json.dumps(options, separators=(",", ":"))


def _changed(answer: Sequence[Any]) -> ControlResult:
    done, _, refused = answer
    return ControlResult(
        tuple(done), (), tuple(Refused(each, None if word is None else State(word)) for each, word in refused)
    )


def letter_of(row: Sequence[Any]) -> DeadLetterRow:
    (
        identity,
        when,
        data,
        queue,
        job,
        cause,
        name,
        _,
        added,
        opts,
        made,
        stalls,
        _,
        _,
        priority,
        _,
        metadata,
        checkpoint,
        _,
        _,
        progress,
        _,
        reason,
        kind,
        traces,
        stall_cause,
        _,
        worker,
        started,
        _,
        made_before,
        link,
        group,
        _,
    ) = row
    stored, (parent, policy) = load_options(opts), link_of(link)
    return DeadLetterRow(
        id=identity,
        queue=queue,
        job_id=job,
        name=name,
        data=data,
        cause=Cause(cause),
        failure=load_failure(reason, kind, traces) or Failure("unknown"),
        failed_at=moment(when),
        max_attempts=stored.attempts,
        attempts_made=number(made or made_before),
        stalls=number(stalls),
        stall_cause=stall_cause,
        worker=worker,
        added_at=moment(added),
        started_at=None if started is None else moment(started),
        priority=number(priority, MAX_PRIORITY),
        options=stored.options,
        metadata=metadata,
        checkpoint=checkpoint,
        progress=progress,
        parent=parent,
        on_failure=OnFailure.FAIL if parent is None else policy,
        group=group,
    )
