"""The workflows call targets that `make` has, with no more rights than they need; the rest agrees with the pins."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from tools import pythons, sbom

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WRITES = {("release", "publish"): {"id-token"}, ("soak", "report"): {"issues"}}
PINNED = re.compile(r"\./\.github/workflows/[a-z-]+\.yml|[\w-]+/[\w./-]+@(v\d+|release/v\d+|[0-9a-f]{40})")


def parsed(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def scripts(workflow: Any) -> list[str]:
    """What its steps run in a shell."""
    return [step["run"] for job in workflow["jobs"].values() for step in job.get("steps", ()) if "run" in step]


def called(workflow: Any) -> set[str]:
    """The targets of make that it calls."""
    found = set[str]()
    for command in re.findall(r"\bmake ([^\n;&|]*)", "\n".join(scripts(workflow))):
        found.update(word for word in command.split() if "=" not in word)
    return found


each_workflow = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@each_workflow
def test_every_target_that_a_workflow_calls_is_in_the_makefile(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

    assert called(parsed(path)), "it calls no target"
    assert called(parsed(path)) <= targets


def test_there_is_a_workflow_for_each_gate() -> None:
    calls = {path.stem: called(parsed(path)) for path in FILES}

    assert calls == {
        "test": {"test", "test-pythons"},
        "test-all": {"test-all"},
        "soak": {"soak"},
        "release": {"dist", "sbom"},
    }


@each_workflow
def test_a_workflow_may_read_and_only_named_jobs_write_one_thing(path: Path) -> None:
    workflow = parsed(path)

    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        if "permissions" in job:
            assert {right for right, level in job["permissions"].items() if level == "write"} == WRITES[path.stem, name]
    assert "secrets." not in path.read_text("utf-8")


@each_workflow
def test_a_workflow_ends_by_itself_and_does_not_run_beside_itself(path: Path) -> None:
    workflow = parsed(path)

    assert workflow["concurrency"]["group"].startswith(path.stem)
    assert [name for name, job in workflow["jobs"].items() if "uses" not in job and "timeout-minutes" not in job] == []


@each_workflow
def test_what_a_workflow_uses_is_pinned_and_nothing_is_pasted_into_its_scripts(path: Path) -> None:
    workflow = parsed(path)
    used = [job["uses"] for job in workflow["jobs"].values() if "uses" in job]
    used += [step["uses"] for job in workflow["jobs"].values() for step in job.get("steps", ()) if "uses" in step]

    assert [each for each in used if not PINNED.fullmatch(each)] == []
    assert [script for script in scripts(workflow) if "${{" in script] == []


@each_workflow
def test_git_is_told_that_it_may_read_what_another_user_has_checked_out(path: Path) -> None:
    """Else it refuses: in a container the files belong to the user of the machine around it."""
    trusts = 'git config --global --add safe.directory "$GITHUB_WORKSPACE"'
    for name, job in parsed(path)["jobs"].items():
        steps = job.get("steps", [])
        if "container" in job and any("checkout" in step.get("uses", "") for step in steps):
            runs = [step["run"] for step in steps if "run" in step]
            assert runs[0] == trusts, f"{name} begins with {runs[0]!r}"


def test_the_matrix_has_the_pythons_that_make_knows_and_the_package_names() -> None:
    matrix = parsed(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["pythons"]["strategy"]["matrix"]["python"]
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))

    assert tuple(matrix) == pythons.VERSIONS
    assert classifiers == ["3.11", *pythons.VERSIONS]


def test_ruff_is_the_same_before_a_commit_as_in_the_gate() -> None:
    pins = sbom.pins((ROOT / "requirements-dev.txt").read_text("utf-8"))
    repositories = {each["repo"].rpartition("/")[2]: each for each in parsed(ROOT / ".pre-commit-config.yaml")["repos"]}

    assert repositories["ruff-pre-commit"]["rev"] == f"v{pins['ruff']}"
    assert [hook["id"] for hook in repositories["ruff-pre-commit"]["hooks"]] == ["ruff-check", "ruff-format"]


def test_every_folder_that_is_kept_up_to_date_has_what_is_updated() -> None:
    manifests = {"pip": "requirements-dev.txt", "npm": "package.json", "docker": "Dockerfile"}
    manifests["github-actions"] = ".github/workflows/test.yml"
    updates = parsed(ROOT / ".github" / "dependabot.yml")["updates"]

    assert {each["package-ecosystem"] for each in updates} == manifests.keys()
    for each in updates:
        assert (ROOT / each["directory"].lstrip("/") / manifests[each["package-ecosystem"]]).is_file()
