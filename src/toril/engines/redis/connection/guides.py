"""Those who know where the server is: Sentinels, and the nodes of a cluster."""

import asyncio
from binascii import crc_hqx
from typing import Any, Final, Protocol

from toril.engines.redis.connection.errors import Lost, Misled, Said
from toril.engines.redis.connection.line import connected
from toril.engines.redis.connection.place import Address, Place

__all__ = ["LIMIT", "Cluster", "Guide", "Sentinels", "guide_of"]

_SLOTS: Final = 16384
LIMIT: Final = 2.0  # seconds for a connection, where there may be another to try


class Guide(Protocol):
    """Knows whom to ask, and what to make of the answer."""

    def hosts(self) -> list[Place]:
        """Whom to ask."""

    async def told(self, host: Place) -> Place:
        """Where the server is, as this host says."""


def guide_of(address: Address) -> Guide | None:
    """Whom to ask; nobody, where the URL says where the server is."""
    match address.kind:
        case "one":
            return None
        case "sentinel":
            return Sentinels(address)
        case "cluster":
            return Cluster(address)


class Sentinels:
    """Sentinels that watch over a service."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def hosts(self) -> list[Place]:
        return list(self._address.hosts)

    async def told(self, host: Place) -> Place:
        service = self._address.service
        try:
            place = await _asked(self._address, host, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
        except Said as error:
            if "unknown command" in str(error).lower():
                raise Misled(f"{_shown(host)} is no Sentinel: write redis:// for a server itself") from None
            raise
        if place is None:
            raise Misled(f"the Sentinel {_shown(host)} watches over no service {service!r}: mend the URL")
        return str(place[0]), int(place[1])


class Cluster:
    """Nodes of a cluster, one of which has the slot in which all keys of the prefix are."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._slot = _slot(address.prefix.encode())
        self._learnt: list[Place] = []

    def hosts(self) -> list[Place]:
        return list(dict.fromkeys([*self._learnt, *self._address.hosts]))

    async def told(self, host: Place) -> Place:
        try:
            ranges = await _asked(self._address, host, "CLUSTER", "SLOTS")
        except Said as error:
            if "cluster support disabled" in str(error):
                raise Misled(f"{_shown(host)} is in no cluster: write redis:// for a server by itself") from None
            raise
        self._learnt = [_node(node, host) for _, _, *nodes in ranges for node in nodes]
        for first, last, owner, *_ in ranges:
            if first <= self._slot <= last:
                return _node(owner, host)
        raise Lost(f"no node serves slot {self._slot}, where the keys of {self._address.prefix!r} are")


def _slot(key: bytes) -> int:
    """Where a cluster puts a key: by what stands in its first braces, if anything does."""
    opened = key.find(b"{")
    closed = key.find(b"}", opened + 1)
    tagged = opened >= 0 and closed > opened + 1
    return crc_hqx(key[opened + 1 : closed] if tagged else key, 0) % _SLOTS


def _node(node: Any, asked: Place) -> Place:
    """A node that does not know its own name is where we have found it."""
    return (str(node[0]) if node[0] else asked[0]), int(node[1])


async def _asked(address: Address, host: Place, *command: str) -> Any:
    arguments, limit = address.asking | {"host": host[0], "port": host[1]}, min(LIMIT, address.timeout)
    async with asyncio.timeout(limit):
        line = await connected(arguments, None, limit)
        try:
            return await line.ask(*command)
        finally:
            await line.close()


def _shown(host: Place) -> str:
    return f"{host[0]}:{host[1]}"
