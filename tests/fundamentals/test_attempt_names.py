"""How many attempts a job may have, and how many were made: the same two names in Python, over HTTP and with --json."""

from dataclasses import fields, is_dataclass

from tests.declared import declared
from toril import App, DeadLetter, JobContext, JobRecord, QueueDeclaration, RunRecord, ScheduleRecord, records
from toril.model import Declarations, DeclaredBy
from toril.operate.documents import of_declaration, of_job, of_letter, of_run
from toril.operate.search import JobSearch
from toril.runtime.redaction import Redaction
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
        (run,) = (await JobSearch(queue).run_rows("failed")).items

    dead, ran = of_letter(letter, Redaction(None)), of_run("q", run, Redaction(None))
    assert (waiting["max_attempts"], waiting["attempts_made"]) == (2, 0)
    assert (dead["max_attempts"], dead["attempts_made"], ran["attempts_made"]) == (2, 2, 2)
    for document in (waiting, dead, ran):
        assert "attempts" not in document
    for record in (JobRecord, DeadLetter, RunRecord, ScheduleRecord, QueueDeclaration):
        assert {field.name for field in fields(record)} & {"max_attempts", "attempts_made"}
    kinds = [getattr(records, name) for name in records.__all__]
    assert [kind for kind in kinds if is_dataclass(kind) and "attempts" in {field.name for field in fields(kind)}] == []


def test_where_workers_declare_other_attempts_the_field_that_differs_is_named() -> None:
    found = Declarations((DeclaredBy(declared(max_attempts=3), 1, 2), DeclaredBy(declared(max_attempts=5), 1, 1)))
    document, record = of_declaration(found), records.declaration_record(found)

    assert document is not None
    assert record is not None
    assert (document["differs"], document["max_attempts"]) == (["max_attempts"], 3)
    assert (record.differs, record.max_attempts) == (("max_attempts",), 3)
