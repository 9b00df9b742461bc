"""Runs the tests: `python -m tools.suite [--numprocesses N] [what pytest takes]`.

Tests of real processes share the machine with each other, and with whatever else it does. A test that failed beside
them is therefore run again by itself, three times. If it fails once more, so does the suite. If not, the suite passes
and names it as unsteady, with what it said when it failed: that is a fault to mend, of the test or of Toril. More than
a few are not looked at twice, nor is anything but failed tests.
"""

import json
import subprocess  # the tests, as anybody would start them
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["LOOKS", "MOST", "main", "second_look", "verdict"]

MOST: Final = 6  # that may be looked at again: more than that is no coincidence
LOOKS: Final = 3
FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")
TESTS_FAILED: Final = 1  # pytest's exit code for it; any other means that the run itself went wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite, and what failed in it again by itself."""
    FAILED.unlink(missing_ok=True)  # what failed in a run before this is none of this one's business
    code = _pytest(*(sys.argv[1:] if arguments is None else arguments))
    return second_look(code, _failed()) if code == TESTS_FAILED else code


def second_look(code: int, failed: Sequence[str]) -> int:
    """The suite's exit code: 0 only if each of the few that failed passes three times by itself."""
    if not 0 < len(failed) <= MOST:
        return code
    print(f"\nagain, each by itself, {LOOKS} times: {', '.join(failed)}", flush=True)
    codes = [_pytest("-p", "no:randomly", "-p", "no:xdist", *failed) for _ in range(LOOKS)]
    print(verdict(failed, codes), flush=True)
    return max(codes)


def verdict(failed: Sequence[str], codes: Sequence[int]) -> str:
    """What to tell of a second look."""
    names = "".join(f"\n  {name}" for name in failed)
    if any(codes):
        return f"failed by itself too, {sum(map(bool, codes))} of {len(codes)} times:{names}"
    return f"UNSTEADY, to be mended: failed beside others, passed {len(codes)} times by itself:{names}"


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "--quiet", *arguments], check=False).returncode  # noqa: S603


def _failed() -> list[str]:
    return sorted(json.loads(FAILED.read_text("utf-8"))) if FAILED.exists() else []


if __name__ == "__main__":
    sys.exit(main())
