"""All pages of the dashboard."""

from typing import Final

from toril.web.pages.audit import AUDIT
from toril.web.pages.breakers import BREAKERS
from toril.web.pages.dead_letters import DEAD
from toril.web.pages.find import FIND
from toril.web.pages.flows import FLOWS
from toril.web.pages.groups import GROUPS
from toril.web.pages.job import JOB
from toril.web.pages.overview import OVERVIEW
from toril.web.pages.page import FormPost, PageSpec
from toril.web.pages.people import PEOPLE, SIGNAL_FORMS
from toril.web.pages.queue import QUEUE
from toril.web.pages.schedules import SCHEDULES
from toril.web.pages.workers import WORKERS

__all__ = ["FORMS", "PAGES"]

PAGES: Final[tuple[PageSpec, ...]] = (
    *OVERVIEW, *QUEUE, *JOB, *DEAD, *PEOPLE, *FLOWS, *SCHEDULES, *GROUPS, *BREAKERS, *WORKERS, *AUDIT, *FIND,
)  # fmt: skip
FORMS: Final[tuple[FormPost, ...]] = SIGNAL_FORMS
