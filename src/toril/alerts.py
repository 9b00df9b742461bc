"""Alerts: which failures to report, and to whom."""

import asyncio
import hashlib
import http.client
import inspect
import ipaddress
import json
import queue
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from toril.errors import InvalidOption, TorilError, preview
from toril.events import STALLED_OUT, JobEvent, WorkerEvent
from toril.model import RunStatus, check_int, storable
from toril.model.durations import Duration, milliseconds
from toril.policy.metrics import Durations, SlidingCount
from toril.policy.retention import RUNS
from toril.runtime.logs import log
from toril.runtime.services import Services

__all__ = ["Alert", "AlertKind", "AlertRules", "Alerts", "Delivery", "Sink", "Webhook"]

_MOST: Final = 100  # deliveries at once; further alerts are dropped
_DELIVERY_SECONDS: Final = 30.0  # that one delivery may take, from the call of the sink


class Delivery:
    """Delivers alerts to one sink, one after the other. A function is called in a thread of its own; what it returns is
    awaited on the event loop if it is awaitable."""

    def __init__(self, sink: Callable[[Any], Any]) -> None:
        self._sink = sink
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._called = 0
        self._under_way = 0
        self.dropped = 0

    async def send(self, alert: Any, text: str) -> bool:
        """Deliver an alert, and tell whether that succeeded. Never raises; errors are logged."""
        if self._under_way >= _MOST:
            self.dropped += 1
            if self.dropped % _MOST == 1:
                log.warning("dropped an alert because %s are still being delivered: %s", _MOST, text)
            return False
        self._under_way += 1
        try:
            order = await self._turn(alert)
            async with asyncio.timeout(_DELIVERY_SECONDS):
                answer = await order.answer
                if inspect.isawaitable(answer):
                    await answer
        except TimeoutError:
            log.error("could not deliver an alert within %s s: %s", _DELIVERY_SECONDS, text)
        except Exception:
            log.exception("could not deliver an alert: %s", text)
        else:
            return True
        finally:
            self._under_way -= 1
        return False

    async def _turn(self, alert: Any) -> "_Order":
        """Queue the call of the sink and wait for its turn. Earlier calls may take their time, unless one hangs."""
        if self._thread is None:
            # A daemon: a sink that hangs does not keep the process from ending.
            self._thread = threading.Thread(target=self._work, name="toril-alerts", daemon=True)
            self._thread.start()
        order = _Order(alert, asyncio.get_running_loop())
        self._orders.put(order)
        while True:
            before = self._called
            done, _ = await asyncio.wait([order.begun], timeout=_DELIVERY_SECONDS)
            if done:
                return order
            if self._called == before:
                order.answer.cancel()
                raise TimeoutError

    def _work(self) -> None:
        while True:
            order = self._orders.get()
            self._called += 1
            order.carry_out(self._sink)


