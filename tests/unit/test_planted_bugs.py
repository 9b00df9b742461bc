"""Each bug that is planted by its text still fits the code. What it costs is looked at by `make test-all`."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from tests.unit.test_row_mutants import MUTANTS
from tests.worker.planting import source_of

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests.faults.test_waiting_connections", "tests.unit.test_redis_waiting", "tests.worker.test_lease_table",
    "tests.worker.test_signal_paths", "tests.worker.test_stop_requests", "tests.worker.test_supervised_leases",
    "tests.worker.test_supervisor_connection", "tests.worker.test_supervisor_messages",
)  # fmt: skip
CONNECTION = "toril.engines.redis.connection"


def plants() -> Iterator[tuple[str, str, str]]:
    """Where a bug is planted, the text that it replaces, and its name."""
    for name in TESTS:
        module = import_module(name)
        for bug, (*where, right, _) in module.BUGS.items():
            target = where[0] if where else module.MODULE
            yield source_of(target if "." in target else f"{CONNECTION}.{target}"), right, bug
    for mutant in MUTANTS:
        yield (ROOT / mutant.file).read_text("utf-8"), mutant.right, str(mutant)


def test_every_bug_that_is_planted_by_its_text_fits_the_code() -> None:
    stale = [bug for source, right, bug in plants() if source.count(right) != 1]

    assert not stale
