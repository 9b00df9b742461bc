"""Worker processes, looked after from a process that runs nobody's code but ours."""

from toril.supervisor.child import Failed
from toril.supervisor.probes import Vitals, serve
from toril.supervisor.reload import reload
from toril.supervisor.supervisor import Listen, Plan, Supervisor
from toril.worker.isolation import Suspects

__all__ = ["Failed", "Listen", "Plan", "Supervisor", "Suspects", "Vitals", "reload", "serve"]
