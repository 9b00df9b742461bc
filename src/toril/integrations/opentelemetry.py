"""OpenTelemetry: traces from the producer of a job to its worker, also across Node, and metrics.

It needs `pip install 'toril[otel]'`. Without `instrument`, none of it is imported.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from toril.app import App
from toril.errors import EngineUnusable, JobCancelled, LeaseLost, RateLimited, Resting, Snooze
from toril.events import EventName, JobEvent
from toril.model import MAX_TRACE, NewJob, Rested
from toril.operate.steps import STEP_KINDS
from toril.policy.retry import unwrapped
from toril.runtime.clock import SYSTEM

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
except ModuleNotFoundError as error:
    raise EngineUnusable(
        f"OpenTelemetry needs the package {error.name!r}; install it with: pip install 'toril[otel]'"
    ) from None

__all__ = ["instrument"]

_STEPS: Final = 100  # keys of steps in an attribute
_SYSTEM: Final = {"messaging.system": "toril"}
# Not failures.
_NO_ERROR: Final = (Snooze, RateLimited, Resting, JobCancelled, LeaseLost, asyncio.CancelledError)
_ENDINGS: Final[tuple[EventName, ...]] = (
    "completed", "failed", "retrying", "snoozed", "cancelled", "expired", "stalled", "lease_lost",
)  # fmt: skip


def instrument(
    app: App, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Trace the adds and attempts of an app and count them, with the given providers or those of the process.

    The trace context travels with the job, as in BullMQ. Call this before you declare other middleware.
    """
    tracing = OpenTelemetry(tracer_provider, meter_provider)
    app.services.tracing = tracing
    app.middleware(tracing.processing)
    for name in _ENDINGS:
        app.on(name, tracing.heard(name))


class OpenTelemetry:
    """One app's spans and instruments, named by the messaging conventions."""

    def __init__(self, tracers: TracerProvider | None, meters: MeterProvider | None) -> None:
        self._tracer = trace.get_tracer("toril", tracer_provider=tracers)
        meter = metrics.get_meter("toril", meter_provider=meters)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs added.")
        self._sending = meter.create_histogram("messaging.client.operation.duration", "s", "Duration of adding jobs.")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Attempts begun.")
        self._took = meter.create_histogram("messaging.process.duration", "s", "Duration of an attempt.")
        self._ended = meter.create_counter("toril.jobs", "{job}", "Outcomes of attempts.")

    @contextmanager
    def sending(self, queue: str, jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
        """The jobs with the producer's trace context."""
        about = {**_SYSTEM, "messaging.destination.name": queue, "messaging.operation.name": "send"}
        more = {"messaging.batch.message_count": len(jobs)} if len(jobs) > 1 else {"toril.job.name": jobs[0].name}
        start, ended = SYSTEM.monotonic(), dict(about)
        facts: dict[str, str | int] = {**about, "messaging.operation.type": "send", **more}
        with self._tracer.start_as_current_span(f"send {queue}", kind=SpanKind.PRODUCER, attributes=facts):
            carrier = _carrier()
            try:
                yield list(jobs) if carrier is None else [replace(job, trace=carrier) for job in jobs]
            except BaseException as error:
                ended["error.type"] = type(error).__name__
                raise
            finally:
                self._sending.record(SYSTEM.monotonic() - start, ended)
            self._sent.add(len(jobs), about)

    async def processing(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """A span around an attempt that continues the producer's trace."""
        queue, name = ctx.queue_name, ctx.job_name
        about = {
            **_SYSTEM, "messaging.destination.name": queue, "messaging.operation.name": "process",
            "toril.job.name": name,
        }  # fmt: skip
        facts = {
            **about, "messaging.operation.type": "process", "messaging.message.id": ctx.job_id,
            "toril.job.attempt": ctx.attempt,
        }  # fmt: skip
        self._consumed.add(1, about)
        start = SYSTEM.monotonic()
        with self._tracer.start_as_current_span(
            f"process {queue}",
            context=_context(ctx.carrier),
            kind=SpanKind.CONSUMER,
            attributes=facts,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                return await call_next(ctx)
            except BaseException as error:
                if not isinstance(unwrapped(error), _NO_ERROR):
                    about["error.type"] = type(error).__name__
                _tell(span, error)
                if isinstance(rests := unwrapped(error), Resting) and isinstance(rests.rested, Rested):
                    self._rest(rests.rested)
                raise
            finally:
                self._took.record(SYSTEM.monotonic() - start, about)

    @contextmanager
    def step(self, name: str, key: str, tries: int) -> Iterator[None]:
        """A span around a try of a durable step, within that of the attempt."""
        facts: dict[str, str | int] = {**_SYSTEM, "toril.step.key": key, "toril.step.tries": tries}
        with self._tracer.start_as_current_span(
            f"step {name}", attributes=facts, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except BaseException as error:
                _tell(span, error)
                raise

    def _rest(self, rested: Rested) -> None:
        """A span without a length, at the end of a run whose job rests: for which steps, and until when at most."""
        facts: dict[str, Any] = {
            **_SYSTEM, "toril.rest.steps": [each.key for each in rested.rests][:_STEPS],
            "toril.rest.kinds": sorted({STEP_KINDS[each.kind] for each in rested.rests}),
        }  # fmt: skip
        delays = [each.delay for each in rested.rests if each.delay is not None]
        if delays:
            facts["toril.rest.delay"] = min(delays) / 1000
        self._tracer.start_span("rest", attributes=facts).end()

    def heard(self, ending: EventName) -> Callable[[JobEvent], None]:
        """Count the outcomes of attempts."""

        def count(event: JobEvent) -> None:
            facts = {"messaging.destination.name": event.queue, "toril.job.name": event.job_name}
            self._ended.add(1, {**_SYSTEM, **facts, "toril.outcome": ending})

        return count


def _tell(span: Span, error: BaseException) -> None:
    """Record what an attempt raised. Being deferred or told to stop is not an error."""
    error = unwrapped(error)
    span.set_attribute("error.type", type(error).__name__)
    if not isinstance(error, _NO_ERROR):
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, type(error).__name__))


def _carrier() -> str | None:
    """The current trace context as text; None if there is none."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    text = json.dumps(headers, separators=(",", ":"))
    return text if headers and len(text) <= MAX_TRACE else None


def _context(carrier: str | None) -> Context | None:
    """The trace context in a text; empty if it is anything else."""
    if carrier is None:
        return None
    try:
        headers = json.loads(carrier)
    except (ValueError, RecursionError):
        return None
    if not isinstance(headers, Mapping):
        return None
    return propagate.extract({str(name): value for name, value in headers.items() if isinstance(value, str)})
