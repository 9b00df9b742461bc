"""Writes what Toril is built and tested with as a CycloneDX document: `python -m tools.sbom > sbom.json`."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from toril import __version__

ROOT = Path(__file__).parent.parent


def pins(text: str) -> dict[str, str]:
    """The packages of a requirements file, and their versions."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;#]+)", text, re.MULTILINE))


def document(pinned: dict[str, str], name: str, version: str) -> dict[str, Any]:
    """The parts of a release, each with the address by which it is known."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "library", "name": name, "version": version, "bom-ref": f"pkg:pypi/{name}"}},
        "components": [
            {"type": "library", "name": part, "version": number, "purl": f"pkg:pypi/{part.lower()}@{number}"}
            for part, number in sorted(pinned.items())
        ],
    }


def main() -> int:
    pinned = pins((ROOT / "requirements-dev.txt").read_text("utf-8"))
    json.dump(document(pinned, "toril", __version__), sys.stdout, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
