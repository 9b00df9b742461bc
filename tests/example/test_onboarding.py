"""The onboarding example: killed at each step, called again after each row, and run as its own program."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

import onboarding
from onboarding import APPROVAL, COOL_OFF, PATIENCE, Approval, Services, Signup, app, onboard, people
from tests.integrations.programs import EXAMPLES
from toril.testing import memory

SIGNUP = Signup("ada@example.org", ["https://example.org/engines", "https://example.org/notes"])
STEPS = ["create", "gather[0]/title", "gather[1]/title", "draft", "cool-off", "approval", "send"]


class Fake(Services):
    """Keeps what was done, and fails as often as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.failures = 0
        self.die: Callable[[str], None] = lambda what: None  # noqa: ARG005

    def do(self, what: str) -> None:
        self.done.append(what)
        self.die(what)

    async def create_user(self, email: str) -> onboarding.User:
        self.do("create")
        return await super().create_user(email)

    async def title_of(self, link: str) -> str:
        self.do("title")
        return await super().title_of(link)

    async def write_letter(self, user: onboarding.User, titles: list[str]) -> str:
        self.do("draft")
        return await super().write_letter(user, titles)

    async def delete_user(self, user: onboarding.User) -> None:
        self.do("delete")
        await super().delete_user(user)

    async def send(self, to: str, letter: str) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the mail server is away")
        assert (to, letter) == ("ada@example.org", "Dear ada@example.org, we liked engines and notes.")
        self.do("send")


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Fake:
    fake = Fake()
    monkeypatch.setattr(onboarding, "services", fake)
    return fake


async def test_a_person_approves_and_the_letter_is_sent(services: Fake) -> None:
    async with memory(app, replay="each") as test:
        job = await people.add(onboard, SIGNUP)
        await test.after(COOL_OFF)
        assert (await job.signal(APPROVAL, Approval(ok=True, by="grace"), unless_waiting="refuse")).outcome == "woken"
        await test.drain()

        assert await job.result() == "approved by grace"
        late = await job.signal(APPROVAL, Approval(ok=False, by="alan"), unless_waiting="refuse")
        assert late.outcome == "ended"
        await test.assert_steps(job, STEPS)
    assert services.done == ["create", "title", "title", "draft", "send"]


@pytest.mark.parametrize(
    ("answer", "result"),
    [(Approval(ok=False, by="grace"), "refused by grace"), (None, "nobody answered")],
)
async def test_without_an_approval_the_user_is_deleted(services: Fake, answer: Any, result: str) -> None:
    async with memory(app, replay="each") as test:
        job = await people.add(onboard, SIGNUP)
        await test.after(COOL_OFF)
        if answer is not None:
            await job.signal(APPROVAL, answer)
        await test.after(PATIENCE)

        assert await job.result() == result
    assert services.done == ["create", "title", "title", "draft", "delete"]
    assert services.users == {}


@pytest.mark.parametrize("where", ["create", "title", "draft", "send"])
async def test_a_worker_may_die_within_each_step(services: Fake, where: str) -> None:
    async with memory(app) as test:
        services.die = lambda what: test.kill_here() if what == where and not test.deaths else None
        job = await people.add(onboard, SIGNUP)
        await test.after(COOL_OFF)
        await job.signal(APPROVAL, Approval(ok=True, by="grace"))
        await test.after("1h")

        assert await job.result() == "approved by grace"
        assert test.deaths == 1
        await test.assert_steps(job, STEPS)
    for what, times in {"create": 1, "title": 2, "draft": 1, "send": 1}.items():
        again = 0 if what != where else 2 if what == "title" else 1  # both titles were under way
        assert services.done.count(what) == times + again, what
    assert len(services.users) == 1, "the step that creates a user is safe to repeat"


async def test_a_letter_that_cannot_be_sent_is_undone(services: Fake) -> None:
    services.failures = 3
    async with memory(app, replay="each") as test:
        job = await people.add(onboard, SIGNUP)
        await job.signal(APPROVAL, Approval(ok=True, by="grace"))
        await test.after(COOL_OFF + PATIENCE)

        assert await job.state() == "failed"
        assert [letter.failure.reason for letter in (await app.dead_letters.page()).items] == [
            "the letter could not be sent: the mail server is away"
        ]
    assert services.done == ["create", "title", "title", "draft", "delete"]


async def test_it_runs_as_its_own_program() -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "onboarding.py", cwd=EXAMPLES, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await program.communicate()

    assert program.returncode == 0
    assert output.decode().splitlines() == [
        "create a user for ada@example.org",
        "create a user for bob@example.org",
        "create a user for eve@example.org",
        "three days have passed; all of them wait for an approval",
        "send to ada@example.org: Dear ada@example.org, we liked engines.",
        "delete bob@example.org",
        "delete eve@example.org",
        "ada@example.org: approved by grace",
        "bob@example.org: refused by grace",
        "eve@example.org: nobody answered",
    ]
