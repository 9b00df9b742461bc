"""A busy morning: customers write, colleagues upload, mailboxes are connected. And what the result must be."""

import time
from collections import Counter
from datetime import UTC, datetime

from helpdesk import database
from helpdesk.database import Connection
from helpdesk.fake_api import MESSAGES, REVOKED, FakeApi
from helpdesk.queues.app_polling_trigger import enable
from helpdesk.queues.data_import import Import, import_contacts
from helpdesk.queues.data_import import queue as data_import
from helpdesk.queues.document_processing import process_document
from helpdesk.queues.document_processing import queue as document_processing
from helpdesk.queues.event_handlers import SUBSCRIBERS
from helpdesk.queues.events import Event, publish
from helpdesk.queues.kb_sync import article_edited
from helpdesk.queues.message_processing import Message, send_later
from helpdesk.queues.message_sync import queue as message_sync
from helpdesk.queues.message_sync import sync_mailbox
from helpdesk.queues.storefront import Order, order_changed
from helpdesk.queues.thumbnail import Picture, picture_uploaded
from helpdesk.tables import QUEUES
from toril import App

__all__ = ["Workload"]

PROVIDERS = ("postbox", "letterbox")
SHOPS = ("oakline", "kestrel")
ROWS = 200  # contacts in a file


class Workload:
    """How many of everything. `add` requests it, `missing` says what is not there yet or wrong, `doubles` says what was
    added twice."""

    def __init__(self, size: int = 4) -> None:
        self.size = size
        self._numbers = range(size)
        self.tickets = range(1, 4 * size + 1)
        self.documents = {f"handbook-{n}": 15 + 20 * n % 100 for n in self._numbers}  # and their lines
        self.mailboxes = [f"support-{n}" for n in self._numbers]
        self.connected = [f"archive-{n}" for n in self._numbers]
        self.credentials = [*(f"login-{n}" for n in range(2 * size)), f"{REVOKED}-login"]

    async def add(self) -> None:
        """Some of it is rows that scanners find, some is jobs."""
        await database.run(self._insert)
        for ticket in self.tickets:
            await publish(Event(kind="created", ticket=ticket))
            await publish(Event(kind="solved", ticket=ticket))
            await send_later(Message(ticket=ticket, text="Does it work now?"), datetime.now(UTC))
        for document in self.documents:
            await document_processing.add(process_document, document, job_id=f"process-{document}")
        await message_sync.add_many([(sync_mailbox, mailbox) for mailbox in self.connected])
        for n in self._numbers:
            await data_import.add(import_contacts, Import(first=ROWS * n + 1, last=ROWS * (n + 1)), job_id=f"file-{n}")
            await picture_uploaded(Picture(name=f"screenshot-{n}.png", width=2_000))
            await article_edited(f"article-{n}")
            for shop in SHOPS:
                await order_changed(Order(shop=shop, number=n))
        await enable("inventory", every=300)

    def missing(self, api: FakeApi) -> dict[str, object]:
        """Return what must still happen, and what happened but must not."""
        tickets, done, found = self.tickets, api.so_far(), database.done(_found)
        replies = {f"reply-{n}" for n in tickets}
        mails = {f"email-{kind}-{n}" for kind in ("confirmation", "survey") for n in tickets}
        sent = {key for key in done["/email"] if not key.startswith("email-trial")}
        hooks = {f"{subscriber}-{n}" for subscriber in SUBSCRIBERS for n in tickets}
        flows = {f"{half}-{n}" for half in ("triggered", "resumed") for n in tickets}
        flows |= {f"report-{n}-at-0" for n in self._numbers}
        checks: dict[str, tuple[object, object]] = {
            "events": (found["events"], 2 * len(tickets)),
            "mail": (sent ^ (mails | replies), set()),
            "webhooks": (done["/hooks"] ^ hooks, set()),
            "drafts": (done["/agent"] ^ {f"draft-{n}" for n in tickets}, set()),
            "workflows": (flows - done["/workflows"], set()),
            "orders": (len(done["/shops"]), len(SHOPS) * self.size),
            "articles": (len(done["/index"]) >= self.size, True),
            "documents": (found["documents"], [(name, "ready", n, n) for name, n in sorted(self.documents.items())]),
            "messages": (found["messages"], [(box, MESSAGES) for box in sorted(self.mailboxes + self.connected)]),
            "mailboxes": (found["mailboxes"], []),
            "contacts": (found["contacts"], ROWS * self.size),
            "credentials": (found["credentials"], [("invalid_grant", 1), ("ok", 2 * self.size)]),
        }
        return {what: actual for what, (actual, wanted) in checks.items() if actual != wanted}

    async def doubles(self, app: App) -> dict[str, int]:
        """Return jobs that completed more than once, although their ids are kept: they were added twice. Running twice
        before completing is allowed."""
        ended: Counter[str] = Counter()
        for name in (name for name, row in QUEUES.items() if row.keep):
            cursor, runs = None, app.queue(name).runs
            while (page := await runs("completed", cursor, limit=200)).items:
                ended.update(f"{name}: {run.id}" for run in page.items)
                if (cursor := page.cursor) is None:
                    break
        return {job: times for job, times in ended.items() if times > 1}

    def _insert(self, db: Connection) -> None:
        db.executemany("INSERT INTO mailboxes (id) VALUES (?)", [(mailbox,) for mailbox in self.mailboxes])
        db.executemany(
            "INSERT INTO documents (id, text, since) VALUES (?, ?, ?)",
            [(name, "a line\n" * lines, time.time()) for name, lines in self.documents.items()],
        )
        db.executemany(
            "INSERT INTO credentials (id, provider) VALUES (?, ?)",
            [(name, PROVIDERS[n % len(PROVIDERS)]) for n, name in enumerate(self.credentials)],
        )
        db.executemany("INSERT INTO workflows (id) VALUES (?)", [(f"report-{n}",) for n in self._numbers])
        db.executemany("INSERT INTO leftovers (kind, expires) VALUES (?, 0)", [("demo_accounts",)] * self.size)


def _found(db: Connection) -> dict[str, object]:
    def rows(statement: str) -> list[tuple[object, ...]]:
        return db.execute(statement).fetchall()

    return {
        "events": rows("SELECT count(*) FROM events")[0][0],
        "contacts": rows("SELECT count(*) FROM contacts")[0][0],
        "messages": rows("SELECT mailbox, count(*) FROM messages GROUP BY mailbox ORDER BY mailbox"),
        "mailboxes": rows("SELECT id, stage FROM mailboxes WHERE synced = 0"),
        "credentials": rows(
            "SELECT auth, count(*) FROM credentials WHERE token IS NOT NULL OR auth <> 'ok' GROUP BY auth ORDER BY auth"
        ),
        "documents": rows(
            "SELECT id, status, count(segments.number), count(vector) FROM documents"
            " JOIN segments ON document = id GROUP BY id ORDER BY id"
        ),
    }
