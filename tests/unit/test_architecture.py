"""Imports go one way, and names follow the vocabulary. The tables are the rules; the tests read the code."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "toril"

# What each package may import of ours, besides itself. `public` are the modules of the root, which users import; `app`
# stands above them. A module belongs to the longest name that fits.
BASE = {"errors", "model", "policy", "codec", "runtime", "store", "events"}
PUBLIC = BASE | {"client", "operate", "public"}
LAYERS: dict[str, set[str]] = {
    "errors": {"model"},  # for a type checker
    "events": {"errors", "model"},
    "model": {"errors"},
    "policy": {"errors", "model"},
    "codec": {"errors", "model"},
    "store": {"errors", "model", "policy", "runtime"},
    "runtime": {"errors", "events", "model", "policy", "store", "public"},  # of the public names, types
    "engines": {"errors", "model"},
    "engines.sql": {"codec", "engines", "errors", "model", "policy", "runtime", "store"},
    "engines.sqlite": {"engines.sql", "errors", "model", "policy", "runtime", "store"},
    "engines.postgres": {"codec", "engines.sql", "errors", "model", "policy", "runtime", "store"},
    "engines.redis": {"engines", "engines.redis.connection", "errors", "model", "policy", "runtime", "store"},
    "engines.redis.connection": {"engines.redis", "errors", "model", "runtime"},
    "public": PUBLIC,
    "client": PUBLIC,
    "operate": PUBLIC,
    "worker": PUBLIC,
    "supervisor": PUBLIC | {"worker"},
    "outbox": PUBLIC | {"engines.sqlite"},
    "app": PUBLIC | {"outbox", "worker", ""},
    "": PUBLIC | {"app", "outbox"},
    "testing": PUBLIC | {"app", "engines.sqlite"},
    "pytest_plugin": {"testing"},
    "web": PUBLIC | {"app", "outbox", "supervisor", ""},
    "torture": PUBLIC | {"cli", "engines.redis.connection", ""},
    "integrations": PUBLIC | {"app", "cli", "web"},
    "cli": PUBLIC | {"app", "outbox", "supervisor", "torture", "web", "worker", ""},
    "__main__": {"cli"},
}

# The root is what users import, and nothing else.
ROOT = {
    "__init__", "__main__", "alerts", "app", "context", "errors", "events", "flow", "handlers", "http", "job",
    "pytest_plugin", "queue", "records", "schedule", "signals", "sync", "task",
}  # fmt: skip

# Of the words that docs/vocabulary.md replaces, those without a meaning of their own in this code.
BANNED = set(re.findall(r"\w+", """
    bale bales bell bells belongings blow bury buries buried crate crates crew doom doomed doorway ear ears fate grave
    guilty heal healed healer healing heals innocent kin kinship mend mended mending mends mourn mourned parcel
    parcels poke poked pokes quarantine rouse sift solitary solitude station stations stray strays strike strikes surely
    surroundings tallies tally telling tend tended tending told upkeep van vitals whereabouts wish wishes
"""))  # fmt: skip

# What still has such a word: a name that is stored. An entry that is not needed fails.
STILL_BANNED: dict[str, set[str]] = {}

STILL_BANNED_IN_SCRIPTS = {"faults": {"stray_lock"}, "repair": {"stray_lock"}}  # as the fault is called

# Class names that several modules use, still.
STILL_DOUBLED: set[str] = set()


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SRC.rglob("*.py")):
        name = ".".join(path.relative_to(SRC).with_suffix("").parts)
        yield name.removesuffix("__init__").rstrip("."), path


def layer(module: str) -> str:
    parts = module.split(".")
    found = [name for n in range(len(parts), 0, -1) if (name := ".".join(parts[:n])) in LAYERS]
    return found[0] if found else "public" if module else ""


@cache
def known() -> frozenset[str]:
    return frozenset(f"toril.{name}" for name, _ in modules())


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def imports(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in known() else str(node.module) for name in names)
    return frozenset(found)


def test_a_module_imports_only_from_layers_that_its_own_may_use() -> None:
    offenders = {}
    for name, path in modules():
        ours = {imported.removeprefix("toril.") for imported in imports(path) if imported.split(".")[0] == "toril"}
        used = {layer("" if imported == "toril" else imported) for imported in ours} - {layer(name)}
        if used - LAYERS[layer(name)]:
            offenders[name] = sorted(used - LAYERS[layer(name)])

    assert offenders == {}


def at_import(body: list[ast.stmt]) -> Iterator[ast.ImportFrom]:
    """What is imported when the module is, and not by its functions or for a type checker."""
    for node in body:
        match node:
            case ast.ImportFrom():
                yield node
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                pass
            case ast.If() if ast.unparse(node.test) == "TYPE_CHECKING":
                pass
            case _:
                for field in ("body", "orelse", "handlers", "finalbody"):
                    yield from at_import(getattr(node, field, []))


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {
        f"toril.{name}": {
            full if (full := f"{node.module}.{alias.name}") in known() else str(node.module)
            for node in at_import(tree(path).body)
            for alias in node.names
        }
        & known()
        for name, path in modules()
    }
    try:
        TopologicalSorter({name: used - {name} for name, used in graph.items()}).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(error.args[1]))


def test_no_module_takes_time_or_chance_by_itself() -> None:
    banned = {
        "time.time", "time.time_ns", "time.monotonic", "time.sleep", "time.perf_counter", "asyncio.sleep", "random",
        "uuid", "secrets", "os.urandom", "datetime.datetime.now", "datetime.now",
    }  # fmt: skip
    offenders = []
    for name, path in modules():
        # The demo is a user's app; what a torture draws comes from its seed.
        if name in {"runtime.clock", "cli.demo.shop", "torture.orders", "torture.plan"} or name.startswith("testing"):
            continue
        used = {ast.unparse(node) for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)} | imports(path)
        offenders += [f"{name}: {bad}" for bad in sorted(banned & used)]

    assert offenders == []


def test_what_sql_engines_share_knows_no_driver() -> None:
    """The layers keep `engines.sqlite` out; this keeps out what is SQLite's own."""
    offenders = [
        f"{name}: {found}"
        for name, path in modules()
        if name.split(".")[:2] == ["engines", "sql"]
        for found in [
            *sorted({"sqlite3", "psycopg"} & imports(path)),
            *re.findall(r"PRAGMA|BEGIN IMMEDIATE|data_version|wal_checkpoint", path.read_text("utf-8")),
        ]
    ]

    assert offenders == []


