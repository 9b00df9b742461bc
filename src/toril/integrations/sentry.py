"""Sentry: reports each job that failed for good once, with the original error.

It needs sentry-sdk, initialised by your program. Unless you ask for it, nothing of a payload is sent, not even as a
local variable.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

import sentry_sdk
from sentry_sdk.scope import Scope, add_global_event_processor, use_isolation_scope
from sentry_sdk.utils import event_from_exception

from toril.app import App
from toril.errors import JobCancelled, LeaseLost, RateLimited, Resting, Snooze
from toril.events import STALLED_OUT, EventName, JobEvent
from toril.policy.redaction import redacted
from toril.policy.retry import unwrapped

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint

__all__ = ["instrument"]

# The job is deferred, waits for its children, or has ended: nothing has failed.
_NO_ERROR: Final = (Snooze, RateLimited, Resting, JobCancelled, LeaseLost, asyncio.CancelledError)
_OTHERWISE: Final[tuple[EventName, ...]] = ("completed", "snoozed", "released", "parked", "cancelled", "lease_lost")


def instrument(app: App, *, every: Literal["failure", "attempt"] = "failure", payload: bool = False) -> None:
    """Report jobs that failed for good; with `every="attempt"`, every failed attempt.

    Each report has the tags `toril.queue`, `toril.job_id`, `toril.job_name` and `toril.attempt`, and so has whatever
    else a handler sends. `payload=True` also sends the payload, as `App(redact=…)` shows it, and the handler's local
    variables. Call this before you declare other middleware.
    """
    reports = _Reports(app, payload=payload)
    app.middleware(reports.watching)
    app.on("failed", reports.report)
    app.on("stalled", reports.stalled)
    app.on("retrying", reports.report if every == "attempt" else reports.forget)
    for name in _OTHERWISE:
        app.on(name, reports.forget)
    _tell_once()


@dataclass(frozen=True, slots=True)
class _Raised:
    """What an attempt raised, until the outcome of its job is known."""

    error: BaseException
    scope: Scope
    data: Any


class _Reports:
    """Failures of one app that are about to be reported."""

    def __init__(self, app: App, *, payload: bool) -> None:
        self._app = app
        self._payload = payload
        self._raised: dict[tuple[str, str], _Raised] = {}

    async def watching(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Wrap an attempt in a scope of its own, and remember what it raises."""
        with sentry_sdk.isolation_scope() as scope:
            _tag(scope, ctx.queue_name, ctx.job_id, ctx.job_name, ctx.attempt)
            try:
                return await call_next(ctx)
            except BaseException as error:
                if not isinstance(unwrapped(error), _NO_ERROR):
                    self._raised[ctx.queue_name, ctx.job_id] = _Raised(error, scope, ctx.data)
                raise

    def forget(self, event: JobEvent) -> None:
        self._raised.pop((event.queue, event.job_id), None)

    def stalled(self, event: JobEvent) -> None:
        """The job's worker died: there is no error, but it may have been the last attempt."""
        if event.error == STALLED_OUT:
            self.report(event)

    def report(self, event: JobEvent) -> None:
        raised = self._raised.pop((event.queue, event.job_id), None)
        scope = sentry_sdk.get_isolation_scope().fork() if raised is None else raised.scope
        with use_isolation_scope(scope):
            _tag(scope, event.queue, event.job_id, event.job_name, event.attempt)
            # Of errors from other processes, and of ends from outside, only the text is known.
            known = raised is not None and type(raised.error).__name__ == event.kind
            made, hint = _from_error(raised.error) if raised is not None and known else self._from_words(event)
            for value in made["exception"]["values"]:
                self._cover(value, event)
            if self._payload and raised is not None:
                seen = self._app.redaction.seen(raised.data, "data", event.queue, event.job_name)
                made["extra"] = {**made.get("extra", {}), "payload": seen}
            sentry_sdk.capture_event(made, hint)

    def _cover(self, value: dict[str, Any], event: JobEvent) -> None:
        text = redacted(value.get("value") or "")
        value["value"] = self._app.redaction.text(text, "error", event.queue, event.job_name)
        for frame in (value.get("stacktrace") or {}).get("frames", []):
            if not self._payload:
                frame.pop("vars", None)

    def _from_words(self, event: JobEvent) -> "tuple[Event, Hint]":
        value = {
            "type": event.kind or "JobFailed",
            "value": event.error,
            "mechanism": {"type": "toril", "handled": False},
        }
        made: Event = {"level": "error", "exception": {"values": [value]}}
        if event.detail:
            trace = self._app.redaction.text(str(event.detail), "traceback", event.queue, event.job_name)
            made["extra"] = {"traceback": trace}
        return made, {}


def _from_error(error: BaseException) -> "tuple[Event, Hint]":
    options = sentry_sdk.get_client().options
    return event_from_exception(error, client_options=options, mechanism={"type": "toril", "handled": False})


def _tag(scope: Scope, queue: str, job_id: str, name: str, attempt: int) -> None:
    """Add the tags that are known; of a job whose worker died, only its queue and id."""
    scope.set_transaction_name(f"{queue}/{name}" if name else queue, source="task")
    facts = {"toril.queue": queue, "toril.job_id": job_id, "toril.job_name": name, "toril.attempt": attempt}
    scope.set_tags({tag: value for tag, value in facts.items() if value})


@cache
def _tell_once() -> None:
    add_global_event_processor(_drop_known)


def _drop_known(event: "Event", hint: "Hint") -> "Event | None":
    """Drop events that Sentry creates from log lines about a job that was just reported."""
    record = hint.get("log_record")
    if record is None or record.name != "toril":
        return event
    return None if record.getMessage().startswith(("job failed", "job first failure")) else event
