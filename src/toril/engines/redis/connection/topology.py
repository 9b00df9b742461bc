"""`Topology`: single server, Sentinel, Cluster; finds and checks the primary."""

import asyncio
import logging
from binascii import crc_hqx
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from toril.engines.redis.connection.connection import Connection, connected
from toril.engines.redis.connection.errors import ConnectionLost, ErrorReply, RedisFault, WrongServer, is_refusal
from toril.engines.redis.connection.url import Place, RedisAddress, reached
from toril.runtime.clock import SYSTEM

__all__ = ["LIMIT", "ClusterDiscovery", "Discovery", "SentinelDiscovery", "Topology", "discovery_of"]

_SLOTS: Final = 16384
LIMIT: Final = 2.0  # seconds for a connection if there may be another to try


class Discovery(Protocol):
    """Knows which hosts to ask for the primary, and how to read their answers."""

    def hosts(self) -> list[Place]:
        """The hosts to ask."""

    async def ask(self, host: Place) -> Place:
        """Where the primary is, according to this host."""


def discovery_of(address: RedisAddress) -> Discovery | None:
    """The discovery for an address; None if the URL names the server itself."""
    match address.kind:
        case "one":
            return None
        case "sentinel":
            return SentinelDiscovery(address)
        case "cluster":
            return ClusterDiscovery(address)


class SentinelDiscovery:
    """Sentinels that monitor a service."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address

    def hosts(self) -> list[Place]:
        return list(self._address.hosts)

    async def ask(self, host: Place) -> Place:
        service = self._address.service
        try:
            place = await _asked(self._address, host, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
        except ErrorReply as error:
            if "unknown command" in str(error).lower():
                raise WrongServer(f"{_shown(host)} is not a Sentinel; use redis:// for a single server") from None
            raise
        if place is None:
            raise WrongServer(f"the Sentinel {_shown(host)} does not know the service {service!r}; correct the URL")
        return str(place[0]), int(place[1])


class ClusterDiscovery:
    """Nodes of a cluster, one of which serves the slot of all keys with the prefix."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._slot = _slot(address.prefix.encode())
        self._learnt: list[Place] = []

    def hosts(self) -> list[Place]:
        return list(dict.fromkeys([*self._learnt, *self._address.hosts]))

    async def ask(self, host: Place) -> Place:
        try:
            ranges = await _asked(self._address, host, "CLUSTER", "SLOTS")
        except ErrorReply as error:
            if "cluster support disabled" in str(error):
                raise WrongServer(
                    f"{_shown(host)} is not part of a cluster; use redis:// for a single server"
                ) from None
            raise
        self._learnt = [_node(node, host) for _, _, *nodes in ranges for node in nodes]
        for first, last, owner, *_ in ranges:
            if first <= self._slot <= last:
                return _node(owner, host)
        raise ConnectionLost(
            f"no cluster node serves slot {self._slot}, which holds the keys of prefix {self._address.prefix!r}"
        )


def _slot(key: bytes) -> int:
    """The hash slot of a key: that of the text in its first braces, if any."""
    opened = key.find(b"{")
    closed = key.find(b"}", opened + 1)
    tagged = opened >= 0 and closed > opened + 1
    return crc_hqx(key[opened + 1 : closed] if tagged else key, 0) % _SLOTS


def _node(node: Any, asked: Place) -> Place:
    """A node that does not know its own name is at the address where we found it."""
    return (str(node[0]) if node[0] else asked[0]), int(node[1])


async def _asked(address: RedisAddress, host: Place, *command: str) -> Any:
    arguments, limit = address.asking | {"host": host[0], "port": host[1]}, min(LIMIT, address.timeout)
    async with asyncio.timeout(limit):
        connection = await connected(arguments, None, limit)
        try:
            return await connection.ask(*command)
        finally:
            await connection.close()


def _shown(host: Place) -> str:
    return f"{host[0]}:{host[1]}"


CHECK: Final = 10.0  # seconds between two checks that the primary is still the same
_CONNECT: Final = 5.0  # seconds
_LEAST_REST: Final = 2.0  # seconds, however many others get through
_log: Final = logging.getLogger("toril")


