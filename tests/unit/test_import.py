"""`import toril` is cheap, and what it promises is there."""

import subprocess
import sys
from dataclasses import is_dataclass
from enum import Enum
from importlib.resources import files

import pytest

import toril
import toril.alerts
import toril.events
import toril.testing
from tests.unit.test_public_times import walk

HEAVY = ["asyncio", "sqlite3", "pydantic", "redis", "hypothesis", "importlib.metadata", "unittest", "email"]


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("use", ["import toril", "import toril; toril.InvalidName", "import toril; toril.State"])
def test_no_heavy_module_comes_along(use: str) -> None:
    loaded = run(f"import sys; before = set(sys.modules); {use}; print(*set(sys.modules) - before)").split()

    assert "toril" in loaded
    assert not set(HEAVY) & set(loaded)


def test_no_integration_comes_along_with_an_app() -> None:
    loaded = run("import sys, toril; toril.App('memory://').queue('q').sync; print(*sys.modules)").split()

    packages = {name.partition(".")[0] for name in loaded}
    assert not [name for name in loaded if name.startswith("toril.integrations")]
    assert not packages & {"starlette", "fastapi", "django", "flask", "sentry_sdk", "structlog"}


def test_the_import_takes_less_than_a_tenth_of_a_second() -> None:
    code = "import time; start = time.process_time(); import toril; print(time.process_time() - start)"

    assert min(float(run(code)) for _ in range(5)) < 0.1


@pytest.mark.parametrize("name", toril.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(toril, name) is not None


def test_whatever_calls_answer_has_a_type_that_programs_can_import() -> None:
    inner = {
        "Child",
        "RunsAs",
        "Scanner",
        "Searchable",
        "ErrorTable",
        "Verdict",
    }  # of the worker, pages and tests' contexts
    known = {getattr(module, name) for module in (toril, toril.alerts, toril.events, toril.testing)
             for name in module.__all__ if name != "FlakyStore"}  # fmt: skip

    reached, _ = walk()

    values = {kind for kind in reached if is_dataclass(kind) or issubclass(kind, Enum)}
    assert sorted(kind.__name__ for kind in values - known if kind.__name__ not in inner) == []


def test_a_name_is_found_once_and_kept() -> None:
    assert run("import toril; toril.Keep; print('Keep' in vars(toril))").strip() == "True"


def test_a_star_import_brings_all_public_names() -> None:
    names = run("from toril import *; print(*dir())").split()

    assert set(toril.__all__) <= set(names)


def test_a_missing_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'toril' has no attribute 'nothing'"):
        _ = toril.nothing


def test_the_types_are_shipped() -> None:
    assert (files("toril") / "py.typed").is_file()


def test_the_sqlite_engine_is_imported_when_it_is_asked_for() -> None:
    loaded = run("import sys, toril; toril.connect('memory://'); print(*sys.modules)").split()

    assert {"sqlite3", "toril.engines.sqlite"} <= set(loaded)


def test_no_client_library_comes_along_with_the_redis_engine() -> None:
    """It would be the largest part of a worker's memory."""
    loaded = run("import sys, toril; toril.connect('rediss://one'); print(*sys.modules)").split()

    assert {"hiredis", "toril.engines.redis"} <= set(loaded)
    assert "redis" not in loaded
