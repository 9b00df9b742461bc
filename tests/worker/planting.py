"""Plants a bug in a copy of a module, so that a test can show that it would find it."""

import builtins
import dis
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, ModuleType
from unittest.mock import patch

__all__ = ["copied", "planted", "source_of"]


def planted(name: str, right: str, wrong: str) -> ModuleType:
    """The module of this name with one line of its source replaced. A bug that cannot be planted is an error."""
    source = source_of(name)
    assert source.count(right) == 1, f"{name} has {source.count(right)} places that read {right!r}, not one"
    module = _made(name, source.replace(right, wrong))
    unknown = {used for used in _globals(_code(module, source.replace(right, wrong))) if not _is_known(module, used)}
    assert not unknown, f"{wrong!r} names {sorted(unknown)}, which {name} does not have: that is another bug"
    return module


def copied(name: str) -> ModuleType:
    """The module of this name once more, to have other constants."""
    return _made(name, source_of(name))


def source_of(name: str) -> str:
    """The text of the module of this name."""
    original = import_module(name)
    assert original.__file__ is not None
    return Path(original.__file__).read_text("utf-8")


def _made(name: str, source: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = import_module(name).__file__ or ""
    with patch.dict(sys.modules, {name: module}):  # where dataclasses look for the names in annotations
        exec(_code(module, source), module.__dict__)  # noqa: S102 - our own
    return module


def _code(module: ModuleType, source: str) -> CodeType:
    return compile(source, str(module.__file__), "exec")


def _globals(code: CodeType) -> Iterator[str]:
    """The names that functions of this code look up in their module."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from (each.argval for each in dis.get_instructions(constant) if each.opname == "LOAD_GLOBAL")
            yield from _globals(constant)


def _is_known(module: ModuleType, name: str) -> bool:
    return name in vars(module) or name in vars(builtins)
