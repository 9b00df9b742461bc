"""Limits connections that have not sent a request yet, so that they cannot lock out others."""

from typing import Protocol

__all__ = ["IdleConnections"]


class IdleConnection(Protocol):
    """A connection that can be closed."""

    def abort(self) -> None: ...


class IdleConnections:
    """The idle connections of one server. If there are too many, the address that has the most loses the one that has
    been silent longest. So a new connection is always served if it soon sends something."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._by_address: dict[str, dict[IdleConnection, None]] = {}  # longest silent first

    def add(self, connection: IdleConnection, address: str) -> None:
        """The connection is silent from now on."""
        self.discard(connection, address)
        self._by_address.setdefault(address, {})[connection] = None
        self._count += 1
        if self._count > self._most:
            greediest = max(self._by_address, key=lambda each: len(self._by_address[each]))
            longest = next(iter(self._by_address[greediest]))
            self.discard(longest, greediest)
            longest.abort()

    def discard(self, connection: IdleConnection, address: str) -> None:
        """The connection has sent a request, or is gone."""
        silent = self._by_address.get(address, {})
        if connection in silent:
            del silent[connection]
            self._count -= 1
            if not silent:
                del self._by_address[address]
