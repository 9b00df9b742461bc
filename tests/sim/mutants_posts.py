"""Bugs to plant in what the supervisor does when a child has died."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.sim.mutants import Mutant, instead
from toril.model import Lease, Recovered
from toril.policy import restarts
from toril.policy.restarts import AT_ONCE, Restarts
from toril.supervisor.leases import FleetLeases

__all__ = ["POST_MUTANTS"]


def _told(**lie: Any) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """The rules hear something else of the child that died."""

    def make(original: Callable[..., float]) -> Callable[..., float]:
        return lambda self, **facts: original(self, **{**facts, **lie})

    return make


async def _released(
    self: FleetLeases, leases: Sequence[Lease], _cause: str, patience: float
) -> list[tuple[str, Recovered]]:
    await self.release_all(leases, patience)
    return []


def _never_forgotten(original: Callable[..., float]) -> Callable[..., float]:
    def pause(self: Restarts, **facts: Any) -> float:
        deaths = self._deaths
        answer = original(self, **facts)
        self._deaths = max(self._deaths, deaths)
        return answer

    return pause


POST_MUTANTS = {
    mutant.name: mutant
    for mutant in [
        Mutant("restarts_without_rest", "a crash loop is never slowed down", (
            (Restarts, "pause", instead(lambda *_, **__: AT_ONCE)),
        ), 0, "restart"),
        Mutant("obedience_punished", "who was told to go is replaced as late as who crashed", (
            (Restarts, "pause", _told(requested=False)),
        ), 0, "restart"),
        Mutant("work_forgotten", "a process that worked is replaced as late as one that did nothing", (
            (Restarts, "pause", _told(ended=0)),
        ), 0, "restart"),
        Mutant("vain_lives_forgiven", "a process that did nothing is taken for one that worked", (
            (Restarts, "pause", _told(ended=1)),
        ), 0, "restart"),
        Mutant("deaths_never_forgotten", "what came before a wish to go still counts", (
            (Restarts, "pause", _never_forgotten),
        ), 2, "restart"),
        Mutant("first_pause_too_long", "a second crash costs half a minute", (
            (restarts, "_FIRST_PAUSE", lambda _: 30.0),
        ), 0, "restart"),
        Mutant("death_is_no_stall", "jobs of a dead child go back as if it had been stopped", (
            (FleetLeases, "recover", instead(_released)),
        ), 0, "outcome"),
    ]
}  # fmt: skip
