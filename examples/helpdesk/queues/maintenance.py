"""Periodic work: scanners that add jobs, sweeps that delete, mail that is due."""

import time
from collections.abc import Awaitable, Callable

from helpdesk import database
from helpdesk.database import Connection
from helpdesk.desk import declared, hosted_only
from helpdesk.outside import Outside
from helpdesk.queues.email import Email, send
from helpdesk.queues.oauth2_refresh import ask_for_refreshes
from toril import JobContext, Result

__all__ = ["queue"]

Task = Callable[[JobContext[None]], Awaitable[Result]]


async def refresh_tokens(ctx: JobContext[None]) -> Result:  # noqa: ARG001 - it looks at all of them
    asked = await ask_for_refreshes()
    return Result(f"{asked} tokens expire soon", counts={"asked": asked})


async def check_mailbox_tokens(ctx: JobContext[None]) -> Result:  # noqa: ARG001 - it looks at all of them
    count = await database.run(count_refused)
    warnings = [f"{count} mailboxes wait for their owners to sign in"] if count else []
    return Result("the tokens of mailboxes were checked", counts={"refused": count}, warnings=warnings)


def asks(what: str) -> Task:
    """A job that asks another service to do something, once per run."""

    async def ask(ctx: JobContext[None]) -> Result:
        outside: Outside = ctx.state
        await outside.post(f"/{what}", key=f"{what}-{ctx.job_id}")
        return Result(f"{what} asked for")

    ask.__name__ = what
    return ask


def sweeps(kind: str) -> Task:
    """A job that deletes what has expired."""

    async def sweep(ctx: JobContext[None]) -> Result:  # noqa: ARG001 - it looks at all of them
        count = await database.run(delete_expired, kind)
        return Result(f"{count} of {kind} deleted", counts={"deleted": count})

    sweep.__name__ = f"delete_{kind}"
    return sweep


def mails(about: str) -> Task:
    """A job that writes to customers in their trial period."""

    async def mail(ctx: JobContext[None]) -> Result:
        await send(Email(kind="trial", to="trials@example.org", about=f"{about}-{ctx.job_id}"))
        return Result(f"mail about {about} asked for")

    mail.__name__ = f"mail_{about}"
    return mail


def delete_expired(db: Connection, kind: str) -> int:
    return db.execute("DELETE FROM leftovers WHERE kind = ? AND expires < ?", (kind, time.time())).rowcount


def count_refused(db: Connection) -> int:
    (count,) = db.execute("SELECT count(*) FROM mailboxes WHERE auth <> 'ok'").fetchone()
    return int(count)


queue = declared(
    "maintenance",
    {
        "refresh_tokens": refresh_tokens,
        "check_mailbox_tokens": check_mailbox_tokens,
        "remind_of_deadlines": asks("deadlines"),
        "suggest_next_actions": asks("next-actions"),
        "suggest_documents": asks("suggestions"),
        "check_storage_quota": asks("quota-check"),
        "reset_quotas": asks("quota-reset"),
        "delete_orphaned_files": sweeps("orphaned_files"),
        "delete_removed_files": sweeps("removed_files"),
        "delete_expired_media": sweeps("expired_media"),
        "delete_thumbnails": sweeps("thumbnails"),
        "delete_old_thumbnail_versions": sweeps("thumbnail_versions"),
        "delete_app_bundles": sweeps("app_bundles"),
        # only in the hosted version
        "apply_subscription_changes": hosted_only(asks("subscription-changes")),
        "sync_subscriptions": hosted_only(asks("subscriptions")),
        "delete_demo_accounts": hosted_only(sweeps("demo_accounts")),
        "delete_expired_trials": hosted_only(sweeps("expired_trials")),
        "mail_getting_started": hosted_only(mails("getting_started")),
        "mail_mid_trial": hosted_only(mails("mid_trial")),
        "mail_trial_ends": hosted_only(mails("trial_ends")),
    },
)
