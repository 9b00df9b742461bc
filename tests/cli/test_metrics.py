"""`toril metrics`: a queue in figures."""

from tests.cli.conftest import Toril, documents, on
from toril import App
from toril.model import Claim, Failed, Failure, Settlement


def test_a_queue_is_seen_in_figures(toril: Toril, url: str) -> None:
    async def fill(app: App) -> None:
        await app.queue("email").add("send")
        (job,) = (await app.store.exchange("email", [], Claim(want=1, token="t", lease=30_000, worker="w"))).jobs
        failed = Settlement(job.lease, Failed(Failure("no", "E")))
        await app.store.exchange("email", [failed], Claim(want=0, token="u", lease=30_000, worker="w"))

    on(url, fill)

    (found,) = documents(toril("metrics", "email", "--range", "7d", "--json").stdout)
    table = toril("metrics", "email").stdout

    assert (found["failed"], found["failures"], found["range"], found["run"]["count"]) == (1, {"send": 1}, "7d", 1)
    assert len(found["series"]["run"][1]) == 240
    assert "100.0 %" in table
    assert "send (1)" in table
    assert "'2h' is not one of" in toril("metrics", "email", "--range", "2h", code=2).stderr
