"""The checker of a torture sees each kind of broken promise, and none where there is none."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from toril import App
from toril.torture.app import Ledger, LedgerEntry, TortureApp
from toril.torture.checker import PROMISES, TortureReport, _Story, check, open_jobs
from toril.torture.cleanup import clean
from toril.torture.plan import JobKind, RunSettings, order_of

JOBS = 120

Tamper = Callable[[list[str]], list[str]]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """A run on which nothing was injected, in this process."""
    folder = tmp_path_factory.mktemp("calm")
    setting = RunSettings(
        url=f"sqlite:///{folder / 'jobs.db'}", tag="calm", folder=str(folder), name="p0", concurrency=4
    )
    asyncio.run(_run(TortureApp(setting), Ledger(setting.log)))
    return setting


async def _run(work: TortureApp, ledger: Ledger) -> None:
    async with work.app:
        for number in range(JOBS):
            drawn = order_of(3, number, lease=20)
            order = replace(drawn, ms=1, delay=min(drawn.delay, 200))
            for nonce in order.nonces:
                ledger.note("attempt", nonce, order.kind, order.delay, order.key or "-")
            queue, job_id = await work.add(order)
            for nonce in order.nonces:
                ledger.note("ack", nonce, queue, job_id)
        working = asyncio.create_task(work.app.run(signals="leave"))
        while await open_jobs(work.app, work.setting.tag):  # noqa: ASYNC110 - the store has no event for it
            await asyncio.sleep(0.05)
        work.app.stop()
        await working


async def checked(setting: RunSettings, tmp_path: Path, tamper: Tamper = lambda lines: lines) -> TortureReport:
    """The same run, with another ledger."""
    lines = tamper(setting.log.read_text().splitlines())
    (tmp_path / "p0.log").write_text("\n".join([*lines, ""]))
    async with App(setting.url) as app:
        return await check(
            app, replace(setting, folder=str(tmp_path)), injected=Counter(), cut_off=Counter(), forced=[]
        )


def first(lines: list[str], *words: str) -> str:
    """The first line that tells of all this."""
    return next(line for line in lines if all(f" {word} " in f" {line} " for word in words))


def earlier(line: str) -> str:
    """The same long before."""
    word, _, rest = line.split(" ", 2)
    return f"{word} 0.5 {rest}"


def _acknowledged_and_nowhere(lines: list[str]) -> list[str]:
    attempt = first(lines, "attempt", JobKind.PLAIN).split(" ")
    attempt[3] = "n88888"
    return [*lines, " ".join(attempt), "ack 1.0 1 n88888 torture-calm-main nowhere"]


def _never_asked_for(lines: list[str]) -> list[str]:
    nonce = first(lines, "attempt", JobKind.PLAIN).split(" ")[3]
    return [line for line in lines if line.split(" ")[3:4] != [nonce] or not line.startswith(("attempt", "ack"))]


def _never_ran(lines: list[str]) -> list[str]:
    gone = first(lines, "end", "torture-calm-main")
    return [line for line in lines if line != gone]


def _ran_and_is_nowhere(lines: list[str]) -> list[str]:
    return [*lines, first(lines, "start").replace("torture-calm", "another")]


def _ended_twice(lines: list[str]) -> list[str]:
    return [*lines, first(lines, "event", "completed")]


def _ran_nine_times(lines: list[str]) -> list[str]:
    return [*lines, *[first(lines, "start")] * 9]


def _ran_at_once(lines: list[str]) -> list[str]:
    delayed = first(lines, "attempt", JobKind.DELAYED).split(" ")[3]
    return [earlier(line) if line.startswith("start") and f" {delayed} " in line else line for line in lines]


def _ran_before_its_children(lines: list[str]) -> list[str]:
    return [earlier(line) if line.startswith("start") and "-parents " in line else line for line in lines]


def _ran_all_at_once(lines: list[str]) -> list[str]:
    return [earlier(line) if line.startswith("start") and "-groups " in line else line for line in lines]


BROKEN: dict[str, list[Tamper]] = {
    "lost": [_acknowledged_and_nowhere],
    "unexpected": [_never_asked_for, _never_ran, _ran_and_is_nowhere],
    "finished twice": [_ended_twice],
    "unexplained duplicates": [_ran_nine_times],
    "started early": [_ran_at_once],
    "parent before child": [_ran_before_its_children],
    "overlapping in a group": [_ran_all_at_once],
}


async def test_a_calm_run_breaks_no_promise(calm: RunSettings, tmp_path: Path) -> None:
    report = await checked(calm, tmp_path)

    assert report.broken == []
    assert report.figures["acknowledged"] == report.figures["attempted"] >= JOBS
    assert report.figures["completed"] > JOBS / 2
    assert report.figures["failed as planned"] > 0
    assert report.document()["figures"].keys() >= set(PROMISES)


@pytest.mark.parametrize(
    ("promise", "tamper"), [(promise, tamper) for promise, all_of_it in BROKEN.items() for tamper in all_of_it]
)
async def test_a_broken_promise_is_seen(calm: RunSettings, tmp_path: Path, promise: str, tamper: Tamper) -> None:
    report = await checked(calm, tmp_path, tamper)

    assert promise in report.broken
    assert report.offenders[promise]


async def test_what_has_not_ended_is_stuck_and_a_run_leaves_nothing_behind(calm: RunSettings, tmp_path: Path) -> None:
    copy = shutil.copy(calm.url.removeprefix("sqlite:///"), tmp_path / "copy.db")
    setting = replace(calm, url=f"sqlite:///{copy}")
    work = TortureApp(replace(setting, folder=""))
    async with work.app:
        await work.queues["main"].add("do", {"nonce": "n0"})

    report = await checked(setting, tmp_path)
    async with App(setting.url) as app:
        await clean(app, setting)
        left = sum([sum((await app.store.counts(queue)).values()) for queue in await app.store.queues()])

    assert report.figures["stuck"] == 1
    assert left == 0


def recovery(*words: str) -> dict[str, float]:
    lines = [line.split() for line in words]
    return _Story(
        [LedgerEntry(word, float(at), int(pid), tuple(facts)) for word, at, pid, *facts in lines], []
    ).recovery()


RUN, AGAIN = "start 10 7 q 1 n1 1", "start 46 8 q 1 n1 2"


def test_recovery_is_the_time_from_a_kill_until_the_job_starts_again() -> None:
    assert recovery(RUN, "fault 12 1 KILL 7", AGAIN)["most"] == 34


def test_the_time_in_which_there_is_no_store_is_not_recovery() -> None:
    away = ["away 11 1", "away 13 1", "back 14 1", "back 22 1", "away 40 1", "back 43 1"]

    assert recovery(RUN, "fault 12 1 KILL 7", *away, AGAIN)["most"] == 34 - 10 - 3


@pytest.mark.parametrize(
    "kills", [["fault 50 1 KILL 7"], ["fault 5 1 KILL 7"], ["fault 5 1 KILL 7", "fault 50 1 KILL 7"]]
)
def test_the_kill_of_another_process_of_that_number_is_none_of_its_job(kills: list[str]) -> None:
    assert recovery(*kills, RUN, AGAIN) == {}
