"""Jobs in conformance tests: created, added, claimed, settled, and read."""

from collections.abc import Sequence
from dataclasses import fields
from itertools import count
from typing import Any

from toril.model import (
    Added,
    Backoff,
    Claim,
    Claimed,
    Completed,
    Exchange,
    JobOptions,
    JobRow,
    Keep,
    Lease,
    Limits,
    NewJob,
    Outcome,
    Settlement,
    Verdict,
)
from toril.store.engine import Store

# Each option has another value than the default here, so that a test which passes these on notices one that is lost.
EVERY_OPTION = JobOptions(
    backoff=Backoff(
        kind="exponential", delay=100, cap=900, jitter=0.5, strategy="mine", on=("a.B",), give_up_on=("c.D",)
    ),
    timeout=5_000,
    keep_completed=Keep(5, 60.0),
    keep_failed=Keep(7),
    keep_logs=7,
    result_ttl=1_000,
    breaker="api.example.com",
    subject="ä co",
)
_OPTIONS = tuple(field.name for field in fields(JobOptions))
_tokens = count(1)
LEASE = 30_000


def new_job(name: str = "n", **given: Any) -> NewJob:
    """A job to add, from what is its own and what its options say."""
    said = {name: given.pop(name) for name in _OPTIONS if name in given}
    return NewJob(name=name, **{"options": JobOptions(**said), **given})


async def add(engine: Store, *jobs: NewJob, queue: str = "q", now: int | None = None) -> list[Added]:
    return await engine.add(queue, jobs, now=now)


async def claim(
    engine: Store,
    want: int = 10,
    *,
    queue: str = "q",
    lease: int = LEASE,
    worker: str = "w",
    alone: bool = False,
    max_stalls: int = 1,
    limits: Limits | None = None,
    now: int | None = None,
) -> Exchange:
    """Claim jobs with a token of their own."""
    wanted = Claim(
        want=want, token=f"token-{next(_tokens)}", lease=lease, worker=worker, alone=alone, max_stalls=max_stalls,
        limits=limits or Limits(),
    )  # fmt: skip
    return await engine.exchange(queue, [], wanted, now=now)


async def claim_one(engine: Store, *, queue: str = "q", lease: int = LEASE, alone: bool = False) -> Claimed:
    (job,) = (await claim(engine, 1, queue=queue, lease=lease, alone=alone)).jobs
    return job


async def settle(engine: Store, lease: Lease, outcome: Outcome | None = None, *, now: int | None = None) -> Verdict:
    """Settle one job, and claim none."""
    nothing = Claim(want=0, token=f"token-{next(_tokens)}", lease=LEASE, worker="w")
    (verdict,) = (
        await engine.exchange(lease.queue, [Settlement(lease, outcome or Completed())], nothing, now=now)
    ).verdicts
    return verdict


async def job(engine: Store, job_id: str, *, queue: str = "q") -> JobRow:
    (found,) = await engine.jobs(queue, [job_id])
    assert found is not None
    return found


def ids(jobs: Sequence[Claimed]) -> list[str]:
    return [each.lease.id for each in jobs]


def names(jobs: Sequence[Claimed]) -> list[str]:
    return [each.name for each in jobs]
