"""The outside world fails, and the example gets through it."""

from collections import Counter
from typing import Any, Literal

import pytest

from helpdesk import database
from helpdesk.database import Connection
from helpdesk.fake_api import BROKEN, FakeApi, Trouble
from helpdesk.queues import scheduled_trigger
from helpdesk.queues.events import Event, publish
from helpdesk.queues.oauth2_refresh import queue as oauth2_refresh
from helpdesk.queues.webhooks import Delivery, deliver_webhook
from helpdesk.queues.webhooks import queue as webhooks
from helpdesk.worker import app
from helpdesk.workload import Workload
from toril import DeadLetterFilter
from toril.testing import memory


@pytest.mark.covers("R053", "R065", "R067")
async def test_a_subscriber_that_asks_for_two_minutes_is_left_alone_for_two_minutes(api: FakeApi) -> None:
    api.next["/hooks"] = [Trouble(429, retry_after=120)]
    async with memory(app) as test:
        await webhooks.add(deliver_webhook, Delivery(subscriber="crm", ticket=7), job_id="crm-7")
        await test.drain()
        await test.after(119)
        asked = api.calls["/hooks"]
        await test.after(2)

    assert asked == 1
    assert api.calls["/hooks"] == 2
    assert api.done["/hooks"] == {"crm-7"}


@pytest.mark.covers("R083", "R084")
async def test_what_was_done_before_the_line_was_cut_is_not_done_twice(api: FakeApi) -> None:
    api.next["/hooks"] = [Trouble(0, lost=True)]
    async with memory(app) as test:
        await webhooks.add(deliver_webhook, Delivery(subscriber="crm", ticket=7), job_id="crm-7")
        await test.drain()
        await test.after(10)

    assert api.calls["/hooks"] == 2
    assert api.done["/hooks"] == {"crm-7"}


@pytest.mark.covers("R225", "R226")
async def test_a_provider_that_is_down_is_left_alone_until_it_is_up_and_others_go_on(api: FakeApi) -> None:
    api.down["/oauth/postbox"] = BROKEN
    await database.run(_sign_in, 8)
    async with memory(app) as test:
        await test.drain()  # the schedule that looks for tokens has its first run when a worker boots
        circuits = [(circuit.key, circuit.state.value) for circuit in await app.breakers.list()]
        calls = api.calls["/oauth"]
        put_off = [(await job.refresh()).attempts_made for job in (await oauth2_refresh.jobs("delayed")).items]
        fresh = await database.run(_fresh)

        api.down.clear()
        await test.after("8m")
        afterwards = [circuit.state.value for circuit in await app.breakers.list()]

    assert circuits == [("oauth:postbox", "open")]
    assert calls == 5 + 1, "five of postbox, after which nobody asks it any more, and one of letterbox"
    assert sorted(put_off) == [0, 0, 0, 1, 1, 1, 1, 1], "an open circuit spends no attempt"
    assert fresh == ["letterbox-0"]
    assert await database.run(_fresh) == ["letterbox-0", *(f"postbox-{n}" for n in range(8))]
    assert set(afterwards) <= {"closed"}


async def test_a_token_that_was_revoked_is_refused_once_and_marked(api: FakeApi) -> None:
    await database.run(lambda db: db.execute("INSERT INTO credentials (id, provider) VALUES ('revoked-1', 'postbox')"))
    async with memory(app) as test:
        await test.after("5m")
        letters = (await app.dead_letters.page()).items

    assert api.calls["/oauth"] == 1
    assert [(letter.queue, letter.attempts_made) for letter in letters] == [("oauth2-refresh", 1)]


@pytest.mark.covers("R088", "R089", "R091")
async def test_someone_hears_of_a_job_that_failed_for_good(api: FakeApi) -> None:
    api.down["/hooks/crm"] = Trouble(404)
    async with memory(app) as test:
        await webhooks.add(deliver_webhook, Delivery(subscriber="crm", ticket=7))
        await test.drain()
        await app.events.settle(60)

    alerts = await database.run(lambda db: db.execute("SELECT kind, queue FROM alerts ORDER BY kind").fetchall())
    assert alerts == [("exhausted", "webhooks"), ("first_failure", "webhooks")]


