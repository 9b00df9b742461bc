"""What an app has to say about jobs that fail: how long they wait, where they end, who hears of it."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from toril.alerts import AlertRules, Alerts, Sink
from toril.events import EventName, Events, Listener
from toril.model import Call
from toril.operate.breakers import AppBreakers
from toril.operate.dead_letters import AppDeadLetters
from toril.policy.strategies import BackoffStrategy, check_strategy
from toril.queue import Queue
from toril.runtime.clock import Clock
from toril.runtime.plan import worker_name
from toril.runtime.redaction import Redaction
from toril.store.engine import Store

__all__ = ["Failing"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Failing:
    """A part of `App`, which has what is declared here."""

    queues: Mapping[str, Queue]
    redaction: Redaction
    _clock: Clock
    _strategies: dict[str, BackoffStrategy]
    _alerts: list[Alerts]

    @property
    @abstractmethod
    def store(self) -> Store: ...

    @property
    @abstractmethod
    def events(self) -> Events: ...

    @abstractmethod
    async def call(self, make: Callable[[Call], Awaitable[T]]) -> T: ...

    def on(self, event: EventName, listener: Listener) -> None:
        """Call `listener` with what happens in this process."""
        self.events.on(event, listener)

    def backoff(self, name: str) -> Callable[[F], F]:
        """`@app.backoff("name")`: a function `(attempts, error, job) -> seconds` by which jobs wait for their retry
        that ask for it, as `add(…, backoff="name")` does."""

        def declare(fn: F) -> F:
            check_strategy(name, fn)
            self._strategies[name] = fn
            return fn

        return declare

    def alert(self, sink: Sink, rules: AlertRules = AlertRules()) -> Alerts:
        """Have `sink` called with each `Alert` that the rules ask for: a function, a coroutine function, a `Webhook`.
        A sink that fails touches no job."""
        made = Alerts(self, lambda: self._clock, worker_name(self._clock), sink, rules, len(self._alerts))
        self._alerts.append(made)
        return made

    @property
    def dead_letters(self) -> AppDeadLetters:
        """Jobs that failed for good, of all queues."""
        return AppDeadLetters(self, self._strategies)

    @property
    def breakers(self) -> AppBreakers:
        """Circuit breakers, over the whole fleet."""
        return AppBreakers(self)
