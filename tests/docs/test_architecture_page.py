"""The page on the architecture names what there is: functions, classes, files."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "toril"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_the_walks_name_functions_and_classes_that_are_there() -> None:
    source = "\n".join(path.read_text("utf-8") for path in SRC.rglob("*") if path.suffix in {".py", ".lua"})
    defined = set(re.findall(r"(?:def|class|function) (?:\w+\.)?(\w+)", source))
    walks = PAGE.partition("\n## The life of a job\n")[2]
    named = {part for name in re.findall(r"`([A-Za-z_][\w.]*)`", walks) if "/" not in name for part in name.split(".")}
    of_files = {path.stem for path in SRC.rglob("*") if path.suffix in {".py", ".lua"}}
    said = {
        "py",
        "lua",
        "md",
        "CHANGELOG",
        "policy",
        "queue",
        "result_ttl",
        "groups",
        "runs_if",
        "None",
    }  # files, options

    assert len(named & defined) > 40
    assert named - defined - of_files - said == set()


def test_the_walks_name_methods_of_classes_that_have_them() -> None:
    methods = {
        (owner.name, node.name)
        for path in SRC.rglob("*.py")
        for owner in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    named = {(owner, method) for owner, method in re.findall(r"`(_?[A-Z]\w*[a-z]\w*)\.(\w+)`", PAGE)}

    assert len(named) > 20
    assert named - methods == set()


def test_the_page_names_files_and_packages_that_are_there() -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py|\.lua)?)`", PAGE))
    roots = (ROOT, SRC, SRC / "engines" / "redis", SRC / "engines" / "sql")

    assert len(named) > 15
    assert {name for name in named if not any((root / name).exists() for root in roots)} == set()


def test_every_package_is_on_the_page() -> None:
    packages = {path.parent.relative_to(SRC).as_posix() for path in SRC.rglob("__init__.py")} - {".", "engines"}
    top = {name for name in packages if "/" not in name} | {name for name in packages if name.startswith("engines/")}
    named = set(re.findall(r"`([a-z/]+)`", PAGE.partition("\n## The life of a job\n")[0]))

    assert top - named == set()
