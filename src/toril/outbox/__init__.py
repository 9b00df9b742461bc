"""The outbox: jobs written in your application's own transaction, and the relay that moves them into the store.

A relay takes rows in batches. Each batch is one call of a *lane*, a sender whose numbers are kept in the application's
database beside the rows. The store remembers the last call of each lane for good, so a batch that was sent and not yet
deleted when the relay died is sent again as the same call, and has no second effect, however late that is.
"""

from toril.outbox.outbox import Outbox

__all__ = ["Outbox"]