class _Order:
    def __init__(self, alert: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._alert = alert
        self._loop = loop
        self.begun: asyncio.Future[None] = loop.create_future()
        self.answer: asyncio.Future[Any] = loop.create_future()

    def carry_out(self, sink: Callable[[Any], Any]) -> None:
        """Runs in the thread."""
        if self.answer.cancelled():  # nobody is waiting for it
            return
        try:
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:  # the loop is closed
            return
        try:
            answer, error = sink(self._alert), None
        except BaseException as raised:  # SystemExit too is only a failure of the sink
            answer, error = None, raised
        try:
            self._loop.call_soon_threadsafe(self._tell, answer, error)
        except RuntimeError:  # the loop is closed
            return

    def _begin(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)

    def _tell(self, answer: Any, error: BaseException | None) -> None:
        if self.answer.done():
            if inspect.iscoroutine(answer):
                answer.close()
        elif error is None:
            self.answer.set_result(answer)
        else:
            reason = error if isinstance(error, Exception) else RuntimeError(f"the sink raised {error!r}")
            self.answer.set_exception(reason)


_BETWEEN_LOOKS: Final = 1.0  # seconds between two looks at the same metrics


class AlertKind(StrEnum):
    """What an alert is about."""

    FIRST_FAILURE = "first_failure"
    EXHAUSTED = "exhausted"
    THRESHOLD = "threshold"
    IN_A_ROW = "in_a_row"
    STALLS = "stalls"
    SLOW = "slow"
    BREAKER = "breaker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert. `count` is the number of failures or stalls that were too many, `subject` what they were about."""

    kind: AlertKind
    text: str
    queue: str | None = None
    job_id: str | None = None
    job_name: str | None = None
    error: str | None = None
    count: int | None = None
    subject: str | None = None


Sink: TypeAlias = Callable[[Alert], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRules:
    """Which alerts to send. The first failure of each job and its failure for good are sent by the process that ran it;
    everything else is sent once per fleet.

    Args:
        kinds: The kinds of alerts to send; by default, all.
        threshold: Alert when more than this many jobs of a queue failed for good within `window`.
        window: The time over which failures, stalls and durations are counted.
        cooldown: How long to wait before sending the same alert again.
        in_a_row: Alert when this many jobs about one subject failed in a row.
        stall_rate: Alert when more than this share of the runs stalled.
        lease_share: Alert when one run in twenty takes longer than this share of the lease.
        minimum: How many runs there must be before shares count.
    """

    kinds: frozenset[AlertKind] = frozenset(AlertKind)
    threshold: int = 100
    window: Duration = 300
    cooldown: Duration = 3600
    in_a_row: int = 10
    stall_rate: float = 0.05
    lease_share: float = 0.5
    minimum: int = 20

    def __post_init__(self) -> None:
        check_int("threshold", self.threshold, 0, 1_000_000_000)
        check_int("in_a_row", self.in_a_row, 1, 1_000)
        check_int("minimum", self.minimum, 1, 1_000)
        milliseconds("window", self.window, 60_000, 7 * 86_400_000)
        milliseconds("cooldown", self.cooldown, 1_000, 31 * 86_400_000)
        for name in ("stall_rate", "lease_share"):
            share = getattr(self, name)
            if type(share) not in (int, float) or not 0 <= share <= 1_000:
                raise InvalidOption(f"{name} must be a number from 0 to 1000, not {preview(share)}")
        if not frozenset(self.kinds) <= frozenset(AlertKind):
            raise InvalidOption(
                f"kinds must be some of {', '.join(map(repr, map(str, AlertKind)))}, not {preview(self.kinds)}"
            )


class _QueueCounts:
    """What happened in one queue recently, as this process saw it: each process sees its own runs and stalls."""

    def __init__(self, window: int) -> None:
        self.runs = SlidingCount(window)
        self.stalls = SlidingCount(window)
        self.durations = Durations(window)


class Alerts:
    """One sink and its rules. `exhausted` counts, by queue and job name, the jobs that failed for good in this
    process."""

    def __init__(self, services: Services, owner: str, sink: Sink, rules: AlertRules, number: int = 0) -> None:
        self._services = services
        self._owner = owner
        self._delivery = Delivery(sink)
        self._rules = rules
        self._number = number  # the same in every process
        self._window = milliseconds("window", rules.window)
        self._counts: dict[str, _QueueCounts] = {}
        self._looking: dict[str, asyncio.Event] = {}
        self._sent: dict[str, float] = {}
        self.exhausted: Counter[tuple[str, str]] = Counter()
        on: Any = services.events.on
        for name, listener in (
            ("retrying", self._retrying),
            ("failed", self._failed),
            ("completed", self._ran),
            ("stalled", self._stalled),
            ("breaker", self._breaker),
        ):
            on(name, listener)

    async def _retrying(self, event: JobEvent) -> None:
        if event.attempt == 1:
            await self._first(event)
        await _if_any(self._ran(event))

    async def _failed(self, event: JobEvent) -> None:
        if event.attempt == 1:
            await self._first(event)
        text = f"job {event.job_id} ({event.job_name}) of {event.queue} failed for good: {event.error}"
        await self._exhausted(text, event)
        await self._look_at_all(event)
        await _if_any(self._ran(event))

    async def _look_at_all(self, event: JobEvent) -> None:
        """Check all thresholds: another job has failed for good."""
        if AlertKind.THRESHOLD in self._rules.kinds:
            await self._look(event.queue, lambda: self._compare(event.queue))
        if AlertKind.IN_A_ROW in self._rules.kinds and event.subject is not None:
            subject = event.subject
            await self._look(f"{event.queue}/{subject}", lambda: self._count(event.queue, subject))

    def _ran(self, event: JobEvent) -> Awaitable[None] | None:
        """A run has ended. Nearly all are short, and cost no more than this check."""
        if event.duration is None:
            return None
        counts, now, took = self._of(event.queue), self._services.clock.now(), round(event.duration * 1000)
        counts.runs.add(now)
        counts.durations.add(now, took)
        if event.queue not in self._services.queues:
            return None
        most = self._services.queues[event.queue].options.lease * self._rules.lease_share
        return self._slow(event.queue, round(most)) if took > most else None

    async def _slow(self, queue: str, most: int) -> None:
        p95 = self._of(queue).durations.p95(self._services.clock.now(), minimum=self._rules.minimum)
        if p95 is not None and p95 > most:
            text = f"the slowest 5% of runs in {queue} take over {p95 / 1000:g} s; its lease allows {most / 1000:g} s"
            await self._once(Alert(kind=AlertKind.SLOW, text=text, queue=queue))

    async def _stalled(self, event: JobEvent) -> None:
        counts, now = self._of(event.queue), self._services.clock.now()
        counts.stalls.add(now)
        if event.error == STALLED_OUT:
            await self._stalled_out(event)
        stalls, runs = counts.stalls.count(now), counts.runs.count(now)
        if stalls + runs >= self._rules.minimum and stalls > self._rules.stall_rate * (stalls + runs):
            text = f"{stalls} of the last {stalls + runs} runs of {event.queue} stalled: its workers crash or hang"
            await self._once(Alert(kind=AlertKind.STALLS, text=text, queue=event.queue, count=stalls))

    async def _stalled_out(self, event: JobEvent) -> None:
        """Read the run record of a job that stalled too often: whoever found it knows only its id."""
        try:
            runs = (await self._services.store.runs(event.queue, RunStatus.FAILED, limit=RUNS)).items
        except TorilError as error:
            log.warning("could not read the run record of job %s of %s: %s", event.job_id, event.queue, error)
            runs = ()
        run = next((run for run in runs if run.id == event.job_id), None)
        if run is not None:
            event = replace(event, job_name=run.name, subject=run.subject)
        await self._exhausted(f"job {event.job_id} of {event.queue} {event.error}", event)
        await self._look_at_all(event)

    async def _exhausted(self, text: str, event: JobEvent) -> None:
        self.exhausted[event.queue, event.job_name] += 1
        await self._tell(self._about(AlertKind.EXHAUSTED, text, event))

    async def _first(self, event: JobEvent) -> None:
        text = f"job {event.job_id} ({event.job_name}) of {event.queue} failed for the first time: {event.error}"
        await self._tell(self._about(AlertKind.FIRST_FAILURE, text, event))

    async def _breaker(self, event: WorkerEvent) -> None:
        await self._tell(Alert(kind=AlertKind.BREAKER, text=f"circuit {event.error}", queue=event.queue))

    def _about(self, kind: AlertKind, text: str, event: JobEvent) -> Alert:
        return Alert(
            kind=kind,
            text=text,
            queue=event.queue,
            job_id=event.job_id,
            job_name=event.job_name,
            error=event.error,
            subject=event.subject,
        )

    def _of(self, queue: str) -> _QueueCounts:
        if queue not in self._counts:
            self._counts[queue] = _QueueCounts(self._window)
        return self._counts[queue]

    async def _look(self, what: str, compare: Callable[[], Awaitable[None]]) -> None:
        """Check the fleet's metrics, at intervals; a failure in between causes one more check."""
        if what in self._looking:
            self._looking[what].set()
            return
        self._looking[what] = again = asyncio.Event()
        try:
            while True:
                again.clear()
                try:
                    await compare()
                except TorilError as error:
                    log.warning("could not count the failures of %s: %s", what, error)
                if not again.is_set():
                    return
                await self._services.clock.sleep(_BETWEEN_LOOKS)
        finally:
            del self._looking[what]

    async def _compare(self, queue: str) -> None:
        minutes = max(1, self._window // 60_000)
        count = sum((await self._services.store.metrics.minutes(queue, minutes=minutes)).failed)
        if count > self._rules.threshold:
            text = f"{count} jobs of {queue} failed for good in the last {minutes} minutes"
            await self._once(Alert(kind=AlertKind.THRESHOLD, text=text, queue=queue, count=count))

    async def _count(self, queue: str, subject: str) -> None:
        count = await self._services.queues[queue].failures_in_a_row(subject)
        if count >= self._rules.in_a_row:
            text = f"the last {count} jobs of {queue} about {subject} all failed for good"
            await self._once(Alert(kind=AlertKind.IN_A_ROW, text=text, queue=queue, count=count, subject=subject))

    async def _once(self, alert: Alert) -> None:
        """Send an alert unless the fleet has sent it within the cool-down."""
        if alert.kind not in self._rules.kinds:
            return
        ttl = milliseconds("cooldown", self._rules.cooldown)
        facts = f"{self._number}\n{alert.kind}\n{alert.queue}\n{alert.subject}"
        key = f"alert-{hashlib.sha256(facts.encode()).hexdigest()[:32]}"
        try:
            first = await self._services.store.once(key, self._owner, ttl=ttl)
        except TorilError as error:
            log.warning(
                "did not send an alert, because the store could not say whether it was sent already: %s; %s",
                alert.text,
                error,
            )
            return
        if first and self._is_fresh(key, ttl) and not await self._delivery.send(alert, alert.text):
            self._sent.pop(key, None)  # the fleet's turn is still ours: the next look tries again

    def _is_fresh(self, key: str, ttl: int) -> bool:
        """Whether this process has not sent it yet. If the process that sent it first asks again, the store says yes
        again."""
        now = self._services.clock.monotonic()
        if key in self._sent and now < self._sent[key] + ttl / 1000:
            return False
        self._sent[key] = now
        return True

    async def _tell(self, alert: Alert) -> None:
        if alert.kind in self._rules.kinds:
            await self._delivery.send(alert, alert.text)


async def _if_any(answer: Awaitable[None] | None) -> None:
    if answer is not None:
        await answer


_WEBHOOK_SECONDS: Final = 5.0
_MOST_BYTES: Final = 64 * 1024
_LONGEST_TEXT: Final = 4 * 1024

Resolve: TypeAlias = Callable[[str, int], Sequence[str]]
Post: TypeAlias = Callable[[str, "Webhook", bytes], int]


class Webhook:
    """A sink that posts each alert to an HTTPS URL as one JSON object: `app.alert(Webhook("https://…"))`."""

    def __init__(self, url: str, *, resolve: Resolve | None = None, post: Post | None = None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port or 443
        except (ValueError, AttributeError, TypeError):
            raise InvalidOption("invalid webhook URL; it must look like https://example.com/path") from None
        if parts.scheme != "https" or not parts.hostname or parts.username is not None:
            raise InvalidOption(
                f"a webhook URL must look like https://host/path, without a user; got {preview(parts.scheme)}://…"
            )
        self.host = parts.hostname
        self.port = port
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._resolve = resolve or _resolve
        self._post = post or _post
        if _is_literal(self.host):
            _public([self.host], self.host)

    async def __call__(self, alert: Alert) -> None:
        document = {
            name: storable(value, _LONGEST_TEXT) if isinstance(value, str) else value
            for name, value in asdict(alert).items()
            if value is not None
        }
        body = json.dumps(document, separators=(",", ":")).encode()
        async with asyncio.timeout(2 * _WEBHOOK_SECONDS):
            await asyncio.get_running_loop().run_in_executor(None, self._deliver, body)

    def _deliver(self, body: bytes) -> None:
        address = _public(self._resolve(self.host, self.port), self.host)
        status = self._post(address, self, body)
        if not 200 <= status < 300:
            raise TorilError(f"the webhook at {self.host} answered with status {status}")


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _resolve(host: str, port: int) -> Sequence[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _public(addresses: Sequence[str], host: str) -> str:
    """The first address. All of them must be public, whatever the next lookup may return."""
    for address in addresses:
        known = ipaddress.ip_address(address.partition("%")[0])
        inner = getattr(known, "ipv4_mapped", None) or known
        if not inner.is_global or inner.is_multicast:
            raise InvalidOption(f"webhook host {preview(host)} resolves to {address}, which is not a public address")
    if not addresses:
        raise TorilError(f"webhook host {preview(host)} has no address")
    return addresses[0]


def _post(address: str, hook: Webhook, body: bytes) -> int:
    """Post to the address that was checked, with the host name that its certificate must have."""
    connection = http.client.HTTPSConnection(hook.host, hook.port, timeout=_WEBHOOK_SECONDS)
    plain = socket.create_connection((address, hook.port), _WEBHOOK_SECONDS)
    try:
        connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=hook.host)
        connection.request("POST", hook.target, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read(_MOST_BYTES)
        return response.status
    finally:
        connection.close()
        plain.close()
