"""A real Redis server under the simulator: the real scripts, in virtual time. Commands are answered at once, as a
simulated store's are; only waiting is simulated."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import redis

from tests import servers
from tests.sim.script import QUEUE
from toril.engines.redis.connection.connection import Connection, Connector
from toril.engines.redis.connection.errors import said
from toril.engines.redis.connection.marker_listener import LOOK
from toril.engines.redis.connection.pipeline import Pipeline
from toril.engines.redis.connection.url import RedisAddress, parse
from toril.engines.redis.engine import RedisEngine
from toril.engines.redis.layout import FIELDS, KEYS
from toril.model import DEAD_LETTERS, scheduled_run
from toril.runtime.clock import Clock
from toril.store.engine import Store

__all__ = ["RedisStore"]

_LINES = ("wait", "active")
_SETS = ("prioritized", "delayed", "completed", "failed")
_OF_STEPS = ("step", "steps", "rest", "reruns", "inbox", "signal_ids", "awaits")
_STEP_FIELDS = tuple(FIELDS[name] for name in _OF_STEPS)  # of jobs


class _AtOnce(Pipeline):
    """The server, asked without waiting; then those who wait for a marker have a look."""

    def __init__(self, way: Connector, hub: "_Hub") -> None:
        super().__init__(way)
        self._hub = hub

    async def ask(self, *arguments: Any, on: Connection | None = None, until: float = 0) -> Any:  # noqa: ARG002
        try:
            answer = self._hub.client.execute_command(*arguments)
        except redis.exceptions.NoScriptError:
            raise said("NOSCRIPT ") from None
        except redis.exceptions.ResponseError as error:
            raise said(f"{error.status_code or ''} {error}".strip()) from None
        self._hub.look()
        return answer


class _Hub:
    """Who waits for which markers, in the order of their coming, as the server serves them."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._waiting: list[tuple[list[str], asyncio.Future[set[str]]]] = []

    async def wait(self, keys: Iterable[str], timeout: float) -> set[str] | None:
        future: asyncio.Future[set[str]] = asyncio.get_running_loop().create_future()
        entry = (list(keys), future)
        self._waiting.append(entry)
        self.look()
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            return None
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def look(self) -> None:
        for keys, future in list(self._waiting):
            if future.done():
                continue
            for key in keys:
                if self.client.execute_command("ZPOPMIN", key):
                    future.set_result({key})
                    break

    def ring_all(self) -> None:
        for keys, future in self._waiting:
            if not future.done():
                future.set_result(set(keys))


class _Notifier:
    """What a process waits with. A marker that the server has handed to another, which is frozen or cut off, is lost to
    it: then it finds the job by its next look, as late as that may be."""

    def __init__(self, hub: _Hub, ready: Callable[[list[str]], Awaitable[list[str]]]) -> None:
        self._hub = hub
        self._ready = ready

    async def wait(self, keys: Iterable[str], timeout: float) -> set[str] | None:
        keys, left = list(keys), timeout
        while left > 0:
            rung = await self._hub.wait(keys, min(left, LOOK))
            if rung is not None:
                return rung
            left -= LOOK
            if ready := await self._ready(keys):
                return set(ready)
        return None

    async def close(self) -> None: ...


class _Silent:
    """In place of connections that carry a name, or tell of results."""

    def show(self, worker: str, queues: list[str]) -> None: ...

    def hide(self, worker: str, queues: list[str]) -> None: ...

    @asynccontextmanager
    async def listening(self, channel: str, ids: frozenset[str]) -> Any:  # noqa: ARG002
        yield asyncio.Event()

    async def close(self) -> None: ...


class _Engine(RedisEngine):
    def __init__(self, address: RedisAddress, clock: Clock, hub: _Hub) -> None:
        self._hub = hub
        super().__init__(address, clock=clock)

    def _assemble(self) -> None:
        self._runner.client._pipeline = _AtOnce(self._runner.topology, self._hub)
        self._markers: Any = _Notifier(self._hub, self._ready)
        self._results: Any = _Silent()
        self._presence: Any = _Silent()


