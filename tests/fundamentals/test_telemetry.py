"""Spans and metrics of an app, with OpenTelemetry; and nothing of it without."""

import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from toril import App, Fixed, JobCancelled, JobContext, PermanentError, Retry, Snooze, SyncJobContext, TransientError
from toril.integrations.opentelemetry import instrument
from toril.testing import drain


def instrumented(app: App | None = None) -> tuple[App, InMemorySpanExporter, InMemoryMetricReader]:
    app, spans, reader = app or App("memory://"), InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    instrument(app, tracer_provider=provider, meter_provider=MeterProvider([reader]))
    return app, spans, reader


async def test_what_a_handler_adds_is_part_of_the_trace_that_it_is_in() -> None:
    app, spans, _ = instrumented()

    async def first(ctx: JobContext[Any]) -> None:
        await app.queue("email").add("second")

    async def second(ctx: JobContext[Any]) -> None:
        if ctx.attempt == 1 and not ctx.job.stalls:
            raise PermanentError("no such user")

    app.queue("email", {"first": first, "second": second})
    async with app:
        await app.queue("email").add("first")
        await drain(app)

    found = {(span.name, (span.attributes or {}).get("toril.job.name")): span for span in spans.get_finished_spans()}
    sent, processed = found["send email", "first"], found["process email", "first"]
    sent_then, failed = found["send email", "second"], found["process email", "second"]
    chain = [sent, processed, sent_then, failed]
    assert all(
        after.parent is not None and before.context is not None and after.parent.span_id == before.context.span_id
        for before, after in pairwise(chain)
    )
    assert len({span.context.trace_id for span in chain if span.context}) == 1
    assert [span.kind.name for span in chain] == ["PRODUCER", "CONSUMER", "PRODUCER", "CONSUMER"]
    assert failed.status.status_code is StatusCode.ERROR
    assert [event.name for event in failed.events] == ["exception"]
    assert (processed.attributes or {})["messaging.operation.type"] == "process"


def test_what_blocking_code_adds_is_traced_also_if_its_queue_was_named_before() -> None:
    app = App("memory://")
    mail = app.queue("email").sync
    _, spans, _ = instrumented(app)

    mail.add("send")

    assert [span.name for span in spans.get_finished_spans()] == ["send email"]
    app.portal().close()


