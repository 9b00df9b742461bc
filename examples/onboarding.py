"""Onboarding with an approval: one handler that takes days, sleeps, and waits for a person.

    python onboarding.py                         # plays three sign-ups on a clock in memory, and exits
    toril run onboarding:app                     # as in production; the dashboard has a form for the approval
    toril add people onboard '{"email": "ada@example.org", "links": []}' --app onboarding:app

With `ONBOARDING_PACE=0.0001` the days take seconds.
"""

import asyncio
import os
from dataclasses import dataclass
from datetime import timedelta

from toril import App, Fixed, JobContext, PermanentError, Retry, SignalKind, StepFailed, current_step
from toril.testing import memory

PACE = float(os.environ.get("ONBOARDING_PACE", "1"))
COOL_OFF = timedelta(days=3) * PACE
PATIENCE = timedelta(days=2) * PACE  # for the approval

app = App(os.environ.get("TORIL_URL", "sqlite:///onboarding.db"))


@dataclass
class Signup:
    email: str
    links: list[str]


@dataclass
class User:
    id: int
    email: str


@dataclass
class Approval:
    ok: bool
    by: str
    note: str = ""


APPROVAL = SignalKind("approval", Approval)


class Services:
    """What the product talks to. It prints what it does; a test replaces its methods."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}

    async def create_user(self, email: str) -> User:
        """Safe to repeat: the key is the same whenever this step is done again."""
        info = current_step()
        key = email if info is None else info.idempotency_key
        print(f"create a user for {email}")
        return self.users.setdefault(key, User(len(self.users) + 1, email))

    async def delete_user(self, user: User) -> None:
        print(f"delete {user.email}")
        self.users = {key: each for key, each in self.users.items() if each != user}

    async def title_of(self, link: str) -> str:
        return link.rpartition("/")[2]

    async def write_letter(self, user: User, titles: list[str]) -> str:
        return f"Dear {user.email}, we liked {' and '.join(titles) or 'your silence'}."

    async def send(self, to: str, letter: str) -> None:
        print(f"send to {to}: {letter}")


services = Services()


async def onboard(ctx: JobContext[Signup]) -> str:
    user = await ctx.step("create", services.create_user, ctx.data.email)
    titles = await ctx.gather(*(title(ctx, link) for link in ctx.data.links), limit=5)
    draft = await ctx.step("draft", services.write_letter, user, titles, timeout=60)
    await ctx.sleep("cool-off", COOL_OFF)  # takes no slot; goes on after any restart
    approval = await ctx.wait_for(APPROVAL, timeout=PATIENCE)
    if approval is None or not approval.ok:
        await ctx.step("delete", services.delete_user, user)
        return "nobody answered" if approval is None else f"refused by {approval.by}"
    try:
        await ctx.step("send", services.send, user.email, draft, retry=Retry(3, Fixed(60)))
    except StepFailed as error:
        await ctx.step("delete", services.delete_user, user)  # what was done is undone, and the job ends
        raise PermanentError(f"the letter could not be sent: {error.reason}") from error
    return f"approved by {approval.by}"


async def title(ctx: JobContext[Signup], link: str) -> str:
    """A branch. Each has a scope of its own, so all of them may use one name."""
    return await ctx.step("title", services.title_of, link, retry=Retry(3))


people = app.queue("people", [onboard], keep_completed=True, signals=[APPROVAL])


async def main() -> None:
    async with memory(app) as test:
        ada = await people.add(onboard, Signup("ada@example.org", ["https://example.org/engines"]))
        bob = await people.add(onboard, Signup("bob@example.org", []))
        eve = await people.add(onboard, Signup("eve@example.org", []))
        await test.after(COOL_OFF)
        print("three days have passed; all of them wait for an approval")
        await ada.signal(APPROVAL, Approval(ok=True, by="grace"), id="click-1")
        await ada.signal(APPROVAL, Approval(ok=False, by="alan"), id="click-1")  # a second click: no effect
        await test.drain()
        await bob.signal(APPROVAL, Approval(ok=False, by="grace", note="spam"))
        await test.after(PATIENCE)
        for job in (ada, bob, eve):
            print(f"{job.data.email}: {await job.result()}")


if __name__ == "__main__":
    asyncio.run(main())
