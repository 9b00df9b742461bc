"""A newcomer types what the README says, line by line, in an empty folder, on the files that its examples are."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import servers

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
BIN = Path(sys.executable).parent
LONG = 300  # seconds

# What goes on until Ctrl-C, and the words after which one has seen enough.
ENDLESS = {"toril run jobs:app": "job completed"}
MEANT_TO_FAIL = "toril.errors.PermanentError: there is no order 13"
# What would run these tests again: that `make` knows it has to do.
FOREVER = {"make test"}


@dataclass
class Shell:
    """Where the newcomer is: the folder, and what was exported so far."""

    folder: Path
    env: dict[str, str]
    typed: list[str] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)  # by the last command that was typed so

    def type(self, line: str) -> None:
        """One line, as it stands in a block."""
        words = shlex.split(line, comments=True)
        command = " ".join(words)
        self.typed.append(command)
        if words[0] == "export":
            self.env |= _variables(words[1:])
        elif words[0] == "pip":
            self._installs(words)
        elif command in FOREVER:
            self._ends([*words[:1], "--dry-run", *words[1:]], ROOT)
        elif command in ENDLESS:
            self._goes_on(words, ENDLESS[command])
        else:
            given = [word for word in words if re.match(r"[A-Z_]+=", word)]
            words = words[len(given) :]
            before = self.env
            self.env = before | _variables(given)
            self.said[command] = self._ends(words, ROOT if words[0] == "make" else self.folder)  # `make`: in the clone
            self.env = before

    def _ends(self, words: list[str], folder: Path) -> str:
        done = subprocess.run(
            words, cwd=folder, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG,
            check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{shlex.join(words)} ended with {done.returncode}:\n{said}"
        assert _is_without_traceback(said), f"{shlex.join(words)}:\n{said}"
        return said

    def _installs(self, words: list[str]) -> None:
        """Without a network, as a dry run: the package has the extra, and what that needs is here."""
        said = self._ends([*words, "--dry-run", "--no-index", "--no-build-isolation"], ROOT)
        assert "WARNING" not in said, said

    def _goes_on(self, words: list[str], enough: str) -> None:
        """Until it has said enough, and Ctrl-C is pressed."""
        process = subprocess.Popen(
            words, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        said, too_long = "", threading.Timer(LONG, process.kill)
        too_long.start()
        try:
            for line in process.stdout:
                said += line
                if enough in line:
                    break
            os.killpg(process.pid, signal.SIGINT)
            rest, _ = process.communicate(timeout=LONG)
        finally:
            too_long.cancel()
            process.kill()
            process.wait()
        assert enough in said, f"{shlex.join(words)} ended by itself:\n{said}"
        assert process.returncode in (0, 130), said + rest
        assert _is_without_traceback(said + rest), said + rest


def _variables(words: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def _is_without_traceback(said: str) -> bool:
    """But for that of the job that is meant to fail, which the worker logs."""
    return said.count("Traceback (most recent call last)") == said.count(f"{MEANT_TO_FAIL}\n")


def blocks(text: str) -> Iterator[tuple[str, str]]:
    yield from FENCE.findall(text)


@pytest.mark.covers("R001")
def test_the_commands_of_the_readme_run_in_their_order(tmp_path: Path) -> None:
    server = servers.running()
    server.tell("FLUSHALL")
    text = (ROOT / "README.md").read_text("utf-8").replace("redis://localhost:6379/0", server.url)
    folder = tmp_path / "empty"
    folder.mkdir()
    usual = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    shell = Shell(folder, usual | {"PYTHONUNBUFFERED": "1", "TORIL_HTTP": "127.0.0.1:0"})  # tests run beside each other

    for kind, block in blocks(text):
        if kind == "python" and (name := FILE.match(block)) is not None:
            (folder / name[1]).write_text(block, "utf-8")
        elif kind == "sh":
            for line in block.splitlines():
                shell.type(line)

    assert {"python jobs.py", "toril run jobs:app", "toril job retry shop 3", *ENDLESS, *FOREVER} <= set(shell.typed)
    assert sorted(path.name for path in folder.glob("*.py")) == ["jobs.py", "shop.py"]
    promised = re.search(r"^python shop\.py +# (.*)$", text, re.MULTILINE)
    assert promised is not None
    assert shell.said["python shop.py"].splitlines() == promised[1].split(", "), "as the comment beside it says"
    assert "there is no order 13" in shell.said["toril job why shop 3"], "it is the job that was meant"
    assert "writing to c@example.org" in shell.said["toril job show shop 3"], "with its log"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("toril jobs nowhere", "ended with"),
        ("python broken.py", "Traceback"),
        ("python complains.py", "Traceback"),
        ("make no-such-thing", "ended with 2"),
        ("pip install '.[no-such-extra]'", "no-such-extra"),
    ],
)
def test_a_command_that_fails_or_prints_a_traceback_is_found(tmp_path: Path, line: str, complaint: str) -> None:
    """What is found in the README would be found in the test too."""
    (tmp_path / "broken.py").write_text("raise LookupError")
    (tmp_path / "complains.py").write_text(
        "import logging\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.exception('')"
    )
    shell = Shell(tmp_path, {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(tmp_path)})

    with pytest.raises(AssertionError, match=complaint):
        shell.type(line)