async def test_attempts_and_adds_are_counted_and_timed() -> None:
    app, spans, reader = instrumented()

    async def once(ctx: JobContext[Any]) -> None: ...

    async def later(ctx: JobContext[Any]) -> None:
        if ctx.data["wait"]:
            await ctx.job.update_data({"wait": False})
            raise Snooze(0)

    async def never(ctx: JobContext[Any]) -> None:
        raise JobCancelled("not wanted")

    queue = app.queue("email", {"once": once, "later": later, "never": never})
    async with app:
        await queue.add_many([("once", None)] * 3)
        await queue.add("later", {"wait": True})
        await queue.add("never")
        await drain(app)

    data = reader.get_metrics_data()
    assert data is not None
    points: dict[str, list[Any]] = {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    outcomes = {(p.attributes["toril.job.name"], p.attributes["toril.outcome"]): p.value for p in points["toril.jobs"]}
    assert sum(point.value for point in points["messaging.client.sent.messages"]) == 5
    assert sum(point.count for point in points["messaging.process.duration"]) == 6
    assert outcomes == {
        ("once", "completed"): 3, ("later", "snoozed"): 1, ("later", "completed"): 1, ("never", "cancelled"): 1,
    }  # fmt: skip
    raised = {(span.attributes or {}).get("error.type"): span.status.status_code for span in spans.get_finished_spans()}
    assert (raised["Snooze"], raised["JobCancelled"]) == (StatusCode.UNSET, StatusCode.UNSET)
    assert [point for point in points["messaging.process.duration"] if "error.type" in point.attributes] == []


@pytest.mark.parametrize("plain", [False, True])
async def test_steps_and_rests_have_spans_within_their_run_and_replayed_steps_none(plain: bool) -> None:
    app, spans, _ = instrumented()
    tries: list[str] = []

    def flaky() -> None:
        with trace.get_tracer("shop", tracer_provider=provider).start_as_current_span("within"):
            tries.append("once")
        if len(tries) < 2:
            raise TransientError("down")

    async def order(ctx: JobContext[None]) -> None:
        await ctx.step("reserve", lambda: 7, key="a")
        await ctx.step("charge", flaky, retry=Retry(2, Fixed(0)))
        await ctx.wait_for("approval", timeout=60)
        await ctx.step("send", lambda: None)

    def plain_order(ctx: SyncJobContext[None]) -> None:
        ctx.step("reserve", lambda: 7, key="a")
        ctx.step("charge", flaky, retry=Retry(2, Fixed(0)))
        ctx.wait_for("approval", timeout=60)
        ctx.step("send", lambda: None)

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    queue = app.queue("email", {"order": plain_order if plain else order})
    async with app:
        job = await queue.add("order")
        await drain(app)
        await job.signal("approval")
        await drain(app)

    done = [(span.name, dict(span.attributes or {}), span) for span in spans.get_finished_spans()]
    runs = {span.context.span_id: number for number, (_, _, span) in enumerate(
        sorted((each for each in done if each[0] == "process email"), key=lambda each: each[2].start_time or 0)
    ) if span.context}  # fmt: skip
    steps = {span.context.span_id: facts["toril.step.key"] for _, facts, span in done if "toril.step.key" in facts}
    assert sorted(
        (runs[span.parent.span_id], name, facts["toril.step.key"], facts["toril.step.tries"], span.status.is_ok)
        for name, facts, span in done
        if name.startswith("step ") and span.parent
    ) == [
        (0, "step charge", "charge", 1, False), (0, "step charge", "charge", 2, True),
        (0, "step reserve", "reserve:a", 1, True), (1, "step send", "send", 1, True),
    ]  # fmt: skip
    assert [steps[span.parent.span_id] for name, _, span in done if name == "within" and span.parent] == ["charge"] * 2
    ((_, rest, at),) = [each for each in done if each[0] == "rest"]
    assert at.parent is not None
    assert runs[at.parent.span_id] == 0
    assert (rest["toril.rest.steps"], rest["toril.rest.kinds"]) == (("approval",), ("wait",))
    assert rest["toril.rest.delay"] == 60
    assert [span.status.is_ok for name, _, span in done if name == "process email"] == [True, True]


async def test_flows_and_groups_carry_the_trace_too() -> None:
    app, spans, _ = instrumented()

    async def work(ctx: JobContext[Any]) -> None: ...

    queue = app.queue("email", {"work": work})
    async with app:
        await app.flow(queue.new("work"), [queue.new("work", job_id="child")])
        await queue.add("work", group="tenant")
        await drain(app)

    done = [span for span in spans.get_finished_spans() if span.name == "process email"]
    sent = {span.context.span_id for span in spans.get_finished_spans() if span.name == "send email" and span.context}
    assert len(done) == 3
    assert {span.parent.span_id for span in done if span.parent} == sent


def test_without_it_nothing_of_opentelemetry_is_imported_or_called() -> None:
    code = """
import asyncio, sys
from toril import App
from toril.testing import drain
async def main():
    app = App("memory://")
    async def work(ctx): ...
    app.queue("q", {"work": work})
    async with app:
        await app.queue("q").add("work")
        await drain(app)
    assert app.services.tracing is None
asyncio.run(main())
print(sum(name.startswith("opentelemetry") or name == "toril.integrations.opentelemetry" for name in sys.modules))
"""
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert found.stdout.strip() == "0"


def test_a_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None\nimport toril.integrations.opentelemetry"
    found = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert "pip install 'toril[otel]'" in found.stderr
