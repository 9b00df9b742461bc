"""Background jobs: embedded on SQLite with no server, and at scale on Redis."""

from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from toril.engine import connect
    from toril.errors import (
        AddUncertain,
        Closed,
        EngineFull,
        EngineUnavailable,
        EngineUnusable,
        InvalidName,
        InvalidOption,
        NotFound,
        NotSerializable,
        PartialAdd,
        PayloadTooLarge,
        QueueFull,
        ResultGone,
        TorilError,
        UnknownQueue,
        UsageError,
        WrongState,
    )
    from toril.model import Keep, RateLimit
    from toril.states import State

# name -> module. Imported on first use, so that `import toril` costs next to nothing.
_WHERE = {
    "connect": "toril.engine",
    **dict.fromkeys(
        (
            "AddUncertain", "Closed", "EngineFull", "EngineUnavailable", "EngineUnusable", "InvalidName",
            "InvalidOption", "NotFound", "NotSerializable", "PartialAdd", "PayloadTooLarge", "QueueFull",
            "ResultGone", "TorilError", "UnknownQueue", "UsageError", "WrongState",
        ),
        "toril.errors",
    ),
    "Keep": "toril.model",
    "RateLimit": "toril.model",
    "State": "toril.states",
}  # fmt: skip

__all__ = [
    "AddUncertain",
    "Closed",
    "EngineFull",
    "EngineUnavailable",
    "EngineUnusable",
    "InvalidName",
    "InvalidOption",
    "Keep",
    "NotFound",
    "NotSerializable",
    "PartialAdd",
    "PayloadTooLarge",
    "QueueFull",
    "RateLimit",
    "ResultGone",
    "State",
    "TorilError",
    "UnknownQueue",
    "UsageError",
    "WrongState",
    "__version__",
    "connect",
]


def __getattr__(name: str) -> object:
    import importlib  # noqa: PLC0415 - only when a name is used for the first time

    if name not in _WHERE:
        raise AttributeError(f"module 'toril' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value
