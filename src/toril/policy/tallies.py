"""Tallies of stretches of time, added up. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from toril.model import Tally
from toril.policy.histogram import merged

__all__ = ["NAMES", "sum_of"]

NAMES: Final = 20  # names whose failures are told apart


def sum_of(tallies: Iterable[Tally]) -> Tally:
    """One tally of all, with the names that failed most."""
    given = list(tallies)
    failures, others = _most(each.failures for each in given)
    return Tally(
        waits=merged(each.waits for each in given), wait_ms=sum(each.wait_ms for each in given),
        runs=merged(each.runs for each in given), run_ms=sum(each.run_ms for each in given), failures=failures,
        other_failures=others + sum(each.other_failures for each in given),
        retries=sum(each.retries for each in given), stalls=sum(each.stalls for each in given),
        lost=sum(each.lost for each in given),
    )  # fmt: skip


def _most(failures: Iterable[Mapping[str, int]]) -> tuple[dict[str, int], int]:
    """The names that failed most, and how many failures of others are left out."""
    total: Counter[str] = Counter()
    for each in failures:
        total.update(each)
    most = dict(sorted(total.items(), key=lambda item: (-item[1], item[0]))[:NAMES])
    return most, total.total() - sum(most.values())
