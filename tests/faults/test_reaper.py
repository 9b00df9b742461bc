"""Reapers that are killed and paused, and what they take back meanwhile."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from tests.faults.nursery import ROOT, until
from tests.faults.test_supervisor import add, counts
from toril import App, EngineUnusable, InvalidOption
from toril.events import Events
from toril.model import Claim, Recovered
from toril.operate.reaper import Election, Reaper
from toril.runtime.clock import SYSTEM
from toril.store.engine import connect
from toril.testing import ManualClock

SECONDS = float(os.environ.get("TORIL_REAPER_SECONDS", "6"))


@pytest.fixture
def url(database: Path) -> str:
    return f"sqlite:///{database}"


@contextmanager
def reaper(url: str, log: Path, *words: str) -> "Iterator[subprocess.Popen[bytes]]":
    command = [sys.executable, "-m", "toril", "reaper", "--url", url, *words]
    with log.open("ab") as stderr:
        process = subprocess.Popen(command, cwd=ROOT, stderr=stderr, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.covers("R144", "R135", "R136", "F93", "P2")
def test_a_reaper_on_its_own_takes_back_what_nobody_works(url: str, tmp_path: Path) -> None:
    (job,) = add(url, "n", None)
    claim_and_vanish(url)

    with reaper(url, tmp_path / "log") as process:
        until(lambda: counts(url).waiting == 1, "it is given back", timeout=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0

    log = (tmp_path / "log").read_text()
    assert f"job stalled queue=q job_id={job}" in log
    assert log.index("became recovery leader") < log.index("job stalled") < log.index("stepped down as recovery leader")


HOLDING = """
import asyncio, sys
from toril import App, JobContext

app = App(sys.argv[1] if __name__ == "__main__" else None)

async def hold(ctx: JobContext[None]) -> None:
    print("holding", flush=True)
    await asyncio.Event().wait()

async def hear(event) -> None:
    print("heard of", event.job_id, flush=True)

app.queue("q", [hold], lease=2)
app.on("stalled", hear)
app.on("leadership_acquired", lambda _: print("leads", flush=True))

if __name__ == "__main__":
    asyncio.run(app.run())
