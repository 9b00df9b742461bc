"""The processes of a torture: each is asked to end once, and only what befell it after that excuses a bad end."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from toril.torture import fleet
from toril.torture.app import Ledger, lines
from toril.torture.fleet import Disturbance, FleetMember, FleetRole, is_excused
from toril.torture.plan import RunSettings

# Says hello for a child of its own, which is what can be hit; notes each SIGTERM, and ends with the code it is given,
# not before a file `stay` beside its ledger is gone.
SCRIPT = """
import os, signal, subprocess, sys, time
path, code = sys.argv[1], int(sys.argv[2])

def note(word, pid):
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{word} {time.monotonic():.4f} {pid}\\n".encode())

child = subprocess.Popen(["sleep", "600"])
asked = []

def term(*_):
    note("asked", os.getpid())
    asked.append(1)

signal.signal(signal.SIGTERM, term)
note("hello", child.pid)
while not asked:
    time.sleep(0.01)
time.sleep(0.5)
while os.path.exists(os.path.join(os.path.dirname(path), "stay")):
    time.sleep(0.01)
child.kill()
sys.exit(code)
"""


class Polite(FleetMember):
    """A process that ends half a second after it was asked to, with this code."""

    code = 0

    def command(self, setting: RunSettings) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, "-c", SCRIPT, str(setting.log), str(self.code)], dict(os.environ)


async def until(done: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not done():  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.02)


@asynccontextmanager
async def started(folder: Path, code: int, grace: float = 10, role: FleetRole = "worker") -> AsyncIterator[Polite]:
    member = Polite(role, RunSettings(folder=str(folder), name="w", grace=grace), Ledger(folder / "driver.log"))
    member.code = code
    member.start()
    try:
        await until(member.pids)
        yield member
    finally:
        await member.kill()


def asked(folder: Path) -> list[int]:
    return [line.pid for line in lines(folder, "w.*.log") if line.word == "asked"]


async def test_two_blows_ask_a_process_once(tmp_path: Path) -> None:
    async with started(tmp_path, code=0) as member:
        ended = await asyncio.gather(member.term(), member.term())

        assert len([pid for pid in ended if pid is not None]) == 1
        assert len(asked(tmp_path)) == 1
        assert member.forced == []


async def test_a_process_that_ends_badly_is_named(tmp_path: Path) -> None:
    async with started(tmp_path, code=1) as member:
        pid = await member.term()

        assert member.forced == [f"w: process {pid} ended with code 1"]


async def test_who_cannot_reach_the_store_may_give_up_when_its_grace_is_over(tmp_path: Path) -> None:
    async with started(tmp_path, code=1, grace=0.4) as member:
        with member.cut_off():
            await member.term()

        assert member.forced == []


async def test_who_cannot_reach_the_store_is_named_if_it_gives_up_early(tmp_path: Path) -> None:
    async with started(tmp_path, code=1, grace=3600) as member:
        with member.cut_off():
            pid = await member.term()

        assert member.forced == [f"w: process {pid} ended with code 1"]


async def test_who_has_its_store_back_for_long_enough_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_CALM", 0.3)
    stay = tmp_path / "stay"
    stay.touch()
    async with started(tmp_path, code=1, grace=2.0) as member:
        term = asyncio.create_task(member.term())
        await until(lambda: asked(tmp_path))
        with member.cut_off():
            await asyncio.sleep(0.2)
        await asyncio.sleep(2.0)  # the grace, and what came before
        stay.unlink()
        pid = await term

        assert member.forced == [f"w: process {pid} ended with code 1"]


async def test_whose_child_stands_still_when_it_is_asked_is_named_if_it_has_time_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A freeze that began before the request and ends after it excuses nobody in advance."""
    monkeypatch.setattr(fleet, "_CALM", 0.3)
    stay = tmp_path / "stay"
    stay.touch()
    async with started(tmp_path, code=1, grace=2.0) as member:
        with member.still():
            child = member.signal_one(0.0, signal.SIGSTOP)
            assert child is not None
            term = asyncio.create_task(member.term())
            await until(lambda: asked(tmp_path))
            member.thaw(child)
        await asyncio.sleep(2.0)  # the grace, from when it was asked
        stay.unlink()
        pid = await term

        assert member.forced == [f"w: process {pid} ended with code 1"]


async def test_what_befell_the_one_before_excuses_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_CALM", 0.3)
    async with started(tmp_path, code=1, grace=0.4, role="supervised") as member:
        (child,) = member.pids()
        with member.still():
            member.signal_supervisor(signal.SIGKILL)
            await until(lambda: member.pids() not in ([], [child]))

            pid = await member.term()

        assert member.forced == [f"w: process {pid} ended with code 1"]


OVER = float("inf")


