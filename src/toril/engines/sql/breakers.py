"""Circuit breakers in SQL: one row per key, decided in the transaction that updates it."""

from functools import partial
from typing import Final, TypeVar

from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import Steps, Transaction
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

__all__ = ["SqlCircuits", "prune_circuits"]

T = TypeVar("T")
_SQL: Final = statements("breakers")


@implements(CircuitStore)
class SqlCircuits:
    """Circuits of the seam."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def admit(
        self, key: str, terms: CircuitTerms, holder: str, *, lease: int, now: int | None = None
    ) -> Admission:
        return await self._steps.write(partial(_admit, key=key, terms=terms, holder=holder, lease=lease), now)

    async def record(
        self, key: str, terms: CircuitTerms, holder: str, sign: CircuitSample, *, now: int | None = None
    ) -> CircuitState | None:
        return await self._steps.write(partial(_record, key=key, terms=terms, holder=holder, sample=sign), now)

    async def trip(self, key: str, *, pause: int | None = None, now: int | None = None) -> CircuitRow:
        return await self._steps.write(partial(_trip, key=key, pause=pause), now)

    async def reset(self, key: str, *, now: int | None = None) -> bool:
        return await self._steps.write(partial(_reset, key=key), now)

    async def list(self) -> list[CircuitRow]:
        return await self._steps.read(_circuits)


def _circuit(tx: Transaction, key: str) -> CircuitRow:
    return breaker.load(key, tx.value(_SQL["one"], (key,)))


def _put(tx: Transaction, before: CircuitRow, circuit: CircuitRow) -> None:
    if circuit != before and not breaker.is_forgettable(circuit, tx.now):
        tx.run(_SQL["put"], (circuit.key, breaker.dump(circuit)))
    elif circuit != before:
        tx.run(_SQL["delete"], (circuit.key,))


def _admit(tx: Transaction, key: str, terms: CircuitTerms, holder: str, lease: int) -> Admission:
    before = _circuit(tx, key)
    circuit, admission = breaker.admit(before, terms, holder, lease=lease, now=tx.now)
    if before.state is not CircuitState.CLOSED:  # a closed circuit leaves nothing to record
        _put(tx, before, circuit)
    return admission


def _record(tx: Transaction, key: str, terms: CircuitTerms, holder: str, sample: CircuitSample) -> CircuitState | None:
    before = _circuit(tx, key)
    circuit, news = breaker.record(before, terms, holder, sample, now=tx.now)
    _put(tx, before, circuit)
    return news


def _trip(tx: Transaction, key: str, pause: int | None) -> CircuitRow:
    before = _circuit(tx, key)
    circuit = breaker.trip(before, before.terms.pause if pause is None else pause, now=tx.now)
    _put(tx, before, circuit)
    return circuit


def _reset(tx: Transaction, key: str) -> bool:
    return tx.run(_SQL["delete"], (key,)) > 0


def _circuits(tx: Transaction) -> list[CircuitRow]:
    return [breaker.load(key, text) for key, text in tx.all(_SQL["all"])]


def prune_circuits(tx: Transaction) -> int:
    """Delete circuits that no longer matter."""
    over = [circuit.key for circuit in _circuits(tx) if breaker.is_forgettable(circuit, tx.now)]
    return sum(tx.run(_SQL["delete"], (key,)) for key in over)
