"""Plants a bug in a copy of a module, so that a test can show that it would find it."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

__all__ = ["planted"]


def planted(name: str, right: str, wrong: str) -> ModuleType:
    """The module of this name with one line of its source replaced. A bug that cannot be planted is an error."""
    original = import_module(name)
    assert original.__file__ is not None
    source = Path(original.__file__).read_text("utf-8")
    assert source.count(right) == 1, f"{name} has {source.count(right)} places that read {right!r}, not one"
    module = ModuleType(name)
    module.__file__ = original.__file__
    with patch.dict(sys.modules, {name: module}):  # where dataclasses look for the names in annotations
        exec(compile(source.replace(right, wrong), original.__file__, "exec"), module.__dict__)  # noqa: S102 - our own
    return module