class Topology:
    """Connections to one server, wherever it is at the moment."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._discovery = discovery_of(address)
        self._connections: WeakKeyDictionary[Connection, Place] = WeakKeyDictionary()
        self._silent: set[Place] = set()
        self._place: Place | None = None
        self._through = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._checking: asyncio.Task[None] | None = None

    async def connect(self, name: str | None = None) -> Connection:
        """A connection. If other hosts tell where the server is, it is checked that it accepts writes."""
        if self._discovery is None:
            connection = await self._connected(self._address.arguments, name, _CONNECT)
        else:
            connection = await self._discovered(self._discovery, name)
        through, self._through = self._through, asyncio.Event()
        through.set()
        return connection

    async def pause(self, seconds: float) -> None:
        """Pause between two tries; end early if someone else gets through."""
        await SYSTEM.sleep(min(seconds, _LEAST_REST))
        if seconds > _LEAST_REST:
            loop = asyncio.get_running_loop()
            if loop is not self._loop:  # after a fork: nobody here waits for the parent's connections
                self._loop, self._through = loop, asyncio.Event()
            through = self._through
            try:
                async with asyncio.timeout(seconds - _LEAST_REST):
                    await through.wait()
            except TimeoutError:
                return

    async def close(self) -> None:
        task, self._checking = self._checking, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():  # else it is the parent's, after a fork
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _discovered(self, discovery: Discovery, name: str | None) -> Connection:
        tried: set[Place] = set()
        trouble: list[Exception] = []
        async for place in self._places(discovery, trouble):
            if place in tried:
                continue
            tried.add(place)
            try:
                connection = await self._taking_writes(place, name)
            except (RedisFault, OSError) as error:  # a TimeoutError is an OSError
                if _is_final(error):
                    raise
                trouble.append(error)
            else:
                self._found(connection, place)
                return connection
        misled = next((error for error in trouble if isinstance(error, WrongServer)), None)
        raise misled or ConnectionLost(
            "; ".join(dict.fromkeys(str(error) or type(error).__name__ for error in trouble))
        )

    async def _places(self, discovery: Discovery, trouble: list[Exception]) -> AsyncIterator[Place]:
        """Where the server may be, the most likely place first."""
        if isinstance(discovery, SentinelDiscovery):
            for place in await self._elected(discovery, trouble):
                yield place
            return
        for host in sorted(discovery.hosts(), key=self._silent.__contains__):
            try:
                place = await self._ask(discovery, host)
            except (RedisFault, OSError) as error:  # a TimeoutError is an OSError
                if _is_final(error):
                    raise
                trouble.append(error)
            else:
                yield place

    async def _elected(self, discovery: Discovery, trouble: list[Exception]) -> list[Place]:
        """The place that most Sentinels name, or several if they draw. A single Sentinel may be outdated, and the
        server that it names may still accept writes, which are lost once it learns that it was replaced. Sentinels that
        were silent last time are not waited for if others have answered."""
        silent, votes = set(self._silent), Counter[Place]()
        asked = {asyncio.create_task(self._ask(discovery, host)): host for host in discovery.hosts()}
        under_way = set(asked)
        try:
            while under_way and not (votes and silent.issuperset(asked[task] for task in under_way)):
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    try:
                        votes[task.result()] += 1
                    except (RedisFault, OSError) as error:
                        trouble.append(error)
                if votes and max(votes.values()) * 2 > len(asked):
                    break
            self._silent -= {asked[task] for task in under_way} - silent  # they were not given time to finish
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        refusal = next((error for error in trouble if _is_final(error)), None)
        if refusal is not None and not votes:
            raise refusal
        return _leading(votes)

    async def _ask(self, discovery: Discovery, host: Place) -> Place:
        """Where the server is. A host that does not answer is asked last next time."""
        self._silent.add(host)
        place = await discovery.ask(host)
        self._silent.discard(host)
        return place

    async def _taking_writes(self, place: Place, name: str | None) -> Connection:
        connection = await self._connected(reached(self._address, place), name, LIMIT)
        try:
            await _check_role(connection, place)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _connected(self, arguments: dict[str, Any], name: str | None, limit: float) -> Connection:
        return await connected(arguments, name, min(limit, self._address.timeout))

    def _found(self, connection: Connection, place: Place) -> None:
        if self._place not in (None, place):
            _log.warning(
                "the store failed over to %s:%s; writes that had not been replicated are lost, and jobs that had just "
                "ended may run again",
                *place,
            )
        self._place = place
        self._connections[connection] = place
        loop = asyncio.get_running_loop()
        if isinstance(self._discovery, SentinelDiscovery) and (
            self._checking is None or self._checking.get_loop() is not loop
        ):
            self._checking = asyncio.create_task(self._keep_checking(self._discovery), name="toril-redis-topology")

    async def _keep_checking(self, discovery: Discovery) -> None:
        """A server that was replaced while it was unreachable does not know that, and would accept writes that are lost
        later."""
        while True:
            await SYSTEM.sleep(CHECK)
            asked = (self._ask(discovery, host) for host in discovery.hosts())
            answers = await asyncio.gather(*asked, return_exceptions=True)
            leading = _leading(Counter(answer for answer in answers if isinstance(answer, tuple)))
            misled = [connection for connection, place in self._connections.items() if place not in leading]
            for connection in misled if leading else ():
                connection.cut()


def _leading(votes: Counter[Place]) -> list[Place]:
    """The places named most often; several if they draw."""
    return [place for place, count in votes.items() if count == max(votes.values())]


def _is_final(error: Exception) -> bool:
    """Whether asking another host would not help."""
    return is_refusal(error) and not isinstance(error, WrongServer)


async def _check_role(connection: Connection, place: Place) -> None:
    async with asyncio.timeout(LIMIT):
        facts = str(await connection.ask("INFO", "replication"))
    if "role:master" not in facts:
        raise ConnectionLost(f"{place[0]}:{place[1]} is a replica")
