"""Durable steps on the command line: what a job has recorded, signals, who waits, and rewinding."""

import asyncio
from typing import Any

import pytest

from tests.cli.conftest import Toril, documents, on
from tests.declared import declared
from toril import App, JobContext, PermanentError
from toril.model import Heartbeat
from toril.testing import drain


async def pay(ctx: JobContext[int]) -> str:
    await ctx.step("book", lambda: {"amount": ctx.data, "password": "hunter2"})
    answer = await ctx.wait_for("approval", timeout="3d")
    return f"answer {answer}"


async def collect(ctx: JobContext[None]) -> int:
    return int((await ctx.wait_for("paid", key="invoice:7"))["amount"])


async def doubt(ctx: JobContext[None]) -> None:
    await ctx.step("look", lambda: "it")
    raise PermanentError("no good")


def office(url: str, *, add: bool = False) -> None:
    """Run the office's jobs until they rest or have ended."""

    async def work(app: App) -> None:
        queue = app.queue("people", [pay, collect, doubt], keep_completed=True)
        if add:
            await queue.add(pay, 5)
            await queue.add(collect)
            await queue.add(doubt)
        await drain(app)

    on(url, work)


def test_a_job_that_waits_is_answered_on_the_command_line(toril: Toril, url: str) -> None:
    office(url, add=True)

    listed = documents(toril("waits", "--json").stdout)
    table = toril("waits", "people", "--signal", "approval").stdout
    shown = toril("job", "show", "1").stdout
    told = toril("job", "signal", "1", "approval", "--data", '{"ok": true}', "--id", "click-17").stdout
    again = toril("job", "signal", "people", "1", "approval", "--id", "click-17").stdout
    late = toril("job", "signal", "1", "approval", "--if-waiting", code=1).output
    office(url)
    (ended,) = documents(toril("job", "show", "1", "--json").stdout)

    assert [(each["id"], each["signals"]) for each in listed] == [
        ("1", [{"name": "approval", "key": None}]), ("2", [{"name": "paid", "key": "invoice:7"}])
    ]  # fmt: skip
    assert "approval" in table
    assert "in 2d" in table
    assert "paid" not in table
    assert "resting        for approval (wait), since 20" in shown
    assert told == "Sent the signal to job 1 (pay) in people, which now runs again.\n"
    assert again == "A signal with this id was sent before to job 1 (pay) in people; this one has no effect.\n"
    assert "job '1' is not waiting for the signal 'approval' now; nothing was sent" in late
    assert (ended["state"], ended["result"], ended["rest"]) == ("completed", "answer {'ok': True}", None)
    assert "has ended, so nothing reads its signals" in toril("job", "signal", "1", "approval", code=1).output


def test_a_signal_by_key_wakes_its_job(toril: Toril, url: str) -> None:
    office(url, add=True)
    send = ("signal", "people", "paid", "--key", "invoice:7", "--data", '{"amount": 5}')

    (found,) = documents(toril(*send, "--json").stdout)
    kept = toril("signal", "people", "paid", "--key", "invoice:8", "--ttl", "2h").stdout
    office(url)

    assert found == {"queue": "people", "signal": "paid", "key": "invoice:7", "id": "2", "outcome": "woken"}
    assert kept == "No job of people waits for paid by the key invoice:8; the signal is kept until one does.\n"
    assert documents(toril("job", "show", "2", "--json").stdout)[0]["result"] == 5
    assert documents(toril("waits", "--signal", "paid", "--json").stdout) == []
    assert "No jobs wait for the signal paid." in toril("waits", "--signal", "paid").output


