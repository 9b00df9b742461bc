"""Peers in environments of their own under `.bench/`, pinned; made at the first use, so that ours stays as it is."""

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.roster import Peer

__all__ = ["KEPT", "ROOT", "Unusable", "command", "interpreter", "library", "requirements", "versions"]

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".bench"
_PEERS = ROOT / "bench" / "peers"
_NODE = _PEERS / "node"


class Unusable(Exception):
    """A peer that cannot be installed or run; it is shown as such, and the others go on."""


def command(peer: Peer) -> list[str]:
    """How this peer's adapter is called; what it needs is installed."""
    if peer.language == "node":
        return ["node", str(_NODE / peer.adapter), str(_node_modules())]
    python = interpreter(peer.needs) if peer.needs else sys.executable
    return [python, "-m", f"bench.peers.{peer.adapter}"]


def versions(peer: Peer) -> str:
    """The versions that are pinned for this peer: its own first."""
    if peer.language == "node":
        return "bullmq 6.7.0, ioredis 6.0.0"
    if peer.needs is None:
        from toril import __version__

        beside = requirements(peer.library).read_text("utf-8").split() if peer.library else []
        return ", ".join([f"toril {__version__}", *(pin.replace("==", " ") for pin in beside)])
    pins = requirements(peer.needs).read_text("utf-8").split()
    told = [peer.needs, "persist-queue", "kombu", "taskiq-redis", "redis", "coredis", "hiredis"]
    found = dict(pin.split("==") for pin in pins)
    return ", ".join(f"{name} {found[name]}" for name in told if name in found)


def requirements(name: str) -> Path:
    return _PEERS / "requirements" / f"{name}.txt"


def interpreter(name: str) -> str:
    """The interpreter that has these requirements, and nothing else."""
    pins = requirements(name)
    folder = KEPT / f"python-{name}-{_digest(pins)}"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        _run([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(pins)])
        (folder / ".ready").touch()
    return str(python)


def library(name: str) -> Path:
    """A folder that has this library, for our own interpreter."""
    pins = requirements(name)
    folder = KEPT / f"library-{name}-{_digest(pins)}"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), "--requirement", str(pins)])
        (folder / ".ready").touch()
    return folder


def _node_modules() -> Path:
    lock = _NODE / "package-lock.json"
    folder = KEPT / f"node-{_digest(lock)}"
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(_NODE / file, folder)
        _run(["npm", "ci", "--ignore-scripts", "--loglevel=error", "--prefix", str(folder)])
        (folder / ".ready").touch()
    return folder / "node_modules"


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:8]


def _run(words: list[str]) -> None:
    print(f"installing: {' '.join(words[-3:])}", file=sys.stderr)
    try:
        subprocess.run(words, check=True, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        told = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise Unusable(f"could not be installed: {told[-1] if told else error}") from error
