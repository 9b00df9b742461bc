"""What a command line can get wrong, and what comes of it: one line, a code, and a store as it was."""

import fcntl
import os
import re
import signal
import struct
import termios
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Fresh, Toril, on
from tests.groups import until
from toril import App, Snooze
from toril.cli import arguments as asking

WAITS = 60.0  # seconds after which a test gives up


def _count(url: str) -> int:
    async def look(app: App) -> int:
        return sum([(await app.queue(name).counts()).waiting for name in await app.store.queues()])

    return on(url, look)


@pytest.mark.covers("B110")
@pytest.mark.parametrize(
    "words",
    [
        ["nothing"], ["--nothing"], ["queues", "--nothing"], ["queues", "too", "many"], ["add"], ["add", "email"],
        ["jobs", "email", "--limit"], ["jobs", "email", "--limit", "x"], ["jobs", "email", "--limit", "-1"],
        ["jobs", "email", "--state", "odd"], ["jobs", "email", "--cursor", "odd"], ["job", "odd", "1"],
        ["job", "show"], ["job", "show", "a", "b", "c"], ["run"], ["run", "jobs:app", "-q", "email:x"],
        ["run", "jobs:app", "-q", "email:-1"], ["run", "jobs:app", "-q", "email:0"],
        ["run", "jobs:app", "--grace", "x"],
        ["run", "jobs:app", "--log-level", "odd"], ["add", "email", "hi", "--delay", "-1"],
        ["add", "email", "hi", "--delay", "soon"], ["add", "email", "hi", "--attempts", "0"], ["add", "a:b", "hi"],
        ["add", "email", "hi", "--job-id", "12"], ["clean", "email", "--state", "active", "--yes"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_command_line_is_told_in_a_line_with_its_usage(toril: Toril, url: str, words: list[str]) -> None:
    toril("add", "--create", "email", "hi")

    told = toril(*words, code=2).stderr.splitlines()

    assert told[0].startswith("Error: ")
    assert len(told) == 1 or (len(told) == 2 and told[1].startswith("Usage: "))
    assert _count(url) == 1


@pytest.mark.covers("R164")
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("queues", "other commands cannot see it"), ("reaper", "memory:// is private to one process"),
        ("dashboard", "memory:// is private to one process, so this dashboard would be empty"),
    ],
)  # fmt: skip
def test_no_other_process_is_given_a_store_in_memory(toril: Toril, command: str, told: str) -> None:
    assert told in toril(command, "--url", "memory://", code=2).stderr


@pytest.mark.covers("R164")
def test_the_dashboard_of_an_app_in_memory_is_refused(toril: Toril, folder: Path) -> None:
    (folder / "in_memory.py").write_text("from toril import App\n\napp = App('memory://')\n", "utf-8")

    assert "mount toril.web.site(app) in that process" in toril("dashboard", "in_memory:app", code=2).stderr


def test_a_near_miss_of_a_command_is_named(toril: Toril) -> None:
    assert "did you mean 'queues'?" in toril("queue", code=2).stderr


LOOKS = [
    ["queues"], ["workers"], ["jobs", "email"], ["job", "show", "1"], ["pause", "email"], ["resume", "email"],
    ["drain", "email", "--yes"], ["clean", "email", "--yes"], ["obliterate", "email", "--yes"],
    ["job", "retry", "email", "1"],
]  # fmt: skip


@pytest.mark.covers("B111")
@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_without_a_store_to_look_at_none_is_made(toril: Toril, folder: Path, words: list[str]) -> None:
    assert "--url" in toril(*words, code=2).stderr
    assert "there is no store at" in toril(*words, "--url", "sqlite:///other.db", code=1).stderr
    assert list(folder.iterdir()) == []


@pytest.mark.covers("B111")
@pytest.mark.parametrize("kind", ["folder", "text", "no folder"])
def test_a_store_that_cannot_be_used_is_told_in_a_line(toril: Toril, folder: Path, kind: str) -> None:
    (folder / "folder").mkdir()
    (folder / "text").write_text("this is no store " * 100)

    told = toril(
        "add", "--create", "email", "hi", "--url", f"sqlite:///{'missing/x' if kind == 'no folder' else kind}", code=1
    )

    assert len(told.stderr.splitlines()) == 1
    assert "Traceback" not in told.output


@pytest.mark.covers("B111")
def test_a_store_that_is_not_there_yet_can_be_waited_for(fresh: Fresh, toril: Toril, url: str) -> None:
    waiting = fresh("queues", "--wait", "60", "--json")
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith("Waiting: there is no store")

    toril("add", "--create", "email", "hi")

    out, _ = waiting.communicate(timeout=WAITS)
    assert waiting.returncode == 0
    assert '"queue": "email"' in out or out == ""  # it may have looked before the job was there


@pytest.mark.covers("B111", "B112")
def test_a_password_on_the_command_line_is_warned_of_and_never_shown(toril: Toril) -> None:
    result = toril("queues", "--url", "odd://user:hunter2@127.0.0.1:1/0", code=2)

    assert "other users of this machine can see a password" in result.stderr
    assert "hunter2" not in result.output


@pytest.mark.covers("B112")
def test_a_password_in_the_environment_is_not_warned_of(toril: Toril, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORIL_URL", "odd://user:hunter2@127.0.0.1:1/0")

    result = toril("queues", code=2)

    assert "other users of this machine can see a password" not in result.stderr
    assert "hunter2" not in result.output


PATHS = {
    "os:system": "not a toril.App",
    "jobs.app": "such as jobs.app:app",
    "jobs.py": "such as jobs:app",
    "jobs.py:shop": "such as jobs:shop",
    "jobs:": "MODULE:APP",
    ":app": "MODULE:APP",
    "../jobs:app": "MODULE:APP",
    "jbos:app": "did you mean 'jobs'?",
    "nowhere_at_all:app": "no module 'nowhere_at_all'",
    "jobs:ap": "did you mean jobs:app?",
    "jobs:number": "not a toril.App",
    "broken:app": "ZeroDivisionError: division by zero (broken.py, line 2)",
    "leaves:app": "SystemExit: 7",
    "lacks:app": "No module named 'surely_not_installed'",
    "unparsable:app": "SyntaxError",
    "unusable:app": "InvalidName",
    "misled:app": "(misled.py, line 2)",
}


@pytest.mark.covers("B113", "F113")
@pytest.mark.parametrize("target", PATHS)
def test_a_path_that_leads_to_no_app_is_explained(toril: Toril, folder: Path, target: str) -> None:
    for name, text in {
        "jobs": "from toril import App\napp = App('memory://')\nnumber = 3\n",
        "broken": "app = 1\n1 / 0\n",
        "misled": "from toril import App\napp = App('odd://')\n",
        "leaves": "import sys\nsys.exit(7)\n",
        "lacks": "import surely_not_installed\n",
        "unparsable": "def (\n",
        "unusable": "from toril import App\napp = App('memory://')\napp.queue('a:b')\n",
    }.items():
        (folder / f"{name}.py").write_text(text)

    told = toril("run", target, code=2).stderr

    expected = PATHS[target]
    assert ("must not contain ':'" if expected == "InvalidName" else expected) in told
    assert "Traceback" not in told
    assert len(told.splitlines()) == 2


@pytest.mark.covers("B114")
@pytest.mark.parametrize(
    ("data", "given"),
    [
        ("{bad", None), ("", None), ("NaN", None), ("[" * 5000 + "]" * 5000, None), ("9" * 5000, None),
        ("@missing", None), ("@", None), ("@.", None), ("@/dev/zero", None), ("@a\0b", None), ("-", b"\xff\xfe"),
        ("-", b""), ("-", b"[" + b"1," * 3_000_000 + b"1]"), ("-", b'"' + b"x" * 1024**2 + b'"'),
        (r'"\ud800"', None),
    ],
    ids=["bad", "empty", "nan", "deep", "digits", "missing", "no name", "folder", "endless", "nul", "not utf-8",
         "no input", "large input", "large payload", "surrogate"],
)  # fmt: skip
def test_a_payload_that_cannot_be_had_is_refused_before_anything_is_written(
    toril: Toril, folder: Path, url: str, data: str, given: bytes | None
) -> None:
    told = toril("add", "--create", "email", "hi", "--", data, given=given, code=2).stderr

    assert told.startswith("Error: ")
    assert not (folder / "jobs.db").exists() or _count(url) == 0


@pytest.mark.covers("B114")
def test_an_input_without_end_is_not_read_to_its_end(fresh: Fresh, url: str) -> None:
    with Path("/dev/zero").open("rb") as endless:
        process = fresh("add", "--create", "email", "hi", "-", stdin=endless)
        _, told = process.communicate(timeout=WAITS)

    assert process.returncode == 2
    assert "larger than 4 MiB" in told


NASTY = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\r\n\x00\x7f"


@pytest.mark.covers("B115")
@pytest.mark.parametrize(
    "words",
    [["jobs", "email"], ["jobs", "email", "--json"], ["jobs", "email", "--runs"], ["jobs", "email", "--runs", "--json"],
     ["job", "show", "email", "nasty"], ["job", "show", "email", "nasty", "--json"], ["job", "show", "email", "bad"]],
    ids=" ".join,
)  # fmt: skip
def test_what_jobs_hold_cannot_drive_the_terminal(toril: Toril, url: str, words: list[str]) -> None:
    async def fill(app: App) -> None:
        await app.queue("email").add("hi", {"text": NASTY}, job_id="nasty")
        await app.queue("email").add("bad", None, job_id="bad", attempts=1, keep_failed=True, priority=1)
        app.queue("email").handlers.register("bad", _fails)
        app.queue("email").handlers.register("hi", _snoozes)
        await app.run(queues={"email": 1}, burst=True)

    on(url, fill)

    shown = toril(*words).stdout

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert "\\x1b" in shown or "\\u001b" in shown


async def _fails(ctx: Any) -> None:
    await ctx.log(NASTY)
    raise ValueError(NASTY)


async def _snoozes(ctx: Any) -> None:
    raise Snooze(3600)


DESTROYING = {
    "drain email": "removes 2 jobs",
    "clean email --state waiting": "2 are waiting now",
    "obliterate email": "with 2 jobs (0 running)",
    "job remove email one": "removes job one",
}


@pytest.mark.covers("B116")
@pytest.mark.parametrize("words", DESTROYING)
def test_what_destroys_needs_a_yes_where_nobody_can_be_asked(toril: Toril, url: str, words: str) -> None:
    _two_jobs(toril)

    told = toril(*words.split(), code=3).stderr

    assert DESTROYING[words] in told
    assert "--yes" in told
    assert _count(url) == 2

    toril(*words.split(), "--yes")
    assert _count(url) == (1 if "remove" in words else 0)


@pytest.mark.covers("B116")
@pytest.mark.parametrize("words", DESTROYING)
def test_on_a_terminal_what_destroys_asks(toril: Toril, url: str, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    _two_jobs(toril)
    monkeypatch.setattr(asking, "on_a_terminal", lambda: True)

    for answer in ("n\n", "\n", ""):
        assert DESTROYING[words] in toril(*words.split(), given=answer, code=3).stderr
        assert _count(url) == 2

    toril(*words.split(), given="y\n")
    assert _count(url) < 2


def _two_jobs(toril: Toril) -> None:
    toril("add", "--create", "email", "hi", "--job-id", "one")
    toril("add", "--create", "email", "hi", "--job-id", "two")


@pytest.mark.covers("B117")
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["table", "json"])
def test_a_reader_that_has_enough_is_left_in_peace(fresh: Fresh, url: str, form: list[str]) -> None:
    async def fill(app: App) -> None:
        await app.queue("email").add_many([("hi", "x" * 100)] * 3000)

    on(url, fill)

    process = fresh("jobs", "email", "--limit", "100000", *form)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, told = process.communicate(timeout=WAITS)

    assert process.returncode in {0, 141}
    assert told == ""


PLACES = {
    "no colour": {"NO_COLOR": "1"},
    "dumb": {"TERM": "dumb"},
    "narrow": {"COLUMNS": "20"},
    "C": {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
}


@pytest.mark.covers("B118")
@pytest.mark.parametrize("place", PLACES)
def test_the_output_is_plain_where_it_has_to_be(fresh: Fresh, url: str, place: str) -> None:
    async def fill(app: App) -> None:
        await app.queue("email").add("grüße", {"an": "日本"})

    on(url, fill)

    for words in (["jobs", "email"], ["job", "show", "1"]):
        process = fresh(*words, env=PLACES[place], encoding="utf-8", errors="replace")
        out, told = process.communicate(timeout=WAITS)

        assert process.returncode == 0, told
        assert "\x1b" not in out + told
        assert "Traceback" not in told


def _waits_for_more(pid: int, pipe: int) -> bool:
    """Whether it has read all that was written, and sleeps. A signal that comes just before it reads is not noticed
    until there is something to read."""
    (left,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return left == 0 and state == "S"


@pytest.mark.covers("B120")
@pytest.mark.parametrize("command", ["waits", "reads"])
def test_ctrl_c_ends_a_command_without_a_trace(fresh: Fresh, folder: Path, url: str, command: str) -> None:
    stack = ExitStack()
    if command == "waits":
        process = fresh("queues", "--wait", "60")
        assert process.stderr is not None
        process.stderr.readline()
    else:
        os.mkfifo(folder / "pipe")
        process = fresh("add", "--create", "email", "hi", "@pipe")
        pipe = stack.enter_context((folder / "pipe").open("wb", buffering=0))
        pipe.write(b"[")
        until(lambda: _waits_for_more(process.pid, pipe.fileno()), "the command reads")

    process.send_signal(signal.SIGINT)
    with stack:
        _, told = process.communicate(timeout=WAITS)

    assert process.returncode == 130
    assert "Traceback" not in told
    assert not (folder / "jobs.db").exists() or _count(url) == 0


@pytest.mark.parametrize("group", ["job", "dlq", "outbox", "schedules", "groups"])
def test_a_group_without_a_command_shows_its_help(toril: Toril, group: str) -> None:
    told = toril(group, code=2).stderr

    assert "\\n" not in told
    assert told.splitlines()[0] == f"Usage: toril {group} [OPTIONS] COMMAND [ARGS]..."
    assert "\nCommands:\n" in told


def test_what_nobody_foresaw_is_one_line_that_calls_it_a_bug(
    toril: Toril, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(url, lambda app: app.queue("email").add("hi", None))

    monkeypatch.setattr("toril.cli.jobs.of_job", None)
    monkeypatch.setattr("sys.argv", ["toril", "jobs", "my queue"])
    told = toril("jobs", "email", code=1).stderr

    assert told.count("\n") == 1, told
    assert told.startswith("Error: this is a bug in Toril: TypeError: ")
    assert "(jobs.py, line " in told
    assert "issue in Toril's repository" in told
    assert "toril --debug jobs 'my queue'" in told


def test_an_error_in_the_code_of_an_app_is_not_called_a_bug_of_toril(fresh: Fresh, folder: Path, url: str) -> None:
    (folder / "shop.py").write_text(
        "from contextlib import asynccontextmanager\nfrom toril import App\n"
        "@asynccontextmanager\nasync def pool(app):\n    raise KeyError('mine')\n    yield\n"
        "app = App(lifespan=pool)\napp.scanner('rows', every=60, find=lambda _: [], reset=print)\n"
    )
    process = fresh("scan", "shop:app", "rows")
    _, told = process.communicate(timeout=WAITS)

    assert process.returncode == 1
    assert told.count("\n") == 1, told
    assert "KeyError: 'mine' (shop.py, line 5)" in told
    assert "this is a bug" not in told


def test_debug_shows_where_it_went_wrong(fresh: Fresh, folder: Path) -> None:
    process = fresh("--debug", "queues", "--url", "odd://")
    _, told = process.communicate(timeout=WAITS)

    assert process.returncode == 1
    assert "Traceback" in told
    assert "InvalidOption" in told


def test_output_that_cannot_be_written_is_told_of(fresh: Fresh, toril: Toril, url: str) -> None:
    toril("add", "--create", "email", "hi")

    with Path("/dev/full").open("w") as full:
        process = fresh("queues", stdout=full)
        _, told = process.communicate(timeout=WAITS)

    assert process.returncode == 1
    assert told == "Error: [Errno 28] No space left on device\n"
