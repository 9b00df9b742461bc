"""The recorded steps of a job: how a row is written, and what a claim brings of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from toril.codec.steps import dump_step
from toril.engines.sql.schema import RECORDED, SIGNALS, STEPS
from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import QueueRow, Transaction, keys_of, refusal
from toril.model import (
    CLAIMED_STEP_BYTES,
    MAX_STEP_BYTES,
    MAX_STEPS,
    Kept,
    Lease,
    RecordedSteps,
    StepKind,
    StepRow,
    StepVerdict,
    letter_id,
)

__all__ = [
    "RecordedJob",
    "RecordedJobs",
    "adopt",
    "holder",
    "recorded_at",
    "recorded_job",
    "replaces",
    "run_again",
    "steps_key",
]

_SQL: Final = statements("steps")
_GIVES_WAY: Final = (StepKind.FAILED, StepKind.RETRY)


@dataclass(slots=True)
class RecordedJob:
    """What is known of the steps of one job, and kept in step with what is written."""

    key: int
    seq: int = 0
    count: int = 0
    bytes: int = 0
    reruns: int = 0
    epoch: int = 0

    def row(self, tx: Transaction, name: str) -> str | None:
        """The text of the row that is there."""
        text: str | None = tx.value(_SQL["row"], (self.key, name))
        return text

    def put(self, tx: Transaction, row: StepRow, before: str | None) -> str | None:
        """Write a row, in place of `before`. Its text; None if the job would have more than it may."""
        text = dump_step(row)
        count = self.count + (before is None)
        size = self.bytes + len(text.encode()) - (-len(row.key.encode()) if before is None else len(before.encode()))
        if count > MAX_STEPS or size > MAX_STEP_BYTES:
            return None
        self.seq, self.count, self.bytes = row.seq, count, size
        tx.run(_SQL["put"], (self.key, row.key, row.seq, text))
        return text

    def forget(self, tx: Transaction, seq: int) -> None:
        """Delete the rows from this number on."""
        count, size = tx.one(_SQL["size"], (self.key, seq))
        self.count -= count
        self.bytes -= size
        tx.run(_SQL["drop"], (self.key, seq))

    def set_until(self, tx: Transaction, row: StepRow, before: str, until: int) -> None:
        """Give a row another time, and leave the rest of it as it is."""
        text = dump_step(replace(row, until=until))
        self.bytes += len(text) - len(before)
        tx.run(_SQL["put"], (self.key, row.key, row.seq, text))

    def save(self, tx: Transaction, queue: QueueRow) -> None:
        """Write the counts back."""
        queue.stepping |= RECORDED | (STEPS if self.count else 0)
        tx.run(_SQL["count"], (self.key, self.seq, self.count, self.bytes, self.reruns, self.epoch))


def recorded_job(tx: Transaction, key: int) -> RecordedJob:
    """What is known of the steps of this job, which may have none."""
    return RecordedJob(key, *(tx.one(_SQL["of_job"], (key,)) or ()))


def replaces(kind: StepKind, before: str | None, *, until: int | None = None, recorded: bool = False) -> bool:
    """Whether a row of this kind takes the place of the one that is there: `recorded` says that the caller knows it."""
    if before is None or before[0] in _GIVES_WAY:
        return not (recorded and before is not None)
    return before[0] == StepKind.RECEIVED and kind is StepKind.WAIT and until is not None


class RecordedJobs:
    """What one claim brings of the steps of jobs. It takes no more jobs once their rows have `most` bytes."""

    __slots__ = ("_found", "_left", "_queue", "_tx", "full")

    def __init__(self, tx: Transaction, queue: QueueRow, most: int = CLAIMED_STEP_BYTES) -> None:
        self._tx = tx
        self._queue = queue
        self._left = most
        self._found: dict[int, RecordedSteps] = {}
        self.full = False

    def read(self, keys: Sequence[int]) -> int:
        """Look up these jobs, in their order; how many of them are taken."""
        if not self._queue.stepping:
            return len(keys)
        tx, many = self._tx, json.dumps(keys)
        counts = {key: (count, size, *again) for key, count, size, *again in tx.all(_SQL["claimed"], (many,))}
        if not counts:
            return len(keys)
        taken, with_rows = len(keys), list[int]()
        for place, key in enumerate(keys):
            count, size, reruns, epoch = counts.get(key, (0, 0, 0, 0))
            if count:
                with_rows.append(key)
            self._left -= size
            if count or reruns or epoch:
                self._found[key] = RecordedSteps({}, reruns, epoch, tx.now)
            if self._left <= 0:
                self.full, taken = True, place + 1
                break
        self._read_rows(with_rows)
        return taken

    def _read_rows(self, keys: list[int]) -> None:
        rows: dict[int, dict[str, str]] = {key: {} for key in keys}
        if keys:
            for key, name, text in self._tx.all(_SQL["rows_of"], (json.dumps(keys),)):
                rows[key][name] = text
        for key, found in rows.items():
            before = self._found[key]
            self._found[key] = RecordedSteps(found, before.reruns, before.epoch, before.now)

    def of(self, key: int) -> RecordedSteps | None:
        """What a claim tells of this job."""
        return self._found.get(key)


def recorded_at(tx: Transaction, key: int, name: str) -> int | None:
    """The number of a row; None if the job has none of this name."""
    seq: int | None = tx.value(_SQL["seq"], (key, name))
    return seq


def holder(tx: Transaction, queue: str, lease: Lease) -> tuple[int, int] | StepVerdict:
    """The key of a job whose lease holds, and how many attempts it has made; else what to answer."""
    row = tx.find(queue)
    if row is None:
        return StepVerdict.MISSING
    key = keys_of(tx, row, (lease.id,)).get(lease.id, 0)
    held: tuple[int, int] | None = tx.one(_SQL["held"], (key, lease.token, tx.now, lease.id, lease.id))
    return StepVerdict(refusal(tx, key, lease.id)) if held is None else held


def steps_key(tx: Transaction, queue: str, identity: str, where: Kept) -> int | None:
    """Under which key the steps of a job or dead letter stand."""
    if where == "dead_letters":
        letter: int | None = tx.value(_SQL["letter"], (letter_id(queue, identity),))
        return letter
    row = tx.find(queue)
    return None if row is None else keys_of(tx, row, (identity,)).get(identity)


def run_again(tx: Transaction, queue: QueueRow, key: int, *, since: int | None) -> None:
    """A job is run again by hand: what failed before counts no more. With `since`, it is to do the steps anew that
    were recorded from this number on."""
    job = recorded_job(tx, key)
    job.reruns += 1
    if since is not None:
        job.epoch += 1
        if job.count:
            job.forget(tx, since)
    job.save(tx, queue)


def adopt(tx: Transaction, queue: QueueRow, key: int, letter: int | None) -> None:
    """A job that was a dead letter is run again: it has the steps and signals that the letter had."""
    if letter is None:
        run_again(tx, queue, key, since=None)
        return
    values: tuple[Any, ...] = (key, letter)
    for name in ("move_recorded", "move_steps", "move_signals"):
        tx.run(_SQL[name], values)
    queue.stepping |= RECORDED | STEPS | SIGNALS
