"""What Toril is made of: no older than is safe, and listed."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tools import sbom

ROOT = Path(__file__).parents[2]
FLOORS = {
    name: Version(floor["at_least"])
    for name, floor in tomllib.loads((ROOT / "tools" / "floors.toml").read_text("utf-8")).items()
}


def pinned() -> dict[str, Version]:
    pins = sbom.pins((ROOT / "requirements-dev.txt").read_text("utf-8"))
    return {canonicalize_name(name): Version(version) for name, version in pins.items()}


def test_no_pin_is_older_than_is_safe() -> None:
    assert {
        name: str(pinned()[name]) for name, floor in FLOORS.items() if name in pinned() and pinned()[name] < floor
    } == {}


def test_no_declared_dependency_may_be_older_than_is_safe() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    low = []
    for requirement in map(Requirement, declared):
        floor = FLOORS.get(canonicalize_name(requirement.name))
        if floor is not None and any(
            Version(spec.version) < floor for spec in requirement.specifier if spec.operator == ">="
        ):
            low.append(str(requirement))

    assert low == []


def test_the_list_of_parts_names_every_pin_once() -> None:
    pins = sbom.pins((ROOT / "requirements-dev.txt").read_text("utf-8"))

    parts = sbom.document(pins, "toril", "1")["components"]

    assert [part["name"] for part in parts] == sorted(pins)
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9._-]+@\S+", part["purl"]) for part in parts)
