"""Finds out what a torture run lost, duplicated or ran too early."""

import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from toril import App
from toril.model import JobRow
from toril.model.states import FINISHED, State
from toril.store.engine import redacted
from toril.torture.app import QUEUES, SCHEDULE, LedgerEntry, lines, queue_name
from toril.torture.plan import JobKind, RunSettings

__all__ = ["ENDED", "PROMISES", "Stored", "TortureReport", "acknowledged", "check", "open_jobs", "refs_in", "stored"]

ENDED: Final = FINISHED
_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Stored:
    """A job as it is in the store."""

    ref: str
    queue: str
    nonce: str
    record: JobRow

    @property
    def ended(self) -> bool:
        return self.record.state in ENDED

    @property
    def fence(self) -> str | None:
        """The fence of the run whose end was accepted, as its handler returned it."""
        return self.record.result if self.record.state is State.COMPLETED else None


async def stored(app: App, tag: str) -> AsyncIterator[Stored]:
    """Every job of the run, in whatever state; `queue` is its short name."""
    for short in QUEUES:
        name = queue_name(tag, short)
        for state in State:
            cursor: str | None = None
            while True:
                page = await app.store.page(name, state, cursor=cursor, limit=_PAGE)
                for record in page:
                    yield Stored(f"{name}/{record.id}", short, _nonce(record), record)
                cursor = page.cursor
                if cursor is None:
                    break


def _nonce(record: JobRow) -> str:
    data: Any = json.loads(record.data)
    return str(data["nonce"])


async def open_jobs(app: App, tag: str) -> int:
    """How many jobs have not ended, apart from the schedule's next run."""
    total = 0
    for short in QUEUES:
        if short != "ticks":
            counts = await app.store.counts(queue_name(tag, short))
            total += sum(counts.of(state) for state in State if state not in ENDED)
    return total


async def refs_in(url: str, tag: str) -> set[str]:
    """The run's jobs in a store that is not its own."""
    async with App(url) as app:
        return {job.ref async for job in stored(app, tag)}


def acknowledged(folder: Path) -> set[str]:
    """The jobs that the store has acknowledged to a producer."""
    return {f"{line.facts[1]}/{line.facts[2]}" for line in lines(folder, "p*.log") if line.word == "ack"}


_MOMENT = 0.01  # seconds by which two readings of one machine's clock may differ
_NAMED = 20  # offenders that a report lists

