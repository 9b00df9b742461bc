"""Processes that share a file wake each other through sockets beside it."""

import asyncio
import errno
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toril.engines.sql.driver import Topic
from toril.engines.sql.notifier import LocalNotifier
from toril.engines.sqlite import socket_notifier as module
from toril.engines.sqlite.socket_notifier import SocketNotifier
from toril.runtime.clock import SYSTEM

JOBS, RESULTS = [Topic.JOBS], [Topic.RESULTS]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def folder(database: Path) -> Path:
    """Where the sockets are."""
    return Path(f"{database}-wake")


@pytest.fixture
def join(database: Path) -> Iterator[Callable[[], SocketNotifier]]:
    """Another process on the file, as far as these sockets go."""
    made: list[SocketNotifier] = []

    def joined(file: Path | None = None, permissions: int = 0o600) -> SocketNotifier:
        made.append(SocketNotifier(file or database, permissions, SYSTEM))
        return made[-1]

    yield joined
    for each in made:
        each.close()


def sockets(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


@asynccontextmanager
async def listening(notifier: SocketNotifier, topics: list[Topic]) -> AsyncIterator["asyncio.Queue[list[str]]"]:
    heard: asyncio.Queue[list[str]] = asyncio.Queue()
    notifier.listen(topics, heard.put_nowait)
    try:
        yield heard
    finally:
        notifier.forget(topics, asyncio.get_running_loop())


async def heard_before(heard: "asyncio.Queue[list[str]]", last: str) -> list[list[str]]:
    """All that was heard, up to `last`."""
    found: list[list[str]] = []
    async with asyncio.timeout(20):
        while not found or last not in found[-1]:
            found.append(await heard.get())
    return found


async def test_a_listener_hears_other_processes_and_not_itself(join: Callable[[], SocketNotifier]) -> None:
    one, other = join(), join()
    async with listening(one, JOBS) as heard:
        one.notify(["own"])
        other.notify(["shop", ":worker", "=results are for others"])
        other.notify(["ümläut"])

        assert await heard_before(heard, "ümläut") in (
            [["shop", ":worker", "ümläut"]],
            [["shop", ":worker"], ["ümläut"]],
        )


async def test_results_are_for_those_who_wait_for_results(join: Callable[[], SocketNotifier]) -> None:
    one, other = join(), join()
    async with listening(one, RESULTS) as heard:
        other.notify(["shop", "=shop"])
        other.notify(["=end"])

        assert {name for names in await heard_before(heard, "=end") for name in names} == {"=shop", "=end"}


async def test_earlier_notifications_are_dropped(join: Callable[[], SocketNotifier]) -> None:
    one, other = join(), join()
    async with listening(one, JOBS):
        pass
    other.notify(["before"])
    async with listening(one, JOBS) as heard:
        other.notify(["after"])

        assert await heard_before(heard, "after") == [["after"]]


async def test_names_that_do_not_fit_become_any_name(join: Callable[[], SocketNotifier]) -> None:
    one, other = join(), join()
    async with listening(one, JOBS) as heard:
        other.notify([f"queue-{number}-{'x' * 100}" for number in range(100)])

        async with asyncio.timeout(20):
            assert await heard.get() == []


async def test_a_listener_that_does_not_read_blocks_nobody(join: Callable[[], SocketNotifier]) -> None:
    one, other = join(), join()
    async with listening(one, JOBS) as heard:
        for number in range(20_000):  # without a turn of the loop
            other.notify([f"queue{number}"])
        assert await heard.get() == []  # any of them

        other.notify(["later"])
        await heard_before(heard, "later")


async def test_the_folder_goes_with_the_last_one(
    join: Callable[[], SocketNotifier], database: Path, folder: Path
) -> None:
    one, other = join(), join()
    async with listening(one, JOBS), listening(other, [*JOBS, *RESULTS]):
        assert len(sockets(folder)) == 3
        one.close()
        assert len(sockets(folder)) == 2
    other.close()

    assert list(database.parent.iterdir()) == []


async def test_a_process_that_only_commits_leaves_nothing_behind(
    join: Callable[[], SocketNotifier], database: Path
) -> None:
    join().notify(["shop"])

    assert list(database.parent.iterdir()) == []


async def test_a_socket_that_was_tidied_away_is_made_anew(join: Callable[[], SocketNotifier], folder: Path) -> None:
    one, other = join(), join()
    async with listening(one, JOBS):
        (name,) = sockets(folder)
    (folder / name).unlink()
    folder.rmdir()  # noqa: ASYNC240 - nothing else is to be done here, as below
    async with listening(one, JOBS) as heard:
        other.notify(["shop"])

        assert await heard_before(heard, "shop") == [["shop"]]


async def test_one_that_is_being_bound_is_not_taken_for_dead(
    join: Callable[[], SocketNotifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel makes a socket's file first, and refuses what is sent to it until the socket is bound."""
    one, other = join(), join()
    remove, removals = module._Sender._remove, []

    class Binding(socket.socket):
        def bind(self, path: Any) -> None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unready:
                unready.bind(path)
            other.notify(["shop"])
            Path(path).unlink()
            super().bind(path)

    def datagrams() -> Binding:
        made = Binding(socket.AF_UNIX, socket.SOCK_DGRAM)
        made.settimeout(0)
        return made

    monkeypatch.setattr(module, "_datagrams", datagrams)
    monkeypatch.setattr(module._Sender, "_remove", lambda *its: removals.append(its))
    async with listening(one, JOBS) as heard:
        for its in removals:  # the sender was interrupted before this
            remove(*its)
        other.notify(["mail"])

        assert await heard_before(heard, "mail")


async def test_one_who_comes_within_the_same_tick_of_the_disk_is_found(
    join: Callable[[], SocketNotifier], folder: Path
) -> None:
    """A folder's time of change counts in ticks: two sockets that come within one look like one."""
    one, other, sender = join(), join(), join()
    async with listening(one, JOBS):
        sender.notify(["shop"])
        before = folder.stat()  # noqa: ASYNC240
        async with listening(other, JOBS) as heard:
            os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
            sender.notify(["shop"])

            assert await heard_before(heard, "shop") == [["shop"]]


async def test_a_path_can_be_longer_than_a_socket_address(join: Callable[..., SocketNotifier], tmp_path: Path) -> None:
    deep = tmp_path / ("f" * 120)
    deep.mkdir()
    one, other = join(deep / "jobs.db"), join(deep / "jobs.db")
    async with listening(one, JOBS) as heard:
        other.notify(["shop"])

        assert await heard_before(heard, "shop") == [["shop"]]


async def test_a_new_folder_at_a_long_path_is_found_by_the_first_commit(
    join: Callable[..., SocketNotifier], tmp_path: Path
) -> None:
    """The last one who waits removes the folder, and the next one makes it anew."""
    deep = tmp_path / ("f" * 120)
    deep.mkdir()
    one, sender = join(deep / "jobs.db"), join(deep / "jobs.db")
    async with listening(one, JOBS) as heard:
        sender.notify(["first"])
        await heard_before(heard, "first")
    one.close()
    async with listening(join(deep / "jobs.db"), JOBS) as heard:
        sender.notify(["shop"])

        assert await heard_before(heard, "shop") == [["shop"]]


async def test_a_name_that_found_a_full_socket_is_any_name(join: Callable[[], SocketNotifier]) -> None:
    one, other = join(), join()
    async with listening(one, JOBS) as heard:
        for _ in range(1_000):  # without a turn of the loop
            other.notify(["busy"])
        other.notify(["shop"])

        async with asyncio.timeout(20):
            assert await heard.get() == []


async def test_those_who_do_not_read_keep_nothing_from_others(join: Callable[[], SocketNotifier]) -> None:
    """What one socket may have under way is bounded, however many sockets it is sent to."""
    stuck, one, sender = [join() for _ in range(60)], join(), join()
    for each in stuck:
        each.listen(JOBS, lambda _: None)
    for number in range(20):
        sender.notify([f"{number}{'x' * 3000}"])
    async with listening(one, JOBS) as heard:
        sender.notify(["shop"])

        assert await heard_before(heard, "shop") == [["shop"]]


async def test_without_a_folder_for_sockets_nothing_fails(join: Callable[[], SocketNotifier], folder: Path) -> None:
    folder.write_text("not a folder", "utf-8")  # noqa: ASYNC240
    one, other = join(), join()
    async with listening(one, JOBS) as heard:
        other.notify(["shop"])
        await asyncio.sleep(0)

        assert heard.empty()
    assert folder.read_text("utf-8") == "not a folder"  # noqa: ASYNC240


@pytest.mark.parametrize(("permissions", "inside", "each"), [(0o600, 0o700, 0o600), (0o660, 0o770, 0o660)])
async def test_those_who_may_use_the_file_may_wake_others(
    join: Callable[..., SocketNotifier], folder: Path, permissions: int, inside: int, each: int
) -> None:
    one = join(None, permissions)
    async with listening(one, JOBS):
        (name,) = sockets(folder)

        assert folder.stat().st_mode & 0o777 == inside  # noqa: ASYNC240
        assert (folder / name).stat().st_mode & 0o777 == each


async def test_the_sockets_of_a_hundred_killed_processes_are_removed(
    join: Callable[[], SocketNotifier], database: Path, folder: Path
) -> None:
    program = f"""
        import asyncio, os, signal
        from pathlib import Path
        from toril.engines.sql.driver import Topic
        from toril.engines.sqlite.socket_notifier import SocketNotifier
        from toril.runtime.clock import SYSTEM

        async def listen():
            SocketNotifier(Path({str(database)!r}), 0o600, SYSTEM).listen(list(Topic), print)
            os.kill(os.getpid(), signal.SIGKILL)

        for _ in range(100):
            child = os.fork()
            if not child:
                asyncio.run(listen())
            os.waitpid(child, 0)
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], check=True)  # noqa: ASYNC221
    assert len(sockets(folder)) == 200

    sender = join()
    sender.notify(["shop", "=shop"])

    assert sockets(folder) == []
    sender.close()
    assert list(database.parent.iterdir()) == []


async def test_a_forked_child_hears_nothing_for_its_parent(join: Callable[[], SocketNotifier]) -> None:
    one, other = join(), join()
    async with listening(one, JOBS) as heard:
        child = os.fork()
        if not child:
            os._exit(0 if one._bound == {} else 1)
        assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222
        other.notify(["shop"])

        assert await heard_before(heard, "shop") == [["shop"]]


async def test_an_error_of_the_system_is_no_error_of_the_commit(
    join: Callable[[], SocketNotifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = join(), join()

    class Failing:
        def sendto(self, *_: object) -> None:
            raise OSError(errno.ENOBUFS, "no room")

        def close(self) -> None: ...

    async with listening(one, JOBS):
        monkeypatch.setattr(module, "_datagrams", Failing)
        other.notify(["shop"])


class Store:
    """What the sender commits and the waiter looks at."""

    def __init__(self) -> None:
        self.jobs = 0


async def test_no_order_of_waiting_and_committing_loses_a_wake_up(join: Callable[[], SocketNotifier]) -> None:
    """One process waits (listens, checks the file, sleeps), another commits and notifies. In every interleaving, the
    check or the notification finds the job. With one side's steps swapped, the same search finds lost wake-ups."""
    assert [case async for case in lost(join, ["listen", "check", "sleep"], ["commit", "notify"])] == []
    assert [case async for case in lost(join, ["check", "listen", "sleep"], ["commit", "notify"])] != []
    assert [case async for case in lost(join, ["listen", "check", "sleep"], ["notify", "commit"])] != []


async def lost(join: Callable[[], SocketNotifier], waiter: list[str], sender: list[str]) -> AsyncIterator[list[str]]:
    for order in interleaved(waiter, sender):
        one, other, store = join(), join(), Store()
        notifier, woken = LocalNotifier(one), False
        waiting, seen = None, False
        for step in order:
            match step:
                case "listen":
                    waiting = notifier.listen(["shop"])
                case "check":
                    seen = store.jobs > 0
                case "commit":
                    store.jobs += 1
                case "notify":
                    other.notify(["shop"])
                case _:
                    assert waiting is not None
        other.notify([":end"])  # arrives after everything else
        assert waiting is not None
        for _ in range(5):
            await asyncio.sleep(0)
        # A notification before the commit makes the waiter check too early, and sleep again.
        woken = waiting.done() and order.index("commit") < order.index("notify")
        if not seen and not woken:
            yield order
        notifier.forget(["shop"], waiting)
        one.close()
        other.close()


def interleaved(one: list[str], other: list[str]) -> Iterator[list[str]]:
    if not one or not other:
        yield [*one, *other]
        return
    for rest in interleaved(one[1:], other):
        yield [one[0], *rest]
    for rest in interleaved(one, other[1:]):
        yield [other[0], *rest]
