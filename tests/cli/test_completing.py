"""What a shell completes: asked as bash, zsh and fish ask, in a process of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import on
from tests.declared import declared
from toril import App
from toril.model import Heartbeat

ROOT = Path(__file__).parents[2]

SHOP = """
print("noise")
from toril import App, JobContext

async def pack(ctx: JobContext[None]) -> None: ...
async def post(ctx: JobContext[None]) -> None: ...

app = App("sqlite:///shop.db")
app.queue("shop", [pack, post])
"""


def completed(line: str, folder: Path, **env: str) -> list[str]:
    """What bash would offer at the end of this line."""
    words = line.split(" ")
    asked = {"_TORIL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    toril = Path(sys.executable).with_name("toril")
    done = subprocess.run(
        [toril], cwd=folder, env={"PATH": "/usr/bin:/bin", **asked, **env}, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return [found.partition(",")[2] for found in done.stdout.splitlines() if found]


@pytest.fixture
def store(folder: Path, url: str) -> dict[str, str]:
    """The environment of a store with two queues, a schedule and a worker."""

    async def fill(app: App) -> None:
        await app.queue("email").add("greet")
        await app.queue("export").add("dump")
        await app.queue("export").schedules.put("nightly", "dump", None, every=3600)
        beat = Heartbeat(
            worker="w-7", queues=["email"], slots=1, running=0, declares={"email": declared("greet", "goodbye")}
        )
        await app.store.heartbeat(beat, ttl=600_000)

    on(url, fill)
    return {"TORIL_URL": url}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("toril que", ["queues"]),
        ("toril jobs ", ["email", "export"]),
        ("toril jobs em", ["email"]),
        ("toril jobs --json --url sqlite:///jobs.db ex", ["export"]),
        ("toril pause ", ["email", "export"]),
        ("toril job show ex", ["export"]),
        ("toril job show export ", []),
        ("toril events email ex", ["export"]),
        ("toril dlq list --queue em", ["email"]),
        ("toril doctor -q em", ["email"]),
        ("toril groups ", ["list", "pause", "resume", "set", "email", "export"]),
        ("toril add email g", ["goodbye", "greet"]),
        ("toril jobs email --name gr", ["greet"]),
        ("toril jobs email --state de", ["delayed"]),
        ("toril schedules show ", ["email", "export"]),
        ("toril schedules show export ", ["nightly"]),
        ("toril workers stop ", ["w-7"]),
        ("toril queues --sho", []),
        ("toril dlq show --sho", ["--show-secrets"]),
    ],
)
def test_names_are_completed(folder: Path, store: dict[str, str], line: str, offered: list[str]) -> None:
    assert completed(line, folder, **store) == offered


@pytest.mark.parametrize(
    ("line", "env", "offered"),
    [
        ("toril jobs -A shop:app s", {}, ["shop"]),
        ("toril jobs s", {"TORIL_APP": "shop:app"}, ["shop"]),
        ("toril add -A shop:app shop p", {}, ["pack", "post"]),
        ("toril run shop:app -q s", {}, ["shop"]),
        ("toril jobs -A nowhere:app s", {}, []),
        ("toril jobs s", {}, []),
        ("toril jobs s", {"TORIL_URL": "redis://127.0.0.1:1/0"}, []),
    ],
)
def test_an_app_completes_what_it_declares_and_trouble_completes_nothing(
    folder: Path, line: str, env: dict[str, Any], offered: list[str]
) -> None:
    """No store is made by that."""
    (folder / "shop.py").write_text(SHOP)

    assert completed(line, folder, **env) == offered
    assert not (folder / "shop.db").exists()
    assert not (folder / "toril.db").exists()


def test_bash_completes_a_queue_with_the_line_of_the_documentation(folder: Path, store: dict[str, str]) -> None:
    script = """
eval "$(_TORIL_COMPLETE=bash_source toril)"
COMP_WORDS=(toril jobs em) COMP_CWORD=2
_toril_completion toril em jobs
echo "${COMPREPLY[@]}"
"""
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **store}

    done = subprocess.run(["bash", "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("email\n", "")
    assert 'eval "$(_TORIL_COMPLETE=bash_source toril)"' in (ROOT / "docs" / "cli.md").read_text("utf-8")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(folder: Path, shell: str) -> None:
    toril = Path(sys.executable).with_name("toril")
    env = {"PATH": "/usr/bin:/bin", "_TORIL_COMPLETE": f"{shell}_source"}

    done = subprocess.run([toril], cwd=folder, env=env, capture_output=True, text=True, check=True, timeout=60)

    assert f"_TORIL_COMPLETE={shell}_complete" in done.stdout
