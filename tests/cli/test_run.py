"""`toril run`, in real processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Fresh, Toril, documents, on
from toril import App
from toril.cli.run import run
from toril.model import Claim, Counts

WAITS = 60.0

JOBS = """
import asyncio, logging, os
from toril import App, JobContext, SyncJobContext, handler

app = App()

async def greet(ctx: JobContext[dict]) -> str:
    logging.getLogger("mine").info("greeting %s", ctx.data["name"])
    return "hello " + ctx.data["name"]

async def hold(ctx: JobContext[float]) -> None:
    logging.getLogger("mine").info("holding")
    await asyncio.sleep(ctx.data)

def apart(ctx: SyncJobContext[None]) -> int:
    return os.getpid()

async def stumble(ctx: JobContext[None]) -> None:
    raise LookupError("the floor is gone")

email = app.queue("email", [greet, hold, stumble])
other = app.queue("other", {"greet": greet, "apart": handler(apart, executor="process")})
idle = app.queue("idle")
"""


@pytest.fixture(autouse=True)
def _app(folder: Path, url: str) -> None:
    (folder / "jobs.py").write_text(JOBS)


def counts(url: str, queue: str = "email") -> Counts:
    return on(url, lambda app: app.queue(queue).counts())


def ended(process: "subprocess.Popen[str]") -> str:
    """What it wrote to stderr, by its end."""
    return process.communicate(timeout=WAITS)[1]


def until(process: "subprocess.Popen[str]", words: str) -> None:
    """Wait until it has logged this."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"it ended without saying {words!r}")


def test_a_burst_of_several_processes_says_once_what_is_left_for_later(fresh: Fresh, toril: Toril) -> None:
    toril("add", "--create", "email", "greet", '{"name": "ada"}', "--delay", "1h")
    toril("add", "email", "stumble", "--attempts", "2")

    process = fresh("run", "jobs:app", "--burst", "--processes", "2")
    log = ended(process)

    assert process.returncode == 0
    assert "job failed, exhausted retries" in log, "a second later"
    assert log.count("left for later") == 1
    assert "left for later: email: 1 delayed (the next is due in 35" in log


def test_a_burst_does_all_there_is_to_do_and_ends(fresh: Fresh, toril: Toril) -> None:
    toril("add", "--create", "email", "greet", '{"name": "ada"}')
    toril("add", "--create", "other", "apart")

    process = fresh("run", "jobs:app", "--burst")
    log = ended(process)

    assert process.returncode == 0, log
    (told,) = documents(toril("jobs", "email", "--runs", "--json").stdout)
    assert (told["cause"], told["text"]) == ("completed", '"hello ada"')
    (apart,) = documents(toril("jobs", "other", "--runs", "--json").stdout)
    assert apart["cause"] == "completed"
    assert int(apart["text"]) != process.pid


def test_the_log_says_what_happens_in_readable_lines(fresh: Fresh, toril: Toril, url: str) -> None:
    toril("add", "--create", "email", "greet", r'{"name": "ada\u001b[2J"}')
    toril("add", "--create", "email", "greet", "{}", "--attempts", "1")

    log = ended(fresh("run", "jobs:app", "--burst"))

    assert f"INFO    jobs:app on {url}: email (1), other (1)\n" in log
    assert r"greeting ada\x1b[2J [mine queue=email job_id=1]" in log
    assert "INFO    job completed queue=email job_id=1 job_name=greet attempt=1" in log
    assert "ERROR   job first failure, exhausted retries queue=email job_id=2" in log
    assert "\x1b" not in log


@pytest.mark.covers("R164")
def test_several_processes_on_a_store_in_memory_are_refused(fresh: Fresh, folder: Path) -> None:
    (folder / "jobs.py").write_text(JOBS.replace("App()", 'App("memory://")'))

    process = fresh("run", "jobs:app", "--processes", "2", "--burst")
    said = ended(process)

    assert process.returncode == 2
    assert "--processes 2 needs a store that processes can share, and memory:// is private to one process" in said
    assert "ready: " not in said


