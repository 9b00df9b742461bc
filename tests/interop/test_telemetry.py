"""One trace, whichever side it begins on."""

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.interop.node import Node
from tests.interop.side import KEPT, Toril, echo, running
from toril import App
from toril.integrations.opentelemetry import instrument


class Traced:
    """An app whose spans are kept."""

    def __init__(self, url: str, **handlers: Any) -> None:
        self.app = App(url)
        self._kept = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        instrument(self.app, tracer_provider=provider)
        self.queue = self.app.queue("q", handlers or None, **KEPT)

    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._kept.get_finished_spans()


async def test_a_trace_that_begins_in_node_goes_on_in_torils_handler(node: Node, toril: Toril) -> None:
    here = Traced(toril.url, echo=echo)
    events = await node.events("q")
    await node.spans()  # each is given once: those of other tests with this process are done with
    async with running(here.app):
        job = await node.queue("q", traced=True).add("echo", {"a": 1})
        await events.until("completed", jobId=job["id"])

    (sent,) = [span for span in await node.spans() if span["name"].startswith("add")]
    (processed,) = here.spans()
    assert processed.context is not None
    assert processed.parent is not None
    assert f"{processed.context.trace_id:032x}" == sent["trace"]
    assert f"{processed.parent.span_id:016x}" == sent["id"]
    assert processed.name == "process q"
    assert dict(processed.attributes or {})["messaging.message.id"] == job["id"]


async def test_a_trace_that_begins_in_toril_goes_on_in_nodes_worker(node: Node, toril: Toril) -> None:
    here = Traced(toril.url)
    worker = await node.worker("q", traced=True)
    async with here.app:
        job = await here.queue.add("echo", {"a": 1})
        await worker.until("completed", jobId=job.id)

    (sent,) = here.spans()
    assert sent.context is not None
    processed = [span for span in await node.spans() if span["parent"] == f"{sent.context.span_id:016x}"]
    assert [span["trace"] for span in processed] == [f"{sent.context.trace_id:032x}"]


async def test_nodes_wish_not_to_go_on_with_a_trace_is_heard(node: Node, toril: Toril) -> None:
    here = Traced(toril.url, echo=echo)
    events = await node.events("q")
    async with running(here.app):
        job = await node.queue("q", traced=True).add("echo", {}, telemetry={"omitContext": True})
        await events.until("completed", jobId=job["id"])

    (processed,) = here.spans()
    assert processed.parent is None
