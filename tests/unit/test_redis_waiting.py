"""Whoever waits for jobs or results, against a server that does its worst: no wake-up is lost for longer than promised,
nobody ever stops listening, and once all is well again everything is heard at once."""

import asyncio
import logging
import random
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.sim.loop import run
from tests.unit.hostile_server import Server
from tests.worker.planting import planted

KEYS = ("bull:a:marker", "bull:b:marker")
CHANNEL = "bull:a:toril:ended"
BOUND = 5.0  # seconds, as docs/guarantees.md has it
LOOK = 1.0  # seconds between two looks for a result
SLACK = 0.7  # for delays on the way
AT_ONCE = 0.3
SEEDS = range(4)


class Chance:
    """The clock's chance, drawn by the seed; its time is the loop's."""

    def __init__(self, chance: random.Random) -> None:
        self.random = chance.random
        self._chance = chance

    def unique(self) -> str:
        return f"{self._chance.getrandbits(32):x}"

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Fleet:
    """Two processes that wait for the jobs of two queues and for results, and what was too late."""

    def __init__(self, seed: int, bell: ModuleType, ears: ModuleType) -> None:
        self.chance = random.Random(seed)
        self.server = Server(self.chance)
        self.wrong: list[str] = []
        self.heard = 0
        self.calm_at = float("inf")
        bell.SYSTEM = ears.SYSTEM = Chance(self.chance)  # type: ignore[attr-defined]
        server = self.server
        self.bells = [bell.MarkerListener(server, f"own{n}:", server.ask, server.ready) for n in range(2)]
        self.ears = ears.ResultListener(server)

    async def work(self, bell: Any, key: str) -> None:
        """A worker: claims all there is, is busy for a while or not, and waits."""
        waits_since = self.server.now
        while True:
            taken, self.server.jobs[key] = self.server.jobs[key], []
            for added in taken:
                self._judge("a job", max(added, waits_since), max(self.server.away_at, waits_since), BOUND)
            if self.chance.random() < 0.3:
                await asyncio.sleep(self.chance.random() * 3)
            waits_since = self.server.now
            if not self.server.jobs[key]:
                await bell.wait([key], self.chance.choice((0.05, 2, 60)))

    async def want(self, number: int) -> None:
        """One who waits for results, one after the other."""
        for turn in range(10_000):
            channel = f"bull:{number}-{turn}:toril:ended" if self.chance.random() < 0.3 else CHANNEL
            wanted, since = f"{number}-{turn}", self.server.now
            asyncio.get_running_loop().call_later(
                self.chance.random() * 0.02 if turn % 2 else self.chance.random() * 4,
                self.server.end, channel, wanted, "another",
            )  # fmt: skip
            async with self.ears.listening(channel, frozenset({wanted})) as news:
                while wanted not in self.server.ended:
                    try:
                        async with asyncio.timeout(LOOK):
                            await news.wait()
                    except TimeoutError:
                        pass
                    news.clear()
            self._judge("a result", max(self.server.ended[wanted], since), 0.0, LOOK)

    def _judge(self, what: str, since: float, unreachable: float, bound: float) -> None:
        now = self.server.now
        self.heard += 1
        limit = AT_ONCE if since > self.calm_at else bound + SLACK
        if now - max(since, 0.0 if since > self.calm_at else unreachable) > limit:
            self.wrong.append(f"{what} waited for {now - since:.1f} s at {now:.1f}")

    async def live(self) -> list[str]:
        tasks = [asyncio.create_task(self.work(bell, key)) for bell in self.bells for key in KEYS]
        tasks += [asyncio.create_task(self.want(number)) for number in range(3)]
        tasks.append(asyncio.create_task(self._add()))
        await self.server.storm(60)
        await asyncio.sleep(25)  # as long as a read lasts at most, and a pause before the next
        self.calm_at = self.server.now
        await asyncio.sleep(15)
        listening = [task for bell in self.bells for task in bell._tasks] + [self.ears._task]
        self.wrong += [f"{task.get_name()} has died: {task.exception()!r}" for task in listening if task.done()]
        self.wrong += [f"the test has died: {task.exception()!r}" for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (*self.bells, self.ears):
            await each.close()
        return self.wrong

    async def _add(self) -> None:
        while True:
            await asyncio.sleep(self.chance.random() * self.chance.choice((0.5, 2, 10)))
            self.server.add(self.chance.choice(KEYS))


def lived(seed: int, bell: ModuleType, ears: ModuleType) -> Fleet:
    async def life() -> Fleet:
        fleet = Fleet(seed, bell, ears)
        await fleet.live()
        return fleet

    return run(life())


def copy_of(name: str, right: str = "import asyncio\n", wrong: str = "import asyncio\n") -> ModuleType:
    """The module, whose chance can then be drawn by the seed, and perhaps with a bug."""
    return planted(f"toril.engines.redis.connection.{name}", right, wrong)


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.covers("F54")
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_heard_too_late_and_nobody_stops_listening(seed: int) -> None:
    fleet = lived(seed, copy_of("marker_listener"), copy_of("result_listener"))

    assert fleet.wrong == []
    assert fleet.heard > 50


MARKERS, RESULTS = "marker_listener", "result_listener"
ERROR_REPLY = "            except Exception as error:\n                self._complain(error)\n            self._heard"
BUGS = {
    "nobody looks without a marker": (MARKERS, "SYSTEM.sleep(LOOK *", "SYSTEM.sleep(1000 *"),
    "a failed look is the last": (
        MARKERS,
        "            except Exception as error:\n                self._complain(error)\n\n",
        "            except OSError as error:\n                self._complain(error)\n\n",
    ),
    "a read may last for ever": (MARKERS, "asyncio.timeout(_BLOCK + _BEYOND)", "asyncio.timeout(None)"),
    "an error reply is the end": (
        MARKERS,
        ERROR_REPLY,
        ERROR_REPLY.replace("Exception", "(ConnectionLost, OSError)"),
    ),
    "a marker wakes nobody": (MARKERS, "_is_marker(answer) and self._ring(answer[0])", "_is_marker(answer)"),
    "who waits is forgotten": (MARKERS, "self._waiting.setdefault(key, set()).add(waiter)", "pass"),
    "nonsense is the end": (RESULTS, "except Exception as error:", "except (ConnectionLost, OSError) as error:"),
    "one more channel is not subscribed": (RESULTS, "self._subscribe(self._connection, channel)", "pass"),
    "of many that end, one is heard": (RESULTS, 'payload.split("\\n")', "[payload]"),
}  # fmt: skip


@pytest.mark.covers("T9")
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str) -> None:
    module, right, wrong = BUGS[name]
    modules = {each: copy_of(each) for each in (MARKERS, RESULTS)} | {module: copy_of(module, right, wrong)}

    assert any(lived(seed, *modules.values()).wrong for seed in range(10)), name
