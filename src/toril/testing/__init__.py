"""Tools for your tests: contexts for handlers, an app in memory with a manual clock, and stores that fail on demand."""

from toril.testing.clock import ManualClock
from toril.testing.contexts import Recorded, SyncTestContext, TestContext, context, sync_context
from toril.testing.faults import FlakyStore, Killed
from toril.testing.memory import AddedJob, Memory, drain, memory

__all__ = [
    "AddedJob",
    "FlakyStore",
    "Killed",
    "ManualClock",
    "Memory",
    "Recorded",
    "SyncTestContext",
    "TestContext",
    "context",
    "drain",
    "memory",
    "sync_context",
]
