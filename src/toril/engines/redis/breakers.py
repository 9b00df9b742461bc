"""Circuit breakers on Redis: one text per key, written only if no one else has changed it meanwhile."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from toril.engines.redis.layout import FLEET
from toril.engines.redis.runner import ScriptRunner
from toril.errors import EngineUnavailable
from toril.model import (
    Admission,
    CircuitRow,
    CircuitSample,
    CircuitState,
    CircuitTerms,
)
from toril.policy import breaker
from toril.store.capabilities import CircuitStore
from toril.store.checked import implements

__all__ = ["RedisCircuits"]

T = TypeVar("T")
_TRIES: Final = 100  # each failed try means that another process succeeded


@implements(CircuitStore)
class RedisCircuits:
    """Circuits of the seam."""

    def __init__(self, runner: ScriptRunner) -> None:
        self._runner = runner

    async def admit(
        self, key: str, terms: CircuitTerms, holder: str, *, lease: int, now: int | None = None
    ) -> Admission:
        return await self._decide(
            key, lambda circuit, time: breaker.admit(circuit, terms, holder, lease=lease, now=time), now
        )

    async def record(
        self, key: str, terms: CircuitTerms, holder: str, sign: CircuitSample, *, now: int | None = None
    ) -> CircuitState | None:
        return await self._decide(
            key, lambda circuit, time: breaker.record(circuit, terms, holder, sign, now=time), now
        )

    async def trip(self, key: str, *, pause: int | None = None, now: int | None = None) -> CircuitRow:
        def tripped(circuit: CircuitRow, time: int) -> tuple[CircuitRow, CircuitRow]:
            opened = breaker.trip(circuit, circuit.terms.pause if pause is None else pause, now=time)
            return opened, opened

        return await self._decide(key, tripped, now)

    async def reset(self, key: str, *, now: int | None = None) -> bool:  # noqa: ARG002 - the seam's
        self._runner.check_open()
        return int(await self._runner.client.ask("HDEL", self._all_circuits, key)) > 0

    async def list(self) -> list[CircuitRow]:
        row = await self._runner.run_on(self._all_circuits, "circuits", [self._runner.time_for(None)], again=True)
        return sorted((breaker.load(*each) for each in zip(row[::2], row[1::2], strict=True)), key=lambda one: one.key)

    async def prune(self, now: int | None) -> int:
        """Delete circuits that no longer matter."""
        _, time, _ = await self._circuit("-", now)
        over = [circuit.key for circuit in await self.list() if breaker.is_forgettable(circuit, time)]
        for key in over:
            text, time, _ = await self._circuit(key, now)
            if text is not None and breaker.is_forgettable(breaker.load(key, text), time):
                await self._circuit(key, now, text, "")
        return len(over)

    @property
    def _all_circuits(self) -> str:
        return self._runner.fleet + FLEET["circuits"]

    async def _decide(self, key: str, decide: Callable[[CircuitRow, int], tuple[CircuitRow, T]], now: int | None) -> T:
        self._runner.check_open()
        text, time, _ = await self._circuit(key, now)
        for _ in range(_TRIES):
            before = breaker.load(key, text)
            circuit, answer = decide(before, time)
            if circuit == before or (text is None and circuit.state is CircuitState.CLOSED and not circuit.slots):
                return answer
            new = "" if breaker.is_forgettable(circuit, time) else breaker.dump(circuit)
            text, time, written = await self._circuit(key, now, text or "", new)
            if written:
                return answer
        raise EngineUnavailable(f"circuit {key!r} kept changing during {_TRIES} attempts to update it; try again")

    async def _circuit(self, key: str, now: int | None, *exchange: str) -> Any:
        arguments = [self._runner.time_for(now), key, *exchange]
        return await self._runner.run_on(self._all_circuits, "circuit", arguments, again=not exchange)
