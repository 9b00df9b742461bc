"""How many attempts a job may have, and how many were made: the same two names in Python, over HTTP and with --json."""

from dataclasses import fields

from toril import App, DeadLetter, JobContext, JobDetails, RunRecord, ScheduleRecord
from toril.documents import of_job, of_letter, of_run
from toril.showing import Redaction
from toril.testing import memory


async def test_documents_and_records_name_attempts_alike() -> None:
    app = App("memory://")

    async def work(ctx: JobContext[None]) -> None:
        raise ConnectionError("away")

    queue = app.queue("q", [work])
    async with memory(app) as test:
        job = await queue.add(work, attempts=2)
        waiting = of_job(await job.refresh())
        await test.after("1m")
        (letter,) = (await app.dead_letters.rows()).items
        (run,) = (await queue.run_rows("failed")).items

    dead, ran = of_letter(letter, Redaction(None)), of_run("q", run, Redaction(None))
    assert (waiting["max_attempts"], waiting["attempts_made"]) == (2, 0)
    assert (dead["max_attempts"], dead["attempts_made"], ran["attempts_made"]) == (2, 2, 2)
    for document in (waiting, dead, ran):
        assert "attempts" not in document
    for record in (JobDetails, DeadLetter, RunRecord, ScheduleRecord):
        names = {field.name for field in fields(record)}
        assert names & {"max_attempts", "attempts_made"}
        assert "attempts" not in names
