"""A model of a Redis server, as far as waiting for markers and results goes, that does its worst: replies come in
pieces, late, in another order, as errors, as nonsense or never; connections freeze and break; markers go elsewhere."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import hiredis

from toril.engines.redis.connection.connection import Connection
from toril.engines.redis.connection.errors import ConnectionLost
from toril.errors import EngineFull, EngineUnavailable, TorilError

__all__ = ["FakeConnection", "Server"]

_ERRORS = (
    b"-NOPERM this user has no permissions to run the command\r\n", b"-OOM command not allowed\r\n",
    b"-LOADING Redis is loading the dataset in memory\r\n", b"-UNBLOCKED the node has become a replica\r\n",
    b"-ERR something else\r\n",
)  # fmt: skip
_NONSENSE = (
    b":17\r\n", b"+OK\r\n", b"*0\r\n", b"*1\r\n$1\r\nx\r\n", b"*3\r\n:1\r\n:2\r\n:3\r\n",
    b"*3\r\n*0\r\n$1\r\n0\r\n$1\r\n0\r\n",
    b"*2\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n", b"*3\r\n$7\r\nmessage\r\n$-1\r\n$-1\r\n", b"?!\r\n", b"$-1\r\n",
)  # fmt: skip


def _frame(*parts: str | int) -> bytes:
    texts = [b":%d\r\n" % part if isinstance(part, int) else b"$%d\r\n%s\r\n" % (len(part), part.encode())
             for part in parts]  # fmt: skip
    return b"*%d\r\n%s" % (len(parts), b"".join(texts))


class FakeConnection(asyncio.Transport):
    """One, as the client has it. Bytes keep their order, each way; what is frozen may thaw, and then they arrive."""

    def __init__(self, server: "Server", line: Connection) -> None:
        super().__init__()
        self._server = server
        self._answers = line
        self._reader = hiredis.Reader(encoding="utf-8")
        self._held: list[Callable[[], None]] = []
        self._kept_back = b""  # a frame that is sent after the next one
        self._arrivals = [0.0, 0.0]
        self.frozen = self.gone = False
        self.subscribes = False

    def _later(self, way: int, arrive: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self._arrivals[way] = max(self._arrivals[way], loop.time()) + self._server.delay()
        loop.call_at(self._arrivals[way], self._pass, arrive)

    def _pass(self, arrive: Callable[[], None]) -> None:
        if self.frozen:
            self._held.append(arrive)
        elif not self.gone:
            arrive()

    def write(self, data: Any) -> None:
        self.subscribes = self.subscribes or b"SUBSCRIBE" in data
        self._later(0, lambda: self._asked(bytes(data)))

    def _asked(self, data: bytes) -> None:
        self._reader.feed(data)
        while (command := self._reader.gets()) is not False:
            self._server.asked(self, *command)

    def reply(self, frame: bytes) -> None:
        if not self._kept_back and self._server.happens(0.05):
            self._kept_back = frame
            return
        data, self._kept_back = frame + self._kept_back, b""
        while data:
            size = self._server.chance.choice((1, 2, 5, len(data)))
            piece, data = data[:size], data[size:]
            self._later(1, lambda piece=piece: self._answers.data_received(piece))  # type: ignore[misc]

    def thaw(self) -> None:
        held, self._held, self.frozen = self._held, [], False
        for arrive in held:
            self._pass(arrive)

    def cut(self) -> None:
        """By the server, or on the way: what has not arrived never does."""
        if not self.gone:
            self.gone = True
            self._server.forget(self)
            self._answers.connection_lost(None)

    def abort(self) -> None:
        """By the client. The server may not hear of it: then it goes on serving nobody."""
        if not self.gone:
            self.gone = True
            if not self._server.happens(0.5):
                self._server.forget(self)
            asyncio.get_running_loop().call_soon(self._answers.connection_lost, None)


class Server:
    """Queues with their markers, channels with their listeners, and what is ended. While it storms, all goes wrong."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.storms = True
        self.jobs: dict[str, list[float]] = defaultdict(list)
        self.ended: dict[str, float] = {}
        self._away_at = 0.0
        self._refuses: type[TorilError] | None = None
        self._markers: set[str] = set()
        self._blocked: list[tuple[FakeConnection, list[str]]] = []
        self._subscribed: dict[str, set[FakeConnection]] = defaultdict(set)
        self._connections: list[FakeConnection] = []

    def happens(self, odds: float) -> bool:
        return self.storms and self.chance.random() < odds

    def delay(self) -> float:
        return self.chance.random() * (0.2 if self.happens(0.1) else 0.002)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def away_at(self) -> float:
        """When it could last not be reached."""
        return self._away_at if self._refuses is None else self.now

    # what happens there

    def add(self, key: str) -> None:
        self.jobs[key].append(self.now)
        self._mark(key)

    def end(self, channel: str, *ids: str) -> None:
        self.ended |= dict.fromkeys(ids, self.now)
        for connection in list(self._subscribed[channel]):
            connection.reply(_frame("message", channel, "\n".join(ids)))

    def _mark(self, key: str) -> None:
        self._markers.add(key)
        for connection, keys in list(self._blocked):
            self._serve(connection, keys)

    def _serve(self, connection: FakeConnection, keys: list[str]) -> bool:
        found = next((key for key in keys if key in self._markers), None)
        if found is not None:
            self._markers.discard(found)
            self._unblock(connection)
            connection.reply(_frame(found, "0", "0"))
        return found is not None

    def _unblock(self, connection: FakeConnection) -> None:
        self._blocked = [each for each in self._blocked if each[0] is not connection]

    def forget(self, connection: FakeConnection) -> None:
        self._unblock(connection)
        for listeners in self._subscribed.values():
            listeners.discard(connection)

    # what clients do

    async def connect(self, _name: str | None = None) -> Connection:
        await asyncio.sleep(self.delay())
        if self.happens(0.3):
            raise self.chance.choice(
                (ConnectionLost("refused"), ConnectionRefusedError(), TimeoutError("no connection"))
            )
        line = Connection()
        connection = FakeConnection(self, line)
        line._transport = connection
        self._connections.append(connection)
        return line

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def asked(self, connection: FakeConnection, command: str, *words: str) -> None:
        if self.happens(0.2):
            connection.reply(self.chance.choice((*_ERRORS, *_NONSENSE)))
        elif self.happens(0.05):
            connection.cut()
        elif command == "SUBSCRIBE":
            for number, channel in enumerate(words):
                self._subscribed[channel].add(connection)
                connection.reply(_frame("subscribe", channel, number + 1))
        elif not self._serve(connection, list(words[:-1])):
            self._blocked.append((connection, list(words[:-1])))
            asyncio.get_running_loop().call_later(float(words[-1]), self._time_is_up, connection)

    def _time_is_up(self, connection: FakeConnection) -> None:
        if any(each[0] is connection for each in self._blocked):
            self._unblock(connection)
            connection.reply(b"*-1\r\n")

    async def ask(self, command: str, key: str, *_: Any) -> None:
        """On another connection, which is not what is tested here."""
        await self._reached()
        if command == "ZADD":
            self._mark(key)

    async def ready(self, keys: list[str]) -> list[str]:
        await self._reached()
        return [key for key in keys if self.jobs[key]]

    async def _reached(self) -> None:
        await asyncio.sleep(self.delay())
        if self._refuses is not None:
            raise self._refuses("full, or away")

    # what goes wrong

    async def storm(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            await asyncio.sleep(self.chance.random() * self.chance.choice((0.5, 3, 12)))
            if self._refuses is not None:
                self._away_at = self.now
            open_ones = [each for each in self._connections if not each.gone]
            match self.chance.randrange(6):
                case 0 if open_ones:
                    self.chance.choice(open_ones).cut()
                case 1 if open_ones:
                    self.chance.choice(open_ones).frozen = True
                case 2 if open_ones:
                    self.chance.choice(open_ones).thaw()
                case 3:  # another process waits for the next marker, and is frozen
                    another = FakeConnection(self, Connection())
                    another.gone = True
                    self._blocked.insert(0, (another, sorted(self.jobs)))
                case 4:
                    self._refuses = self.chance.choice((EngineFull, EngineUnavailable))
                case 5:
                    self._refuses = None
                case _:
                    pass
        self._away_at = self.away_at
        self._refuses, self.storms = None, False
        self._blocked = [each for each in self._blocked if not each[0].gone]
        for connection in [each for each in self._connections if each.frozen and each.subscribes]:
            connection.cut()  # the system's probes have noticed; until then results are looked for
