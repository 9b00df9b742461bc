"""Worker processes, looked after from a process that runs nobody's code but ours."""

from toril.supervisor.child import Failed
from toril.supervisor.health import Vitals
from toril.supervisor.plan import Listen, Plan
from toril.supervisor.reload import reload
from toril.supervisor.serving import serve
from toril.supervisor.supervisor import Supervisor
from toril.worker.quarantine import Suspects

__all__ = ["Failed", "Listen", "Plan", "Supervisor", "Suspects", "Vitals", "reload", "serve"]
