"""A store whose every text tries to be a script."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import field, make_dataclass
from typing import Any, Literal

from tests.dashboard.seed import Seeded
from toril import App, InvalidName, JobContext, PermanentError, Retry, SignalKind, StepFailed
from toril.model import AuditEntry, Heartbeat

__all__ = ["PAYLOADS", "hostile"]

PAYLOADS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<svg onload=alert(3)>",
    '"><script>alert(4)</script>',
    "'><img src=x onerror=alert(5)>",
    "</title><script>alert(6)</script>",
    "</template><img src=x onerror=alert(7)>",
    "</textarea><script>alert(8)</script>",
    '" onmouseover="alert(9)" x="',
    "' autofocus onfocus=alert(10) x='",
    "javascript:alert(11)",
    "<iframe srcdoc='<script>alert(12)</script>'>",
    "<style>*{background:url(//evil.example/13)}</style>",
    "<base href=//evil.example/14>",
    "<form action=//evil.example/15><input type=submit>",
    "{{ self.__init__.__globals__ }}{% 16 %}",
    "${alert(17)}`${alert(17)}`",
    "<a href=javascript:alert(18)>x</a>",
    "\u202e<b onclick=alert(19)>",
    "<!--<img src=x onerror=alert(20)>-->",
)
_EVERYTHING = " ".join(PAYLOADS)


async def fails(ctx: JobContext[Any]) -> None:
    for text in PAYLOADS:
        await ctx.log(text)
    await ctx.update_progress({text: text for text in PAYLOADS})
    raise PermanentError(_EVERYTHING)


async def stays(ctx: JobContext[Any]) -> None:
    await ctx.log(_EVERYTHING)
    await ctx.update_progress(_EVERYTHING)
    await ctx.signal.wait()


Evil: Any = make_dataclass(
    "Evil",
    [("choice", Literal[PAYLOADS], PAYLOADS[0])]
    + [(f"text_{n}", str, text) for n, text in enumerate(PAYLOADS)]
    + [("rest", dict[str, str], field(default_factory=dict))],
)
SIGNAL = SignalKind(PAYLOADS[8], Evil)  # an attribute's end


async def asks(ctx: JobContext[Any]) -> None:
    for n, text in enumerate(PAYLOADS):
        await ctx.step("step", _said, text, key=_line(text))
        with suppress(StepFailed):
            await ctx.step(f"failed {n}", _failing)
    await ctx.wait_for_any([SIGNAL, PAYLOADS[9]])


async def _said(text: str) -> dict[str, str]:
    return {text: text}


async def _failing() -> None:
    raise ValueError(_EVERYTHING)


@asynccontextmanager
async def hostile(url: str) -> AsyncIterator[Seeded]:
    """Queues, jobs, groups, schedules, workers, circuits and entries of the log, each named by a payload if it may."""
    app = App(url)
    names = dict.fromkeys((*PAYLOADS, "fails"), fails)
    handlers = {**names, "stays": stays, "asks": asks}
    kept = app.queue("kept", handlers, concurrency=50, retry=Retry(1), keep_failed=100, signals=[SIGNAL])
    buried = app.queue("buried", names, concurrency=50, retry=Retry(1))
    data = {"texts": list(PAYLOADS), **{text: text for text in PAYLOADS}}
    async with app:
        for text in PAYLOADS:
            await _named_by(app, text)
            await kept.add(text, data)
            await buried.add(text, data, group=_line(text))
        running = await kept.add("stays", data)
        asking = await kept.add("asks", data)
        flow = await app.flow(kept.new(PAYLOADS[0], data), [app.queue("idle").new(text, data) for text in PAYLOADS])
        work = asyncio.create_task(app.run(grace=0.2, signals="leave"))
        try:
            failed = await _failed(app)
            yield Seeded(
                app=app, failed=failed, cancelled=failed, delayed=failed, waiting=failed, running=running,
                deferred=failed, flow=flow, done=failed, asking=asking,
            )  # fmt: skip
        finally:
            app.stop()
            await work


async def _named_by(app: App, text: str) -> None:
    """What is named by it, as far as names allow that."""
    with suppress(InvalidName):
        queue = app.queue(text)
        await queue.add("x", {text: text}, group=_line(text))
        await queue.groups.pause(_line(text))
    with suppress(InvalidName):
        await app.queue("idle").schedules.put(text, text, {text: text}, every=86_400)
    with suppress(InvalidName):
        worker = Heartbeat(worker="".join(text.split()), queues=[text], slots=3, running=1, host=text, version=text)
        await app.store.heartbeat(worker, ttl=3_600_000)
    with suppress(InvalidName):
        await app.breakers.trip(text, 3600)
    await app.store.audit.append(AuditEntry(who=text, address=text, action=text, target=text, detail=text, ended=text))


def _line(text: str) -> str:
    """What can name a group: signs that turn the direction of text are none that can be seen."""
    return text.replace("\u202e", "")


async def _failed(app: App) -> Any:
    async with asyncio.timeout(60):
        while True:
            failed = (await app.queue("kept").counts()).failed
            asks = (await app.queue("kept").counts()).resting
            if failed == len(PAYLOADS) and asks and await app.dead_letters.count() == len(PAYLOADS):
                return (await app.queue("kept").jobs("failed"))[0]
            await asyncio.sleep(0.05)