"""


@pytest.mark.covers("R135", "R144", "R140")
def test_a_reaper_started_after_its_only_worker_was_killed_acts_soon(url: str, tmp_path: Path) -> None:
    """The worker had the lead as well as the job. The reaper loads its app, whose hooks are called."""
    (tmp_path / "jobs.py").write_text(HOLDING)
    (job,) = add(url, "hold", None)
    with subprocess.Popen([sys.executable, "jobs.py", url], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert {worker.stdout.readline().strip() for _ in range(2)} == {"holding", "leads"}
        worker.kill()
        worker.wait()

    command = [sys.executable, "-m", "toril", "reaper", "jobs:app"]
    env = os.environ | {"TORIL_URL": url}
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=env) as reaper:
        try:
            until(lambda: counts(url).waiting == 1, "the job is given back", timeout=20)  # the lead would last for 30
        finally:
            reaper.send_signal(signal.SIGTERM)
            told, _ = reaper.communicate(timeout=60)

    assert reaper.returncode == 0
    assert f"heard of {job}" in told


@pytest.mark.covers("R150", "R151", "R160", "F89", "F91", "G2")
async def test_leaders_come_and_go_and_no_job_is_moved_twice(url: str, tmp_path: Path) -> None:
    """Those who lead are killed and paused; two never lead at once, and another does within lease and retry."""
    chance, lease, ledger = random.Random(150), 1.0, tmp_path / "ledger"
    electors = {name: elector(url, name, lease, ledger) for name in ("one", "two", "three")}
    jobs, kills, pauses = list[str](), 0, 0
    try:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            await asyncio.to_thread(until, lambda: bool(leads(ledger)), "one leads", timeout=60)
            victim = leads(ledger)[-1][0].split(".")[0]
            jobs += await asyncio.to_thread(add, url, "n", None, 5)
            await asyncio.to_thread(claim_and_vanish, url, 5)
            if chance.random() < 0.5:
                kills += 1
                electors[victim].kill()
                electors[victim].wait()
                electors[victim] = elector(url, victim, lease, ledger)
            else:
                pauses += 1
                electors[victim].send_signal(signal.SIGSTOP)
                await asyncio.sleep(chance.uniform(0.5, 2) * lease)
                electors[victim].send_signal(signal.SIGCONT)
            await asyncio.sleep(chance.uniform(0.5, 1.5) * lease)
        await asyncio.to_thread(until, lambda: counts(url).active == 0, "all are given back", timeout=60)
    finally:
        for process in electors.values():
            process.kill()
            process.wait()
    store = connect(url)
    await store.open()
    records = await store.jobs("q", jobs)
    await store.close()

    terms = [term for term, _ in groupby(leads(ledger), key=lambda note: note[0])]
    samples = leads(ledger)
    gaps = [later[1] - earlier[1] for earlier, later in pairwise(samples) if later[0] != earlier[0]]
    print(f"{kills} kills, {pauses} pauses, {len(terms)} terms; worst gap {max(gaps, default=0):.2f} s, "
          f"with a lease of {lease:g} s; {len(jobs)} jobs given back, each once")  # fmt: skip
    assert len(terms) == len(set(terms))  # nobody led between two moments of one term
    assert max(gaps, default=0) < lease + lease / 6 + 10  # what a busy machine adds is no fault
    assert [record.stalls for record in records if record is not None] == [1] * len(jobs)
    moved = [line.split()[2] for line in ledger.read_text().splitlines() if line.startswith("moved ")]
    assert len(moved) == len(set(moved))


def elector(url: str, name: str, lease: float, ledger: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.faults.electors", url, name, str(lease), str(ledger)]
    return subprocess.Popen(command, cwd=ROOT)


def leads(ledger: Path) -> list[tuple[str, float]]:
    """Who led when, in the order of time."""
    lines = [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []
    return sorted(((line[1], float(line[3])) for line in lines if line[0] == "leads"), key=lambda note: note[1])


def claim_and_vanish(url: str, want: int = 1) -> None:
    """As a worker that dies right after its claim: nobody has begun the job, and nobody will."""

    async def claimed() -> int:
        store = connect(url)
        await store.open()
        answer = await store.exchange("q", [], Claim(want=want, token="t", lease=300, worker="gone", max_stalls=5))
        await store.close()
        return len(answer.jobs)

    assert asyncio.run(claimed()) == want


@pytest.mark.covers("R155", "R156", "R157", "R158", "R159")
async def test_one_leads_and_another_takes_over_when_it_stops(url: str) -> None:
    clock, told = ManualClock(), []
    store = connect(url, clock=clock)
    await store.open()
    one = Election(store, clock, "one", lambda leads: told.append(("one", leads)))
    two = Election(store, clock, "two", lambda leads: told.append(("two", leads)))

    await one.stand()
    await two.stand()
    assert (one.leads, two.leads) == (True, False)
    assert not await store.resign("reaper", "two")  # what is not its own
    clock.advance(29_000)
    await one.stand()
    clock.advance(29_000)
    await two.stand()
    assert (one.leads, two.leads) == (True, False)
    clock.advance(2_000)
    assert not one.leads  # before it has heard of anything
    await two.stand()
    await one.stand()
    await store.close()

    assert (one.leads, two.leads) == (False, True)
    assert told == [("one", True), ("two", True), ("one", False)]


@pytest.mark.covers("R147", "R159", "R154")
async def test_who_stops_gives_the_lead_up_at_once(url: str) -> None:
    store, seen, leads = connect(url), [], asyncio.Event()
    await store.open()
    events = Events()
    events.on("leadership_acquired", lambda event: seen.append(("acquired", event.detail)))
    events.on("leadership_acquired", lambda _: leads.set())
    events.on("leadership_lost", lambda event: seen.append(("lost", event.detail)))
    first = asyncio.create_task(Reaper(store, SYSTEM, events, "first").run())
    async with asyncio.timeout(30):
        await leads.wait()
    first.cancel()
    await asyncio.wait([first])

    assert seen == [("acquired", "first"), ("lost", "first")]
    assert await store.lead("reaper", "second", ttl=1000)
    await store.close()


async def test_one_unusable_queue_keeps_the_reaper_from_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, seen = ManualClock(), list[tuple[str, str]]()
    store, events, done = connect("memory://", clock=clock), Events(), asyncio.Event()

    async def recover(queue: str) -> Recovered:
        note("recover", queue)
        return Recovered(now=0)

    async def prune(queue: str) -> int:
        note("prune", queue)
        return 0

    def note(what: str, queue: str) -> None:
        seen.append((what, queue))
        if queue == "bad":
            raise EngineUnusable(f"{queue} is damaged")
        done.set()

    monkeypatch.setattr(store, "recover", recover)
    monkeypatch.setattr(store, "prune", prune)
    events.on("error", lambda event: seen.append(("told", event.queue)))
    work = asyncio.create_task(Reaper(store, clock, events, "r", queues=["bad", "good"], elected=False).run())
    for _ in range(2):  # a sweep, then a pruning
        async with asyncio.timeout(30):
            await done.wait()
        done.clear()
        clock.advance(120_000)
    work.cancel()
    await asyncio.wait([work])

    for what in ("recover", "prune"):
        assert {(what, "bad"), (what, "good")} <= set(seen)
    assert ("told", "bad") in seen


@pytest.mark.covers("R161")
async def test_there_is_nobody_to_elect_in_memory() -> None:
    with pytest.raises(InvalidOption, match="private to one process"):
        await App("memory://").reap()
