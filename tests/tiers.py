"""Which tests `make test` leaves to `make test-all`.

`make test` is what a change needs to be green, in a few minutes: rules, the conformance suite on memory, SQLite and one
Redis, worker, commands, web, one pass of a browser, and a slice of the simulator and of the tests with BullMQ. What
costs more than it tells there is thorough: it is listed here, or marked `@pytest.mark.thorough` where it stands.
"""

from typing import Final

__all__ = ["THOROUGH_KINDS", "is_thorough"]

# Kinds of engine that run the scripts or statements of another kind.
THOROUGH_KINDS: Final = frozenset({"redis6", "valkey", "strict", "tls", "cluster", "acl"})

# Beginnings of test ids. The longest that fits decides.
_THOROUGH: Final = (
    "tests/bench/test_measuring.py",
    "tests/cli/test_bench.py",
    "tests/cli/test_demo.py::test_the_demo",
    "tests/conformance/test_machine.py::TestSqlite",  # the same engine as in memory, on a file
    "tests/dashboard/test_acts.py",
    "tests/dashboard/test_every_page.py",
    "tests/dashboard/test_hostile.py",
    "tests/dashboard/test_retries.py",
    "tests/dashboard/test_work.py::test_nobody_is_shut_out",
    "tests/deploy/",
    "tests/docs/test_site.py::test_the_site_builds",
    "tests/example/",
    "tests/faults/",
    "tests/integrations/test_flask.py",
    "tests/integrations/test_forks.py",
    "tests/integrations/test_starlette.py::test_the_example",
    "tests/interop/",
    "tests/outbox/test_every_boundary.py",
    "tests/outbox/test_server.py",
    "tests/outbox/test_worker.py",
    "tests/sim/",
    "tests/torture/test_ending.py",
    "tests/torture/test_run.py",
    "tests/web/test_fuzz.py",
    "tests/web/test_schema.py",
)
_QUICK: Final = (
    "tests/dashboard/test_acts.py::test_a_dead_letter_is_replayed_by_a_click",
    "tests/example/test_tables.py",
    "tests/faults/test_absent.py",
    "tests/faults/test_damage.py",
    "tests/faults/test_foreign_jobs.py",
    "tests/faults/test_layout.py",
    "tests/faults/test_loop.py",
    "tests/faults/test_memory.py",
    "tests/faults/test_outvoted.py",
    "tests/faults/test_place.py",
    "tests/faults/test_redis_counts.py",
    "tests/faults/test_redis_server.py",
    "tests/faults/test_sigterm.py::test_what_does_not_end_goes_back_to_the_front",
    "tests/faults/test_supervisor.py::test_the_jobs_of_a_killed_child_run_elsewhere_at_once",
    "tests/faults/test_two_engines.py",
    "tests/interop/test_driver.py",
    "tests/interop/test_letters.py",
    "tests/interop/test_mixed.py",
    "tests/interop/test_node_adds.py",
    "tests/interop/test_toril_adds.py",
    "tests/sim/test_agenda.py::test_no_seed_breaks_a_promise_of_schedules_or_keys[0]",
    "tests/sim/test_calm.py",
    "tests/sim/test_checker.py",
    "tests/sim/test_circuits.py::test_no_seed_breaks_a_promise_of_circuits[0]",
    "tests/sim/test_deaths.py",
    "tests/sim/test_determinism.py::test_a_seed_gives_the_same_trace_twice",
    "tests/sim/test_groups.py::test_groups_hold_on_redis_too",
    "tests/sim/test_kept.py",
    "tests/sim/test_loom.py::test_no_seed_breaks_a_promise_of_flows[0]",
    "tests/sim/test_redis.py::test_no_seed_breaks_a_promise_on_redis[0]",
    "tests/sim/test_seeds.py::test_no_seed_breaks_a_promise[0]",
)


def is_thorough(test: str) -> bool:
    """Whether the test of this id runs in `make test-all` only."""
    return _longest(test, _THOROUGH) > _longest(test, _QUICK)


def _longest(test: str, beginnings: tuple[str, ...]) -> int:
    return max((len(each) for each in beginnings if test.startswith(each)), default=0)