@pytest.mark.covers("R033")
async def test_a_ticket_is_followed_through_all_its_queues_and_a_second_time_changes_nothing(api: FakeApi) -> None:
    async with memory(app, on_failure="raise") as test:
        job = await publish(Event(kind="created", ticket=3))
        await publish(Event(kind="solved", ticket=3))
        await test.deliver_twice(job)
        await test.after("2m")
        run = (await app.queues["events"].runs("completed")).items[-1]

    assert api.done["/email"] >= {"email-confirmation-3", "email-survey-3"}
    assert api.done["/hooks"] == {"crm-3", "chat-3"}
    assert api.done["/workflows"] == {"triggered-3", "resumed-3"}
    assert api.done["/agent"] == {"draft-3"}
    assert run.text in {"ticket 3 created", "ticket 3 solved"}
    assert await database.run(lambda db: db.execute("SELECT count(*) FROM events").fetchone()) == (2,)


@pytest.mark.parametrize("kind", ["created", "solved"])
async def test_an_event_that_is_recorded_again_when_all_of_it_was_handled_adds_nothing(
    kind: Literal["created", "solved"], api: FakeApi
) -> None:
    async with memory(app, on_failure="raise") as test:
        job = await publish(Event(kind=kind, ticket=3))
        await test.deliver_twice(job)  # what it has added has run by then
        await test.after("2m")
        await publish(Event(kind=kind, ticket=3))
        await test.drain()
        added = Counter(job.id for job in test.added if job.id.endswith(("-3", "-handled")))
        doubles = await Workload().doubles(app)

    assert test.deaths == 1
    assert set(added.values()) == {1}
    assert len(added) == {"created": 6, "solved": 4}[kind]
    # Runs of schedules that the killed worker had under way just then are run again, as they should be.
    assert {key: times for key, times in api.times.items() if times > 1 and "-repeat:" not in key} == {}
    assert doubles == {}


async def test_a_draft_that_has_failed_is_made_again_only_if_a_person_says_so(api: FakeApi) -> None:
    api.next["/agent"] = [BROKEN]
    async with memory(app) as test:
        for _ in range(2):  # as after a kill
            await app.queues["event-handlers"].add("on_ticket_created", 3)
            await test.drain()
        asked = api.calls["/agent"]
        replayed = await app.dead_letters.replay(DeadLetterFilter(queue="ai-agent"))
        await test.drain()

    assert (asked, replayed.count) == (1, 1)
    assert api.done["/agent"] == {"draft-3"}


async def test_workflows_whose_starter_is_killed_run_once_each_all_the_same(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[str] = []
    await database.run(lambda db: db.executemany("INSERT INTO workflows (id) VALUES (?)", [("daily",), ("weekly",)]))
    async with memory(app) as test:
        add = scheduled_trigger.queue.add

        async def dying(*job: Any, **options: Any) -> Any:
            added.append(options["job_id"])
            if len(added) == 1:
                test.kill_here()
            answer = await add(*job, **options)
            if len(added) == 2:
                test.kill_here()
            return answer

        monkeypatch.setattr(scheduled_trigger.queue, "add", dying)
        await test.after("5m")

    assert test.deaths == 2
    assert added == ["daily-at-0", "daily-at-0", "daily-at-0", "weekly-at-0"]
    assert api.done["/workflows"] == {"daily-at-0", "weekly-at-0"}
    assert [api.times[key] for key in sorted(api.done["/workflows"])] == [1, 1]


def _sign_in(db: Connection, many: int) -> None:
    names = [("letterbox-0", "letterbox"), *((f"postbox-{n}", "postbox") for n in range(many))]
    db.executemany("INSERT INTO credentials (id, provider) VALUES (?, ?)", names)


def _fresh(db: Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT id FROM credentials WHERE token IS NOT NULL ORDER BY id")]
