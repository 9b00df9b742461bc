"""Handlers of a simulated process: each plays its job's script, and says in the log what it did."""

import asyncio
from typing import Any

from tests.sim.conduct import Conduct, Run
from tests.sim.faults import KIND
from tests.sim.node import Node
from tests.sim.script import Kind, Script, script_from
from toril.context import JobContext
from toril.errors import PermanentError, Snooze, TransientError
from toril.runtime.clock import Clock

__all__ = ["Actor"]

_SLICES = 6


class Actor:
    """Runs the jobs of one process."""

    def __init__(self, node: Node, clock: Clock, conduct: Conduct) -> None:
        self._node = node
        self._clock = clock
        self._conduct = conduct

    async def play(self, ctx: JobContext[Any]) -> int:
        """The handler of every job. Its result is its fence, so that it is known by whom a job was completed."""
        script = script_from(ctx.data)
        run = self._conduct.began(self._node, ctx._claimed, script)
        try:
            await self._act(script, ctx, run)
        except BaseException as error:
            run.error = error
            raise
        finally:
            if not self._node.dead:
                self._conduct.ended(run, ctx.signal.kind)
        return ctx.fence

    async def _act(self, script: Script, ctx: JobContext[Any], run: Run) -> None:
        match script.kind:
            case Kind.LONG:
                await self._report_on_the_way(script, ctx, run)
            case Kind.DEAF:
                await self._hear_nothing(script, run)
            case Kind.BLOCKS:
                await self._clock.sleep(0.01)
                self._conduct.journal.tally[f"{KIND}event loop blocked"] += 1
                await self._node.block(script.ms / 1000)
            case Kind.MARATHON | Kind.SLEEPER if script.times == 1:
                await self._wait_to_be_told(script, ctx)
            case _:
                await self._sleep(script, ctx)
        self._fail(script, ctx)

    async def _sleep(self, script: Script, ctx: JobContext[Any]) -> None:
        await self._clock.sleep(script.ms / 2000)
        if script.kind is Kind.POISON or (script.kind is Kind.SCARE and ctx._claimed.starts == 1):
            self._conduct.journal.tally["killed by a job"] += 1
            self._conduct.journal.tally[f"{KIND}worker killed by its own job"] += 1
            self._node.kill()
        self._node.check()
        for _ in range(_SLICES):
            await self._clock.sleep(script.ms / 2000 / _SLICES)
            if script.polite:
                ctx.raise_if_cancelled()

    async def _report_on_the_way(self, script: Script, ctx: JobContext[Any], run: Run) -> None:
        for part in range(_SLICES):
            await self._clock.sleep(script.ms / 1000 / _SLICES)
            if script.polite:
                ctx.raise_if_cancelled()
            await self._progress(ctx, run, part)
        await ctx.log("nearly there")
        await ctx.checkpoint({"part": _SLICES})
        await self._progress(ctx, run, "almost")
        await self._progress(ctx, run, "all")  # too soon after the other: it is held back until the attempt ends

    async def _progress(self, ctx: JobContext[Any], run: Run, value: int | str) -> None:
        await ctx.update_progress(value)
        run.progress = value

    async def _hear_nothing(self, script: Script, run: Run) -> None:
        """Swallow every cancellation. Only death ends it early."""
        end = self._clock.monotonic() + script.ms / 1000
        while self._clock.monotonic() < end:
            try:
                await self._clock.sleep(max(0.001, end - self._clock.monotonic()))
            except asyncio.CancelledError:
                self._node.check()
                run.cut = True

    async def _wait_to_be_told(self, script: Script, ctx: JobContext[Any]) -> None:
        """Listen for the signal, and stop of its own accord when it comes."""
        try:
            async with asyncio.timeout(script.ms / 1000):
                await ctx.signal.wait()
        except TimeoutError:
            return
        ctx.raise_if_cancelled()

    def _fail(self, script: Script, ctx: JobContext[Any]) -> None:
        words = f"{script.kind} by its script at fence {ctx.fence}"
        match script.kind:
            case Kind.FATAL:
                raise PermanentError(words)
            case Kind.HOPELESS:
                raise ValueError(words)
            case Kind.FLAKY if ctx.attempt <= script.times:
                raise ValueError(words)
            case Kind.WAITS if ctx.attempt <= script.times:
                raise TransientError(words, retry_after=0.3)
            case Kind.SNOOZES if ctx._claimed.starts <= script.times:
                raise Snooze(script.delay / 1000)
