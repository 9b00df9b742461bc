"""`toril flow`: a flow, drawn."""

from tests.cli.conftest import Toril, documents, on
from toril import App, Flow


async def make(app: App) -> None:
    work, sums = app.queue("work"), app.queue("sums")
    inner = Flow(sums.new("inner", job_id="middle"), [work.new("leaf", job_id="l1"), work.new("leaf", job_id="l2")])
    await app.flow(sums.new("total", job_id="top"), [inner, work.new("[red]odd", job_id="odd")])


def test_a_flow_is_drawn_from_its_top(toril: Toril, url: str) -> None:
    on(url, make)

    drawn = toril("flow", "l1").output

    assert [line.strip("│├└─ ").split("  ")[1] for line in drawn.splitlines()] == [
        "sums top", "sums middle", "work l1", "work l2", "work odd",
    ]  # fmt: skip
    assert "waiting_children  (2 open)" in drawn
    assert "[red]odd" in drawn
    assert "and 1 more" in toril("flow", "top", "--width", "1").output
    (document,) = documents(toril("flow", "sums", "top", "--json").stdout)
    assert document["children"]["open"] == 2
    assert [child["id"] for child in document["tree"]] == ["middle", "odd"]


def test_why_and_flow_tell_of_a_job_that_is_not_there(toril: Toril, url: str) -> None:
    on(url, make)

    assert "It is waiting for 2 of 2 children: sums:middle, work:odd." in toril("job", "why", "top").output
    assert "there is no job" in toril("flow", "nowhere", code=1).output
