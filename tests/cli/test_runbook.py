"""The runbook: each of its commands is run in the situation that its section is about, and helps."""

import re
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Toril, on
from tests.conformance.jobs import new_job
from toril import App
from toril.model import Claim, Completed, Failed, Failure, Lease, NewJob, Schedule, SetRateLimit, Settlement
from toril.model.states import State

PAGE = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text("utf-8")
ORDER = "order-7"
HOUR = 3_600_000

Situation = Callable[[App], Awaitable[Any]]


def commands(heading: str) -> list[str]:
    """The commands of a section."""
    section = f"\n{PAGE}".split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return [line for block in found for line in block.splitlines()]


async def add(app: App, **options: Any) -> None:
    await app.store.add("mail", [new_job("send", id=ORDER, **options)])


async def claim(app: App) -> Settlement:
    wanted = Claim(want=1, token="t", lease=HOUR, worker="w1")
    (job,) = (await app.store.exchange("mail", [], wanted)).jobs
    return Settlement(job.lease, Completed())


async def settled(app: App, outcome: Completed | Failed, **options: Any) -> None:
    await add(app, **options)
    lease = (await claim(app)).lease
    await app.store.exchange("mail", [Settlement(lease, outcome)], Claim(want=0, token="u", lease=HOUR, worker="w1"))


async def tell(app: App, sql: str) -> None:
    await app.store._write(lambda tx: tx.run(sql), None)  # type: ignore[attr-defined]


async def waiting(app: App) -> None:
    await add(app)
    await app.queue("mail").pause()
    await app.store.configure("mail", [SetRateLimit(None)])


async def lost(app: App) -> None:
    await add(app)
    await claim(app)
    await tell(app, "UPDATE active SET deadline = 1")


async def held(app: App) -> None:
    await add(app)
    await claim(app)


async def shut_out(app: App) -> None:
    await add(app)
    await tell(app, "INSERT INTO dedups (queue, id, owner, key) VALUES (1, 'user-7', 'gone', 99)")


async def idle(app: App) -> None:
    await add(app)
    slot = (await app.store.health()).now + HOUR
    await app.store.schedules.put("mail", Schedule(id="nightly", job=NewJob(name="n"), every=HOUR), slot, expects=None)
    await app.store.remove("mail", [f"repeat:nightly:{slot}"])


async def state(app: App) -> State | None:
    (found,) = await app.store.jobs("mail", [ORDER])
    return None if found is None else found.state


async def claimable(app: App) -> bool:
    return (
        len((await app.store.exchange("mail", [], Claim(want=1, token="v", lease=1, worker="w", alone=True))).jobs) == 1
    )


async def unowned(app: App) -> bool:
    return not await app.store._read_now(  # type: ignore[attr-defined]
        lambda tx: tx.all("SELECT 1 FROM dedups")
    )


async def scheduled(app: App) -> bool:
    return (await app.store.counts("mail")).delayed == 1


async def asked_to_stop(app: App) -> bool:
    return bool((await app.store.renew([(await claim_held(app))], ttl=HOUR)).cancelled)


async def claim_held(app: App) -> Any:

    return Lease("mail", ORDER, "t")


def is_in(*wanted: State | None) -> Callable[[App], Awaitable[bool]]:
    async def check(app: App) -> bool:
        return await state(app) in wanted

    return check


LETTER = Failed(Failure("no", "ValueError"))
SITUATIONS: dict[str, tuple[Situation, Callable[[App], Awaitable[bool]]]] = {
    "# A job is stuck": (add, is_in(State.WAITING)),
    "## Waiting, but not starting": (waiting, claimable),
    "## Prioritized, but others run first": (lambda app: add(app, priority=5), is_in(State.PRIORITIZED)),
    "## Delayed past its due time": (lambda app: add(app, delay=HOUR), is_in(State.WAITING)),
    "## Active for too long": (held, asked_to_stop),
    "## Active, but its worker is dead": (lost, is_in(State.WAITING)),
    "## Failed": (lambda app: settled(app, LETTER), is_in(State.WAITING)),
    "## Many failed jobs": (lambda app: settled(app, LETTER), is_in(State.WAITING)),
    "## Completed or missing": (lambda app: settled(app, Completed('"ok"')), is_in(None)),
    "## The job was not added": (shut_out, unowned),
    "## A schedule does not run": (idle, scheduled),
}
FINDINGS = {"toril doctor --json"}  # which ends with 1 where there are some


def test_no_section_with_commands_is_left_out() -> None:
    sections = [f"## {each.splitlines()[0]}" for each in PAGE.split("\n## ")[1:] if "```sh" in each]

    assert sections == list(SITUATIONS)[1:]


@pytest.mark.covers("R191", "R265")
@pytest.mark.parametrize("heading", SITUATIONS)
def test_the_commands_of_a_section_mend_what_it_is_about(toril: Toril, url: str, heading: str) -> None:
    situation, mended = SITUATIONS[heading]
    on(url, situation)

    for line in commands(heading):
        _, *words = shlex.split(line)
        toril(*words, code=1 if line in FINDINGS else 0)

    assert on(url, mended)
