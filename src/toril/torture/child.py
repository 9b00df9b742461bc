"""The processes of a torture run: `python -m toril.torture.child worker|supervised|producer`. Each ends when its stdin
closes, so that none outlives the driver, however that ends."""

import asyncio
import os
import signal
import sys
import threading
from typing import NoReturn

from toril.errors import TorilError
from toril.runtime.clock import SYSTEM
from toril.torture.app import Ledger, LedgerEntry, TortureApp, app, lines, work
from toril.torture.plan import PlannedJob, RunSettings, order_of

__all__ = ["main"]

_LANES = 6


def main() -> int:
    threading.Thread(target=_end_with_the_driver, daemon=True).start()
    match sys.argv[1]:
        case "worker":
            return asyncio.run(app.run(grace=work.setting.grace))
        case "producer":
            asyncio.run(_Producer(work).run())
            return 0
        case _:
            return _supervise()


def _end_with_the_driver() -> NoReturn:
    os.read(0, 1)  # nothing is ever written to it
    os.killpg(0, signal.SIGKILL)
    raise SystemExit(1)


def _supervise() -> int:
    """Run `toril run`, which starts processes of its own."""
    from toril.cli.main import main as toril  # noqa: PLC0415 - the other roles do without the commands

    options = ["--processes", "2", "--grace", f"{work.setting.grace}s", "--log-level", "warning"]
    sys.argv = ["toril", "run", "toril.torture.app:app", *options]
    toril()
    return 0


class _Producer:
    """Adds its share of the jobs, in step with the clock; after a restart it continues where it was killed."""

    def __init__(self, work: TortureApp) -> None:
        self._work = work
        self._setting: RunSettings = work.setting
        self._ledger = Ledger(self._setting.log)
        tried = [int(line.facts[0][1:].partition(".")[0]) for line in self._mine() if line.word == "attempt"]
        first = max(tried, default=self._setting.lane - self._setting.producers) + self._setting.producers
        self._numbers = iter(range(first, self._setting.jobs, self._setting.producers))
        self._began = min((line.at for line in self._mine() if line.word == "began"), default=0.0)

    def _mine(self) -> list[LedgerEntry]:
        return list(lines(self._setting.logs, f"{self._setting.name}.log"))

    async def run(self) -> None:
        async with self._work.app:
            if not self._began:
                self._ledger.note("began")
                self._began = SYSTEM.monotonic()
            async with asyncio.TaskGroup() as lanes:
                for _ in range(_LANES):
                    lanes.create_task(self._lane())
        self._ledger.note("done")

    async def _lane(self) -> None:
        pace = self._setting.jobs / self._setting.seconds
        for number in self._numbers:
            await SYSTEM.sleep(max(0.0, self._began + number / pace - SYSTEM.monotonic()))
            order = order_of(self._setting.seed, number, lease=int(self._setting.lease * 1000))
            for nonce in reversed(order.nonces):  # the one that the next start relies on comes last
                self._ledger.note("attempt", nonce, order.kind, order.delay, order.key or "-")
            while not await self._add(order) and order.named:
                await SYSTEM.sleep(0.2)

    async def _add(self, order: PlannedJob) -> bool:
        try:
            queue, job_id = await self._work.add(order)
        except TorilError as error:
            self._ledger.note("unknown", order.nonce, type(error).__name__)
            return False
        for nonce in order.nonces:
            self._ledger.note("ack", nonce, queue, job_id)
        return True


if __name__ == "__main__":
    sys.exit(main())
