"""What a program reads of a point in time is a datetime, of a duration seconds. The test walks the public types."""

import collections.abc
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import make_dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import toril
import toril.alerts
import toril.events
import toril.records
import toril.testing
from toril.model import moment, ms_of
from toril.queue import PreparedJob
from toril.testing import ManualClock, Memory

# Where the public API ends: a store, what it keeps and what it is asked for. There times are whole milliseconds.
SEAM = {
    "store",
    "row",
    "rows",
    "run_rows",
    "call",
    "made",
    "portal",
    "using",
    "connect",
    "wire",
    "terms",
    "tracing",
} | {"FlakyStore"}
# A clock is a part of a store too; a job made ready is what a store is asked for; `after` lets time pass.
NO_TIMES = {ManualClock: {"now"}, PreparedJob: {"job"}, Memory: {"after"}}

POINTS = re.compile(r"(.*_)?(at|due|since|till|until|start|end|deadline|now|next|slot|time|after|before|upcoming)")
SPANS = re.compile(
    r"(.*_)?(delay|duration|timeout|ttl|age|lag|window|pause|every|offset|interval|oldest|step|wait|per|p\d\d)"
)


def atoms(hint: Any) -> Iterator[Any]:
    """The plain types that a type is made of."""
    inner = [each for each in get_args(hint) if not isinstance(each, str)]
    if get_origin(hint) is collections.abc.Callable:  # what is called, and not read
        return
    for each in inner:
        yield from atoms(each)
    if not inner:
        yield hint


def namespace() -> dict[str, Any]:
    """The names of Toril's modules, for annotations that use what is imported for the type checker only."""
    found: dict[str, Any] = {}
    for module in pkgutil.walk_packages(toril.__path__, "toril."):
        if module.name.split(".")[1] in {"integrations", "cli", "web", "torture", "pytest_plugin", "__main__"}:
            continue
        found = vars(importlib.import_module(module.name)) | found
    return found


NAMES = namespace()


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """What can be read of a value of this type: fields, properties, and what methods answer."""
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("toril"):
            own = get_type_hints(base, NAMES | vars(importlib.import_module(base.__module__)))
            yield from ((name, own[name]) for name in inspect.get_annotations(base) if name[0] != "_")
    for name, value in inspect.getmembers(kind):
        function = value.fget if isinstance(value, property) else value
        if name.startswith("_") or not inspect.isfunction(function) or not function.__module__.startswith("toril"):
            continue
        yield name, get_type_hints(function, NAMES | function.__globals__).get("return", Any)


def wrong(name: str, hint: Any) -> str | None:
    """What is wrong with a member of this name and type, if something is."""
    kinds = set(atoms(hint))
    if name.endswith("_ms"):
        return "names a unit"
    if POINTS.fullmatch(name) and kinds & {int, float} and datetime not in kinds:
        return "is a point in time, and no datetime"
    if SPANS.fullmatch(name) and int in kinds and not kinds & {float, timedelta}:
        return "is a duration, and not in seconds"
    if timedelta in kinds and float not in kinds:  # where both can be given, both can be read
        return "is a duration, and no number"
    return None


def walk() -> tuple[set[type], list[str]]:
    """The types that are reached from what can be imported, and what is wrong with them."""
    modules = (toril, toril.testing, toril.alerts, toril.events, toril.records)
    roots = [getattr(module, name) for module in modules for name in module.__all__ if name not in SEAM]
    open_ = [each for each in roots if isinstance(each, type)]
    seen: set[type] = set()
    faults: list[str] = []
    while open_:
        kind = open_.pop()
        if kind in seen:
            continue
        seen.add(kind)
        for name, hint in members(kind):
            if name in SEAM or name in NO_TIMES.get(kind, ()):
                continue
            if (fault := wrong(name, hint)) is not None:
                faults.append(f"{kind.__qualname__}.{name} {fault}: {hint}")
            open_ += [each for each in atoms(hint) if isinstance(each, type) and each.__module__.startswith("toril")]
    return seen, faults


def test_times_that_programs_read_are_datetimes_and_durations_are_seconds() -> None:
    seen, faults = walk()

    assert faults == []
    reached = {kind.__name__ for kind in seen}
    assert reached >= {
        "Job", "SyncJob", "JobRecord", "DeadLetter", "RunRecord", "EventRecord", "WorkerRecord", "ScheduleRecord",
        "CircuitRecord", "GroupRecord", "QueueSettings", "RetryDelay", "QueueMetrics", "QueueOverview", "Overview",
        "Series", "MatchCount", "ErrorGroup", "Spread", "JobEvent", "Alert", "AddedJob", "OutboxStatus",
        "Scanner", "JobFilter", "DeadLetterFilter",
    }  # fmt: skip
    assert not [name for name in reached if name.endswith("Row")]  # those of `toril.model` have times as numbers


@pytest.mark.parametrize(
    ("name", "hint"),
    [("finished_at", int), ("due", int | None), ("now", float), ("upcoming", list[int]), ("till", tuple[int, ...]),
     ("timeout", int | None), ("lag", int), ("age_ms", float), ("threshold", timedelta)],
)  # fmt: skip
def test_a_time_that_is_a_bare_number_is_found(name: str, hint: Any) -> None:
    kind = make_dataclass("Bare", [(name, hint)])
    kind.__module__ = "toril.records"

    assert [wrong(*member) is not None for member in members(kind)] == [True]


@pytest.mark.parametrize("ms", [0, 1, 999, 1_767_225_600_123, 2**42, -1, 253_402_300_799_999])
def test_a_moment_is_the_same_to_the_millisecond(ms: int) -> None:
    at = moment(ms)

    assert at.tzinfo is UTC
    assert at == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    assert ms_of(at) == ms


def test_a_time_that_no_datetime_can_hold_is_the_last_or_the_first_there_is() -> None:
    assert (moment(10**30).year, moment(-(10**30)).year) == (MAXYEAR, MINYEAR)
    assert (moment(None), ms_of(None)) == (None, None)
