"""Signals and requests to stop on their way to the event loop: real signals to this process, together and apart, while
the loop is blocked, with several who watch, and from threads that come too late."""

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from signal import SIGINT, SIGTERM
from types import FrameType, ModuleType
from typing import Any, TypeAlias
from unittest.mock import patch

import pytest

from tests.worker.planting import planted
from toril.runtime import signals as real
from toril.runtime import stop_requests
from toril.runtime.stop_requests import Urgency

MODULE = "toril.runtime.signals"
PATIENCE = 30.0  # seconds for what must happen
SHORT = 2.0  # the same where a bug is planted, and it may not
TOGETHER, PASSED_ON, APART = 0.1, 0.2, 0.4  # seconds between signals that are one, are passed on, are two
LONG = 600.0  # a grace that does not end here

ABORT = "received a third signal"
OVER = "the grace period is over, and something is still running"


class Wrong(AssertionError):
    """A request was not heard, or heard twice, or the process would not have ended in time."""


class SlowTime:
    """A clock that hardly moves, so that a busy machine does not part what comes together; and that can be put on."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() / 100 + self._ahead

    def pass_some(self) -> None:
        self._ahead += 10


class Scene:
    """This process, some who watch for signals in it, and what each of them did."""

    def __init__(self, module: ModuleType, seed: int, patience: float) -> None:
        self.module, self.chance, self.patience = module, random.Random(seed), patience
        self.told: list[tuple[str, int]] = []  # who has its loop stop, and how urgently
        self.ended: list[tuple[str, str]] = []  # who would have ended the process, and why
        self.clock = SlowTime()
        self.elsewhere: list[int] = []  # signals that came to whoever had handlers before

    def watchdog(self, name: str = "w", grace: float = LONG, supervisor: Callable[[], int] | None = None) -> Any:
        scene = self

        class Watched(self.module.StopSignals):  # type: ignore[misc, name-defined]
            def _main(self) -> None:
                with suppress(SystemExit):
                    super()._main()

            def _end(self, why: str) -> None:
                scene.ended.append((name, why))
                raise SystemExit  # of its thread alone

        return Watched(grace, lambda urgency: scene.told.append((name, int(urgency))), supervisor=supervisor)

    @contextmanager
    def set(self) -> Iterator["Scene"]:
        def heard(number: int, _: FrameType | None) -> None:
            self.elsewhere.append(number)

        before = {number: signal.signal(number, heard) for number in (SIGTERM, SIGINT)}
        self.own = heard
        try:
            with (
                patch.object(stop_requests, "_SAME_AGAIN", TOGETHER),
                patch.object(stop_requests, "_PASSED_ON", PASSED_ON),
                patch.object(self.module, "MARGIN", 0.05), patch.object(self.module, "SECOND", LONG),
            ):  # fmt: skip
                yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def slowly(self) -> Iterator[None]:
        with patch.object(self.module, "SYSTEM", self.clock):
            yield

    def send(self, *numbers: int) -> None:
        for number in numbers:
            os.kill(os.getpid(), number)

    async def until(self, done: Callable[[], object], what: str) -> None:
        try:
            async with asyncio.timeout(self.patience):
                while not done():  # noqa: ASYNC110 - threads have no event of ours
                    await asyncio.sleep(0.002)
        except TimeoutError:
            raise Wrong(what) from None

    def block(self) -> None:
        """The loop stands still for a moment, if it is drawn to."""
        if self.chance.random() < 0.5:
            time.sleep(0.02)


async def each_request_counts_once(scene: Scene) -> None:
    """A person interrupts up to three times; what comes together is one."""
    with scene.slowly(), scene.watchdog().watching():
        for times in (1, 2, 3):
            number = scene.chance.choice((SIGTERM, SIGINT))
            scene.send(
                *scene.chance.choice(((number,), (number, number), (number, SIGTERM), (number, SIGTERM, number)))
            )
            scene.block()
            if times < 3:
                expected = [("w", level) for level in range(1, times + 1)]
                await scene.until(lambda: len(scene.told) >= times, "a signal is not heard")  # noqa: B023 - at once
                await asyncio.sleep(0.05)
                if scene.told != expected:
                    raise Wrong("what came together counts as more than one")
                scene.clock.pass_some()
        await scene.until(lambda: scene.ended, "a third signal does not end it")
        if scene.ended != [("w", ABORT)] or scene.elsewhere:
            raise Wrong("a third signal does something else")


async def a_blocked_loop_ends_with_its_grace(scene: Scene) -> None:
    with scene.watchdog(grace=0.05).watching():
        scene.send(SIGTERM)
        until = time.monotonic() + scene.patience
        while not scene.ended and time.monotonic() < until:  # the loop stands still all the time
            time.sleep(0.01)  # noqa: ASYNC251 - as above
        if scene.ended != [("w", OVER)]:
            raise Wrong("who blocks the loop holds up the end")
        if scene.told:
            raise Wrong("a loop that stands still was told")


async def a_second_request_shortens_the_time(scene: Scene) -> None:
    scene.module.SECOND = 0.2  # type: ignore[attr-defined]
    with scene.watchdog(grace=LONG).watching():
        scene.send(SIGTERM)
        await scene.until(lambda: scene.told, "a signal is not heard")
        await asyncio.sleep(APART)
        scene.send(SIGINT)
        await scene.until(lambda: scene.ended, "a second request leaves as much time as the first")


async def a_request_that_is_no_more_urgent_leaves_the_time_as_it_is(scene: Scene) -> None:
    watchdog = scene.watchdog(grace=0.4)
    with watchdog.watching():
        for _ in range(12):
            watchdog.request(Urgency.DRAIN)
            await asyncio.sleep(0.05)
        await scene.until(lambda: scene.ended, "the same request again gives it more time")
        if scene.told != [("w", 1)]:
            raise Wrong("the same request is told again")


async def requests_of_all_kinds_are_heard_together(scene: Scene) -> None:
    """What arrives in one moment, in any order, is as urgent as the most urgent of it."""
    watchdog = scene.watchdog()
    with watchdog.watching():
        acts: list[Callable[[], None]] = [
            lambda: watchdog.request(Urgency.DRAIN), lambda: watchdog.request(Urgency.HURRY),
            lambda: scene.send(SIGTERM), watchdog.orphaned,
        ]  # fmt: skip
        scene.chance.shuffle(acts)
        for act in acts:
            act()
        await scene.until(lambda: ("w", 2) in scene.told, "the most urgent request is not heard")
        if scene.told != sorted(set(scene.told)):
            raise Wrong("it becomes less urgent")


async def the_supervisor_decides_how_urgent_it_is(scene: Scene) -> None:
    """It writes that down, and then sends a signal; signals of others arrive before, between and after."""
    urgency = 0
    with scene.slowly(), scene.watchdog(supervisor=lambda: urgency).watching():
        scene.send(SIGINT)
        await asyncio.sleep(0.05)
        if scene.told:
            raise Wrong("a worker process stops at an interrupt")
        for level in (1, 2):
            if scene.chance.random() < 0.5:
                scene.send(SIGTERM)
                await asyncio.sleep(scene.chance.choice((0.0, 0.02)))
                if scene.chance.random() < 0.5:
                    scene.clock.pass_some()
            urgency = level
            scene.send(*scene.chance.choice(((SIGTERM,), (SIGTERM, SIGINT), (SIGINT, SIGTERM))))
            await scene.until(lambda: ("w", level) in scene.told, "what the supervisor asks for is not seen")  # noqa: B023
        scene.clock.pass_some()
        scene.send(SIGTERM, SIGTERM)
        await asyncio.sleep(0.05)
        if [level for _, level in scene.told] != [1, 2]:
            raise Wrong("a worker process counts signals itself")


async def who_is_orphaned_counts_from_then_on(scene: Scene) -> None:
    watchdog = scene.watchdog(supervisor=lambda: 0)
    with scene.slowly(), watchdog.watching():
        threading.Thread(target=watchdog.orphaned).start()
        await scene.until(lambda: scene.told == [("w", 1)], "whose supervisor is gone works on")
        scene.send(SIGINT)
        await asyncio.sleep(0.02)
        scene.clock.pass_some()
        scene.send(SIGTERM)
        await scene.until(lambda: ("w", 2) in scene.told, "whose supervisor is gone does not hear signals")


async def all_who_watch_hear_it_and_the_longest_grace_counts(scene: Scene) -> None:
    short, long = scene.watchdog("short", 0.05), scene.watchdog("long", LONG)
    both = [short, long]
    scene.chance.shuffle(both)
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(both[0].watching())
        second.enter_context(both[1].watching())
        scene.send(SIGTERM)
        await scene.until(lambda: sorted(scene.told) == [("long", 1), ("short", 1)], "one of them hears nothing")
        await asyncio.sleep(0.4)
        if scene.ended:
            raise Wrong("the process ends while one of them has time left")
        (first if both[0] is long else second).close()
        await scene.until(lambda: scene.ended == [("short", OVER)], "nobody ends it when the last grace is over")


async def afterwards_all_is_as_it_was(scene: Scene) -> None:
    """Whichever ends first; and until the last has ended, signals are theirs."""
    watchdogs = [scene.watchdog(name) for name in "abc"]
    contexts = [watchdog.watching() for watchdog in watchdogs]
    for context in contexts:
        context.__enter__()
    order = list(range(3))
    scene.chance.shuffle(order)
    for left, number in zip((2, 1, 0), order, strict=True):
        contexts[number].__exit__(None, None, None)
        if (signal.getsignal(SIGTERM) == scene.own) != (left == 0):
            raise Wrong("handlers are not as they were, or too early")
    scene.send(SIGTERM)
    await scene.until(lambda: scene.elsewhere == [SIGTERM], "signals do not come to who had them before")
    if scene.told:
        raise Wrong("who has ended is told")


async def who_comes_too_late_does_no_harm(scene: Scene) -> None:
    """The thread that hears of the supervisor's end may come when nobody watches, and the descriptors are another's."""
    watchdog = scene.watchdog(supervisor=lambda: 0)
    with watchdog.watching():
        descriptors = {watchdog._reader, watchdog._writer}
    pipes = [os.pipe() for _ in range(4)]
    try:
        raised = list[BaseException]()

        def late() -> None:
            try:
                watchdog.orphaned()
                watchdog.signalled(SIGTERM)
            except OSError as error:
                raised.append(error)

        thread = threading.Thread(target=late)
        thread.start()
        thread.join()
        if raised or not descriptors & {end for pipe in pipes for end in pipe}:
            raise Wrong("who comes too late breaks")
        for read, _ in pipes:
            os.set_blocking(read, False)
            with suppress(BlockingIOError):
                raise Wrong(f"what another has opened is written to: {os.read(read, 9)!r}")
        watchdog.request(Urgency.DRAIN)  # by the loop itself, which is never too late
        if scene.told != [("w", 1)]:
            raise Wrong("a request is lost where nobody watches")
    finally:
        for pipe in pipes:
            for end in pipe:
                os.close(end)


Check: TypeAlias = Callable[[Scene], Awaitable[None]]
CHECKS: tuple[Check, ...] = (
    who_comes_too_late_does_no_harm, afterwards_all_is_as_it_was, a_blocked_loop_ends_with_its_grace,
    requests_of_all_kinds_are_heard_together, who_is_orphaned_counts_from_then_on, a_second_request_shortens_the_time,
    all_who_watch_hear_it_and_the_longest_grace_counts, the_supervisor_decides_how_urgent_it_is,
    a_request_that_is_no_more_urgent_leaves_the_time_as_it_is, each_request_counts_once,
)  # fmt: skip
SEEDS = range(4)


@pytest.mark.covers("F31", "F35", "R245")
@pytest.mark.parametrize("check", CHECKS)
async def test_every_request_to_stop_is_heard_and_its_time_holds(check: Check) -> None:
    for seed in SEEDS:
        with Scene(real, seed, PATIENCE).set() as scene:
            await check(scene)


BUGS = {
    "a request sets no deadline": ("= until if self._deadline is None else", "= None if True else"),
    "a more urgent request does not shorten the time": ("else min(self._deadline, until)", "else self._deadline"),
    "the same request again gives more time": ("if urgency == before:", "if urgency < before:"),
    "a third signal is one like the others": ("if urgency is Urgency.ABORT:", "if False:"),
    "of what comes together only the first is heard": ("os.read(self._reader, 64)", "os.read(self._reader, 64)[:1]"),
    "the shortest grace of all counts": ("latest = max(", "latest = min("),
    "a grace that is over does not end the process": ("if self._left() == 0:", "if False:"),
    "only the first who watches hears signals": (
        "in self.watchdogs:\n            watchdog.signalled", "in self.watchdogs[:1]:\n            watchdog.signalled",
    ),
    "handlers stay when the last has ended": ("signal.signal(number, handler)\n", "pass\n"),
    "handlers go when the first has ended": ("if not self.watchdogs:\n", "if True:\n"),
    "a worker process counts signals itself": ("supervised=supervisor is not None", "supervised=False"),
    "what the supervisor asks for is not looked at": ("self._supervisor() if self._supervisor else 0", "0"),
    "nobody hears that the supervisor is gone": ("return self._requests.orphaned()", "return self._requests.urgency"),
    "who comes too late writes all the same": (
        "self._reader, self._writer = self._reader, self._writer, -1, -1", "_, _ = self._reader, self._writer, -1, -1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
async def test_a_bug_that_is_planted_in_the_signal_paths_is_found(bug: str) -> None:
    module = planted(MODULE, *BUGS[bug])

    assert await _is_found(module)


async def _is_found(module: ModuleType) -> bool:
    for check in CHECKS:
        for seed in SEEDS:
            with Scene(module, seed, SHORT).set() as scene:
                try:
                    await check(scene)
                except Wrong:
                    return True
    return False
