"""The API against its own document: whatever is sent, each answer is one that the document knows, and none is a 5xx."""

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.access import ANYONE_MAY_ACT
from tests.proof import prove
from toril import App
from toril.web import site
from toril.web.api import ENDPOINTS
from toril.web.openapi import document
from toril.web.server import HttpServer

EXAMPLES = int(os.environ.get("TORIL_HTTP_EXAMPLES", "4"))  # for each endpoint


class Aside:
    """A site in a thread of its own, for clients that block."""

    def __init__(self) -> None:
        self.port = 0
        self._up = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._up.wait(30)

    async def _serve(self) -> None:
        app = App("memory://")
        queue = app.queue("email")
        server = HttpServer(site(app, access=ANYONE_MAY_ACT), "127.0.0.1", 0)
        self.port = await server.start()
        await queue.add("greet", {"n": 1}, job_id="known")
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._up.set()
        await self._stop.wait()
        await server.close()

    def close(self) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@pytest.fixture(scope="module")
def aside() -> Iterator[Aside]:
    found = Aside()
    yield found
    found.close()


schema = schemathesis.openapi.from_dict(document(ENDPOINTS, "/api/v1"))


@schema.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_every_answer_is_one_that_the_document_knows(case: "schemathesis.Case[Any]", aside: Aside) -> None:
    response = case.call(base_url=f"http://127.0.0.1:{aside.port}/api/v1")
    prove("T13", requests=1, failures=int(response.status_code >= 500))

    assert response.status_code < 500, response.text
    if response.status_code == 414:  # a refusal that the checks do not know as one
        return
    # What a schema cannot say, such as which cron expressions there are, may still be refused.
    case.validate_response(response, excluded_checks=[positive_data_acceptance])