class RedisStore:
    """What the server holds outlives a restart, as its log would have it; what processes and scripts know does not."""

    name = "redis"
    untold = LOOK  # of several who wait one hears of an arrival; the others look by themselves

    def __init__(self, clock: Clock) -> None:
        self.epoch = 0
        self.up = True
        self._clock = clock
        server = servers.running()
        self._address = parse(server.url)
        self._client: Any = redis.Redis(port=server.port, decode_responses=True, encoding_errors="replace")
        self._hub = _Hub(self._client)
        self._views: list[_Engine] = []

    async def open(self) -> None:
        self._client.execute_command("FLUSHALL")

    async def close(self) -> None:
        self._client.close()

    def view(self) -> Store:
        view = _Engine(self._address, self._clock, self._hub)
        view._runner.is_open = True
        self._views.append(view)
        return view

    async def restart(self) -> None:
        self._client.execute_command("SCRIPT", "FLUSH")
        for view in self._views:
            view._runner.is_open = False
        self._views.clear()
        self._hub.ring_all()

    def contradictions(self) -> list[str]:
        """A job that stands in no place or in two, a place without its job, a lease without a running job."""
        base, ask = f"{self._address.prefix}:{QUEUE}:", self._client.execute_command
        places: dict[str, list[str]] = {}
        for name in _LINES:
            for identity in ask("LRANGE", base + KEYS[name], 0, -1):
                places.setdefault(identity, []).append(name)
        for name in _SETS:
            for identity in ask("ZRANGE", base + KEYS[name], 0, -1):
                places.setdefault(identity, []).append(name)
        for member in ask("ZRANGE", base + KEYS["parked"], 0, -1):
            places.setdefault(member.partition("\1")[2][25:], []).append("parked")
        found = [f"job {identity} stands in {names}" for identity, names in places.items() if len(names) != 1]
        found += [f"{names[0]} holds {identity}, which does not exist" for identity, names in places.items()
                  if not ask("EXISTS", base + identity)]  # fmt: skip
        held = set(ask("ZRANGE", base + KEYS["deadlines"], 0, -1))
        active = {identity for identity, names in places.items() if "active" in names}
        found += [f"a lease on {identity}, which does not run" for identity in held - active]
        found += [f"{identity} runs without a lease" for identity in active - held]
        waiting = {identity for identity, names in places.items() if "wait" in names}
        suspects = set(ask("ZRANGE", base + KEYS["suspects"], 0, -1))
        found += [f"suspect {identity} does not wait" for identity in suspects - waiting]
        return found + self._wrong_letters()

    def stray_runs(self) -> list[str]:
        base, ask = f"{self._address.prefix}:{QUEUE}:", self._client.execute_command
        current = dict(self._client.zrange(base + KEYS["repeat"], 0, -1, withscores=True))
        found = []
        for key in ask("KEYS", f"{base}repeat:*:*"):
            schedule, slot = scheduled_run(key.removeprefix(base)) or ("", 0)
            started = ask("HEXISTS", key, FIELDS["starts"]) if ask("TYPE", key) == "hash" else True
            paused = ask("HEXISTS", base + KEYS["schedules"], f"paused:{schedule}")
            if not started and (int(current.get(schedule, 0)) != slot or paused):
                found.append(f"run {key} has not started, and is not the current one of any schedule")
        return found

    def stray_keys(self) -> list[str]:
        base, ask = f"{self._address.prefix}:{QUEUE}:", self._client.execute_command
        found = []
        for key in ask("KEYS", f"{base}{KEYS['dedup']}*"):
            owner = ask("GET", key)
            if ask("PTTL", key) == -1 and not self.unfinished([owner]):
                found.append(f"key {key} is owned by {owner}, which is gone or has ended")
        return found

    def unfinished(self, ids: Iterable[str]) -> list[str]:
        base, ask = f"{self._address.prefix}:{QUEUE}:", self._client.execute_command
        return [
            identity
            for identity in ids
            if ask("EXISTS", base + identity)
            and not any(ask("ZSCORE", base + KEYS[ended], identity) for ended in ("completed", "failed"))
        ]

    def left_of_steps(self) -> list[str]:
        base, ask = f"{self._address.prefix}:{QUEUE}:", self._client.execute_command
        found = [f"{KEYS[name]} is left" for name in ("resting", "awaited") if ask("EXISTS", base + KEYS[name])]
        for key in ask("KEYS", f"{self._address.prefix}:*"):
            if ask("TYPE", key) == "hash":
                fields = [field for field in ask("HKEYS", key) if field.startswith(_STEP_FIELDS)]
                found += [f"{key} has {field}" for field in fields]
        return found

    def _wrong_letters(self) -> list[str]:
        """A dead letter stands in the line, in the order of time, and as a job; once each."""
        base, ask = f"{self._address.prefix}:{DEAD_LETTERS}:", self._client.execute_command
        line, dated = ask("LRANGE", base + KEYS["wait"], 0, -1), ask("ZRANGE", base + KEYS["letters"], 0, -1)
        found = [] if sorted(line) == sorted(dated) else [f"dead letters {line} stand in line, and {dated} are dated"]
        return found + [f"dead letter {each} does not exist" for each in dated if not ask("EXISTS", base + each)]