def test_only_the_commands_know_of_the_terminal() -> None:
    offenders = [
        name
        for name, path in modules()
        if name.split(".")[0] != "cli" and {"click", "rich"} & {imported.split(".")[0] for imported in imports(path)}
    ]

    assert offenders == []


@pytest.mark.covers("B123")
def test_no_variable_of_the_environment_switches_a_fault_on() -> None:
    named = {name for _, path in modules() for name in re.findall(r"TORIL_[A-Z_]+", path.read_text("utf-8"))}

    assert [name for name in named if re.search("CRASH|FAULT|FAIL|KILL|MUTANT|BUG|TEST", name)] == []


def test_nothing_is_unpickled_or_evaluated() -> None:
    banned = {"pickle", "marshal", "shelve", "yaml", "eval", "exec", "__import__"}
    offenders = []
    for name, path in modules():
        calls = (node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call))
        called = {func.id for func in calls if isinstance(func, ast.Name)}
        offenders += [f"{name}: {bad}" for bad in sorted(banned & (called | imports(path)))]

    assert offenders == []


def words(identifier: str) -> set[str]:
    """`_tell_parentsOf` -> tell, parents, of"""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}


def identifiers(module: ast.Module) -> Iterator[str]:
    """The names that a module gives to something."""
    for node in ast.walk(module):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(asname=str(name)):
                yield name
            case _:
                pass


def test_identifiers_have_no_word_that_the_vocabulary_replaces() -> None:
    found: dict[str, set[str]] = {}
    for name, path in modules():
        banned = {each for each in {path.stem, *identifiers(tree(path))} if words(each) & BANNED}
        found |= {name: banned} if banned else {}

    assert found == STILL_BANNED


def test_names_in_scripts_have_no_word_that_the_vocabulary_replaces() -> None:
    """Of functions, their arguments, and locals. Keys and fields have the words that are stored."""
    given = re.compile(
        r"(?:function\s*([\w.]*)\s*\(([^)]*)\)|\blocal ([\w, ]+?)\s*(?:=|$)|\bfor ([\w, ]+?) (?:=|in) )", re.MULTILINE
    )
    found = {
        path.stem: banned
        for path in sorted((SRC / "engines" / "redis" / "lua").rglob("*.lua"))
        if (
            banned := {
                name
                for match in given.finditer(path.read_text("utf-8"))
                for name in re.findall(r"\w+", " ".join(filter(None, match.groups())))
                if words(name) & BANNED
            }
        )
    }

    assert found == STILL_BANNED_IN_SCRIPTS


def test_no_two_modules_have_a_class_of_one_name() -> None:
    seen: Counter[str] = Counter()
    for _, path in modules():
        seen.update(node.name for node in tree(path).body if isinstance(node, ast.ClassDef))

    assert {name for name, count in seen.items() if count > 1} == STILL_DOUBLED


def test_the_root_holds_what_users_import() -> None:
    assert {path.stem for path in SRC.glob("*.py")} == ROOT


def speaks(handler: ast.ExceptHandler, lines: list[str]) -> bool:
    """Whether what it catches is raised, logged or handed on, or a comment says why not."""
    inside = [node for part in handler.body for node in ast.walk(part)]
    used = {node.id for node in inside if isinstance(node, ast.Name)}
    return (
        any(isinstance(node, ast.Raise) for node in inside)
        or bool({"log", "logger", handler.name} & used)
        or "  # " in lines[handler.lineno - 1]
    )


def test_no_error_of_whatever_kind_is_dropped_without_a_word() -> None:
    offenders = []
    for name, path in modules():
        lines = path.read_text("utf-8").splitlines()
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ExceptHandler):
                caught = {"BaseException"} if node.type is None else set(re.findall(r"\w+", ast.unparse(node.type)))
                if caught & {"Exception", "BaseException"} and not speaks(node, lines):
                    offenders.append(f"{name}:{node.lineno}")

    assert offenders == []