def test_the_steps_of_a_job_are_listed_without_secrets(toril: Toril, url: str) -> None:
    office(url, add=True)

    book, wait = documents(toril("job", "steps", "1", "--json").stdout)
    table = toril("job", "steps", "people", "1").stdout.splitlines()
    (of_a_dead_letter,) = documents(toril("job", "steps", "3", "--json").stdout)
    (secret, _) = documents(toril("job", "steps", "1", "--show-secrets", "--json").stdout)

    assert set(book) == {
        "key", "kind", "number", "at", "took", "attempt", "value", "error", "tries", "until",
    }  # fmt: skip
    assert (book["key"], book["kind"], book["value"]) == ("book", "step", {"amount": 5, "password": "***"})
    assert secret["value"]["password"] == "hunter2"
    assert (wait["key"], wait["kind"], wait["until"] - wait["at"]) == ("approval", "wait", 3 * 86_400_000)
    assert table[0].split() == ["step", "kind", "attempt", "took", "recorded", "value"]
    assert ["times out 20" in line for line in table] == [False, False, True]
    assert (of_a_dead_letter["key"], of_a_dead_letter["value"]) == ("look", "it")


def test_a_job_is_rewound_once_somebody_has_confirmed(toril: Toril, url: str) -> None:
    office(url, add=True)

    refused = toril("job", "rewind", "1", "--to", "book", code=3).output
    unknown = toril("job", "rewind", "1", "--to", "send", code=1).output
    dead = toril("job", "rewind", "3", "--yes", code=1).output
    done = toril("job", "rewind", "1", "--to", "approval", "--yes").stdout
    left = documents(toril("job", "steps", "1", "--json").stdout)
    (whole,) = documents(toril("job", "rewind", "1", "--yes", "--json").stdout)

    assert "Job 1 (pay) in people forgets 2 steps (book, approval) and runs again. Nothing was changed" in refused
    assert "job '1' has not recorded a step 'send'; it has book, approval" in unknown
    assert "is a dead letter and cannot be rewound; retry it first" in dead
    assert done == "Job 1 (pay) in people will run again.\n"
    assert [each["key"] for each in left] == ["book"]
    assert whole == {"queue": "people", "id": "1", "name": "pay", "done": True}
    assert "has not recorded any steps." in toril("job", "steps", "1").output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("job signal 1", "[QUEUE] ID NAME"), ("job signal people 1 approval more", "[QUEUE] ID NAME"),
        ("job signal 1 approval --data {", "not valid JSON"), ("job signal 1 a:b", "signal's name"),
        ("signal people paid", "--key"), ("signal people paid --key k --ttl 40d", "ttl"),
        ("waits people --cursor x", "cursor"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_refused(toril: Toril, url: str, words: str, said: str) -> None:
    office(url, add=True)

    assert said in toril(*words.split(), code=2).output


def test_a_listing_of_waits_goes_on_from_its_cursor(toril: Toril, url: str) -> None:
    office(url, add=True)

    first = toril("waits", "--limit", "1", "--json")
    cursor = documents(first.stderr)[0]["cursor"]
    second = documents(toril("waits", "--limit", "1", "--cursor", cursor, "--json").stdout)

    assert [each["id"] for each in documents(first.stdout) + second] == ["1", "2"]


def test_a_full_inbox_and_a_serializer_are_said_to_be_the_reason(toril: Toril, url: str) -> None:
    office(url, add=True)

    async def fill(app: App) -> None:
        job: Any = await app.queue("people").job("1")
        await asyncio.gather(*(job.signal("other") for _ in range(100)))
        beat = Heartbeat(
            worker="w", queues=["coded"], slots=1, running=0, declares={"coded": declared(serializer=True)}
        )
        await app.store.heartbeat(beat, ttl=600_000)

    on(url, fill)

    assert "has as many signals that it has not read as it may" in toril("job", "signal", "1", "other", code=1).output
    assert (
        "has a serializer, which only the application has" in toril("signal", "coded", "x", "--key", "k", code=2).output
    )


def test_why_says_how_to_send_the_signal(toril: Toril, url: str) -> None:
    office(url, add=True)

    asked, keyed = toril("job", "why", "1"), toril("job", "why", "2")
    (found,) = documents(toril("job", "why", "1", "--json").stdout)

    assert asked.stdout.startswith("It has waited for the signal approval since ")
    assert asked.stderr == "Send it with  toril job signal people 1 approval\n"
    assert keyed.stderr == "Send it with  toril signal people paid --key invoice:7\n"
    assert (found["reason"], found["facts"]["steps"]) == ("waiting_for_signal", ["approval"])
    assert found["facts"]["until"] - found["facts"]["since"] == 3 * 86_400_000
