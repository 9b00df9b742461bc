"""Which tests `make test` leaves to `make test-all`.

`make test` is what a change needs to be green, in a few minutes: rules, the conformance suite on memory, SQLite and one
Redis, worker, commands, web, one pass of a browser, and a slice of the simulator and of the tests with BullMQ. What
costs more than it tells there is thorough: it is listed here, or marked `@pytest.mark.thorough` where it stands.
"""

from typing import Final

__all__ = ["THOROUGH_KINDS", "is_thorough"]

# Kinds of engine that run the scripts or statements of another kind.
THOROUGH_KINDS: Final = frozenset(
    {"redis6", "valkey", "strict", "tls", "cluster", "acl", "postgres", "postgres-general"}
)

# Beginnings of test ids. The longest that fits decides.
_THOROUGH: Final = (
    "tests/bench/test_measuring.py",
    "tests/cli/test_bad_input.py::test_a_path_that_leads_to_no_app",
    "tests/cli/test_bad_input.py::test_a_reader_that_has_enough",
    "tests/cli/test_bad_input.py::test_the_output_is_plain",
    "tests/cli/test_bench.py",
    "tests/cli/test_demo.py::test_ctrl_c",
    "tests/cli/test_demo.py::test_on_a_terminal",
    "tests/cli/test_demo.py::test_the_demo",
    "tests/cli/test_log_of_runs.py",
    "tests/cli/test_run.py::test_a_changed_source",
    "tests/cli/test_run.py::test_a_higher_log_level",
    "tests/cli/test_run.py::test_a_store_that_cannot_be_used",
    "tests/cli/test_run.py::test_collecting_garbage",
    "tests/cli/test_run.py::test_only_the_chosen_queues",
    "tests/cli/test_run.py::test_the_log",
    "tests/cli/test_run.py::test_what_does_not_end",
    "tests/cli/test_run.py::test_without_logging",
    "tests/cli/test_run.py::test_worker_processes",
    "tests/conformance/test_machine.py::TestGeneralPostgres",
    "tests/conformance/test_machine.py::TestPostgres",
    "tests/conformance/test_machine.py::TestSqlite",  # the same engine as in memory, on a file
    "tests/dashboard/test_acts.py",
    "tests/dashboard/test_every_page.py",
    "tests/dashboard/test_harness.py",
    "tests/dashboard/test_hostile.py",
    "tests/dashboard/test_retries.py",
    "tests/dashboard/test_sign_in.py::test_on_a_phone",
    "tests/dashboard/test_sign_in.py::test_the_card",
    "tests/dashboard/test_work.py::test_a_delayed_job",
    "tests/dashboard/test_work.py::test_a_queue_is_searched",
    "tests/dashboard/test_work.py::test_everything_is_reached",
    "tests/dashboard/test_work.py::test_no_page_is_wider",
    "tests/dashboard/test_work.py::test_nobody_is_shut_out",
    "tests/deploy/",
    "tests/docs/test_site.py::test_the_site_builds",
    "tests/docs/test_snippets.py",
    "tests/example/",
    "tests/faults/",
    "tests/faults/test_damage.py::test_a_damaged_file",
    "tests/fundamentals/test_pytest_plugin.py::test_the_plugin_loads_nothing",
    "tests/integrations/test_django.py::test_the_example",
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
    "tests/unit/test_redis_waiting.py::test_a_planted_bug",
    "tests/unit/test_row_mutants.py",
    "tests/unit/test_schedules.py::test_no_change_of_the_clocks",
    "tests/web/test_fuzz.py",
    "tests/web/test_schema.py",
    "tests/web/test_strangers.py::test_nothing_that_a_stranger_sends",
    "tests/worker/test_lease_table.py::test_a_bug",
    "tests/worker/test_signal_paths.py::test_a_bug",
    "tests/worker/test_stop_requests.py::test_a_bug",
    "tests/worker/test_supervised_leases.py::test_a_bug",
    "tests/worker/test_supervisor_connection.py::test_a_bug",
    "tests/worker/test_supervisor_messages.py::test_a_bug",
)
_QUICK: Final = (
    "tests/cli/test_bad_input.py::test_a_path_that_leads_to_no_app_is_explained[broken:app]",
    "tests/cli/test_bad_input.py::test_a_path_that_leads_to_no_app_is_explained[jbos:app]",
    "tests/cli/test_log_of_runs.py::test_processes_that_share_a_terminal_write_whole_lines[_pipe]",
    "tests/cli/test_log_of_runs.py::test_sigterm_loses_no_line[url]",
    "tests/dashboard/test_acts.py::test_a_dead_letter_is_replayed_by_a_click",
    "tests/docs/test_snippets.py::test_a_first_job",
    "tests/docs/test_snippets.py::test_a_snippet_runs[README.md",
    "tests/example/test_tables.py",
    "tests/faults/test_absent.py",
    "tests/faults/test_damage.py",
    "tests/faults/test_foreign_jobs.py",
    "tests/faults/test_loop.py",
    "tests/faults/test_memory.py",
    "tests/faults/test_outvoted.py",
    "tests/faults/test_file_location.py",
    "tests/faults/test_file_counts.py",
    "tests/faults/test_redis_counts.py",
    "tests/faults/test_redis_server.py",
    "tests/faults/test_two_engines.py",
    "tests/interop/test_driver.py",
    "tests/interop/test_letters.py",
    "tests/interop/test_mixed.py",
    "tests/interop/test_node_adds.py",
    "tests/interop/test_toril_adds.py",
    "tests/sim/test_schedule_world.py::test_no_seed_breaks_a_promise_of_schedules_or_keys[0]",
    "tests/sim/test_calm.py",
    "tests/sim/test_checker.py",
    "tests/sim/test_circuit_world.py::test_no_seed_breaks_a_promise_of_circuits[0]",
    "tests/sim/test_deaths.py",
    "tests/sim/test_determinism.py::test_a_seed_gives_the_same_trace_twice",
    "tests/sim/test_groups.py::test_groups_hold_on_redis_too",
    "tests/sim/test_kept.py",
    "tests/sim/test_flow_world.py::test_no_seed_breaks_a_promise_of_flows[0]",
    "tests/sim/test_mutants.py::test_the_code_is_what_a_bug_was_made_for",
    "tests/sim/test_redis.py::test_no_seed_breaks_a_promise_on_redis[0]",
    "tests/sim/test_seeds.py::test_no_seed_breaks_a_promise[0]",
    "tests/sim/test_step_kills.py::test_a_worker_is_killed_at_every_await[memory]",
    "tests/sim/test_step_world.py::test_no_seed_breaks_a_promise_of_steps[0-steps]",
    "tests/sim/test_step_world.py::test_no_seed_breaks_a_promise_of_steps_on_redis[0]",
    "tests/unit/test_schedules.py::test_no_change_of_the_clocks_doubles_or_drops_a_run[Australia/Lord_Howe]",
    "tests/unit/test_schedules.py::test_no_change_of_the_clocks_doubles_or_drops_a_run[Europe/Berlin]",
)


def is_thorough(test: str) -> bool:
    """Whether the test of this id runs in `make test-all` only."""
    return _longest(test, _THOROUGH) > _longest(test, _QUICK)


def _longest(test: str, beginnings: tuple[str, ...]) -> int:
    return max((len(each) for each in beginnings if test.startswith(each)), default=0)
