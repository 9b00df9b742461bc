"""What Toril is made of: no older than is safe, and listed."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from tools import sbom

ROOT = Path(__file__).parents[2]
REQUIREMENTS = (ROOT / "requirements-dev.txt").read_text("utf-8")
FLOORS = {
    name: Version(floor["at_least"])
    for name, floor in tomllib.loads((ROOT / "tools" / "floors.toml").read_text("utf-8")).items()
}


def pinned() -> dict[str, Version]:
    pins = sbom.pins(REQUIREMENTS)
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
    pins = sbom.pins(REQUIREMENTS)

    parts = sbom.document(pins, "toril", "1")["components"]

    assert [part["name"] for part in parts] == sorted(pins)
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9._-]+@\S+", part["purl"]) for part in parts)
    assert all(set(version) <= set("0123456789abcdefghijklmnopqrstuvwxyz.+") for version in pins.values())


def test_every_pin_can_be_installed_on_the_oldest_python_in_use() -> None:
    oldest = "3.11.2"  # Debian 12's own
    refused = {}
    for name in pinned():
        try:
            needs = metadata(name).get_all("Requires-Python", [""])[0]
        except PackageNotFoundError:  # for other Pythons or systems
            continue
        if oldest not in SpecifierSet(needs):
            refused[name] = needs

    assert refused == {}


def test_every_pin_has_the_hashes_of_its_files_and_names_no_index() -> None:
    written = re.sub(r"\\\n\s*", "", REQUIREMENTS)  # one line per package

    lines = [line for line in written.splitlines() if not line.startswith("#")]

    assert len(lines) == len(pinned())
    assert [
        line
        for line in lines
        if not re.fullmatch(r"[\w.-]+==[^\s\\]+( ; [^\\]+?)?( --hash=sha256:[0-9a-f]{64})+", line)
    ] == []


def test_the_environment_of_development_is_installed_by_hash() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")

    installs = [line for line in makefile.splitlines() if "requirements-dev.txt" in line and "pip install" in line]

    assert installs
    assert all("--require-hashes" in line for line in installs)
