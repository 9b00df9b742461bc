"""Figures of the gate, of the soak and of the planted bugs, kept in `tools/figures/`, shown in `docs/reliability.md`.

python -m tools.proofs KIND [--code CODE] [--note TEXT] [--remark TEXT]   keep `.proof/gate.json`, and show it
python -m tools.proofs                                                    only show again what is kept
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tools import gate

__all__ = ["KINDS", "PAGE", "kept", "rendered", "shown"]

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "reliability.md"
KINDS: Final = ("gate", "soak", "planted")


def kept(kind: str) -> dict[str, Any] | None:
    """The figures of the last run that was kept, if there was one."""
    path = _path(kind)
    if not path.exists():
        return None
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return document


def rendered(document: Mapping[str, Any]) -> str:
    lines = [
        f"{document['when']}, commit {document['commit']}: "
        f"{_minutes(document['minutes'])} on {document['machine']}; {document['note']}.",
        "",
        "| | measure | result | required for a release |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row['id']} | {row['what']} | {row['found']} | {row['release']} |"
        for row in document["rows"]
        if row["found"] != "not run"
    ]
    code = document.get("code")
    failed = f"The run exited with code {code}: a promise was broken or a test failed." if code else None
    faults = ", ".join(f"{name} {count:,}" for name, count in document["faults"].items())
    seeds = ", ".join(f"`{name}`" for name in document.get("seeds", ()))
    kept = f"The runs that broke a rule are kept in `tests/seeds/`: {seeds}." if seeds else None
    bases = document.get("bases")
    blind = f"The blind search drew its seeds from `TORIL_BLIND={bases[0]}`." if bases else None
    unseen = document.get("missed")
    missed = f"Not found by the blind search: {', '.join(f'`{name}`' for name in unseen)}." if unseen else None
    remark = document.get("remark")  # of this run alone: it goes with the run's figures
    struck = f"Simulated faults by kind: {faults}." if faults else None
    said = [words for words in (struck, blind, missed, failed, kept, remark) if words]
    return "\n".join(lines) + "".join(f"\n\n{words}" for words in said)


def _minutes(minutes: float) -> str:
    return "1 minute" if f"{minutes:.0f}" == "1" else f"{minutes:,.0f} minutes"


def shown(page: str, kind: str, document: Mapping[str, Any] | None) -> str:
    """The page with this table between its marks, or with a word that there is none yet."""
    begin, end = f"<!-- {kind}: begin -->", f"<!-- {kind}: end -->"
    before, found, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    said = "No figure has been published yet." if document is None else rendered(document)
    return f"{before}{begin}\n{said}\n{end}{after}" if found else page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=KINDS)
    parser.add_argument("--code", type=int, default=0, help="exit code of the run")
    parser.add_argument("--note", default="nothing else was running")
    parser.add_argument("--remark", default="", help="what readers should know about this run")
    chosen = parser.parse_args()
    if chosen.kind is not None:
        if not gate.GATE.exists():
            sys.exit(f"there is no {gate.GATE}: the run broke off, and nothing is kept of it")
        _keep(chosen.kind, chosen.note, chosen.remark, chosen.code)
    page = PAGE.read_text("utf-8")
    for kind in KINDS:
        page = shown(page, kind, kept(kind))
    PAGE.write_text(page, "utf-8")


def _keep(kind: str, note: str, remark: str, code: int) -> None:
    found = json.loads(gate.GATE.read_text("utf-8"))
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()  # noqa: S607
    document = {
        "when": time.strftime("%Y-%m-%d"), "commit": commit, "note": note, "remark": remark, "code": code,
        "minutes": found["minutes"],
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "rows": found["rows"], "faults": found["faults"], "seeds": sorted(found["figures"].get("kept seeds", ())),
        "bases": sorted(found["figures"].get("blind bases", ())),
        "missed": sorted(found["figures"].get("missed blind", ())),
    }  # fmt: skip
    _path(kind).parent.mkdir(exist_ok=True)
    _path(kind).write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def _path(kind: str) -> Path:
    return ROOT / "tools" / "figures" / f"{kind}.json"


if __name__ == "__main__":
    main()
