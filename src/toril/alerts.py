"""Alerts: what someone should hear of, made of what happens in this process and of the fleet's own figures. A sink that
fails is told of in the log, and touches no job."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

from toril.clock import Clock
from toril.engine import Store
from toril.errors import InvalidOption, TorilError, shown
from toril.events import Events, JobEvent, WorkerEvent
from toril.logs import log
from toril.model import whole
from toril.policy.retry import Seconds, milliseconds

__all__ = ["Alert", "AlertKind", "AlertRules", "Alerts", "Sink"]

_BETWEEN_LOOKS: Final = 1.0  # seconds between two looks at a queue's figures


class AlertKind(StrEnum):
    """What an alert is about."""

    FIRST_FAILURE = "first failure"
    EXHAUSTED = "exhausted"
    THRESHOLD = "threshold"
    BREAKER = "breaker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that someone should hear of. `count` is that of the failures that passed a threshold."""

    kind: AlertKind
    text: str
    queue: str | None = None
    job_id: str | None = None
    job_name: str | None = None
    error: str | None = None
    count: int | None = None


Sink: TypeAlias = Callable[[Alert], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRules:
    """What to tell: of each job its first failure, and that it failed for good; of a queue that more than `threshold`
    of its jobs failed within `window` seconds, over the whole fleet, told once, and again after `cooldown`."""

    kinds: frozenset[AlertKind] = frozenset(AlertKind)
    threshold: int = 100
    window: Seconds = 300
    cooldown: Seconds = 3600

    def __post_init__(self) -> None:
        whole("threshold", self.threshold, 0, 1_000_000_000)
        milliseconds("window", self.window, 60_000, 7 * 86_400_000)
        milliseconds("cooldown", self.cooldown, 1_000, 31 * 86_400_000)
        if not frozenset(self.kinds) <= frozenset(AlertKind):
            raise InvalidOption(f"alerts are of {', '.join(map(repr, map(str, AlertKind)))}, not {shown(self.kinds)}")


class _Home(Protocol):
    """What alerts need of their app."""

    @property
    def store(self) -> Store: ...

    @property
    def events(self) -> Events: ...


class Alerts:
    """One sink, and what it is told. `exhausted` counts, by queue and job name, what failed for good here."""

    def __init__(self, home: _Home, clock: Callable[[], Clock], owner: str, sink: Sink, rules: AlertRules) -> None:
        self._home = home
        self._clock = clock
        self._owner = owner
        self._sink = sink
        self._rules = rules
        self._looking: dict[str, asyncio.Event] = {}
        self._told: dict[str, float] = {}
        self.exhausted: Counter[tuple[str, str]] = Counter()
        for name, listener in (
            ("retrying", self._retrying), ("failed", self._failed), ("breaker", self._breaker),
        ):  # fmt: skip
            home.events.on(name, listener)  # type: ignore[arg-type]

    async def _retrying(self, event: JobEvent) -> None:
        if event.attempt == 1:
            await self._first(event)

    async def _failed(self, event: JobEvent) -> None:
        if event.attempt == 1:
            await self._first(event)
        self.exhausted[event.queue, event.job_name] += 1
        text = f"job {event.job_id} ({event.job_name}) of {event.queue} failed for good: {event.error}"
        await self._tell(self._about(AlertKind.EXHAUSTED, text, event))
        if AlertKind.THRESHOLD in self._rules.kinds:
            await self._look(event.queue)

    async def _first(self, event: JobEvent) -> None:
        text = f"job {event.job_id} ({event.job_name}) of {event.queue} failed for the first time: {event.error}"
        await self._tell(self._about(AlertKind.FIRST_FAILURE, text, event))

    async def _breaker(self, event: WorkerEvent) -> None:
        await self._tell(Alert(kind=AlertKind.BREAKER, text=f"circuit {event.error}", queue=event.queue))

    def _about(self, kind: AlertKind, text: str, event: JobEvent) -> Alert:
        return Alert(
            kind=kind, text=text, queue=event.queue, job_id=event.job_id, job_name=event.job_name, error=event.error
        )

    async def _look(self, queue: str) -> None:
        """Look at the queue's figures, a little apart; what fails meanwhile is seen by one more look after it."""
        if queue in self._looking:
            self._looking[queue].set()
            return
        self._looking[queue] = again = asyncio.Event()
        try:
            while True:
                again.clear()
                await self._compare(queue)
                if not again.is_set():
                    return
                await self._clock().sleep(_BETWEEN_LOOKS)
        finally:
            del self._looking[queue]

    async def _compare(self, queue: str) -> None:
        rules, store = self._rules, self._home.store
        minutes = max(1, milliseconds("window", rules.window) // 60_000)
        try:
            count = sum((await store.metrics(queue, minutes=minutes)).failed)
            if count <= rules.threshold:
                return
            ttl = milliseconds("cooldown", rules.cooldown)
            first = await store.once(f"alert-{queue}"[:128], self._owner, ttl=ttl)
            fresh = first and self._is_fresh(queue, ttl)
        except TorilError as error:
            log.warning("the failures of %s could not be counted: %s", queue, error)
            return
        if fresh:
            text = f"{count} jobs of {queue} failed for good within {minutes} minutes"
            await self._tell(Alert(kind=AlertKind.THRESHOLD, text=text, queue=queue, count=count))

    def _is_fresh(self, queue: str, ttl: int) -> bool:
        """Whether it was not told yet: who is the first of the fleet stays so when asked again."""
        now = self._clock().monotonic()
        if queue in self._told and now < self._told[queue] + ttl / 1000:
            return False
        self._told[queue] = now
        return True

    async def _tell(self, alert: Alert) -> None:
        if alert.kind not in self._rules.kinds:
            return
        try:
            answer = self._sink(alert)
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            log.exception("an alert could not be delivered: %s", alert.text)
