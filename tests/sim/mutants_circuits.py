"""Bugs to plant in circuit breakers, which only the rules of circuits find."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.sim.mutants import Mutant, instead, known, nothing
from tests.sim.mutants_scripts import Edit
from toril.engines.sql import breakers, settle
from toril.errors import Snooze
from toril.model import Admitted, CircuitRow, CircuitSample, CircuitState, CircuitTerms, Snoozed
from toril.policy import breaker
from toril.worker.breakers import BreakerGate

__all__ = ["CIRCUIT_BUGS", "CIRCUIT_MUTANTS"]

Original = Callable[..., Any]
_LONG = 10**9  # ms


def _to_all(original: Original) -> Original:
    def admit(circuit: CircuitRow, *args: Any, **options: Any) -> Any:
        return (circuit, Admitted()) if circuit.state is CircuitState.OPEN else original(circuit, *args, **options)

    return admit


def _any_number(original: Original) -> Original:
    def admit(circuit: CircuitRow, terms: CircuitTerms, *args: Any, **options: Any) -> Any:
        return original(circuit, replace(terms, probes=terms.probes + 1), *args, **options)

    return admit


def _leased_for_good(original: Original) -> Original:
    def admit(*args: Any, lease: int, now: int) -> Any:
        return original(*args, lease=lease + _LONG, now=now)

    return admit


def _from_anyone(original: Original) -> Original:
    def probed(circuit: CircuitRow, holder: str, sign: CircuitSample, now: int) -> Any:
        return original(replace(circuit, probes=(*circuit.probes, (holder, now))), holder, sign, now)

    return probed


def _never(which: CircuitSample) -> Callable[[Original], Original]:
    def make(original: Original) -> Original:
        def probed(circuit: CircuitRow, holder: str, sign: CircuitSample, now: int) -> Any:
            return original(circuit, holder, CircuitSample.NEITHER if sign is which else sign, now)

        return probed

    return make


def _paused(times: float) -> Callable[[Original], Original]:
    def make(original: Original) -> Original:
        return lambda circuit, pause, *, now: original(circuit, int(pause * times), now=now)

    return make


def _without_end(original: Original) -> Original:
    def counted(circuit: CircuitRow, sign: CircuitSample, now: int) -> Any:
        return original(replace(circuit, terms=replace(circuit.terms, window=_LONG)), sign, now)

    return counted


def _all_the_same(original: Original) -> Original:
    async def admitted(self: BreakerGate, *args: Any) -> bool:
        try:
            return bool(await original(self, *args))
        except Snooze:
            return False

    return admitted


def _believed_for_good(original: Original) -> Original:
    def known_wait(self: BreakerGate, key: str) -> int | None:
        seen: set[str] = self.__dict__.setdefault("seen", set())
        if original(self, key) is not None:
            seen.add(key)
        return 2_000 if key in seen else None

    return known_wait


def _with_an_attempt(original: Original) -> Original:
    def settle_one(step: Any, row: Any, outcome: object, released: list[Any]) -> None:
        spent = row.job._replace(attempts_made=row.job.attempts_made + 1) if isinstance(outcome, Snoozed) else row.job
        original(step, row._replace(job=spent), outcome, released)

    return settle_one


def _mutants() -> Iterator[Mutant]:
    yield Mutant("open_to_all", "an open circuit lets everyone in", ((breaker, "admit", _to_all),))
    yield Mutant("one_probe_more", "more probes go out than may", ((breaker, "admit", _any_number),))
    yield Mutant("probes_never_end", "a probe that died keeps its place", ((breaker, "admit", _leased_for_good),))
    yield Mutant("anyone_probes", "who was no probe is heard as one", ((breaker, "_probed", _from_anyone),))
    yield Mutant(
        "bad_probe_unheard", "a probe that fails changes nothing", ((breaker, "_probed", _never(CircuitSample.BAD)),)
    )
    yield Mutant("good_probe_unheard", "a probe that does well is not counted", (
        (breaker, "_probed", _never(CircuitSample.GOOD)),
    ))  # fmt: skip
    yield Mutant("never_opens", "failures do not open it", ((breaker, "_is_too_much", instead(lambda _: False)),))
    yield Mutant("opens_at_once", "one failure opens it", ((breaker, "_is_too_much", instead(lambda _: True)),))
    yield Mutant("pause_too_short", "it opens for half its pause", ((breaker, "trip", _paused(0.5)),))
    yield Mutant("pause_too_long", "it stays open", ((breaker, "trip", _paused(1000)),))
    yield Mutant("window_without_end", "old failures count for ever", ((breaker, "_counted", _without_end),))
    yield Mutant("nothing_kept", "what a circuit comes to is not stored", ((breakers, "_put", instead(nothing)),))
    yield Mutant("runs_all_the_same", "who may not run does", ((BreakerGate, "_admitted", _all_the_same),))
    yield Mutant("put_off_costs", "to be put off costs an attempt", ((settle, "_settle_one", _with_an_attempt),))
    yield Mutant("believed_for_good", "a worker never asks again", ((BreakerGate, "_known_wait", _believed_for_good),))


# The seed that is known to find each, and the rule.
_FOUND_BY = {
    "open_to_all": (2, "C2"), "one_probe_more": (1, "C1"), "probes_never_end": (17, "C1"), "anyone_probes": (15, "C3"),
    "bad_probe_unheard": (2, "C3"), "good_probe_unheard": (1, "C3"), "never_opens": (1, "C3"),
    "opens_at_once": (0, "C3"), "pause_too_short": (1, "C2"), "pause_too_long": (2, "C2"),
    "window_without_end": (35, "C3"), "nothing_kept": (1, "C3"), "runs_all_the_same": (1, "C4"),
    "put_off_costs": (1, "C5"), "believed_for_good": (1, "C6"),
}  # fmt: skip

CIRCUIT_MUTANTS: dict[str, Mutant] = known(_FOUND_BY, _mutants())

# Planted in the script: what it says, what it says instead; and a seed that finds it, by which rule.
CIRCUIT_BUGS: dict[str, Edit] = {
    "a circuit is not written": Edit("circuit.lua", "call('HSET', P, ARGV[2], ARGV[4])", "", 1, "C3"),
    "a circuit is always new": Edit("circuit.lua", "call('HGET', P, ARGV[2])", "false", 1, "C3"),
}
