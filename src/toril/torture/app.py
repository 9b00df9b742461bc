"""The app of a torture run, and the ledger that it writes."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from toril import App, Dedup, GroupLimits, JobContext, PermanentError, Retry
from toril.events import EventName, JobEvent
from toril.policy.retry import Fixed
from toril.queue import PreparedJob, Queue
from toril.runtime.clock import SYSTEM
from toril.torture.plan import JobKind, PlannedJob, RunSettings

__all__ = ["QUEUES", "SCHEDULE", "Ledger", "LedgerEntry", "TortureApp", "app", "lines", "queue_name"]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """`at` is by the monotonic clock, which the processes of a machine share."""

    word: str
    at: float
    pid: int
    facts: tuple[str, ...]


class Ledger:
    """A file to which this process adds. A process that dies leaves no half of a line."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, word: str, *facts: object) -> None:
        text = " ".join([word, f"{SYSTEM.monotonic():.4f}", str(os.getpid()), *map(str, facts)])
        os.write(self._handle, f"{text}\n".encode())

    def close(self) -> None:
        os.close(self._handle)


def lines(folder: Path, pattern: str = "*.log") -> Iterator[LedgerEntry]:
    """All that was noted, file by file."""
    for path in sorted(folder.glob(pattern)):
        for text in path.read_text().splitlines():
            word, at, pid, *facts = text.split(" ")
            yield LedgerEntry(word, float(at), int(pid), tuple(facts))


QUEUES = ("main", "groups", "parents", "children", "ticks")
SCHEDULE = "tick"
_EVENTS: tuple[EventName, ...] = ("completed", "failed", "retrying", "released", "cancelled", "lease_lost")


def queue_name(tag: str, queue: str) -> str:
    return f"torture-{tag}-{queue}"


class TortureApp:
    """The queues of a run. One handler serves them all: the payload says what kind of job it is."""

    def __init__(self, setting: RunSettings) -> None:
        self.setting = setting
        self.app = App(setting.url, prefix=setting.prefix)
        self._ledger = Ledger(setting.log)
        self.queues = {name: self._queue(name) for name in QUEUES}
        self.queues["ticks"].schedule(SCHEDULE, "do", _payload("tick"), every=1)
        for name in _EVENTS:
            self.app.events.on(name, partial(self._note_event, name))
        self.app.on_start(self._hello)

    def _queue(self, name: str) -> Queue:
        return self.app.queue(
            queue_name(self.setting.tag, name),
            {"do": self._do},
            concurrency=2 if name == "ticks" else self.setting.concurrency,
            lease=self.setting.lease,
            max_stalls=1000,  # faults may hit the same job again and again, which is not its fault
            retry=Retry(4, Fixed(0.2)),
            groups=GroupLimits(concurrency=1) if name == "groups" else None,
            keep_completed=True,
            keep_failed=True,
        )

    def _hello(self, *_: Any) -> None:
        self._ledger.note("hello", self.setting.name)

    def _note_event(self, name: str, event: JobEvent) -> None:
        self._ledger.note("event", name, event.queue, event.job_id)

    async def _do(self, ctx: JobContext[dict[str, Any]]) -> int:
        facts = (ctx.queue_name, ctx.job_id, ctx.data["nonce"], ctx.fence)
        self._ledger.note("start", *facts)
        await SYSTEM.sleep(ctx.data["ms"] / 1000)
        if ctx.data["kind"] == JobKind.FAILS:
            self._ledger.note("raised", *facts)
            raise PermanentError("planned to fail for good")
        if ctx.attempt <= ctx.data["fails"]:
            self._ledger.note("raised", *facts)
            raise RuntimeError("planned to fail")
        if ctx.data["children"]:
            values = await ctx.children_values()
            if len(values) != ctx.data["children"]:
                self._ledger.note("orphaned", *facts)
        self._ledger.note("end", *facts)
        return ctx.fence

    async def add(self, order: PlannedJob) -> tuple[str, str]:
        """Add a planned job. Returns the queue and the id of the job that was stored for it."""
        main = self.queues["groups" if order.kind is JobKind.GROUPED else "main"]
        if order.kind is JobKind.FLOW:
            children = [self._new("children", order, nonce) for nonce in order.nonces[1:]]
            job = await self.app.flow(self._new("parents", order, order.nonce), children=children)
        else:
            (job,) = await main.add_many([self._new(main.name.rpartition("-")[2], order, order.nonce)])
        return job.queue.name, job.id

    def _new(self, queue: str, order: PlannedJob, nonce: str) -> PreparedJob[Any]:
        options: dict[str, Any] = {"job_id": f"job-{nonce}"} if order.named else {}
        if order.delay:
            options["delay"] = order.delay / 1000
        if order.kind is JobKind.DEDUP:
            options["dedup"] = Dedup(order.key)
        if order.kind is JobKind.GROUPED:
            options["group"] = order.key
        waits = order.children if nonce == order.nonce else 0
        data = _payload(nonce, kind=order.kind, ms=order.ms, fails=order.fails, children=waits)
        return self.queues[queue].new("do", data, **options)


def _payload(nonce: str, *, kind: str = "plain", ms: int = 1, fails: int = 0, children: int = 0) -> dict[str, Any]:
    return {"nonce": nonce, "kind": str(kind), "ms": ms, "fails": fails, "children": children}


work = TortureApp(RunSettings.here())
app = work.app
