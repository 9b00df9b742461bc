"""Background jobs: embedded on SQLite with no server, and at scale on Redis."""

from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from toril.adding import AddOptions
    from toril.app import App
    from toril.context import JobContext, SyncJobContext
    from toril.engine import connect
    from toril.errors import (
        AddUncertain,
        Closed,
        EngineFull,
        EngineRefused,
        EngineUnavailable,
        EngineUnusable,
        HandlerError,
        InvalidName,
        InvalidOption,
        InvalidPayload,
        JobCancelled,
        JobFailed,
        LeaseLost,
        NotFound,
        NotSerializable,
        PartialAdd,
        PayloadTooLarge,
        PermanentError,
        QueueFull,
        RateLimited,
        ResultGone,
        Snooze,
        TorilError,
        TransientError,
        Undecodable,
        UnknownQueue,
        UsageError,
        WrongState,
    )
    from toril.events import JobEvent, WorkerEvent
    from toril.flow import Flow, Tree, chain, gather
    from toril.handlers import handler, only_if
    from toril.history import Gap
    from toril.http import raise_for_status
    from toril.job import Job
    from toril.model import Dedup, Finding, GroupLimits, Keep, RateLimit, Repaired, Severity
    from toril.policy.breaker import Breaker
    from toril.policy.letters import LetterFilter
    from toril.policy.retry import Exponential, Fixed, Retry, Strategy
    from toril.policy.search import JobFilter
    from toril.queue import Queue
    from toril.records import DeadLetter, GroupView
    from toril.result import Result
    from toril.states import State
    from toril.sync import SyncJob, SyncQueue
    from toril.why import Explanation

# name -> module. Imported on first use, so that `import toril` costs next to nothing.
_WHERE = {
    "App": "toril.app",
    "JobContext": "toril.context",
    "SyncJobContext": "toril.context",
    "connect": "toril.engine",
    **dict.fromkeys(("Flow", "Tree", "chain", "gather"), "toril.flow"),
    "handler": "toril.handlers",
    "only_if": "toril.handlers",
    "Job": "toril.job",
    "Breaker": "toril.policy.breaker",
    "JobFilter": "toril.policy.search",
    "LetterFilter": "toril.policy.letters",
    "Queue": "toril.queue",
    "Result": "toril.result",
    "raise_for_status": "toril.http",
    **dict.fromkeys(("Exponential", "Fixed", "Retry", "Strategy"), "toril.policy.retry"),
    **dict.fromkeys(
        (
            "AddUncertain", "Closed", "EngineFull", "EngineRefused", "EngineUnavailable", "EngineUnusable",
            "HandlerError", "InvalidName",
            "InvalidOption", "InvalidPayload", "JobCancelled", "JobFailed", "LeaseLost", "NotFound",
            "NotSerializable", "PartialAdd", "PayloadTooLarge", "PermanentError", "QueueFull", "RateLimited",
            "ResultGone", "Snooze", "TorilError", "TransientError", "Undecodable", "UnknownQueue", "UsageError",
            "WrongState",
        ),
        "toril.errors",
    ),
    "Dedup": "toril.model",
    "DeadLetter": "toril.records",
    "Finding": "toril.model",
    "Keep": "toril.model",
    "Repaired": "toril.model",
    "Severity": "toril.model",
    "GroupLimits": "toril.model",
    "GroupView": "toril.records",
    "RateLimit": "toril.model",
    "State": "toril.states",
    "SyncJob": "toril.sync",
    "SyncQueue": "toril.sync",
    "AddOptions": "toril.adding",
    "Gap": "toril.history",
    "JobEvent": "toril.events",
    "WorkerEvent": "toril.events",
    "Explanation": "toril.why",
}  # fmt: skip

__all__ = [
    "AddOptions",
    "AddUncertain",
    "App",
    "Breaker",
    "Closed",
    "DeadLetter",
    "Dedup",
    "EngineFull",
    "EngineRefused",
    "EngineUnavailable",
    "EngineUnusable",
    "Explanation",
    "Exponential",
    "Finding",
    "Fixed",
    "Flow",
    "Gap",
    "GroupLimits",
    "GroupView",
    "HandlerError",
    "InvalidName",
    "InvalidOption",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobEvent",
    "JobFailed",
    "JobFilter",
    "Keep",
    "LeaseLost",
    "LetterFilter",
    "NotFound",
    "NotSerializable",
    "PartialAdd",
    "PayloadTooLarge",
    "PermanentError",
    "Queue",
    "QueueFull",
    "RateLimit",
    "RateLimited",
    "Repaired",
    "Result",
    "ResultGone",
    "Retry",
    "Severity",
    "Snooze",
    "State",
    "Strategy",
    "SyncJob",
    "SyncJobContext",
    "SyncQueue",
    "TorilError",
    "TransientError",
    "Tree",
    "Undecodable",
    "UnknownQueue",
    "UsageError",
    "WorkerEvent",
    "WrongState",
    "__version__",
    "chain",
    "connect",
    "gather",
    "handler",
    "only_if",
    "raise_for_status",
]


def __getattr__(name: str) -> object:
    import importlib  # noqa: PLC0415 - only when a name is used for the first time

    if name not in _WHERE:
        raise AttributeError(f"module 'toril' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value
