"""Looks at a built release as its first user would: `python -m tools.release dist`.

The wheel has what it needs and nothing else, is small, and works in an environment that has never seen the sources.
"""

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Final

LIMIT: Final = 1_250_000  # bytes of the wheel
_STRAY: Final = (".pyc", ".orig", ".rej", ".swp", ".db", ".log", ".map")


def faults(wheel: Path) -> list[str]:
    """What is wrong with the files of a wheel."""
    names = zipfile.ZipFile(wheel).namelist()
    found = [f"stray file: {name}" for name in names if name.endswith(_STRAY) or "__pycache__" in name]
    found += [f"not ours: {name}" for name in names if not name.startswith(("toril/", "toril-"))]
    needed = ("toril/py.typed", "toril/cli/main.py", "toril/engines/redis/lua/exchange.lua")
    found += [f"missing: {name}" for name in needed if name not in names]
    if wheel.stat().st_size > LIMIT:
        found.append(f"{wheel.stat().st_size:,} bytes are more than {LIMIT:,}")
    return found


def tried(wheel: Path) -> list[str]:
    """What goes wrong when it is installed and used."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        bin_ = Path(folder, "bin")
        steps = [
            [str(bin_ / "pip"), "install", "--quiet", str(wheel.resolve())],
            [str(bin_ / "toril"), "--version"],
            [str(bin_ / "toril"), "demo", "--pace", "0.2"],
        ]
        for step in steps:
            done = subprocess.run(step, cwd=folder, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603
            if done.returncode:
                return [f"{' '.join(step[-3:])}: {done.stderr.strip()[-500:]}"]
    return []


def main(folder: Path) -> int:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        outside = [name for name in tar.getnames() if "/tests/interop/node/node_modules/" in name]
    found = faults(wheel) + [f"stray file: {name}" for name in outside[:3]] + tried(wheel)
    for fault in found:
        print(fault)
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes; {sdist.name}: {sdist.stat().st_size:,} bytes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
