"""Limits connections that have not sent a request yet, so that they cannot lock out others."""

from typing import Protocol

__all__ = ["IdleConnections"]


class IdleConnection(Protocol):
    """What can be cut off."""

    def abort(self) -> None: ...


class IdleConnections:
    """All of one server's. Where there are too many, one of the address that has the most of them is cut off: the one
    that has been silent for longest. A new connection is therefore always heard, if it soon says something."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._by_address: dict[str, dict[IdleConnection, None]] = {}  # the longest silent first

    def add(self, connection: IdleConnection, address: str) -> None:
        """It is silent from now on."""
        self.discard(connection, address)
        self._by_address.setdefault(address, {})[connection] = None
        self._count += 1
        if self._count > self._most:
            greediest = max(self._by_address, key=lambda each: len(self._by_address[each]))
            longest = next(iter(self._by_address[greediest]))
            self.discard(longest, greediest)
            longest.abort()

    def discard(self, connection: IdleConnection, address: str) -> None:
        """It has sent a request, or is gone."""
        silent = self._by_address.get(address, {})
        if connection in silent:
            del silent[connection]
            self._count -= 1
            if not silent:
                del self._by_address[address]