def test_the_log_shows_where_a_job_has_failed(fresh: Fresh, toril: Toril) -> None:
    """By default nothing else of a failed job has it."""
    toril("add", "--create", "email", "stumble", "--attempts", "1")

    log = ended(fresh("run", "jobs:app", "--burst"))

    assert 'in stumble\n    raise LookupError("the floor is gone")\nLookupError: the floor is gone\n' in log


def test_a_higher_log_level_is_quieter(fresh: Fresh, toril: Toril) -> None:
    toril("add", "--create", "email", "greet", '{"name": "ada"}')

    assert ended(fresh("run", "jobs:app", "--burst", "--log-level", "warning")) == ""


def test_worker_processes_have_the_loop_that_is_asked_for(fresh: Fresh, toril: Toril, folder: Path) -> None:
    """A package of that name makes it; here one that says so."""
    says = "    logging.getLogger('mine').warning('another loop')\n    return asyncio.new_event_loop()\n"
    (folder / "uvloop.py").write_text(f"import asyncio, logging\n\ndef new_event_loop():\n{says}")
    toril("add", "--create", "email", "greet", '{"name": "ada"}')

    log = ended(fresh("run", "jobs:app", "--burst", "--loop", "uvloop"))

    assert log.count("another loop") == 1
    assert "job completed" in log


def test_collecting_garbage_leaves_alone_what_was_loaded(fresh: Fresh, toril: Toril, folder: Path) -> None:
    """It would take milliseconds each time, in which no job goes on."""
    (folder / "jobs.py").write_text(JOBS.replace('"holding"', '"frozen: %s", __import__("gc").get_freeze_count()'))
    toril("add", "--create", "email", "hold", "0")

    log = ended(fresh("run", "jobs:app", "--burst"))

    assert int(log.partition("frozen: ")[2].split()[0].strip('",')) > 10_000


def test_a_loop_that_is_not_installed_is_refused(toril: Toril, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toril.cli.run.find_spec", lambda _: None)

    assert "pip install 'toril[uvloop]'" in toril("run", "jobs:app", "--loop", "uvloop", code=2).output


def test_only_the_chosen_queues_are_worked(fresh: Fresh, toril: Toril, url: str) -> None:
    toril("add", "--create", "email", "greet", '{"name": "ada"}')
    toril("add", "--create", "other", "greet", '{"name": "ada"}')

    log = ended(fresh("run", "jobs:app", "--burst", "-q", "other:3"))

    assert "other (3)" in log
    assert counts(url).waiting == 1
    assert counts(url, "other").waiting == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_end(fresh: Fresh, toril: Toril, url: str, number: signal.Signals) -> None:
    toril("add", "--create", "email", "hold", "2")
    toril("add", "--create", "email", "hold", "2")
    process = fresh("run", "jobs:app")
    until(process, "holding")

    process.send_signal(number)
    log = ended(process)

    assert process.returncode == 0, log
    assert "job completed" in log
    assert counts(url).waiting == 1
    assert counts(url).active == 0


def test_what_does_not_end_in_its_grace_is_given_back(fresh: Fresh, toril: Toril, url: str) -> None:
    toril("add", "--create", "email", "hold", "600")
    process = fresh("run", "jobs:app", "--grace", "100ms")
    until(process, "holding")

    process.send_signal(signal.SIGTERM)
    log = ended(process)

    assert process.returncode == 1
    assert "job released" in log
    assert "Traceback" not in log
    assert (counts(url).waiting, counts(url).active) == (1, 0)


def test_an_idle_worker_stops_at_once(fresh: Fresh) -> None:
    process = fresh("run", "jobs:app")
    until(process, "worker started")

    process.send_signal(signal.SIGTERM)
    ended(process)

    assert process.returncode == 0


def test_an_app_whose_start_fails_is_not_run(fresh: Fresh, folder: Path) -> None:
    (folder / "sad.py").write_text(JOBS + "\n@app.on_start\ndef boom(): raise RuntimeError('no database')\n")

    process = fresh("run", "sad:app")
    log = ended(process)

    assert process.returncode == 1
    assert "RuntimeError: no database" in log


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-q", "emial"], "the app has no queue 'emial'; it has email, other, idle"),
        (["--grace", "-1"], "invalid duration"),
    ],
)
def test_what_the_app_does_not_have_is_not_worked(toril: Toril, words: list[str], told: str) -> None:
    assert told in toril("run", "jobs:app", *words, code=2).stderr


