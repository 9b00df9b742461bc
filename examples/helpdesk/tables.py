"""The settings of each queue: how many jobs at once per process, the lease, how failures are retried, and why.

The backoff is short for our own resources (a busy database is free again in a second) and long for those of others: a
mail provider that answers 429 still does so a second later.
"""

from dataclasses import dataclass
from typing import Final

from helpdesk.settings import seconds
from toril import Exponential, Retry

__all__ = ["A_DAY", "BATCH", "ONE_IN_THE_FLEET", "QUEUES", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One queue."""

    concurrency: int
    why: str
    attempts: int = 5
    backoff: float = 1  # seconds before the second attempt, doubled for each further one
    lease: float = 30
    keep: float = 0  # how many seconds completed jobs are kept

    @property
    def retry(self) -> Retry:
        return Retry(self.attempts, Exponential(seconds(self.backoff)))


# A job's id prevents a second job only while the job is stored. A job that adds another by id may be killed before its
# own end is stored, and run again when the other has long completed. So completed jobs are kept for longer than that.
A_DAY: Final = 86_400

QUEUES: Final = {
    "events": Row(1, "in the order in which things happened", keep=A_DAY),
    "event-handlers": Row(1, "side effects one after the other", keep=A_DAY),
    "maintenance": Row(1, "low volume", attempts=3, backoff=60),
    "webhooks": Row(1, "one after the other, as customers expect them", backoff=10, keep=A_DAY),
    "storefront": Row(1, "orders of a shop in their order"),
    "oauth2-refresh": Row(1, "low volume; token endpoints recover slowly", attempts=3, backoff=60),
    "message-processing": Row(1, "scheduled sends, one after the other", attempts=3, backoff=5),
    "message-sync": Row(5, "long: whole mailboxes", attempts=3, backoff=30, lease=300),
    "polling-sync": Row(10, "many mailboxes at once; providers limit rates", attempts=3, backoff=60, lease=300),
    "workflow-delay": Row(10, "many and short", attempts=3, backoff=2, keep=A_DAY),
    "scheduled-trigger": Row(1, "one after the other", attempts=3, backoff=2, keep=A_DAY),
    "app-trigger": Row(10, "hands work on", attempts=3, backoff=5, keep=A_DAY),
    "app-polling-trigger": Row(10, "asks others whether there is news", attempts=3, backoff=5),
    "recording-bot": Row(10, "waits for meetings", attempts=3, backoff=30, keep=A_DAY),
    "document-processing": Row(5, "parsing", attempts=3, backoff=5, keep=A_DAY),
    "embedding": Row(3, "as many as the model's provider bears", attempts=3, backoff=2, keep=A_DAY),
    "dataset-maintenance": Row(1, "low volume", attempts=1),
    "thumbnail": Row(1, "works the CPU", attempts=3, backoff=2),
    "data-import": Row(2, "heavy on the database", attempts=3, backoff=5),
    "email": Row(5, "in parallel is fine", attempts=3, backoff=5, keep=A_DAY),
    "ai-agent": Row(5, "not to be repeated: it uses tools", attempts=1, keep=A_DAY),
    "ai-autofill": Row(5, "short calls of a model", attempts=1, keep=A_DAY),
    "calendar-sync": Row(5, "calls of calendar providers", attempts=3, backoff=60),
    "recording-processing": Row(3, "large files", attempts=3, backoff=30, keep=A_DAY),
    "kb-sync": Row(4, "articles into the search index", attempts=3, backoff=5),
}

ONE_IN_THE_FLEET: Final = ("events", "event-handlers")  # whatever the number of processes
BATCH: Final = 20  # segments that one job embeds, messages that one call fetches
