"""Circuit breakers: decides, from a circuit's state and the time, what its state becomes."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from toril.errors import InvalidOption, preview
from toril.model import Admission, Admitted, CircuitRow, CircuitSample, CircuitState, CircuitTerms, Deferred
from toril.model.durations import Duration, milliseconds

__all__ = ["Breaker", "admit", "dump", "is_forgettable", "load", "put_off", "record", "trip"]

_SLOTS: Final = 20  # parts of a window, so counts expire at most a twentieth of it too late
_LOOK_AGAIN: Final = 10  # how often per pause jobs that wait for a probe may ask again
_SHORTEST: Final = 1_000
_REMEMBERED: Final = 100  # probes whose lease has expired, and which may still report
_SPREAD: Final = 0.25  # share of the pause over which deferred jobs come back

By: TypeAlias = Literal["queue", "name"] | Callable[[Any], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Pause jobs that would only fail. After the pause a few jobs try first, and if they succeed, all may run again.

    Waiting spends no attempt. A circuit is shared by the whole fleet.

    Args:
        failures: How many transient failures within `window` open the circuit.
        window: The time over which failures are counted.
        pause: How long no job of that key starts.
        probes: How many jobs try after the pause.
        rate: A share of failures, from 0 to 1, that also opens the circuit.
        minimum: How many runs there must be before `rate` counts.
        by: Which jobs share a circuit: those of the `"queue"`, those of one `"name"`, or those for which a function of
            the payload returns the same key, such as a host. Such a key is shared by all queues. A job added with its
            own `breaker` uses that key.
    """

    failures: int = 5
    window: Duration = 300
    pause: Duration = 60
    probes: int = 2
    rate: float | None = None
    minimum: int = 10
    by: By = "name"

    def __post_init__(self) -> None:
        if self.by not in ("queue", "name") and not callable(self.by):
            raise InvalidOption(f"by must be 'queue', 'name' or a function of the payload, not {preview(self.by)}")
        self.terms()

    def terms(self) -> CircuitTerms:
        """The terms as stores keep them."""
        return CircuitTerms(
            failures=self.failures,
            window=milliseconds("a breaker's window", self.window),
            pause=milliseconds("a breaker's pause", self.pause),
            probes=self.probes,
            rate=self.rate,
            minimum=self.minimum,
        )

    def key_for(self, queue: str, name: str, data: Any, own: str | None = None) -> str:
        """The key of the circuit for a job with this payload, unless its producer has set one."""
        if own is not None:
            return own
        match self.by:
            case "queue":
                return queue
            case "name":
                return f"{queue}/{name}"
            case by:
                return str(by(data))


