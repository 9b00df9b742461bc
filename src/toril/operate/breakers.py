"""`app.breakers`: look at circuits, and open or close them by hand."""

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
    """How many circuits are in each state, and what they have counted in their windows."""

    closed: int
    open: int
    half_open: int
    runs: int
    failures: int


class Breakers:
    """`app.breakers`: the circuits of the whole fleet. A key that has never failed is closed and not listed."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def list(self) -> list[CircuitRecord]:
        """List all known circuits, in the order of their keys."""
        return [circuit_record(circuit) for circuit in await self._services.store.circuits.list()]

    async def metrics(self) -> BreakerMetrics:
        """Count the circuits by state, for monitoring."""
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
        """Open a circuit by hand, for `pause` or as long as its own terms say."""
        pause = None if seconds is None else milliseconds("a time to stay open", seconds, 1)
        circuit = await self._services.store.circuits.trip(key, pause=pause)
        self._tell(key, CircuitState.OPEN)
        return circuit_record(circuit)

    async def reset(self, key: str) -> bool:
        """Close a circuit by hand. Returns False if nothing was known of it."""
        known = await self._services.store.circuits.reset(key)
        if known:
            self._tell(key, CircuitState.CLOSED)
        return known

    def _tell(self, key: str, state: CircuitState) -> None:
        event = WorkerEvent(error=f"{key} is {state}, set manually", detail={"key": key, "state": state.value})
        self._services.events.emit("breaker", event)
