"""What is not offered cannot be had: no way elsewhere, no interval of the visitor's choosing, no formula in a table."""

import csv
import io

import pytest

from tests.web.conftest import Served
from toril.web.api import ENDPOINTS

LOOKS = [
    endpoint.path.replace("{queue}", "email").replace("{id}", "known")
    for endpoint in ENDPOINTS
    if endpoint.method == "GET" and "{id}" not in endpoint.path.replace("/jobs/{id}", "")
]


@pytest.mark.covers("B101")
async def test_nothing_sends_a_browser_elsewhere(here: Served) -> None:
    await here.app.queue("email").add("x", job_id="known")
    async with here.client() as client:
        answers = {
            (path, name): await client.get(path, params={name: "//evil.example"}, follow_redirects=False)
            for path in ["", "/", *LOOKS]
            for name in ("next", "redirect", "return_to", "url")
        }

    assert {key: found.status_code for key, found in answers.items() if found.status_code not in (404, 422)} == {}
    assert [key for key, found in answers.items() if "location" in found.headers] == []


@pytest.mark.covers("B92")
@pytest.mark.parametrize("interval", ["0", "0.0001", "-1", "1e309"])
async def test_how_often_is_not_for_the_visitor_to_say(here: Served, interval: str) -> None:
    async with here.client() as client:
        answers = [
            await client.get(path, params={name: interval})
            for path in ("/queues", "/queues/email", "/queues/email/events", "/queues/email/metrics", "/workers")
            for name in ("interval", "poll", "refresh", "every")
        ]

    assert {found.status_code for found in answers} == {422}


@pytest.mark.covers("B99")
async def test_a_cell_is_a_text_and_no_formula(here: Served) -> None:
    queue = here.app.queue("email")
    hostile = ["=cmd()", "+1", "-1", "@SUM(A1)", "\tx", 'plain, "quoted"\nline']
    for text in hostile:
        await queue.add("x", text)
    async with here.client() as client:
        found = await client.get("/queues/email/jobs.csv?state=waiting")
        some = await client.get("/queues/email/jobs.csv?state=waiting&limit=2")
        wrong = await client.get("/queues/email/jobs.csv?limit=1001")

    rows = list(csv.reader(io.StringIO(found.text)))
    assert len(rows) == 1 + len(hostile)
    assert [each for row in rows[1:] for each in row if each.startswith(("=", "+", "-", "@", "\t"))] == []
    assert [row[rows[0].index("data")] for row in rows[1:]] == [
        "'=cmd()", "'+1", "'-1", "'@SUM(A1)", "'\tx", 'plain, "quoted"\nline'
    ]  # fmt: skip
    assert found.headers["content-type"].startswith("text/csv")
    assert found.headers["content-disposition"] == 'attachment; filename="jobs.csv"'
    assert (len(some.text.splitlines()), "x-cursor" in some.headers, wrong.status_code) == (3, True, 422)
