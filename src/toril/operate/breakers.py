"""The circuit breakers of an app: see how they stand, open and close them by hand."""

from collections import Counter
from dataclasses import dataclass

from toril.events import WorkerEvent
from toril.model import CircuitState
from toril.model.durations import Duration, milliseconds
from toril.records import CircuitRecord, circuit_record
from toril.runtime.services import Services

__all__ = ["BreakerMetrics", "Breakers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerMetrics:
    """How many circuits stand how, and what they have counted in their windows, over the whole fleet."""

    closed: int
    open: int
    half_open: int
    runs: int
    failures: int


class Breakers:
    """`app.breakers`, over the whole fleet. A key that never failed is closed, and not listed."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list(self) -> list[CircuitRecord]:
        """All that something is known of, by their keys."""
        return [circuit_record(circuit) for circuit in await self._services.store.circuits.list()]

    async def metrics(self) -> BreakerMetrics:
        """All of them in numbers, as a monitor wants them."""
        circuits = await self._services.store.circuits.list()
        states = Counter(circuit.state for circuit in circuits)
        return BreakerMetrics(
            closed=states[CircuitState.CLOSED],
            open=states[CircuitState.OPEN],
            half_open=states[CircuitState.HALF_OPEN],
            runs=sum(circuit.runs for circuit in circuits),
            failures=sum(circuit.failures for circuit in circuits),
        )

    async def trip(self, key: str, seconds: Duration | None = None) -> CircuitRecord:
        """Open one by hand, for so long, or for as long as its own terms say."""
        pause = None if seconds is None else milliseconds("a time to stay open", seconds, 1)
        circuit = await self._services.store.circuits.trip(key, pause=pause)
        self._tell(key, CircuitState.OPEN)
        return circuit_record(circuit)

    async def reset(self, key: str) -> bool:
        """Close one by hand. False if nothing was known of it."""
        known = await self._services.store.circuits.reset(key)
        if known:
            self._tell(key, CircuitState.CLOSED)
        return known

    def _tell(self, key: str, state: CircuitState) -> None:
        event = WorkerEvent(error=f"{key} is {state}, by hand", detail={"key": key, "state": state.value})
        self._services.events.emit("breaker", event)
