"""Someone hears of it: a first failure, a job that failed for good, too many of them, a circuit that opens."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from toril import App, Breaker, Fixed, InvalidOption, JobCancelled, JobContext, Retry
from toril.alerts import Alert, AlertKind, AlertRules, Delivery, Webhook
from toril.events import STALLED_OUT, JobEvent, tell_recovered
from toril.model import Recovered
from toril.testing import memory


async def fail(ctx: JobContext[str]) -> None:
    if ctx.data != "fine":
        raise ConnectionError(ctx.data)


@pytest.mark.covers("R088", "R089", "R092")
async def test_a_first_failure_and_a_last_one_are_told_once_a_job() -> None:
    app = App("memory://")
    told: list[Alert] = []
    alerts = app.alert(told.append)
    queue = app.queue("q", {"a": fail, "b": fail}, retry=Retry(3, Fixed(0)))
    async with memory(app) as test, test.clock.running():
        await queue.add("a", "one")
        await queue.add("b", "two", attempts=1)
        await queue.add("b", "fine")
        await test.drain()
        await app.events.settle(10)

    seen = sorted((str(alert.kind), alert.job_name, alert.job_id, alert.error) for alert in told)
    assert seen == [
        ("exhausted", "a", "1", "one"), ("exhausted", "b", "2", "two"),
        ("first_failure", "a", "1", "one"), ("first_failure", "b", "2", "two"),
    ]  # fmt: skip
    assert alerts.exhausted == {("q", "a"): 1, ("q", "b"): 1}


@pytest.mark.covers("R090", "R091")
async def test_too_many_failures_are_told_once_until_the_cool_down_is_over() -> None:
    app = App("memory://")
    told: list[Alert] = []

    async def on_call(alert: Alert) -> None:
        told.append(alert)

    app.alert(on_call, AlertRules(kinds=frozenset({AlertKind.THRESHOLD}), threshold=100, window=300, cooldown=600))
    queue = app.queue("q", {"fail": fail}, retry=Retry(1), concurrency=10)
    async with memory(app) as test, test.clock.running():
        await queue.add_many([("fail", "x")] * 100)
        await test.drain()
        assert told == []
        await queue.add_many([("fail", "x")] * 100)
        await test.drain()
        await app.events.settle(10)
        assert [(alert.queue, alert.kind) for alert in told] == [("q", AlertKind.THRESHOLD)]
        assert told[0].count is not None
        assert 101 <= told[0].count <= 200
        assert "jobs of q failed" in told[0].text

        test.clock.advance(700_000)
        await queue.add_many([("fail", "x")] * 101)
        await test.drain()
        await app.events.settle(10)
        assert len(told) == 2


@pytest.mark.covers("R090")
async def test_cancellations_are_no_failures_to_alert_of() -> None:
    app = App("memory://")
    told: list[Alert] = []
    alerts = app.alert(told.append, AlertRules(threshold=3, in_a_row=3))

    async def give_up(ctx: JobContext[None]) -> None:
        raise JobCancelled("not wanted")

    queue = app.queue("q", [give_up], retry=Retry(1), subject=lambda _: "acme")
    async with memory(app) as test, test.clock.running():
        for _ in range(5):
            await (await queue.add("give_up", delay=60)).cancel("not wanted")
            await queue.add("give_up")
        await test.drain()
        await app.events.settle(10)
        view = await app.store.queue("q")

    assert (view.failed_total, view.cancelled_total) == (0, 10)
    assert (told, alerts.exhausted) == ([], {})


async def test_of_two_processes_one_tells(tmp_path: Path) -> None:
    apps = [App(f"sqlite:///{tmp_path / 'jobs.db'}") for _ in range(2)]
    told: list[Alert] = []
    for app in apps:
        app.alert(told.append, AlertRules(kinds=frozenset({AlertKind.THRESHOLD}), threshold=3))
        app.queue("q", {"fail": fail}, retry=Retry(1))
    async with apps[0], apps[1]:
        for app in apps:
            await app.queues["q"].add_many([("fail", "x")] * 5)
            await app.run(burst=True)
            await app.events.settle(10)

    assert len(told) == 1


@pytest.mark.covers("R091", "F126")
async def test_a_sink_that_fails_touches_no_job(caplog: pytest.LogCaptureFixture) -> None:
    app = App("memory://")

    async def broken(alert: Alert) -> None:
        raise OSError("the pager is off")

    app.alert(broken)
    queue = app.queue("q", {"fail": fail}, retry=Retry(1))
    async with memory(app) as test:
        await queue.add("fail", "x")
        await queue.add("fail", "fine")
        await test.drain()
        await app.events.settle(10)
        assert await app.dead_letters.count() == 1
        assert len((await queue.runs("completed")).items) == 1

    assert "could not deliver an alert: " in caplog.text


async def test_a_circuit_that_opens_is_told() -> None:
    app = App("memory://")
    told: list[Alert] = []
    app.alert(told.append, AlertRules(kinds=frozenset({AlertKind.BREAKER})))
    queue = app.queue("q", {"fail": fail}, retry=Retry(1), breaker=Breaker(failures=1))
    async with memory(app) as test:
        await queue.add("fail", "x")
        await test.drain()
        await app.events.settle(10)

    assert [(alert.kind, alert.text) for alert in told] == [(AlertKind.BREAKER, "circuit q/fail is open")]


@pytest.mark.covers("R093", "X33")
async def test_a_subject_that_fails_again_and_again_is_told_once() -> None:
    app = App("memory://")
    told: list[Alert] = []
    app.alert(told.append, AlertRules(kinds=frozenset({AlertKind.IN_A_ROW}), in_a_row=10))
    queue = app.queue("q", {"fail": fail}, retry=Retry(1), subject=lambda data: data[:4])
    async with memory(app) as test, test.clock.running():
        for n in range(12):
            await queue.add("fail", f"acme-{n}")
            await queue.add("fail", f"corp-{n}" if n < 9 else "fine", subject="corp")
            await test.drain()
            test.clock.advance(1)
            await app.events.settle(10)

    ((queue_name, subject, count),) = [(alert.queue, alert.subject, alert.count) for alert in told]
    assert (queue_name, subject, count) == ("q", "acme", 10)


async def test_many_stalls_are_told_and_so_is_a_job_that_stalled_out() -> None:
    app = App("memory://")
    told: list[Alert] = []
    app.alert(told.append, AlertRules(kinds=frozenset({AlertKind.STALLS, AlertKind.EXHAUSTED}), minimum=20))
    app.queue("q")
    for n in range(19):
        app.events.emit("completed", JobEvent(queue="q", job_id=f"c{n}", job_name="n", duration=0.005))
    app.events.emit("stalled", JobEvent(queue="q", job_id="s0", job_name=""))
    async with app:
        await app.events.settle(10)
        assert told == [], "one of twenty is no more than the rate"
        app.events.emit("stalled", JobEvent(queue="q", job_id="s1", job_name="", error=STALLED_OUT))
        app.events.emit("stalled", JobEvent(queue="q", job_id="s2", job_name=""))
        await app.events.settle(10)

    assert [(alert.kind, alert.count, alert.job_id) for alert in told] == [
        (AlertKind.EXHAUSTED, None, "s1"), (AlertKind.STALLS, 3, None),
    ]  # fmt: skip


@pytest.mark.covers("R139")
async def test_runs_that_take_half_a_lease_are_told() -> None:
    app = App("memory://")
    told: list[Alert] = []
    app.alert(told.append, AlertRules(kinds=frozenset({AlertKind.SLOW}), minimum=20))
    app.queue("q", lease=30)

    def ran(ms: int) -> None:
        app.events.emit("completed", JobEvent(queue="q", job_id="1", job_name="n", duration=ms / 1000))

    async with app:
        for _ in range(40):
            ran(100)
        for _ in range(2):
            ran(15_001)
        await app.events.settle(10)
        assert told == [], "two of forty-two are no more than one in twenty"
        ran(16_000)
        await app.events.settle(10)
        ran(16_000)
        await app.events.settle(10)

    assert [(alert.kind, alert.queue) for alert in told] == [(AlertKind.SLOW, "q")]
    assert told[0].text == "the slowest 5% of runs in q take over 15.001 s; its lease allows 15 s"


async def test_each_sink_has_its_own_turn() -> None:
    app = App("memory://")
    told: list[list[Alert]] = [[], []]
    for sink in told:
        app.alert(sink.append, AlertRules(kinds=frozenset({AlertKind.THRESHOLD}), threshold=0))
    queue = app.queue("q", {"fail": fail}, retry=Retry(1))
    async with memory(app) as test:
        await queue.add("fail", "x")
        await test.drain()
        await app.events.settle(10)

    assert [len(sink) for sink in told] == [1, 1]


@pytest.mark.covers("R091")
@pytest.mark.parametrize("kind", ["blocks", "never answers"])
async def test_a_sink_that_hangs_holds_up_no_job(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toril.alerts._DELIVERY_SECONDS", 0.05)
    monkeypatch.setattr("toril.alerts._MOST", 10)
    app, end = App("memory://"), threading.Event()

    async def never(alert: Alert) -> None:
        await asyncio.Event().wait()

    app.alert(never if kind == "never answers" else lambda _: end.wait(60))
    queue = app.queue("q", {"fail": fail}, retry=Retry(1), concurrency=5)
    async with memory(app) as test, test.clock.running():
        await queue.add_many([("fail", "x"), ("fail", "fine")] * 50)
        await test.drain()
        assert await app.dead_letters.count() == 50
        assert len((await queue.runs("completed", limit=100)).items) == 50
        await app.events.settle(10)
    end.set()

    assert "could not deliver an alert within 0.05 s" in caplog.text
    assert "dropped an alert because" in caplog.text


async def test_waiting_for_a_slow_sink_is_not_held_against_an_alert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toril.alerts._DELIVERY_SECONDS", 0.5)
    pause, told = threading.Event(), []

    def slow(alert: int) -> None:
        pause.wait(0.1)
        told.append(alert)

    delivery = Delivery(slow)
    delivered = await asyncio.gather(*(delivery.send(n, str(n)) for n in range(15)))

    assert all(delivered)
    assert told == list(range(15))


async def test_what_the_whole_fleet_hears_once_is_told_again_if_the_sink_failed() -> None:
    app, told = App("memory://"), []

    def flaky(alert: Alert) -> None:
        told.append(alert.kind)
        if len(told) == 1:
            raise OSError("the pager is off")

    app.alert(flaky, AlertRules(kinds=frozenset({AlertKind.THRESHOLD}), threshold=0))
    queue = app.queue("q", {"fail": fail}, retry=Retry(1))
    async with memory(app) as test, test.clock.running():
        for _ in range(4):
            await queue.add("fail", "x")
            await test.drain()
            await app.events.settle(10)

    assert told == [AlertKind.THRESHOLD] * 2


async def test_jobs_that_stalled_out_count_towards_the_threshold(tmp_path: Path) -> None:
    failing, app = (App(f"sqlite:///{tmp_path / 'jobs.db'}") for _ in range(2))
    told: list[Alert] = []
    app.alert(told.append, AlertRules(kinds=frozenset({AlertKind.THRESHOLD}), threshold=0))
    queue = failing.queue("q", {"fail": fail}, retry=Retry(1))
    async with failing, app:
        await queue.add("fail", "x")
        await failing.run(burst=True, signals="leave")
        app.events.emit("stalled", JobEvent(queue="q", job_id="s1", job_name=""))
        await app.events.settle(10)
        assert told == [], "it runs again"
        app.events.emit("stalled", JobEvent(queue="q", job_id="s1", job_name="", error=STALLED_OUT))
        await app.events.settle(10)

    assert [alert.kind for alert in told] == [AlertKind.THRESHOLD]


async def test_a_lost_job_is_told_by_its_name_unless_it_was_to_be_cancelled() -> None:
    app = App("memory://")
    told: list[Alert] = []
    alerts = app.alert(told.append, AlertRules(kinds=frozenset({AlertKind.EXHAUSTED})))
    queue = app.queue("q", {"fail": fail}, retry=Retry(1))
    async with memory(app) as test:
        failed, cancelled = await queue.add("fail", "x"), await queue.add("fail", "y", delay=60)
        await cancelled.cancel("not needed")
        await test.drain()
        await app.events.settle(10)
        tell_recovered(app.events, "q", Recovered(failed=(failed.id,), cancelled=(cancelled.id,)), None)
        await app.events.settle(10)

    assert [(alert.job_id, alert.job_name) for alert in told] == [(failed.id, "fail")] * 2, "by its run and its stall"
    assert alerts.exhausted == {("q", "fail"): 2}


@pytest.mark.parametrize("odd", [
    {"threshold": -1}, {"window": 5}, {"cooldown": 0}, {"kinds": {"noise"}}, {"in_a_row": 0},
    {"stall_rate": -1}, {"lease_share": "half"}, {"minimum": 0},
])  # fmt: skip
def test_odd_rules_are_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        AlertRules(**odd)


ALERT = Alert(kind=AlertKind.THRESHOLD, text="many", queue="q", count=101)


@pytest.mark.covers("B109")
@pytest.mark.parametrize("url", [
    "http://example.com/x", "file:///etc/passwd", "https://127.0.0.1/", "https://169.254.169.254/latest", "https://[::1]/",
    "https://10.0.0.8/", "https://user:word@example.com/", "https://", "ftp://example.com", "https://[::ffff:127.0.0.1]/",
    "https://example.com:port/", "", 7,
])  # fmt: skip
def test_a_webhook_goes_to_the_public_net_by_https_or_nowhere(url: Any) -> None:
    with pytest.raises(InvalidOption):
        Webhook(url)


@pytest.mark.covers("B109")
@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["fe80::1%eth0"], ["224.0.0.1"]])
async def test_a_name_that_leads_inside_is_refused_when_it_is_looked_up(addresses: list[str]) -> None:
    posted: list[bytes] = []

    def post(address: str, hook: Webhook, body: bytes) -> int:
        posted.append(body)
        return 200

    hook = Webhook("https://hooks.example.com/x", resolve=lambda *_: addresses, post=post)

    with pytest.raises(InvalidOption, match="public"):
        await hook(ALERT)
    assert posted == []


@pytest.mark.covers("B109")
async def test_a_webhook_posts_to_the_address_that_was_checked_and_follows_no_redirect() -> None:
    posted: list[tuple[str, str, bytes]] = []
    statuses = iter([204, 302])

    def post(address: str, hook: Webhook, body: bytes) -> int:
        posted.append((address, hook.target, body))
        return next(statuses)

    hook = Webhook("https://hooks.example.com/x?y=1", resolve=lambda *_: ["93.184.216.34"], post=post)
    await hook(ALERT)
    with pytest.raises(Exception, match="status 302"):
        await hook(ALERT)

    assert posted[0] == ("93.184.216.34", "/x?y=1", b'{"kind":"threshold","text":"many","queue":"q","count":101}')
    assert len(posted) == 2
