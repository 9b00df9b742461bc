"""Imports go one way. The table is the architecture; the test reads the code."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "toril"

# What each part may import of ours. A part is the longest prefix that fits; itself it may always import.
BOTTOM = {"clock", "durations", "errors", "names", "states"}
# What a producer needs: no worker is imported to add a job.
PRODUCER = (
    BOTTOM
    | {"codec", "model", "engine", "policy", "payload", "handlers", "signal", "context", "calls"}
    | {"lookup", "records"}
)
ARROWS: dict[str, set[str]] = {
    "": PRODUCER
    | {"adding", "events", "flow", "history", "http", "sync", "app", "job", "queue", "why", "result"}
    | {"breakers", "deadletters", "metrics", "outbox", "searching", "task"},
    "durations": {"errors"},
    "errors": {"durations"},
    "names": {"errors"},
    "states": set(),
    "clock": set(),
    "codec": {"errors"},
    "model": {"durations", "errors", "names", "states"},
    "records": {"model", "states"},
    "lookup": {"engine", "errors", "model"},
    "policy": {"durations", "errors", "model"},
    "http": {"clock", "policy"},
    "idle_connections": set(),
    "result": set(),
    "typed": set(),
    "payload": {"codec", "errors", "result", "typed"},
    "handlers": {"codec", "durations", "errors", "model", "names", "payload", "policy"},
    "signal": set(),
    "context": {
        "calls",
        "codec",
        "durations",
        "errors",
        "flow",
        "model",
        "policy",
        "queue",
        "signal",
        "job",
        "sync",
        "task",
    },
    "flow": PRODUCER | {"job", "queue", "storing"},
    "calls": BOTTOM | {"model"},
    "adding": {"codec", "durations", "errors", "model", "policy"},
    "job": PRODUCER | {"deadletters", "history", "events", "queue"},
    "why": {"model", "states"},
    "operations": PRODUCER
    | {"deadletters", "events", "groups", "history", "metrics", "job", "queue", "searching"}
    | {"showing", "stacks", "why"},
    "stacks": {"clock", "engine", "errors", "model", "records"},
    "searching": PRODUCER | {"job", "portal", "queue", "showing"},
    "showing": {"errors", "logs", "model", "policy"},
    "storing": {"model", "portal"},
    "together": {"errors", "model"},
    "telemetry": {"app", "clock", "errors", "events", "model"},
    "integrations": {"app", "errors", "events", "policy", "queue", "web"},
    "integrations.django": PRODUCER | {"adding", "app", "cli", "events", "queue"},
    "groups": PRODUCER | {"operations"},
    "opening": PRODUCER | {"logs"},
    "portal": PRODUCER | {"events", "queue", "showing", "storing"},
    "schedule": PRODUCER | {"adding", "job", "logs", "queue"},
    "bounds": PRODUCER,
    "bulk": {"errors", "events", "job", "model", "queue"},
    "queue": PRODUCER
    | {"adding", "bounds", "bulk", "events", "job", "operations", "plan", "portal", "schedule", "sync", "storing"}
    | {"priorities", "task", "together"},
    "sync": PRODUCER
    | {"adding", "groups", "job", "metrics", "operations", "portal", "queue", "schedule", "searching", "task", "why"},
    "declaring": PRODUCER | {"adding", "queue"},
    "events": {"errors", "model"},
    "logs": {"clock", "events"},
    "middleware": set(),
    "priorities": {"logs", "model"},
    "plan": {"clock", "errors", "logs", "middleware"},
    "worker": PRODUCER
    | {
        "bounds",
        "declaring",
        "events",
        "job",
        "logs",
        "middleware",
        "opening",
        "plan",
        "protocols",
        "queue",
        "result",
        "schedule",
        "sync",
        "task",
    },
    "alerts": PRODUCER | {"delivery", "events", "logs", "queue"},
    "delivery": {"logs"},
    "webhook": {"alerts", "errors", "model"},
    "breakers": PRODUCER | {"events"},
    "deadletters": PRODUCER | {"declaring", "job", "portal", "protocols", "queue", "searching", "showing"},
    "doctor": PRODUCER | {"protocols", "schedule"},
    "moving": PRODUCER,
    "tended": PRODUCER | {"declaring", "doctor", "metrics", "queue"},
    "crew": PRODUCER | {"declaring", "job", "queue"},
    "scanning": PRODUCER | {"logs", "plan", "queue", "result", "schedule"},
    "queues": {"errors", "names", "queue"},
    "outbox": PRODUCER | {"adding", "engines.sqlite", "events", "logs", "queue", "storing"},
    "relaying": PRODUCER | {"events", "logs", "opening", "outbox", "plan", "queue", "storing", "worker"},
    "failing": PRODUCER | {"alerts", "breakers", "deadletters", "events", "plan", "queue", "showing"},
    "app": PRODUCER
    | {
        "",
        "adding",
        "alerts",
        "declaring",
        "events",
        "failing",
        "flow",
        "logs",
        "middleware",
        "plan",
        "portal",
        "queue",
    }
    | {"crew", "opening", "queues", "reaper", "relaying", "scanning", "schedule", "showing", "tended", "worker"},
    "engine": BOTTOM | {"model", "protocols"},
    "protocols": {"model"},
    "engines": {"engine", "model", "policy"} | BOTTOM,
    "engines.sqlite": {"engine", "model", "policy", "protocols"} | BOTTOM,
    "engines.redis": {"engine", "model", "policy", "protocols"} | BOTTOM,
    "reaper": BOTTOM | {"doctor", "engine", "events", "logs", "model", "plan", "worker"},
    "supervisor": BOTTOM | {"engine", "events", "idle_connections", "logs", "model", "plan", "policy", "worker"},
    "task": PRODUCER | {"adding", "bulk", "job", "queue", "schedule", "sync"},
    "testing": PRODUCER | {"app", "engines.sqlite", "events", "job", "task"},
    "pytest_plugin": {"testing"},
    "metrics": {"engine", "model", "policy", "records"},
    "history": {"clock", "engine", "model"},
    "documents": {"errors", "flow", "job", "metrics", "model", "policy", "records", "searching", "showing", "why"},
    "web": PRODUCER
    | {"", "app", "declaring", "documents", "deadletters", "job", "logs", "metrics", "queue", "schedule"}
    | {"flow", "history", "idle_connections", "operations", "outbox", "searching", "showing", "why"},
    "web.serving": PRODUCER | {"app", "logs", "supervisor", "web"},
    "torture": {"", "clock", "engine", "errors", "events", "model", "policy", "queue", "states"} | {"torture.cleaning"},
    "torture.cleaning": {"", "clock", "engines.redis", "errors", "torture"},
    "torture.child": {"", "cli", "clock", "errors", "torture"},
    # The commands: the public names, and the types and words of what those give.
    "cli": {
        "operations",
        "",
        "clock",
        "declaring",
        "documents",
        "durations",
        "history",
        "deadletters",
        "engine",
        "events",
        "logs",
        "model",
        "policy",
    }
    | {"records", "showing"},
    "cli.top": {"", "cli", "clock", "documents", "metrics", "model", "records"},
    "cli.move": {"cli", "clock", "engine", "errors", "model", "moving"},
    "cli.run": {"", "cli", "engine", "supervisor", "web.serving"},
    "cli.outbox": {"", "cli", "engine", "outbox"},
    "cli.torture": {"cli", "clock", "torture"},
    "cli.dashboard": {"", "cli", "clock", "engine", "web", "web.serving"},
    "cli.child": {"", "cli", "logs", "worker"},
    "__main__": {"cli"},
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SRC.rglob("*.py")):
        name = ".".join(path.relative_to(SRC).with_suffix("").parts)
        yield name.removesuffix("__init__").rstrip("."), path


def part(module: str) -> str:
    parts = module.split(".")
    return next(name for n in range(len(parts), -1, -1) if (name := ".".join(parts[:n])) in ARROWS)


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


def test_a_module_imports_only_what_its_part_may() -> None:
    offenders = {}
    for name, path in modules():
        ours = {imported.removeprefix("toril.") for imported in imports(path) if imported.split(".")[0] == "toril"}
        used = {part(imported) for imported in ours - {"toril"}} - {part(name)}
        if used - ARROWS[part(name)]:
            offenders[name] = sorted(used - ARROWS[part(name)])

    assert offenders == {}


def test_no_module_takes_time_or_chance_by_itself() -> None:
    banned = {
        "time.time", "time.time_ns", "time.monotonic", "time.sleep", "time.perf_counter", "asyncio.sleep", "random",
        "uuid", "secrets", "os.urandom", "datetime.datetime.now", "datetime.now",
    }  # fmt: skip
    offenders = []
    for name, path in modules():
        # The demo is a user's app; what a torture draws comes from its seed.
        if name in {"clock", "cli.demo.shop", "torture.orders", "torture.plan"} or name.startswith("testing"):
            continue
        used = {ast.unparse(node) for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)} | imports(path)
        offenders += [f"{name}: {bad}" for bad in sorted(banned & used)]

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
