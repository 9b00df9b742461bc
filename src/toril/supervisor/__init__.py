"""The supervisor: starts and watches worker processes, and never runs application code itself."""

from toril.supervisor.child import BootFailure
from toril.supervisor.probes import HealthMonitor, serve
from toril.supervisor.reload import reload
from toril.supervisor.supervisor import Listen, Supervisor, SupervisorOptions
from toril.worker.isolation import SuspectPolicy

__all__ = [
    "BootFailure",
    "HealthMonitor",
    "Listen",
    "Supervisor",
    "SupervisorOptions",
    "SuspectPolicy",
    "reload",
    "serve",
]
