"""Bugs to plant in flows and in groups."""

from collections.abc import Callable
from typing import Any

from tests.sim.mutants import Mutant, instead, nothing, reworded
from toril.engines.sql import effects, flows, groups

__all__ = ["FLOW_MUTANTS", "GROUP_MUTANTS"]


def _in_any_case(_: Callable[..., Any]) -> Callable[..., Any]:
    def go_on(tx: Any, row: Any, parent: Any, impatient: set[int]) -> None:
        if parent.waits:
            flows._release(tx, row, parent, parent.delay)

    return go_on


def _release_instead(_: Callable[..., Any]) -> Callable[..., Any]:
    def fail_parent(tx: Any, row: Any, parent: Any, reason: str) -> None:
        if parent.waits:
            flows._release(tx, row, parent, 0)

    return fail_parent


FLOW_MUTANTS = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "freed_early", "the first child lets its parent go", ((flows, "_release_if_done", _in_any_case),), 0, "I12"
        ),
        Mutant(
            "nobody_told",
            "a child ends, and nobody is told",
            ((effects, "children_ended", instead(nothing)),),
            0,
            "I12",
        ),
        Mutant(
            "doom_forgotten", "a parent runs that should fail", ((flows, "_fail_parent", _release_instead),), 0, "I12"
        ),
    )
}

GROUP_MUTANTS = {
    mutant.name: mutant
    for mutant in [
    Mutant("roomy", "a group has room for two", (
        (groups.Group, "room", lambda _: property(lambda self: 0 if self.paused else 2 - self.seats)),
        (groups.Group, "weight", lambda _: property(lambda _: 2)),
    ), 0, "group"),
    Mutant("forgetful", "whoever leaves a group does not let the next one in", (
        (effects, "touched", lambda _: lambda _tx, _keys: []),
    ), 0, "I1"),
    Mutant("impatient", "who was put off gives the seat of its group up", (
        (groups._SQL, "state", reworded("j.starts > 0", "j.starts > 0 AND j.starts > 9")),
    ), 1, "I1"),
]
}  # fmt: skip