def admit(
    circuit: CircuitRow, terms: CircuitTerms, holder: str, *, lease: int, now: int
) -> tuple[CircuitRow, Admission]:
    """Whether one more job may run. The first to ask after the pause makes the circuit half-open. A probe that asks
    again is renewed; one whose lease has run out makes room for another, but its later report still counts."""
    circuit = replace(circuit, terms=terms)
    if circuit.state is CircuitState.CLOSED:
        return circuit, Admitted()
    if circuit.state is CircuitState.OPEN and now < circuit.till:
        return circuit, Deferred(circuit.till - now)
    news = None
    if circuit.state is CircuitState.OPEN:
        news = CircuitState.HALF_OPEN
        circuit = replace(circuit, state=news, since=now, probes=(), passed=0)
    if circuit.passed >= terms.probes:  # earlier callers wanted more probes
        return _closed(circuit, now), Admitted(CircuitState.CLOSED)
    others = tuple(probe for probe in circuit.probes if probe[0] != holder)
    out = tuple(probe for probe in others if probe[1] > now)
    is_out = dict(circuit.probes).get(holder, now) > now
    if not is_out and len(out) + circuit.passed >= terms.probes:
        return circuit, Deferred(max(_SHORTEST, terms.pause // _LOOK_AGAIN))
    over = tuple(probe for probe in others if probe[1] <= now)[-_REMEMBERED:]
    return replace(circuit, till=now, probes=(*over, *out, (holder, now + lease))), Admitted(news, probe=True)


def put_off(wait: int, terms: CircuitTerms, *, chance: float) -> int:
    """For how many ms to defer a job that may not run before `wait` have passed. Jobs deferred at the same time come
    back at different times, so that the first of them find out and the rest need not."""
    return wait + round(_SPREAD * terms.pause * chance)


def record(
    circuit: CircuitRow, terms: CircuitTerms, holder: str, sign: CircuitSample, *, now: int
) -> tuple[CircuitRow, CircuitState | None]:
    """Count the report of one run. Returns the state to which the circuit changed. Runs that started before it opened
    no longer count."""
    circuit = replace(circuit, terms=terms)
    match circuit.state:
        case CircuitState.OPEN:
            return circuit, None
        case CircuitState.HALF_OPEN:
            return _probed(circuit, holder, sign, now)
        case CircuitState.CLOSED:
            return _counted(circuit, sign, now)


def _probed(circuit: CircuitRow, holder: str, sign: CircuitSample, now: int) -> tuple[CircuitRow, CircuitState | None]:
    if holder not in dict(circuit.probes):
        return circuit, None
    circuit = replace(circuit, till=now, probes=tuple(probe for probe in circuit.probes if probe[0] != holder))
    if sign is CircuitSample.BAD:
        return trip(circuit, circuit.terms.pause, now=now), CircuitState.OPEN
    if sign is CircuitSample.GOOD:
        circuit = replace(circuit, passed=circuit.passed + 1)
        if circuit.passed >= circuit.terms.probes:
            return _closed(circuit, now), CircuitState.CLOSED
    return circuit, None


def _closed(circuit: CircuitRow, now: int) -> CircuitRow:
    return CircuitRow(key=circuit.key, since=now, terms=circuit.terms)


def _counted(circuit: CircuitRow, sign: CircuitSample, now: int) -> tuple[CircuitRow, CircuitState | None]:
    if sign is CircuitSample.NEITHER:
        return circuit, None
    terms = circuit.terms
    slots = {start: (runs, bad) for start, runs, bad in circuit.slots if start > now - terms.window}
    width = max(1, terms.window // _SLOTS)
    start = -(-now // width) * width
    runs, bad = slots.get(start, (0, 0))
    slots[start] = (runs + 1, bad + (sign is CircuitSample.BAD))
    circuit = replace(circuit, slots=tuple((time, *counts) for time, counts in sorted(slots.items())))
    if sign is CircuitSample.BAD and _is_too_much(circuit):
        return trip(circuit, terms.pause, now=now), CircuitState.OPEN
    return circuit, None


def _is_too_much(circuit: CircuitRow) -> bool:
    terms = circuit.terms
    runs, bad = sum(slot[1] for slot in circuit.slots), sum(slot[2] for slot in circuit.slots)
    return bad >= terms.failures if terms.rate is None else runs >= terms.minimum and bad >= terms.rate * runs


def trip(circuit: CircuitRow, pause: int, *, now: int) -> CircuitRow:
    """Open the circuit for this long."""
    return CircuitRow(key=circuit.key, state=CircuitState.OPEN, till=now + pause, since=now, terms=circuit.terms)


def is_forgettable(circuit: CircuitRow, now: int) -> bool:
    """Whether nothing would be lost with the circuit: it is closed and its counts have expired, or its pause is over
    and nobody has asked for so long that its counts are out of date."""
    if circuit.state is CircuitState.CLOSED:
        return all(slot[0] <= now - circuit.terms.window for slot in circuit.slots)
    last = max(circuit.till, *(till for _, till in circuit.probes), 0)
    return now > last + circuit.terms.window + circuit.terms.pause


def dump(circuit: CircuitRow) -> str:
    terms = circuit.terms
    return json.dumps([
        circuit.state, circuit.till, circuit.since, circuit.slots, circuit.probes, circuit.passed,
        [terms.failures, terms.window, terms.pause, terms.probes, terms.rate, terms.minimum],
    ])  # fmt: skip


def load(key: str, text: str | None) -> CircuitRow:
    """A circuit as `dump` wrote it; a closed one if there is none."""
    if text is None:
        return CircuitRow(key=key)
    state, till, since, slots, probes, passed, (failures, window, pause, most, rate, minimum) = json.loads(text)
    return CircuitRow(
        key=key,
        state=CircuitState(state),
        till=till,
        since=since,
        slots=tuple(map(tuple, slots)),
        probes=tuple(map(tuple, probes)),
        passed=passed,
        terms=CircuitTerms(failures=failures, window=window, pause=pause, probes=most, rate=rate, minimum=minimum),
    )
