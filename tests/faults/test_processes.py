"""Many processes on one file; some of them killed."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from tests.faults.children import opened
from tests.faults.ledger import noted, stored_ids, subjects, unsound
from tests.faults.nursery import Child, Children, until
from tests.faults.tracing import needs_strace, under_strace

JOBS = 10_000
PROCESSES = 8


@pytest.mark.covers("F101", "G2", "R101", "R165", "R256")
async def test_eight_processes_settle_each_job_exactly_once(children: Children, database: Path, logs: Path) -> None:
    assert children.start("fill", path=database, jobs=JOBS).ended() == 0
    began = time.monotonic()

    workers = [
        children.start("work", path=database, log=logs / f"{n}.log", name=f"w{n}", want=20) for n in range(PROCESSES)
    ]
    codes = [worker.ended() for worker in workers]

    print(f"{JOBS} jobs, {PROCESSES} processes: {time.monotonic() - began:.1f} s")
    shares = [(logs / f"{n}.log").read_text().count("start") for n in range(PROCESSES)]
    assert sum(share > 0 for share in shares) >= 2, "several processes had a share"
    assert codes == [0] * PROCESSES  # a "database is locked" would have ended its worker
    everyone = {str(number): 1 for number in range(1, JOBS + 1)}
    assert noted(logs, "start") == everyone
    assert noted(logs, "ok") == everyone
    assert not noted(logs, "lost") + noted(logs, "missing")
    assert (await _completed(database)) == JOBS
    assert unsound(database) == []


@pytest.mark.covers("F96", "G1")
def test_nothing_acknowledged_is_lost_when_writers_are_killed(
    children: Children, tmp_path: Path, logs: Path, rounds: int
) -> None:
    acknowledged, chance = 0, random.Random(96)
    for number in range(rounds):
        database = tmp_path / f"jobs-{number // 20}.db"
        acknowledged += _kill_three_writers(children, database, logs, number, chance)
        assert unsound(database) == []

    print(f"{rounds} rounds, {3 * rounds} writers killed, {acknowledged} jobs acknowledged, 0 lost")


def _kill_three_writers(children: Children, database: Path, logs: Path, number: int, chance: random.Random) -> int:
    """How many jobs they had acknowledged. Each must be there, and each batch wholly or not at all."""
    names = [f"{number}.{letter}" for letter in "abc"]
    written = [logs / f"{name}.log" for name in names]
    writers = [
        children.start("produce", path=database, log=log, name=name) for name, log in zip(names, written, strict=True)
    ]
    until(lambda: any(subjects(log, "kept") for log in written), "a writer writes")
    for writer in writers:
        time.sleep(chance.random() * 0.03)
        assert writer.kill() == -9

    kept = {identity for log in written for identity in subjects(log, "kept")}
    stored = {identity for identity in stored_ids(database) if identity.startswith(f"{number}.")}
    batches = {identity.rpartition("-")[0] for identity in stored}
    assert kept <= stored
    assert stored == {f"{batch}-{i}" for batch in batches for i in range(5)}
    assert not [subject for log in written for subject in subjects(log, "unknown")]
    return len(kept)


@pytest.mark.covers("F96", "G1")
@needs_strace
@pytest.mark.parametrize(("call", "last"), [("pwrite64", 200), ("fdatasync", 60), ("ftruncate", 4)])
def test_a_writer_may_be_killed_between_any_two_of_its_system_calls(
    tmp_path: Path, logs: Path, rounds: int, call: str, last: int
) -> None:
    chance, acknowledged, killed = random.Random(call), 0, 0
    for number in range(max(4, rounds // 20)):
        database, log = tmp_path / f"{number}.db", logs / f"{number}.log"
        writer: dict[str, object] = {"path": str(database), "log": str(log), "name": "w", "batches": 30}
        when = chance.randrange(1, last)
        killed += under_strace(f"{call}:signal=KILL:when={when}", "produce", writer) != 0

        kept = set(subjects(log, "kept"))
        acknowledged += len(kept)
        assert not kept or (kept <= stored_ids(database) and unsound(database) == [])

    print(f"killed at {call}: {killed} times, {acknowledged} acknowledged, 0 lost")


@pytest.mark.covers("F96", "F101", "G2", "G3", "G4", "R165")
async def test_jobs_of_killed_workers_are_settled_once_by_others(
    children: Children, database: Path, logs: Path, rounds: int
) -> None:
    jobs, chance = 1500, random.Random(3)
    assert children.start("fill", path=database, jobs=jobs).ended() == 0

    workers = [_worker(children, database, logs, number) for number in range(4)]
    for number in range(4, 4 + max(4, rounds // 5)):
        await asyncio.sleep(chance.random() * 0.05)
        workers.pop(chance.randrange(len(workers))).kill()
        workers.append(_worker(children, database, logs, number))
    assert [worker.ended() for worker in workers] == [0] * 4

    starts, settled = noted(logs, "start"), noted(logs, "ok")
    stalls = await _stalls(database, list(starts))
    print(f"{sum(starts.values())} starts of {jobs} jobs, {sum(stalls.values())} stalls")
    assert set(starts) == {str(number) for number in range(1, jobs + 1)}
    assert max(settled.values()) == 1
    assert all(starts[identity] - 1 <= stalls[identity] for identity in starts)
    assert (await _completed(database)) == jobs
    assert unsound(database) == []


def _worker(children: Children, database: Path, logs: Path, number: int) -> Child:
    return children.start("work", path=database, log=logs / f"{number}.log", name=f"w{number}", want=3, lease=400)


async def _completed(database: Path) -> int:
    """How many settlements the store has counted, which is also how many completed jobs it holds."""
    engine = await opened(database)
    (total,) = await engine._read(lambda tx: tx.one("SELECT completed_total FROM queues WHERE name = 'q'"))
    assert (await engine.counts("q")).completed == total
    await engine.close()
    return int(total)


async def _stalls(database: Path, ids: list[str]) -> dict[str, int]:
    engine = await opened(database)
    records = [await engine.jobs("q", ids[start : start + 100]) for start in range(0, len(ids), 100)]
    await engine.close()
    return {record.id: record.stalls for page in records for record in page if record is not None}
