"""The lines that `toril run` writes about finished jobs: all of them, whole and in order, however it ends."""

import fcntl
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Fresh, on
from tests.servers import RedisServer
from toril import App

WAITS = 60.0
SLOTS = 100

JOBS = """
import logging, os
from pathlib import Path
from toril import App, JobContext

app = App()

async def send(ctx: JobContext[int]) -> None:
    if str(ctx.data) == os.environ.get("TEST_KILLED_AT") and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), 9)

app.queue("mail", {"send": send}, concurrency=100)
"""

_TIME = re.compile(r"\d\d:\d\d:\d\d [A-Z]+ ")
_COMPLETED = re.compile(
    r"\d\d:\d\d:\d\d INFO    job completed queue=mail job_id=(\d+) job_name=send attempt=1 worker=(\S+) duration=\d+ms"
)


@pytest.fixture(autouse=True)
def _app(folder: Path) -> None:
    (folder / "jobs.py").write_text(JOBS)


@pytest.fixture
def redis(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = RedisServer().start()
    monkeypatch.setenv("TORIL_URL", server.url)
    yield server.url
    server.stop()


@pytest.fixture(params=["url", "redis"])
def store(request: pytest.FixtureRequest, folder: Path) -> str:
    """On a file, and on Redis."""
    found: str = request.getfixturevalue(request.param)
    return found


def add(url: str, jobs: int) -> None:
    async def added(app: App) -> None:
        await app.queue("mail").add_many([("send", number) for number in range(1, jobs + 1)])

    on(url, added)


def told(log: str) -> list[tuple[int, str]]:
    """The jobs whose completion is logged, and their workers. A line that is not whole fails."""
    broken = [line for line in log.splitlines() if not _TIME.match(line) or len(_TIME.findall(line)) > 1]
    assert broken == []
    found = [(line, _COMPLETED.fullmatch(line)) for line in log.splitlines() if "job completed" in line]
    assert [line for line, match in found if match is None] == []
    return [(int(match[1]), match[2]) for _, match in found if match is not None]


def _read(reader: int) -> bytes:
    """All there is to read, a little at a time."""
    read = b""
    with os.fdopen(reader, "rb", buffering=0) as file:
        while True:
            try:
                part = file.read(700)
            except OSError:  # nobody has the terminal open any more
                return read
            if not part:
                return read
            read += part


def test_a_burst_tells_of_every_job_in_order(fresh: Fresh, store: str) -> None:
    add(store, 2_000)

    process = fresh("run", "jobs:app", "--burst", "-q", "mail:1")
    log = process.communicate(timeout=WAITS)[1]

    assert process.returncode == 0, log
    assert [job for job, _ in told(log)] == [*range(1, 2_001)]


def test_sigterm_loses_no_line(fresh: Fresh, store: str) -> None:
    jobs = 20_000
    add(store, jobs)
    reader, writer = os.pipe()
    process = fresh("run", "jobs:app", stderr=writer, stdout=subprocess.DEVNULL)
    os.close(writer)
    log = b""
    while b"job completed" not in log:
        log += os.read(reader, 4096)

    process.send_signal(signal.SIGTERM)
    log += _read(reader)

    assert process.wait(WAITS) == 0, log
    counts = on(store, lambda app: app.queue("mail").counts())
    lines = [job for job, _ in told(log.decode())]
    assert counts.active == 0
    assert len(lines) == len(set(lines)) == jobs - counts.waiting


def test_a_kill_loses_the_lines_of_the_last_moment_only(fresh: Fresh, store: str) -> None:
    """A handler kills its process. The lines of a turn are written at its end, so those of one turn are lost."""
    add(store, 2_000)

    process = fresh("run", "jobs:app", "--burst", env={"TEST_KILLED_AT": "1000"})
    log = process.communicate(timeout=WAITS)[1]

    lines = [job for job, _ in told(log)]
    missing = {*range(1, 2_001)} - {*lines}
    print(f"{len(missing)} lines lost with the process")
    assert process.returncode == 0, log
    assert len(lines) == len(set(lines))
    assert len(missing) <= SLOTS
    assert all(abs(job - 1000) <= 2 * SLOTS for job in missing)


def _pipe() -> tuple[int, int]:
    """One that is nearly always full."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    return reader, writer


@pytest.mark.parametrize("terminal", [pty.openpty, _pipe])
def test_processes_that_share_a_terminal_write_whole_lines(
    fresh: Fresh, url: str, terminal: Callable[[], tuple[int, int]]
) -> None:
    jobs = 6_000
    add(url, jobs)
    reader, writer = terminal()

    process = fresh("run", "jobs:app", "--burst", "--processes", "3", stderr=writer, stdout=subprocess.DEVNULL)
    os.close(writer)
    log = _read(reader).decode().replace("\r\n", "\n")

    assert process.wait(WAITS) == 0, log
    lines = told(log)
    assert sorted(job for job, _ in lines) == [*range(1, jobs + 1)]
    assert len({worker for _, worker in lines}) > 1


OWN = {
    "handler": """
class Mine(logging.Handler):
    def emit(self, record):
        if hasattr(record, "job_id"):
            print("MINE", record.job_id, record.duration, flush=True)
logging.getLogger("toril").addHandler(Mine())
""",
    "filter": """
class Even(logging.Filter):
    def filter(self, record):
        if "job completed" in record.getMessage() and int(record.job_id) % 2 == 0:
            print("MINE", record.job_id, record.duration, flush=True)
        return True
logging.getLogger().handlers[0].addFilter(Even())
""",
    "formatter": """
class Mine(logging.Formatter):
    def format(self, record):
        if hasattr(record, "job_id"):
            print("MINE", record.job_id, record.duration, flush=True)
        return "mine: " + record.getMessage()
logging.getLogger().handlers[0].setFormatter(Mine())
""",
    "dictConfig": """
import logging.config
class Mine(logging.Handler):
    def emit(self, record):
        if hasattr(record, "job_id"):
            print("MINE", record.job_id, record.duration, flush=True)
logging.config.dictConfig({
    "version": 1, "disable_existing_loggers": False,
    "handlers": {"mine": {"()": Mine}}, "root": {"handlers": ["mine"], "level": "INFO"},
})
""",
}


@pytest.mark.parametrize("what", OWN)
def test_what_an_app_does_with_its_log_sees_the_record_of_each_job(
    fresh: Fresh, url: str, folder: Path, what: str
) -> None:
    (folder / "jobs.py").write_text(JOBS + OWN[what])
    add(url, 20)

    process = fresh("run", "jobs:app", "--burst")
    seen, log = process.communicate(timeout=WAITS)

    assert process.returncode == 0, log
    mine = sorted(int(line.split()[1]) for line in seen.splitlines() if line.startswith("MINE"))
    assert mine == [*range(2, 21, 2)] if what == "filter" else mine == [*range(1, 21)]
    lines = [line for line in log.splitlines() if "job completed" in line]
    assert len(lines) == (0 if what == "dictConfig" else 20)
    assert all(line.startswith("mine: ") for line in lines) is (what in {"formatter", "dictConfig"})


def test_a_reader_of_the_log_that_goes_away_ends_no_worker(fresh: Fresh, url: str) -> None:
    add(url, 2_000)
    reader, writer = os.pipe()
    process = fresh("run", "jobs:app", "--burst", stderr=writer, stdout=subprocess.DEVNULL)
    os.close(writer)
    os.read(reader, 100)
    os.close(reader)

    assert process.wait(WAITS) == 0
    assert on(url, lambda app: app.queue("mail").counts()).waiting == 0
