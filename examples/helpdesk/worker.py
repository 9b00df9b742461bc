"""Everything together: `toril run helpdesk.worker:app`."""

from helpdesk import queues, schedules
from helpdesk.desk import app

__all__ = ["app", "queues", "schedules"]
