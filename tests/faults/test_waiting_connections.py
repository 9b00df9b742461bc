"""The connections of a Redis store that wait: for jobs, for results, and to be seen. They go through a wire that
carries bytes in pieces of any size, stands still, loses answers, adds some that make no sense, and breaks."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import ModuleType
from typing import Any, TypeAlias

import pytest

from tests import servers
from tests.servers import RedisServer
from tests.worker.planting import copied, planted
from toril.engines.redis.connection.client import RedisClient
from toril.engines.redis.connection.topology import Topology
from toril.engines.redis.connection.url import parse
from toril.errors import EngineUnavailable

BELL, EARS, PRESENCE = (
    f"toril.engines.redis.connection.{name}" for name in ("marker_listener", "result_listener", "presence")
)
KEYS = ("wait:a", "wait:b", "wait:c")
PATIENCE = 30.0  # seconds for what must happen
SHORT = 2.0  # the same where a bug is planted, and it may not
NEVER = 1000.0

# What these modules wait for, in seconds. A look is not made where it would hide that nobody was told.
QUICK: dict[str, dict[str, float]] = {
    BELL: {"LOOK": NEVER, "_BLOCK": 5, "_LONGEST_REST": 0.1, "_LAST_READ": 10.0},
    EARS: {"_LONGEST_REST": 0.1},
    PRESENCE: {"_FIRST_REST": 0.02, "_LONGEST_REST": 0.1},
}
NONSENSE = (
    b"+OK\r\n", b":5\r\n", b"$-1\r\n", b"*-1\r\n", b"*1\r\n$1\r\nx\r\n", b"*3\r\n:1\r\n:2\r\n:3\r\n", b"!bogus\r\n",
    b"-LOADING Redis is loading\r\n", b"-ERR no\r\n", b"-UNBLOCKED client\r\n", b"*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n",
)  # fmt: skip


class Wrong(AssertionError):
    """Somebody was not told, or what nobody wanted to know is lost."""


class Wire:
    """A proxy that carries bytes in pieces of any size, and to which things can be done."""

    def __init__(self, target: int, chance: random.Random) -> None:
        self._target, self._chance = target, chance
        self._ends: set[asyncio.StreamWriter] = set()  # on the side of the stores
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._go = asyncio.Event()
        self._go.set()
        self.lost = 0  # answers that do not arrive, each with its connection
        self.refuses = False

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    async def start(self) -> "Wire":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.calm()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self, share: float = 1.0) -> None:
        for end in list(self._ends):
            if self._chance.random() < share:
                end.transport.abort()

    def add(self, answer: bytes) -> None:
        """An answer to nothing, on every connection."""
        for end in self._ends:
            end.write(answer)

    @contextmanager
    def still(self) -> Iterator[None]:
        self._go.clear()
        try:
            yield
        finally:
            self._go.set()

    def calm(self) -> None:
        self.lost, self.refuses = 0, False
        self._go.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._ends.add(writer)
        ends = {writer}
        try:
            if self.refuses:
                return
            there, out = await asyncio.open_connection("127.0.0.1", self._target)
            ends.add(out)
            ways = [asyncio.create_task(self._carry(*way)) for way in ((reader, out, False), (there, writer, True))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass
        finally:
            for end in ends:
                end.transport.abort()
            self._ends.discard(writer)
            self._tasks.discard(task)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool) -> None:
        while data := await source.read(self._chance.choice((1, 3, 20, 65536))):
            await self._go.wait()
            if answers and self.lost:
                self.lost -= 1
                return
            sink.write(data)
            await sink.drain()


class World:
    """A server, the wire to it, and stores that wait there. What is done beside them goes past the wire."""

    def __init__(
        self, server: RedisServer, wire: Wire, chance: random.Random, patience: float, modules: dict[str, ModuleType]
    ) -> None:
        self.server, self.wire, self.chance, self.patience = server, wire, chance, patience
        self.modules = modules
        self.direct = RedisClient(parse(server.url), Topology(parse(server.url)))
        self.ready: list[str] = []  # what a look finds
        self.trouble: list[Exception] = []  # what looks run into
        self._closing: list[Any] = []

    async def close(self) -> None:
        self.wire.calm()
        for each in reversed(self._closing):
            with suppress(TimeoutError):
                async with asyncio.timeout(self.patience):
                    await each.close()
        await self.direct.close()

    def _topology(self) -> Any:
        topology = Topology(parse(self.wire.url))
        self._closing.append(topology)
        return topology

    def bell(self) -> Any:
        topology = self._topology()
        server = RedisClient(parse(self.wire.url), topology)
        bell = self.modules[BELL].MarkerListener(topology, "wait:own:", server.ask, self._look)
        self._closing += [server, bell]
        return bell

    async def _look(self, keys: list[str]) -> list[str]:
        if self.trouble:
            raise self.trouble.pop()
        return [key for key in keys if key in self.ready]

    def ears(self, user: str = "") -> Any:
        topology = Topology(parse(self.wire.url.replace("redis://", f"redis://{user}")))
        ears = self.modules[EARS].ResultListener(topology)
        self._closing += [topology, ears]
        return ears

    def presence(self) -> Any:
        presence = self.modules[PRESENCE].WorkerPresence(parse(self.wire.url), self._topology())
        self._closing.append(presence)
        return presence

    async def ring(self, key: str) -> bool:
        """Set a marker; whether there was none."""
        return bool(await self.direct.ask("ZADD", key, "NX", 0, "0"))

    async def marked(self, key: str) -> bool:
        return await self.direct.ask("ZSCORE", key, "0") is not None

    async def clients(self) -> list[str]:
        return str(await self.direct.ask("CLIENT", "LIST")).splitlines()

    async def until(self, done: Callable[[], Awaitable[object]], what: str) -> None:
        try:
            async with asyncio.timeout(self.patience):
                while not await done():  # noqa: ASYNC110 - the server has no event
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise Wrong(what) from None

    async def blocked(self, count: int = 1) -> None:
        """Until so many connections wait for markers."""

        async def wait() -> bool:
            return sum("cmd=bzpopmin" in client for client in await self.clients()) == count

        await self.until(wait, "nobody waits for markers")

    async def in_time(self, what: "asyncio.Task[Any]", wrong: str) -> Any:
        done, _ = await asyncio.wait([what], timeout=self.patience)
        if not done:
            what.cancel()
            await asyncio.wait([what])
            raise Wrong(wrong)
        return what.result()

    async def befall(self) -> None:
        """Something of what can happen to connections."""
        match self.chance.randrange(7):
            case 0:
                self.wire.cut(self.chance.choice((0.5, 1.0)))
            case 1:
                self.wire.lost += self.chance.choice((1, 1, 3))
            case 2:
                self.wire.add(self.chance.choice(NONSENSE))
            case 3:
                with self.wire.still():
                    await asyncio.sleep(0.03)
            case 4:
                self.wire.refuses = True
                self.wire.cut()
                await asyncio.sleep(0.03)
                self.wire.refuses = False
            case 5:
                await self.direct.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            case _:
                await self.direct.ask("CLIENT", "KILL", "TYPE", "pubsub")
        await asyncio.sleep(0.01)


@asynccontextmanager
async def world(seed: int, patience: float = PATIENCE, **bug: ModuleType) -> AsyncIterator[World]:
    server, chance = servers.running(), random.Random(seed)
    server.tell("FLUSHALL")
    modules = {name: bug.get(name) or copied(name) for name in QUICK}
    for name, constants in QUICK.items():
        for constant, value in constants.items():
            assert hasattr(modules[name], constant)
            setattr(modules[name], constant, value)
    wire = await Wire(server.port, chance).start()
    made = World(server, wire, chance, patience, modules)
    try:
        yield made
    finally:
        await made.close()
        await wire.stop()
        if bug:
            await end_what_a_bug_left()


async def end_what_a_bug_left() -> None:
    left = [task for task in asyncio.all_tasks() if task.get_name().startswith("toril-redis")]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


# waiting for jobs


async def a_marker_wakes_somebody_or_stays(world: World) -> None:
    """Two stores wait for the same keys, and stop waiting as they like; nothing breaks."""
    bells, waits = [world.bell(), world.bell()], list[asyncio.Task[None]]()
    turn, woken, set_at = 0, Counter[str](), Counter[str]()

    async def wait(bell: Any, keys: tuple[str, ...], timeout: float) -> None:
        for key in await bell.wait(keys, timeout) or ():
            woken[key] = turn

    for turn in range(1, 60):
        match world.chance.randrange(4):
            case 0 | 1:
                keys = tuple(world.chance.sample(KEYS, world.chance.choice((1, 1, 2))))
                waits.append(
                    asyncio.create_task(wait(world.chance.choice(bells), keys, world.chance.choice((0.003, 5))))
                )
            case 2:
                key = world.chance.choice(KEYS)
                if await world.ring(key):
                    set_at[key] = turn
            case _:
                for each in world.chance.sample(waits, min(1, len(waits))):
                    each.cancel()
        await asyncio.sleep(world.chance.choice((0, 0, 0.001, 0.004)))
    closing = [asyncio.create_task(bell.close()) for bell in bells]
    for each in waits:
        each.cancel()
    await asyncio.wait([*waits, *closing])
    for key in KEYS:
        if set_at[key] > woken[key] and not await world.marked(key):
            raise Wrong("a marker is gone, and nobody was woken by it")


async def who_waits_is_woken_whatever_befell_the_connection(world: World) -> None:
    bell = world.bell()
    for _ in range(6):
        waiting = asyncio.create_task(bell.wait(KEYS[:2], NEVER))
        if world.chance.random() < 0.7:
            await asyncio.sleep(0.02)
        rung = asyncio.create_task(world.ring("wait:a"))
        for _ in range(world.chance.randrange(3)):
            await world.befall()
        await rung
        world.wire.calm()
        if "wait:a" not in (await world.in_time(waiting, "a marker was set, and who waits is not woken") or ()):
            waiting = asyncio.create_task(bell.wait(KEYS[:1], NEVER))  # it was told to look: that was not there yet
            await world.ring("wait:a")
            await world.in_time(waiting, "a marker was set, and who waits again is not woken")
        await world.direct.ask("DEL", *KEYS)
    waiting = asyncio.create_task(bell.wait(["wait:c"], NEVER))
    await asyncio.sleep(0.01)
    await world.direct.ask("ZADD", "wait:c", 0, "0")
    await world.in_time(waiting, "the waiting has ended for good")


async def an_answer_that_is_lost_has_all_look(world: World) -> None:
    """The server has handed the marker out, and the connection breaks."""
    bell = world.bell()
    waiting = asyncio.create_task(bell.wait(["wait:a"], NEVER))
    await world.blocked()
    world.wire.lost = 1
    await world.ring("wait:a")
    await world.in_time(waiting, "a marker that was lost on its way wakes nobody")


async def a_server_that_says_nothing_is_given_up(world: World) -> None:
    world.modules[BELL]._BLOCK, world.modules[BELL]._BEYOND = 1, 0.2  # type: ignore[attr-defined]
    bell = world.bell()
    waiting = asyncio.create_task(bell.wait(["wait:a"], NEVER))
    await world.blocked()
    with world.wire.still():
        await world.ring("wait:a")
        await world.in_time(waiting, "who waits on a dead connection waits for ever")


async def who_comes_later_is_heard_of(world: World) -> None:
    """The server is told of a key that was not waited for when the read began; the others go on waiting."""
    bell = world.bell()
    first = asyncio.create_task(bell.wait(["wait:a"], NEVER))
    await world.blocked()
    second = asyncio.create_task(bell.wait(["wait:b", "wait:c"], NEVER))
    await asyncio.sleep(world.chance.choice((0, 0.01)))
    await world.ring("wait:c")
    if await world.in_time(second, "who comes later is not heard of") != {"wait:c"}:
        raise Wrong("who waits is told of another key")
    if first.done():
        raise Wrong("who waits for another key is woken")
    await world.ring("wait:a")
    await world.in_time(first, "who was there before is forgotten")


async def what_is_lost_is_found_by_a_look(world: World) -> None:
    world.modules[BELL].LOOK = 0.05  # type: ignore[attr-defined]
    bell = world.bell()
    world.trouble = [EngineUnavailable("away"), RuntimeError("odd"), OSError("reset")]
    for key in world.chance.sample(KEYS, 3):
        waiting = asyncio.create_task(bell.wait([key], NEVER))
        world.ready = [key]
        await world.in_time(waiting, "what is ready is not found by a look")
        world.ready = []


async def a_bell_that_is_closed_keeps_nothing(world: World) -> None:
    """Those who wait are let go, the server knows of no read any more, and a marker on its way comes back."""
    bell = world.bell()
    waiting = asyncio.create_task(bell.wait(["wait:a"], NEVER))
    await world.blocked()
    if world.chance.random() < 0.7:
        waiting.cancel()
        await asyncio.wait([waiting])
    ringing = asyncio.create_task(world.ring("wait:a"))
    await asyncio.sleep(world.chance.choice((0, 0.001)))
    await world.in_time(asyncio.create_task(bell.close()), "it does not close")
    await ringing
    if not waiting.cancelled():
        rung = await world.in_time(waiting, "who waits is not let go")
        if not rung and not await world.marked("wait:a"):
            raise Wrong("a marker is lost when the store is closed")
    elif not await world.marked("wait:a"):
        raise Wrong("a marker is lost when the store is closed")
    await world.blocked(0)


# hearing of results


async def each_is_told_of_its_own_jobs(world: World) -> None:
    ears = world.ears()
    async with (
        ears.listening("ended:a", frozenset({"1", "2"})) as one, ears.listening("ended:a", frozenset({"3"})) as two,
        ears.listening("ended:b", frozenset({"1"})) as three,
    ):  # fmt: skip
        for news in (one, two, three):
            await world.in_time(asyncio.create_task(news.wait()), "who begins to listen is not told to look")
        await asyncio.sleep(0.2)
        for channel, ids, told in (("a", "9\n2", one), ("a", "3", two), ("b", "1", three), ("a", "1\n3", one)):
            for news in (one, two, three):
                news.clear()
            await world.direct.ask("PUBLISH", f"ended:{channel}", ids)
            await world.in_time(asyncio.create_task(told.wait()), "who listens is not told")
            others = [news for news in (one, two, three) if news is not told]
            await asyncio.sleep(0.05)
            if ids != "1\n3" and any(news.is_set() for news in others):
                raise Wrong("who listens for other jobs is told")
        one.clear()
        await asyncio.sleep(0.2)
        if one.is_set():
            raise Wrong("who listens is told of nothing")


async def who_listens_is_told_whatever_befell_the_connection(world: World) -> None:
    ears = world.ears()
    async with ears.listening("ended:a", frozenset({"1"})) as one:
        for number in range(5):
            channel = f"ended:{world.chance.choice('ab')}{number}"
            async with ears.listening(channel, frozenset({"1"})) as two:
                for _ in range(world.chance.randrange(4)):
                    await world.befall()
                world.wire.calm()
                for name, news in (("ended:a", one), (channel, two)):
                    await tell_until_heard(world, name, news)


async def tell_until_heard(world: World, channel: str, news: asyncio.Event) -> None:
    """Who listens may have to look by itself until it is subscribed again; from then on it is told."""

    async def told() -> bool:
        return bool(await world.direct.ask("PUBLISH", channel, "1"))

    await world.until(told, "nobody is subscribed any more")
    await asyncio.sleep(0.02)
    news.clear()
    await world.until(told, "nobody is subscribed any more")
    await world.in_time(asyncio.create_task(news.wait()), "who listens is not told any more")


async def a_broken_connection_has_all_look(world: World) -> None:
    """What ended while it was broken is not told: they have to look once."""
    ears = world.ears()
    async with ears.listening("ended:a", frozenset({"1"})) as one, ears.listening("ended:b", frozenset({"1"})) as two:
        for news in (one, two):
            await world.in_time(asyncio.create_task(news.wait()), "who begins to listen is not told to look")
            news.clear()
        world.wire.cut()
        for news in (one, two):
            await world.in_time(asyncio.create_task(news.wait()), "what ended meanwhile is missed")


async def a_channel_that_is_refused_costs_no_other(world: World) -> None:
    await world.direct.ask("ACL", "SETUSER", "listener", "on", ">secret", "~*", "resetchannels", "&ended:yes*", "+@all")
    ears = world.ears("listener:secret@")
    async with (
        ears.listening("ended:no", frozenset({"1"})) as refused, ears.listening("ended:yes", frozenset({"1"})) as news,
    ):  # fmt: skip
        await tell_until_heard(world, "ended:yes", news)
        news.clear()
        await asyncio.sleep(0.3)
        if news.is_set() or refused.is_set():
            raise Wrong("it connects again and again")


# being seen


async def names(world: World) -> Counter[str]:
    found = [part for client in await world.clients() for part in client.split() if part.startswith("name=bull:")]
    return Counter(found)


async def a_worker_is_seen_once_in_each_queue(world: World) -> None:
    presence, queues = world.presence(), ["one", "two", "three"]
    presence.show("w", queues)
    for _ in range(4):
        presence.show("w", queues)
        for _ in range(world.chance.randrange(3)):
            await world.befall()
        world.wire.calm()

        async def seen() -> bool:
            return sorted((await names(world)).values()) == [1, 1, 1]

        await world.until(seen, "a worker is not seen in each of its queues, once")
    await asyncio.sleep(0.1)
    if sorted((await names(world)).values()) != [1, 1, 1]:
        raise Wrong("a worker is seen twice")
    await world.in_time(asyncio.create_task(presence.close()), "it does not close")

    async def gone() -> bool:
        return not await names(world)

    await world.until(gone, "a worker that has ended is still seen")


Check: TypeAlias = Callable[[World], Awaitable[None]]
CHECKS: dict[str, tuple[Check, ...]] = {
    BELL: (
        an_answer_that_is_lost_has_all_look, who_comes_later_is_heard_of, what_is_lost_is_found_by_a_look,
        a_bell_that_is_closed_keeps_nothing, a_marker_wakes_somebody_or_stays, a_server_that_says_nothing_is_given_up,
        who_waits_is_woken_whatever_befell_the_connection,
    ),
    EARS: (
        a_broken_connection_has_all_look, each_is_told_of_its_own_jobs, a_channel_that_is_refused_costs_no_other,
        who_listens_is_told_whatever_befell_the_connection,
    ),
    PRESENCE: (a_worker_is_seen_once_in_each_queue,),
}  # fmt: skip
SEEDS = range(6)


@pytest.mark.covers("F54")
@pytest.mark.parametrize("check", [check for checks in CHECKS.values() for check in checks])
async def test_those_who_wait_are_told_whatever_befalls_them(check: Check, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    for seed in SEEDS:
        async with world(seed) as made:
            await check(made)


COMPLAIN = "except Exception as error:\n                self._complain(error)\n            "
BUGS = {
    "a marker that nobody wants is kept": (BELL, "await self._put_back(key, member, score)\n", "pass\n"),
    "the server is not told of who comes later": (
        BELL, "if self._heard_by_server and not self._heard_by_server.issuperset(keys):", "if False:",
    ),
    "one error ends the waiting for jobs": (
        BELL, f"{COMPLAIN}self._heard", f"{COMPLAIN.replace('Exception', 'OSError')}self._heard",
    ),
    "what was lost with the connection is not looked for": (BELL, "for key in list(self._waiting):", "for key in ():"),
    "a read that never ends is waited for": (BELL, "asyncio.timeout(_BLOCK + _BEYOND)", "asyncio.timeout(None)"),
    "one error ends the looks": (
        BELL, "except Exception as error:\n                self._complain(error)\n\n",
        "except OSError as error:\n                self._complain(error)\n\n",
    ),
    "the read is dropped when the store is closed": (BELL, "            await self._end_read(tasks)\n", ""),
    "those who wait are not let go": (
        BELL, "            self._ring_all()\n\n    async def _end_read", "\n    async def _end_read",
    ),
    "one error ends the listening for results": (
        EARS, f"{COMPLAIN}finally", f"{COMPLAIN.replace('Exception', 'OSError')}finally",
    ),
    "nobody looks for what ended meanwhile": (EARS, "self._tell(channel, None)  #", "pass  #"),
    "only one channel is asked for again": (
        EARS, "for channel in self._subscribers:", "for channel in list(self._subscribers)[:1]:",
    ),
    "a channel that comes later is not asked for": (
        EARS, "            self._subscribe(self._connection, channel)\n", "            pass\n",
    ),
    "a refusal ends the connection": (EARS, "as refusal if self._asked:", "as refusal if False:"),
    "all are told of everything": (EARS, "or not ended.isdisjoint(subscriber.ids)", "or ended"),
    "of several jobs the first is told": (EARS, 'payload.split("\\n")', 'payload.split("\\n")[:1]'),
    "a broken connection is not made again": (PRESENCE, "        while True:\n", "        for _ in range(1):\n"),
    "a connection that is lost ends it": (PRESENCE, "except (RedisFault, OSError):", "except OSError:"),
    "each beat makes another connection": (PRESENCE, "if task is None or", "if True or"),
    "the connection has no name": (PRESENCE, "borrowed(self._connector, name)", "borrowed(self._connector)"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a task may end by a bug
@pytest.mark.parametrize("bug", BUGS)
async def test_a_bug_that_is_planted_in_a_waiting_connection_is_found(
    bug: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    name, right, wrong = BUGS[bug]

    assert await _is_found(name, right, wrong)


async def _is_found(name: str, right: str, wrong: str) -> bool:
    for check in CHECKS[name]:
        for seed in SEEDS:
            try:
                async with world(seed, SHORT, **{name: planted(name, right, wrong)}) as made:
                    await check(made)
            except Wrong:
                return True
    return False
