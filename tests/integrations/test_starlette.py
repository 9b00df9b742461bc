"""FastAPI and Starlette: a site adds, a worker beside it works, and the dashboard stands below a path of the site."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette

from tests.integrations.programs import EXAMPLES, answer, started, until
from toril import App, Closed, JobContext, Queue, UnknownQueue
from toril.integrations.starlette import lifespan, mount, queue_of
from toril.testing import memory
from toril.web import Open

FOLDER = EXAMPLES / "fastapi_shop"


async def greet(ctx: JobContext[str]) -> str:
    return f"hello {ctx.data}"


def made() -> App:
    app = App("memory://")
    app.queue("greetings", [greet])
    return app


@pytest.mark.covers("R238")
def test_the_example_takes_an_order_and_a_worker_packs_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with (
        started(FOLDER, tmp_path / "web.log", "uvicorn", "shop:web", "--port", "0", TORIL_URL=url) as site,
        started(FOLDER, tmp_path / "worker.log", "toril", "run", "shop:app", "--no-http", TORIL_URL=url) as worker,
    ):
        base = site.said(r"running on (http://\S+)")
        taken = answer("POST", f"{base}/orders/17")

        def packed() -> dict[str, str] | None:
            told: dict[str, str] = answer("GET", f"{base}/orders/17").json()
            return told if told["state"] == "completed" else None

        told = until(packed, lambda: worker.output)
        page = answer("GET", f"{base}/jobs/", headers={"accept": "text/html"})
        counts = answer("GET", f"{base}/jobs/api/v1/queues/orders").json()

        site.end()

    assert "Application shutdown complete" in site.output
    assert (taken.status_code, taken.json()) == (202, {"job": "order-17"})
    assert told == {"state": "completed", "from": "/orders/17"}
    assert page.status_code == 200
    assert "orders" in page.text
    assert counts["counts"]["completed"] == 1


async def test_ones_own_lifespan_runs_within_the_apps() -> None:
    app, seen = made(), list[Any]()

    @asynccontextmanager
    async def own(web: Starlette) -> AsyncIterator[dict[str, str]]:
        seen.append((await app.queues["greetings"].counts()).waiting)
        yield {"key": "value"}
        seen.append((await app.queues["greetings"].counts()).waiting)

    async with lifespan(app, own)(Starlette()) as state:
        await app.queues["greetings"].add(greet, "ada")

    assert (state, seen) == ({"key": "value"}, [0, 1])
    with pytest.raises(Closed):
        _ = app.store


async def test_what_fails_in_ones_own_lifespan_still_closes_the_app() -> None:
    app = made()

    @asynccontextmanager
    async def own(web: Starlette) -> AsyncIterator[None]:
        raise RuntimeError("no such database")
        yield

    with pytest.raises(RuntimeError, match="no such database"):
        async with lifespan(app, own)(Starlette()):
            pass

    with pytest.raises(Closed):
        _ = app.store


async def test_a_queue_is_a_dependency_that_a_test_can_replace() -> None:
    app, other = made(), made()
    mail = queue_of(app, "greetings", about=lambda request: {"agent": request.headers["user-agent"]})
    web = FastAPI()

    @web.post("/greet/{name}")
    async def add(name: str, queue: Annotated[Queue, Depends(mail)]) -> str:
        return (await queue.add(greet, name)).id

    web_client = httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://test")
    async with memory(app), memory(other), web_client as client:
        added = (await client.post("/greet/ada", headers={"user-agent": "a test"})).json()
        web.dependency_overrides[mail] = queue_of(other, "greetings")
        await client.post("/greet/bob")

        job = await app.queues["greetings"].job(added)
        assert job is not None
        assert (job.data, job.metadata) == ("ada", {"agent": "a test"})
        assert (await other.queues["greetings"].counts()).waiting == 1


def test_a_queue_that_is_not_declared_is_told_of_at_once() -> None:
    with pytest.raises(UnknownQueue, match="there is no queue 'mails' in this app; its queues are 'greetings'"):
        queue_of(made(), "mails")


async def test_the_pages_stand_below_any_path() -> None:
    app, web = made(), Starlette()
    mount(web, app, "/behind/jobs", access=Open())
    transport = httpx.ASGITransport(web, client=("127.0.0.1", 1234))

    async with lifespan(app)(web), httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        page = await client.get("/behind/jobs/", headers={"accept": "text/html"})
        elsewhere = await client.get("/jobs/")

    assert (page.status_code, elsewhere.status_code) == (200, 404)
