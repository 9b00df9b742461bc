"""A worker process can be brought down by its first job, before its supervisor has opened the store."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conformance.jobs import add, claim_one
from toril.model import NewJob
from toril.model.states import State
from toril.store.engine import connect
from toril.supervisor import Supervisor, SupervisorOptions


async def test_the_jobs_of_a_process_that_died_at_once_are_given_back_with_the_cause(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    store = connect(url)
    await store.open()
    await add(store, NewJob(name="kills"))
    claimed = await claim_one(store)
    supervisor = Supervisor(SupervisorOptions(command=("true",)))
    child: Any = SimpleNamespace(
        pid=7, worker=None, killed="its process was killed", draining=False, stopping=False, forced=False, failed=None,
        held=lambda: [SimpleNamespace(lease=claimed.lease)],
    )  # fmt: skip
    supervisor.children[0] = child
    try:
        supervisor._greet({"url": url, "prefix": "bull", "options": {}, "queues": {"q": 1}})

        await supervisor._end_child(0, child, -9)

        (job,) = await store.jobs("q", [claimed.lease.id])
        assert job is not None
        assert (job.state, job.stalls, job.stall_cause) == (State.WAITING, 1, "its process was killed")
    finally:
        await supervisor._close()
        await store.close()
