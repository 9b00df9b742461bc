"""Tallies of stretches of time, added up. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from toril.model import Tally
from toril.policy.histogram import merged

__all__ = [
    "ALL_NAMES", "CANCELLED", "LOST", "NAMES", "NAME_BYTES", "RETRIES", "STALLS", "Counted", "sliced", "sum_of",
    "tally_of",
]  # fmt: skip

NAMES: Final = 20  # names whose failures are told apart
ALL_NAMES: Final = 100  # the same in the sum of all that ever was
NAME_BYTES: Final = 100  # of a name that is told apart

# A tally as stores keep it: `w` and `r` with a bucket behind it, `n` with a name, and the letters below.
Counted: TypeAlias = dict[str, int]
OTHERS: Final = "o"
CANCELLED: Final = "x"
RETRIES: Final = "e"
STALLS: Final = "s"
LOST: Final = "l"


def tally_of(counted: Mapping[str, int]) -> Tally:
    """A tally from what a store keeps of it."""
    found: dict[str, dict[str, int]] = {"w": {}, "r": {}, "n": {}}
    for field, count in counted.items():
        if len(field) > 1 and field[0] in found:
            found[field[0]][field[1:]] = count
        elif field == "n":  # a job without a name
            found["n"][""] = count
    return Tally(
        waits={int(bucket): count for bucket, count in found["w"].items()},
        runs={int(bucket): count for bucket, count in found["r"].items()},
        failures=found["n"], other_failures=counted.get(OTHERS, 0), cancelled=counted.get(CANCELLED, 0),
        retries=counted.get(RETRIES, 0), stalls=counted.get(STALLS, 0), lost=counted.get(LOST, 0),
    )  # fmt: skip


def sliced(sum_so_far: Counted, more: Mapping[str, int], names: int = NAMES) -> Counted:
    """The first with the second added to it; names beyond so many are added to the others."""
    known = sum(field[0] == "n" for field in sum_so_far)
    for field, count in more.items():
        own = field
        if field[0] == "n" and field not in sum_so_far:
            if known >= names or len(field.encode()) > NAME_BYTES + 1:
                own = OTHERS
            else:
                known += 1
        sum_so_far[own] = sum_so_far.get(own, 0) + count
    return sum_so_far


def sum_of(tallies: Iterable[Tally]) -> Tally:
    """One tally of all, with the names that failed most."""
    given = list(tallies)
    failures, others = _most(each.failures for each in given)
    return Tally(
        waits=merged(each.waits for each in given), runs=merged(each.runs for each in given), failures=failures,
        other_failures=others + sum(each.other_failures for each in given),
        cancelled=sum(each.cancelled for each in given),
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
