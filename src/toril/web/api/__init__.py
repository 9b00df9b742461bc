"""All endpoints of the API."""

from typing import Final

from toril.web.api.audit import AUDIT
from toril.web.api.breakers import BREAKERS
from toril.web.api.dead_letters import LETTERS
from toril.web.api.doctor import DOCTOR
from toril.web.api.events import EVENTS
from toril.web.api.flows import FLOWS
from toril.web.api.groups import GROUPS
from toril.web.api.jobs import JOBS, MANY
from toril.web.api.queues import QUEUES
from toril.web.api.schedules import SCHEDULES
from toril.web.api.search import SEARCH
from toril.web.api.steps import STEPS
from toril.web.api.workers import WORKERS
from toril.web.routing import Endpoint

__all__ = ["ENDPOINTS"]

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *QUEUES, *GROUPS, *JOBS, *MANY, *STEPS, *LETTERS, *SCHEDULES, *WORKERS, *FLOWS, *BREAKERS, *DOCTOR, *EVENTS, *AUDIT,
    *SEARCH,
)  # fmt: skip