def test_an_app_without_handlers_is_not_run(toril: Toril, folder: Path) -> None:
    (folder / "bare.py").write_text("from toril import App\napp = App()\napp.queue('email')\n")

    assert "no queue with a handler" in toril("run", "bare:app", code=2).stderr


def test_a_store_that_cannot_be_used_is_told_in_a_line(fresh: Fresh, folder: Path) -> None:
    process = fresh("run", "jobs:app", "--log-level", "error", env={"TORIL_URL": "sqlite:///missing/jobs.db"})
    log = ended(process)

    assert process.returncode == 1
    assert log.startswith("Error: the directory")
    assert len(log.splitlines()) == 1


def test_without_logging_a_worker_is_silent(folder: Path, toril: Toril) -> None:
    toril("add", "--create", "email", "greet", "{}", "--attempts", "1")
    (folder / "script.py").write_text(JOBS + "\nasyncio.run(app.run(burst=True))\n")

    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=True, env=os.environ)

    assert (done.stdout, done.stderr) == ("", "")


def test_a_changed_source_starts_the_workers_anew(fresh: Fresh, folder: Path, toril: Toril) -> None:
    """One that cannot be loaded is told of, and the next change mends it."""
    (folder / "words.py").write_text("GREETING = 'hello '\n")
    (folder / "dev.py").write_text("from words import GREETING\n" + JOBS.replace('"hello "', "GREETING"))
    process = fresh("run", "dev:app", "--reload")
    until(process, "ready: ")

    (folder / "words.py").write_text("GREETING = \n")
    until(process, "words.py changed: replacing the worker processes")
    until(process, "importing 'dev' failed")
    (folder / "words.py").write_text("GREETING = 'good day '\n")
    until(process, "worker started")
    toril("add", "--create", "email", "greet", '{"name": "ada"}')
    until(process, "job completed")
    process.send_signal(signal.SIGTERM)
    ended(process)

    assert process.returncode == 0
    (told,) = documents(toril("jobs", "email", "--runs", "--json").stdout)
    assert told["text"] == '"good day ada"'


def test_the_app_of_a_worker_can_be_an_option_as_for_other_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [run.make_context("run", words).params["target"] for words in (["-A", "a:b"], ["a:b"])]
    monkeypatch.setenv("TORIL_APP", "other:app")
    targets.append(run.make_context("run", ["--app", "a:b"]).params["target"])

    assert targets == ["a:b"] * 3
    with pytest.raises(click.UsageError, match="given twice"):
        run.make_context("run", ["a:b", "-A", "a:b"])
    monkeypatch.delenv("TORIL_APP")
    with pytest.raises(click.MissingParameter):
        run.make_context("run", [])


@pytest.mark.covers("R006")
def test_every_option_of_a_worker_can_be_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, tuple[str, object]] = {
        "TORIL_APP": ("jobs:app", "jobs:app"),
        "TORIL_PROCESSES": ("3", 3),
        "TORIL_SPARES": ("7", 7),
        "TORIL_QUEUES": ("email:20 other", (("email", 20), ("other", None))),
        "TORIL_GRACE": ("90s", 90.0),
        "TORIL_BURST": ("1", True),
        "TORIL_NAME": ("mail", "mail"),
        "TORIL_STALL_INTERVAL": ("20s", 20.0),
        "TORIL_RELOAD": ("true", True),
        "TORIL_HANG_TIMEOUT": ("1m", 60.0),
        "TORIL_MAX_JOBS": ("5", 5),
        "TORIL_MAX_RSS": ("500M", 500 * 1024**2),
        "TORIL_HTTP": ("127.0.0.1:80", ("127.0.0.1", 80)),
        "TORIL_NO_HTTP": ("yes", True),
        "TORIL_HTTP_TOKEN": ("secret", "secret"),
        "TORIL_HTTP_READ_TOKEN": ("word", "word"),
        "TORIL_HTTP_HOST": ("a.example b.example", ("a.example", "b.example")),
        "TORIL_HTTP_PROXY": ("10.0.0.1", ("10.0.0.1",)),
        "TORIL_HTTP_ORIGIN": ("https://a.example", "https://a.example"),
        "TORIL_UNREADY_AFTER": ("3", 3.0),
        "TORIL_LOOP": ("uvloop", "uvloop"),
        "TORIL_LOG_LEVEL": ("debug", "debug"),
    }
    for name, (written, _) in given.items():
        monkeypatch.setenv(name, written)

    context = run.make_context("run", [])

    assert sorted(context.params.values(), key=repr) == sorted((meant for _, meant in given.values()), key=repr)


