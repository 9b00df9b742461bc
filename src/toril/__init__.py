"""Background jobs for Python: embedded in your app on SQLite, or across machines on Redis."""

from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from toril.app import App
    from toril.client.options import AddOptions
    from toril.context import FailedChild, JobContext, SyncJobContext
    from toril.errors import (
        AddUncertain,
        ChildrenFailed,
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
    from toril.flow import Flow, FlowTree, chain, gather
    from toril.handlers import handler, only_if
    from toril.http import raise_for_status
    from toril.job import Job
    from toril.model import (
        AddOutcome,
        CatchUp,
        Cause,
        ChildCounts,
        ChildState,
        CircuitState,
        Counts,
        Dedup,
        EventKind,
        Failure,
        Fault,
        FaultKind,
        Finding,
        GroupLimits,
        JobRef,
        Keep,
        OnFailure,
        Overlap,
        Page,
        RateLimit,
        Refused,
        Repaired,
        RepairOutcome,
        RunStatus,
        SearchPage,
        Severity,
        Usage,
    )
    from toril.model.attempts import Result
    from toril.model.durations import Duration
    from toril.model.states import State
    from toril.operate.breakers import BreakerMetrics
    from toril.operate.dead_letters import Replayed
    from toril.operate.history import Gap
    from toril.operate.metrics import Overview, QueueMetrics, QueueOverview, Series, Spread
    from toril.operate.search import Failures, MatchCount
    from toril.operate.why import Explanation
    from toril.outbox.database import OutboxStatus
    from toril.policy.breaker import Breaker
    from toril.policy.error_groups import ErrorGroup
    from toril.policy.retry import Exponential, Fixed, Retry, Strategy
    from toril.policy.search import DeadLetterFilter, JobFilter
    from toril.queue import PreparedJob, Queue
    from toril.records import (
        AttemptError,
        CancelCounts,
        CircuitRecord,
        DeadLetter,
        EventRecord,
        GroupRecord,
        JobRecord,
        JobStack,
        QueueDeclaration,
        QueueSettings,
        RetryDelay,
        RunRecord,
        ScheduleRecord,
        WorkerRecord,
    )
    from toril.store.engine import connect
    from toril.sync import SyncJob, SyncQueue, SyncTask
    from toril.task import Task

# name -> module. Imported on first use, so that `import toril` costs next to nothing.
_WHERE = {
    "App": "toril.app",
    "FailedChild": "toril.context",
    "JobContext": "toril.context",
    "SyncJobContext": "toril.context",
    "Duration": "toril.model.durations",
    "connect": "toril.store.engine",
    **dict.fromkeys(("Flow", "FlowTree", "chain", "gather"), "toril.flow"),
    "handler": "toril.handlers",
    "only_if": "toril.handlers",
    "Job": "toril.job",
    "Breaker": "toril.policy.breaker",
    "JobFilter": "toril.policy.search",
    "DeadLetterFilter": "toril.policy.search",
    "PreparedJob": "toril.queue",
    "Queue": "toril.queue",
    "Result": "toril.model.attempts",
    "raise_for_status": "toril.http",
    **dict.fromkeys(("Exponential", "Fixed", "Retry", "Strategy"), "toril.policy.retry"),
    **dict.fromkeys(
        (
            "AddUncertain", "ChildrenFailed", "Closed", "EngineFull", "EngineRefused", "EngineUnavailable",
            "EngineUnusable", "HandlerError", "InvalidName",
            "InvalidOption", "InvalidPayload", "JobCancelled", "JobFailed", "LeaseLost", "NotFound",
            "NotSerializable", "PartialAdd", "PayloadTooLarge", "PermanentError", "QueueFull", "RateLimited",
            "ResultGone", "Snooze", "TorilError", "TransientError", "Undecodable", "UnknownQueue", "UsageError",
            "WrongState",
        ),
        "toril.errors",
    ),
    **dict.fromkeys(
        (
            "AddOutcome", "CatchUp", "Cause", "ChildState", "CircuitState", "Counts", "Dedup", "RunStatus", "EventKind",
            "Failure", "ChildCounts", "Fault", "FaultKind", "Finding", "SearchPage", "GroupLimits", "JobRef", "Keep",
            "RepairOutcome",
            "OnFailure", "Overlap", "Page", "RateLimit", "Refused", "Repaired", "Severity", "Usage",
        ),
        "toril.model",
    ),
    **dict.fromkeys(
        (
            "AttemptError", "CancelCounts", "CircuitRecord", "DeadLetter", "GroupRecord", "JobRecord", "JobStack",
            "QueueDeclaration", "EventRecord", "QueueSettings", "RetryDelay", "RunRecord", "ScheduleRecord",
            "WorkerRecord",
        ),
        "toril.records",
    ),
    **dict.fromkeys(("Overview", "QueueMetrics", "QueueOverview", "Series", "Spread"), "toril.operate.metrics"),
    "BreakerMetrics": "toril.operate.breakers",
    "Replayed": "toril.operate.dead_letters",
    "OutboxStatus": "toril.outbox.database",
    "ErrorGroup": "toril.policy.error_groups",
    **dict.fromkeys(("MatchCount", "Failures"), "toril.operate.search"),
    "State": "toril.model.states",
    "SyncJob": "toril.sync",
    "SyncQueue": "toril.sync",
    "SyncTask": "toril.sync",
    "Task": "toril.task",
    "AddOptions": "toril.client.options",
    "Gap": "toril.operate.history",
    "JobEvent": "toril.events",
    "WorkerEvent": "toril.events",
    "Explanation": "toril.operate.why",
}  # fmt: skip

__all__ = [
    "AddOptions",
    "AddOutcome",
    "AddUncertain",
    "App",
    "AttemptError",
    "Breaker",
    "BreakerMetrics",
    "CancelCounts",
    "CatchUp",
    "Cause",
    "ChildCounts",
    "ChildState",
    "ChildrenFailed",
    "CircuitRecord",
    "CircuitState",
    "Closed",
    "Counts",
    "DeadLetter",
    "DeadLetterFilter",
    "Dedup",
    "Duration",
    "EngineFull",
    "EngineRefused",
    "EngineUnavailable",
    "EngineUnusable",
    "ErrorGroup",
    "EventKind",
    "EventRecord",
    "Explanation",
    "Exponential",
    "FailedChild",
    "Failure",
    "Failures",
    "Fault",
    "FaultKind",
    "Finding",
    "Fixed",
    "Flow",
    "FlowTree",
    "Gap",
    "GroupLimits",
    "GroupRecord",
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
    "JobRecord",
    "JobRef",
    "JobStack",
    "Keep",
    "LeaseLost",
    "MatchCount",
    "NotFound",
    "NotSerializable",
    "OnFailure",
    "OutboxStatus",
    "Overlap",
    "Overview",
    "Page",
    "PartialAdd",
    "PayloadTooLarge",
    "PermanentError",
    "PreparedJob",
    "Queue",
    "QueueDeclaration",
    "QueueFull",
    "QueueMetrics",
    "QueueOverview",
    "QueueSettings",
    "RateLimit",
    "RateLimited",
    "Refused",
    "RepairOutcome",
    "Repaired",
    "Replayed",
    "Result",
    "ResultGone",
    "Retry",
    "RetryDelay",
    "RunRecord",
    "RunStatus",
    "ScheduleRecord",
    "SearchPage",
    "Series",
    "Severity",
    "Snooze",
    "Spread",
    "State",
    "Strategy",
    "SyncJob",
    "SyncJobContext",
    "SyncQueue",
    "SyncTask",
    "Task",
    "TorilError",
    "TransientError",
    "Undecodable",
    "UnknownQueue",
    "Usage",
    "UsageError",
    "WorkerEvent",
    "WorkerRecord",
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
