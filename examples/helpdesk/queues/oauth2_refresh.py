"""Tokens are renewed before they expire. If the endpoint of a provider is down, all its jobs leave it alone at once."""

import time

from pydantic import BaseModel

from helpdesk import database
from helpdesk.database import Connection
from helpdesk.desk import declared
from helpdesk.outside import Outside
from helpdesk.settings import seconds
from toril import Breaker, Dedup, JobContext, PermanentError, Result

__all__ = ["Credential", "ask_for_refreshes", "queue", "refresh_token"]


class Credential(BaseModel):
    id: str
    provider: str


async def refresh_token(ctx: JobContext[Credential]) -> Result:
    """A refusal is final and marks the credential, because only its owner can sign in again."""
    outside: Outside = ctx.state
    credential = ctx.data
    try:
        token = await outside.post(f"/oauth/{credential.provider}", key=f"{ctx.job_id}", body=credential.id)
    except PermanentError:
        await database.run(refuse, credential.id)
        raise
    await database.run(save, credential.id, token)
    return Result(f"the token of {credential.id} is fresh")


queue = declared(
    "oauth2-refresh",
    {"refresh_token": refresh_token},
    breaker=Breaker(
        failures=5, window=seconds(300), pause=seconds(60), probes=2, by=lambda data: f"oauth:{data.provider}"
    ),
    subject="id",
)


async def ask_for_refreshes() -> int:
    """Add a job for each token that expires soon, unless there is one already."""
    found = await database.run(expiring)
    for credential in found:
        await queue.add(refresh_token, credential, dedup=Dedup(f"refresh-{credential.id}"))
    return len(found)


def expiring(db: Connection) -> list[Credential]:
    rows = db.execute(
        "SELECT id, provider FROM credentials WHERE auth = 'ok' AND expires < ?", (time.time() + seconds(1800),)
    )
    return [Credential(id=identity, provider=provider) for identity, provider in rows]


def save(db: Connection, credential: str, token: str) -> None:
    db.execute("UPDATE credentials SET token = ?, expires = ? WHERE id = ?", (token, time.time() + 3600, credential))


def refuse(db: Connection, credential: str) -> None:
    db.execute("UPDATE credentials SET auth = 'invalid_grant' WHERE id = ?", (credential,))