@pytest.mark.parametrize(
    ("ended", "disturbances", "excused"),
    [
        pytest.param(110.5, [], False, id="nothing befell it"),
        pytest.param(110.5, [(90, OVER)], True, id="the store is away all the time"),
        pytest.param(110.5, [(101, 106)], True, id="it had four seconds at most"),
        pytest.param(110.5, [(90, 105)], False, id="it stood still when it was asked, and had five seconds then"),
        pytest.param(110.99, [(101, 105.9)], True, id="what is left after its grace is no time to end in"),
        pytest.param(110.5, [(106, OVER)], False, id="it had six seconds before the store went away"),
        pytest.param(110.5, [(103, 104), (106, 107)], True, id="it was disturbed again and again"),
        pytest.param(110.5, [(100.5, 103), (102, 104.5)], False, id="disturbances that overlap count once"),
        pytest.param(110.5, [(90, 99)], False, id="it was disturbed before it was asked"),
        pytest.param(104.0, [(90, OVER)], False, id="it gave up before its grace was over"),
    ],
)
def test_who_may_end_badly(ended: float, disturbances: list[tuple[float, float]], excused: bool) -> None:
    spans = [Disturbance(None, *span) for span in disturbances]

    assert is_excused(100.0, ended, killed=False, grace=10.0, disturbances=spans) is excused
    assert is_excused(100.0, ended, killed=True, grace=10.0, disturbances=spans)


async def test_whose_child_was_killed_meanwhile_may_end_badly(tmp_path: Path) -> None:
    async with started(tmp_path, code=1) as member:
        term = asyncio.create_task(member.term())
        await until(lambda: asked(tmp_path))
        member.signal_one(0.0, signal.SIGKILL)
        await term

        assert member.forced == []


async def test_a_signal_to_the_group_asks_it_too(tmp_path: Path) -> None:
    async with started(tmp_path, code=1) as member:
        pid = await member.term(group=True)

        assert member.forced in (
            [f"w: process {pid} ended with code 1"],
            [f"w: process {pid} ended with code {-signal.SIGTERM}"],
        )
        assert asked(tmp_path) == [pid]


async def test_a_group_that_was_asked_to_end_is_left_alone_until_it_has(tmp_path: Path) -> None:
    async with started(tmp_path, code=0, role="supervised") as member:
        (child,) = member.pids()
        term = asyncio.create_task(member.term(signal.SIGURG, group=True))  # which all of them ignore
        await until(lambda: [line for line in lines(tmp_path, "driver.log") if line.word == "asked"])

        assert member.signal_one(0.0, signal.SIGKILL) is None
        assert member.signal_supervisor(signal.SIGKILL) is None
        assert member.pids() == [child]

        member.signal_all(signal.SIGKILL)
        await term
        await until(lambda: member.pids() not in ([], [child]))
        assert member.signal_one(0.0, signal.SIGKILL) is not None  # the one that took its place


async def test_the_supervisor_alone_is_struck(tmp_path: Path) -> None:
    async with started(tmp_path, code=0, role="supervised") as member:
        (child,) = member.pids()

        supervisor = member.signal_supervisor(signal.SIGKILL)

        assert supervisor is not None
        assert supervisor != child
        await until(lambda: member.pids() not in ([], [child]))  # another has taken its place
        assert os.getpgid(child) == supervisor  # and the child is still there


async def test_a_stopped_child_goes_on_after_its_supervisor_was_killed(tmp_path: Path) -> None:
    async with started(tmp_path, code=0, role="supervised") as member:
        (child,) = member.pids()
        member.signal_one(0.0, signal.SIGSTOP)
        await until(lambda: state(child) == "T")
        member.signal_supervisor(signal.SIGKILL)
        await until(lambda: member.pids() not in ([], [child]))

        member.thaw(child)

        await until(lambda: state(child) == "S")


def state(pid: int) -> str:
    """As /proc has it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_children_that_outlive_their_supervisor_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "_STOP", 1.0)
    async with started(tmp_path, code=0, role="supervised") as member:
        (child,) = member.pids()
        supervisor = member.signal_supervisor(signal.SIGKILL)
        await until(lambda: member.pids() not in ([], [child]))

        await member.close()

        assert member.forced == [f"w: children of {supervisor} did not end"]
        await until(lambda: not fleet._lives(supervisor or 0))


async def test_who_does_not_learn_that_its_child_was_killed_is_asked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCRIPT never looks after its child. What was killed before the request excuses nobody."""
    monkeypatch.setattr(fleet, "_NOTICE", 0.5)
    async with started(tmp_path, code=1) as member:
        member.signal_one(0.0, signal.SIGKILL)

        pid = await member.term()

        assert asked(tmp_path) == [pid]
        assert member.forced == [f"w: process {pid} ended with code 1"]
