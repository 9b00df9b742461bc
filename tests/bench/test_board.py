"""What handlers write down is read along by another process, and nothing of it gets lost between threads."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from toril.cli.bench.command import percentile
from toril.cli.bench.timestamps import Boards, marker


def test_what_threads_write_is_all_there(tmp_path: Path) -> None:
    mark = marker(str(tmp_path), 1000)
    boards = Boards(tmp_path, 1000)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: mark(n + 1.0, n / 2), range(900)))

    assert boards.count() == 900
    assert boards.pairs() == [(n + 1.0, n / 2) for n in range(900)]
    assert boards.processes() == [os.getpid()]


def test_what_comes_after_the_last_place_is_dropped(tmp_path: Path) -> None:
    mark = marker(str(tmp_path), 2)
    for number in range(5):
        mark(number + 1.0, 0.0)

    assert Boards(tmp_path, 2).pairs() == [(1.0, 0.0), (2.0, 0.0)]


def test_a_process_that_has_run_nothing_yet_is_no_worker(tmp_path: Path) -> None:
    marker(str(tmp_path), 2)
    boards = Boards(tmp_path, 2)

    assert (boards.count(), boards.pairs(), boards.processes()) == (0, [], [])


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(1, 101)]

    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 51, 100, 100]
    assert percentile([7.0], 0.99) == 7.0