def test_a_reaper_understands_the_queues_that_a_worker_was_given(
    toril: Toril, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two may share an environment. How many jobs run at once is nothing to a reaper."""
    asked: list[object] = []

    async def reap(self: App, *, queues: object, **_: object) -> None:
        asked.append((self.url, queues))

    monkeypatch.setattr(App, "reap", reap)
    toril("reaper")
    toril("reaper", "-q", "email:20", "--queue", "sync")
    monkeypatch.setenv("TORIL_QUEUES", "email:20 sync")
    toril("reaper")

    monkeypatch.setenv("TORIL_APP", "jobs:app")
    toril("reaper")

    assert asked == [(url, None), *[(url, ["email", "sync"])] * 3]
    assert "'many'" in toril("reaper", "-q", "email:many", code=2).output
    assert "not both" in toril("reaper", "jobs:app", "--url", url, code=2).output


def test_a_reaper_passes_its_options_on(toril: Toril, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    async def reap(_: App, **options: object) -> None:
        asked.append(options)

    monkeypatch.setattr(App, "reap", reap)
    toril("reaper")
    words = "--no-election --lease 9s --renew 2s --election-interval 1s --stall-interval 500ms --name r1"
    toril("reaper", "jobs:app", *words.split())

    usual = {"lease": 30.0, "renew": None, "election_interval": None, "stall_interval": 1.0, "name": None}
    given = {"lease": 9.0, "renew": 2.0, "election_interval": 1.0, "stall_interval": 0.5, "name": "r1"}
    assert asked == [{"queues": None, "elected": True, **usual}, {"queues": None, "elected": False, **given}]


def test_worker_processes_are_called_as_is_asked_for(fresh: Fresh, toril: Toril) -> None:
    toril("add", "--create", "email", "hold", "0")

    log = ended(fresh("run", "jobs:app", "--burst", "--name", "mail"))

    assert "worker=mail-" in log


def test_the_jobs_of_a_worker_are_listed(toril: Toril, url: str) -> None:
    toril("add", "--create", "email", "greet", '{"name": "ada"}')
    claim = Claim(want=1, token="t", lease=30_000, worker="gone-1")
    on(url, lambda app: app.store.exchange("email", [], claim))

    (job,) = documents(toril("workers", "jobs", "gone-1", "--json").output)

    assert (job["queue"], job["name"], job["state"]) == ("email", "greet", "active")
    assert "greet" in toril("workers", "jobs", "gone-1").output
    assert "nobody has no running jobs." in toril("workers", "jobs", "nobody").stderr


def test_the_jobs_of_a_queue_are_listed_by_their_worker(toril: Toril, url: str) -> None:
    for _ in range(3):
        toril("add", "--create", "email", "greet")
    claims = [Claim(want=1, token=worker, lease=30_000, worker=worker) for worker in ("gone-1", "here-1")]
    on(url, lambda app: app.store.exchange("email", [], claims[0]))
    on(url, lambda app: app.store.exchange("email", [], claims[1]))

    (job,) = documents(toril("jobs", "email", "--worker", "gone-1", "--json").output)

    assert (job["worker"], job["state"]) == ("gone-1", "active")
    assert len(documents(toril("jobs", "email", "--json").output)) == 3
    assert "email has no jobs" in toril("jobs", "email", "--worker", "nobody").stderr
