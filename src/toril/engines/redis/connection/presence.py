"""Idle connections whose names make workers visible to BullMQ and its dashboards."""

import asyncio
from typing import Final

from toril.engines.redis.connection.connection import Connector, borrowed
from toril.engines.redis.connection.errors import RedisFault
from toril.engines.redis.connection.url import RedisAddress
from toril.engines.redis.layout import client_name
from toril.runtime.clock import SYSTEM

__all__ = ["WorkerPresence"]

_FIRST_REST: Final = 0.5
_LONGEST_REST: Final = 20.0


class WorkerPresence:
    """One connection for each queue that a worker of this process serves."""

    def __init__(self, address: RedisAddress, connector: Connector) -> None:
        self._address = address
        self._connector = connector
        self._shown: dict[str, asyncio.Task[None]] = {}

    def show(self, worker: str, queues: list[str]) -> None:
        """Appear as a worker of these queues from now on."""
        if not self._address.node_visibility:
            return
        for queue in queues:
            name = client_name(self._address.prefix, queue, worker)
            task = self._shown.get(name)
            if task is None or task.get_loop() is not asyncio.get_running_loop():
                self._shown[name] = asyncio.create_task(self._keep(name), name="toril-redis-presence")

    def hide(self, worker: str, queues: list[str]) -> None:
        """Disappear, while other workers of this process may continue with the same store."""
        for queue in queues:
            task = self._shown.pop(client_name(self._address.prefix, queue, worker), None)
            if task is not None and task.get_loop() is asyncio.get_running_loop():
                task.cancel()

    async def _keep(self, name: str) -> None:
        rest = _FIRST_REST
        while True:
            try:
                async with borrowed(self._connector, name) as connection:
                    rest = _FIRST_REST
                    await connection.receive()  # nothing is asked, so this returns when the connection ends
            except (RedisFault, OSError):
                pass
            await self._connector.pause(rest * (0.5 + SYSTEM.random() / 2))
            rest = min(rest * 2, _LONGEST_REST)

    async def close(self) -> None:
        here = asyncio.get_running_loop()
        tasks = [task for task in self._shown.values() if task.get_loop() is here]  # others are the parent's of a fork
        self._shown.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