# Each must be 0.
PROMISES = (
    "lost", "unexpected", "finished twice", "stuck", "unexplained duplicates", "started early",
    "overlapping in a group", "parent before child", "schedule without its next run", "lost to power cuts",
    "did not stop when asked",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TortureReport:
    """The figures of a run. `offenders` lists jobs for each promise that was broken."""

    seed: int
    url: str
    figures: Mapping[str, int]
    injected: Mapping[str, int]
    recovery: Mapping[str, float]
    offenders: Mapping[str, list[str]]
    seconds: float = 0.0
    drained: bool = True
    plan: tuple[Mapping[str, Any], ...] = field(default=())

    @property
    def broken(self) -> list[str]:
        return [promise for promise in PROMISES if self.figures[promise]]

    def document(self) -> dict[str, Any]:
        """The report as JSON, for a file."""
        return {
            "seed": self.seed, "url": self.url, "seconds": self.seconds, "drained": self.drained,
            "figures": dict(self.figures), "faults": dict(self.injected), "recovery_seconds": dict(self.recovery),
            "broken": self.broken, "offenders": dict(self.offenders), "plan": list(self.plan),
        }  # fmt: skip


async def check(
    app: App, setting: RunSettings, *, injected: Counter[str], cut_off: Counter[str], forced: list[str]
) -> TortureReport:
    """Read everything, and count."""
    jobs = [job async for job in stored(app, setting.tag)]
    look = await app.store.schedules.get(queue_name(setting.tag, "ticks"), SCHEDULE)
    story = _Story(list(lines(setting.logs)), jobs)
    offenders = story.offenders() | {
        "schedule without its next run": [] if story.has_next_run(made=look.view is not None) else [SCHEDULE],
        "did not stop when asked": forced,
    }
    figures = story.figures() | {promise: len(found) for promise, found in offenders.items()}
    figures |= {
        "power cuts": cut_off["cuts"],
        "lost to power cuts": cut_off["lost"],
        "acknowledged at power cuts": cut_off["acknowledged"],
        "faults": sum(injected.values()),
    }
    return TortureReport(
        seed=setting.seed,
        url=redacted(setting.url),
        figures=figures,
        injected=dict(sorted(injected.items())),
        recovery=story.recovery(),
        offenders={name: found[:_NAMED] for name, found in offenders.items() if found},
    )


class _Story:
    """The lines of all logs, sorted by what they are about, and the jobs of the store."""

    def __init__(self, entries: list[LedgerEntry], jobs: list[Stored]) -> None:
        self.jobs = {job.ref: job for job in jobs}
        self.by_nonce: dict[str, list[Stored]] = defaultdict(list)
        for job in jobs:
            if job.queue != "ticks":
                self.by_nonce[job.nonce].append(job)
        self.attempts: dict[str, LedgerEntry] = {}
        self.acks: dict[str, str] = {}
        self.starts: dict[str, list[LedgerEntry]] = defaultdict(list)
        self.over: dict[tuple[str, str], LedgerEntry] = {}
        self.ends: Counter[str] = Counter()
        self.events: dict[str, Counter[str]] = defaultdict(Counter)
        self.kills: dict[int, list[float]] = defaultdict(list)  # by process id, which may be reused
        self.outages: list[tuple[float, float]] = []  # when the store was away
        self._away_since: list[float] = []
        self.orphaned: list[str] = []
        for line in sorted(entries, key=lambda line: line.at):
            self._read(line)

    def _read(self, line: LedgerEntry) -> None:
        match line.word, line.facts:
            case "attempt", (nonce, *_):
                self.attempts.setdefault(nonce, line)
            case "ack", (nonce, queue, job_id):
                self.acks[nonce] = f"{queue}/{job_id}"
            case "start", (queue, job_id, _, _):
                self.starts[f"{queue}/{job_id}"].append(line)
            case (("end" | "raised"), (queue, job_id, _, fence)):
                self.over[f"{queue}/{job_id}", fence] = line
                self.ends[f"{queue}/{job_id}"] += line.word == "end"
            case "event", (what, queue, job_id):
                self.events[f"{queue}/{job_id}"][what] += 1
            case "orphaned", (_, _, nonce, _):
                self.orphaned.append(nonce)
            case "fault", ("KILL", pid):
                self.kills[int(pid)].append(line.at)
            case "away", _:
                self._away_since.append(line.at)
            case "back", _:
                since = self._away_since.pop()
                if not self._away_since:  # otherwise it was away before that, and still is
                    self.outages.append((since, line.at))
            case _:
                pass  # for people who read the log

    # promises

    def offenders(self) -> dict[str, list[str]]:
        return {
            "lost": [nonce for nonce in self.acks if not self._kept(nonce)],
            "unexpected": list(self._unexpected()),
            "finished twice": list(self._twice()),
            "stuck": [job.ref for job in self.jobs.values() if job.queue != "ticks" and not job.ended],
            "unexplained duplicates": [job.ref for job in self.jobs.values() if self._unexplained(job) > 0],
            "started early": list(self._early()),
            "overlapping in a group": list(self._overlapping()),
            "parent before child": list(self._hasty_parents()),
        }

    def _kept(self, nonce: str) -> bool:
        """Whether an acknowledged job is there; a job whose key was taken is represented by the key's owner."""
        if self.attempts[nonce].facts[1] == JobKind.DEDUP:
            return self.acks[nonce] in self.jobs
        return nonce in self.by_nonce

    def _unexpected(self) -> Iterator[str]:
        """Jobs that nobody added; jobs that completed but never ran; jobs that ran and are in no store."""
        yield from (nonce for nonce in self.by_nonce if nonce not in self.attempts)
        for ref, job in self.jobs.items():
            if job.record.state is State.COMPLETED and not self.ends[ref]:
                yield ref
        yield from (ref for ref in self.starts if ref not in self.jobs)

    def _twice(self) -> Iterator[str]:
        yield from (nonce for nonce, jobs in self.by_nonce.items() if len(jobs) > 1)
        for ref, counts in self.events.items():
            if counts["completed"] + counts["failed"] + counts["cancelled"] > 1:
                yield ref

    def _runs(self, ref: str) -> list[LedgerEntry]:
        return self.starts.get(ref, [])

    def _unexplained(self, job: Stored) -> int:
        """Runs beyond the first that neither a stall nor a retry explains."""
        record, again = job.record, len(self._runs(job.ref)) - 1
        retries = record.attempts_made - (1 if job.ended else 0)
        return again - record.stalls - max(0, retries) - self.events[job.ref]["released"]

    def _early(self) -> Iterator[str]:
        for ref, starts in self.starts.items():
            attempt = self.attempts.get(starts[0].facts[2])
            if attempt is not None and starts[0].at < attempt.at + int(attempt.facts[2]) / 1000 - _MOMENT:
                yield ref

    def _accepted(self, job: Stored) -> tuple[float, float] | None:
        """When the run began and ended whose end the store accepted."""
        if job.fence is None:
            return None
        start = next((line for line in self._runs(job.ref) if line.facts[3] == job.fence), None)
        end = self.over.get((job.ref, job.fence))
        return None if start is None or end is None else (start.at, end.at)

    def _overlapping(self) -> Iterator[str]:
        """Two accepted runs of one group at the same time: the second was claimed before the first was settled."""
        runs: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
        for job in self.jobs.values():
            if job.queue == "groups" and (run := self._accepted(job)) is not None:
                runs[str(job.record.group)].append((*run, job.ref))
        for of_group in runs.values():
            yield from (later[2] for earlier, later in pairwise(sorted(of_group)) if later[0] < earlier[1])

    def _hasty_parents(self) -> Iterator[str]:
        yield from self.orphaned
        for job in self.jobs.values():
            if job.queue != "children" or (run := self._accepted(job)) is None:
                continue
            for parent in self.by_nonce.get(job.nonce.partition(".")[0], ()):
                if any(line.at < run[1] for line in self._runs(parent.ref)):
                    yield parent.ref

    def has_next_run(self, *, made: bool) -> bool:
        """Whether a schedule has exactly one next run; or none if no worker ever lived to create it."""
        ticks = [job for job in self.jobs.values() if job.queue == "ticks"]
        return sum(not job.ended for job in ticks) == 1 if made or ticks else not self.starts

    # figures

    def figures(self) -> dict[str, int]:
        states = Counter(job.record.state for job in self.jobs.values() if job.queue != "ticks")
        return {
            "attempted": len(self.attempts),
            "acknowledged": len(self.acks),
            "completed": states[State.COMPLETED],
            "failed as planned": states[State.FAILED],
            "merged with a job of the same key": sum(nonce not in self.by_nonce for nonce in self.acks),
            "unacknowledged but stored": sum(
                nonce in self.by_nonce and nonce not in self.acks for nonce in self.attempts
            ),
            "runs": sum(len(starts) for starts in self.starts.values()),
            "repeated runs": sum(len(starts) - 1 for starts in self.starts.values()),
            "stalls": sum(job.record.stalls for job in self.jobs.values()),
            "leases lost": sum(counts["lease_lost"] for counts in self.events.values()),
            "recovered after kills": len(list(self._recovered())),
            "scheduled runs": sum(job.queue == "ticks" and job.ended for job in self.jobs.values()),
        }

    def _recovered(self) -> Iterator[float]:
        """Seconds from a kill until each interrupted job started again, without the time in which there was no
        store."""
        for ref, starts in self.starts.items():
            for run, again in pairwise(starts):
                died = next((at for at in self.kills.get(run.pid, ()) if at >= run.at), None)
                if died is not None and again.at > died and (ref, run.facts[3]) not in self.over:
                    yield again.at - died - self._away(died, again.at)

    def _away(self, since: float, until: float) -> float:
        return sum(max(0.0, min(until, end) - max(since, begin)) for begin, end in self.outages)

    def recovery(self) -> dict[str, float]:
        took = sorted(self._recovered())
        if not took:
            return {}
        shares = {"median": 0.5, "p99": 0.99, "most": 1.0}
        return {name: round(took[min(len(took) - 1, int(share * len(took)))], 2) for name, share in shares.items()}
