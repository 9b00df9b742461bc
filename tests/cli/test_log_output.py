"""What `toril run` writes of its jobs: in bulk where nothing else is to see it, nothing lost, in order."""

import asyncio
import io
import logging
import os
import select
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator

import pytest

from toril.cli import terminal
from toril.cli.terminal import ReadableLines, TerminalHandler
from toril.events import Events, JobEvent
from toril.runtime.logs import output, watch


class Stream(io.StringIO):
    """Counts how often it is written to, and keeps each piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    @property
    def writes(self) -> int:
        return len(self.pieces)

    def write(self, text: str) -> int:
        self.pieces.append(text)
        return super().write(text)

    @property
    def ids(self) -> list[str]:
        return [
            word[7:] for line in self.getvalue().splitlines() for word in line.split() if word.startswith("job_id=")
        ]


@pytest.fixture
def open_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Stream]]:
    """Sets the log up as `toril run` does. Called within a test: pytest adds handlers of its own before one starts."""
    before = logging.root.level
    monkeypatch.setattr(logging.Logger, "callHandlers", terminal._CALL_HANDLERS)  # Sentry's tests leave theirs

    def opened() -> Stream:
        written = Stream()
        handler = TerminalHandler(written)
        monkeypatch.setattr(logging.root, "handlers", [handler])
        monkeypatch.setattr(output, "writer", handler)
        logging.root.setLevel(logging.INFO)
        return written

    yield opened
    logging.root.setLevel(before)


def events() -> Events:
    found = Events()
    watch(found)
    return found


def completed(number: int) -> JobEvent:
    return JobEvent(queue="shop", job_id=str(number), job_name="send", attempt=1, worker="w", duration=0.002)


class Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


async def test_the_jobs_of_one_turn_are_written_at_once(open_log: Callable[[], Stream]) -> None:
    stream = open_log()
    told = events()
    for number in range(30):
        told.emit("completed", completed(number))
    assert stream.writes == 0
    await asyncio.sleep(0)

    assert stream.ids == [str(number) for number in range(30)]
    assert stream.writes == 1
    assert (
        stream.getvalue()
        .splitlines()[7]
        .endswith(" INFO    job completed queue=shop job_id=7 job_name=send attempt=1 worker=w duration=2ms")
    )


async def test_no_piece_is_longer_than_a_pipe_takes_at_once(open_log: Callable[[], Stream]) -> None:
    stream = open_log()
    told = events()
    long = JobEvent(queue="shop", job_id="7", job_name="ü" * 500, subject="ü" * 5000)
    for event in (*map(completed, range(100)), long, *map(completed, range(100))):
        told.emit("completed", event)
    await asyncio.sleep(0)

    sizes = [len(piece.encode()) for piece in stream.pieces]
    assert all(piece.endswith("\n") for piece in stream.pieces)
    assert len([size for size in sizes if size > select.PIPE_BUF]) == 1
    assert len(stream.ids) == 201
    assert stream.writes == 7  # three before the long one, which goes by itself, and three after it


async def test_a_line_reads_as_its_record_would(open_log: Callable[[], Stream]) -> None:
    other = Collecting()
    odd = JobEvent(queue="shop", job_id="a b\x1b[2J", job_name="n" * 600, subject="ü ö", skipped="Skipping it\n")
    stream = open_log()
    told = events()
    for name, event in (("completed", odd), ("completed", completed(3)), ("cancelled", odd), ("snoozed", odd)):
        told.emit(name, event)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    logging.root.addHandler(other)
    for name, event in (("completed", odd), ("completed", completed(3)), ("cancelled", odd), ("snoozed", odd)):
        told.emit(name, event)  # type: ignore[arg-type]

    written = stream.getvalue().splitlines()
    assert [line[9:] for line in written[:4]] == [line[9:] for line in written[4:]]
    assert [ReadableLines().format(record)[9:] for record in other.records] == [line[9:] for line in written[4:]]


async def test_the_apps_own_lines_and_failures_keep_their_place(open_log: Callable[[], Stream]) -> None:
    stream = open_log()
    told = events()
    told.emit("completed", completed(1))
    logging.getLogger("shop").info("between job_id=two")
    told.emit("completed", completed(3))
    failed = JobEvent(
        queue="shop", job_id="4", job_name="send", attempt=1, error="no", kind="ValueError", detail="Trace"
    )
    told.emit("failed", failed)
    told.emit("completed", completed(5))
    await asyncio.sleep(0)

    assert stream.ids == ["1", "two", "3", "4", "5"]
    assert "\nTrace\n" in stream.getvalue()


async def test_a_handler_of_the_users_own_gets_records(open_log: Callable[[], Stream]) -> None:
    stream = open_log()
    told = events()
    told.emit("completed", completed(1))
    await asyncio.sleep(0)
    for number, logger in enumerate((logging.root, logging.getLogger("toril")), start=2):
        mine = Collecting()
        logger.addHandler(mine)
        try:
            told.emit("completed", completed(number))
        finally:
            logger.removeHandler(mine)
        (record,) = mine.records
        assert (vars(record)["job_id"], vars(record)["duration"]) == (str(number), 2)
        assert stream.ids[-1] == str(number)


@pytest.mark.parametrize("what", ["filter", "formatter", "level", "logger filter", "factory", "callHandlers"])
async def test_whatever_wants_to_see_records_sees_them(
    open_log: Callable[[], Stream], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    stream = open_log()
    seen: list[str] = []
    handler, log = logging.root.handlers[0], logging.getLogger("toril")
    factory, call = logging.getLogRecordFactory(), logging.Logger.callHandlers

    class Mine(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            seen.append(record.getMessage())
            return "mine"

    def noted(record: logging.LogRecord) -> bool:
        seen.append(record.getMessage())
        return True

    def made(*args: object, **rest: object) -> logging.LogRecord:
        record = factory(*args, **rest)
        seen.append(record.getMessage())
        return record

    def called(self: logging.Logger, record: logging.LogRecord) -> None:
        seen.append(record.getMessage())
        call(self, record)

    match what:
        case "filter":
            handler.addFilter(noted)
        case "formatter":
            handler.setFormatter(Mine())
        case "level":
            handler.setLevel(logging.WARNING)
        case "logger filter":
            monkeypatch.setattr(log, "filters", [noted])
        case "factory":
            monkeypatch.setattr(logging, "_logRecordFactory", made)
        case _:
            monkeypatch.setattr(logging.Logger, "callHandlers", called)
    events().emit("completed", completed(1))
    await asyncio.sleep(0)

    if what == "level":
        assert stream.getvalue() == ""
    else:
        assert ["job_id=1" in line for line in seen] == [True]


async def test_threads_that_log_meanwhile_lose_nothing(open_log: Callable[[], Stream]) -> None:
    stream = open_log()
    told, stop = events(), threading.Event()
    counts = [0, 0]

    def chat(mine: int) -> None:
        while not stop.is_set():
            logging.getLogger("shop").info("thread%s job_id=t%s-%s", mine, mine, counts[mine])
            counts[mine] += 1

    threads = [threading.Thread(target=chat, args=(mine,)) for mine in (0, 1)]
    for thread in threads:
        thread.start()
    for number in range(20_000):
        told.emit("completed", completed(number))
        if number % 40 == 0:
            await asyncio.sleep(0)
    stop.set()
    for thread in threads:
        thread.join()
    await asyncio.sleep(0)

    found = stream.ids
    assert [each for each in found if not each.startswith("t")] == [str(number) for number in range(20_000)]
    for mine in (0, 1):
        assert [e for e in found if e.startswith(f"t{mine}-")] == [f"t{mine}-{n}" for n in range(counts[mine])]


@pytest.mark.parametrize("end", ["sys.exit(0)", "raise SystemExit", "force()", "fork()"])
def test_nothing_is_lost_or_doubled_when_the_process_ends(end: str) -> None:
    program = """
        import asyncio, os, sys
        from toril.cli.terminal import write_logs
        from toril.events import Events, JobEvent
        from toril.runtime.logs import watch
        from toril.runtime.signals import StopSignals

        def force():
            StopSignals._end(type("Signals", (), {"_last": None})(), "enough")

        def fork():
            if os.fork():
                os.wait()
            sys.exit(0)

        async def main():
            write_logs("info")
            events = Events()
            watch(events)
            for number in range(300):
                events.emit("completed", JobEvent(queue="shop", job_id=str(number), job_name="send"))
            END

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program).replace("END", end)],
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
        check=False,
    )

    lines = [line for line in done.stderr.decode().splitlines() if "job completed" in line]
    assert [line.split("job_id=")[1].split()[0] for line in lines] == [str(number) for number in range(300)]
