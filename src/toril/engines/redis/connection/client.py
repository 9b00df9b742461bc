"""`RedisClient`: deadlines, retries, EVALSHA, replica confirmation, server checks."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from toril.engines.redis.connection.connection import Connection, Connector
from toril.engines.redis.connection.errors import ErrorReply, NoScript, RedisFault, is_refusal, passes, translated
from toril.engines.redis.connection.pipeline import NotSent, Pipeline
from toril.engines.redis.connection.url import RedisAddress, in_cluster
from toril.engines.redis.layout import FLEET, fleet_base
from toril.errors import AddUncertain, EngineRefused, EngineUnavailable, EngineUnusable, TorilError
from toril.runtime.clock import SYSTEM

__all__ = ["RedisClient", "Replicas", "ScriptRefusal", "Unconfirmed", "check_server", "keeps_well", "uncertain"]

_KEPT: Final = 60_000  # ms that the key written before a wait for replicas stays


class Unconfirmed(EngineUnavailable):
    """The command took effect with this `answer`, but too few replicas have confirmed it so far."""

    def __init__(self, message: str, answer: Any) -> None:
        super().__init__(message)
        self.answer = answer


class _Confirmations:
    """Confirms everything that was written on one connection so far. Requests that come while one is being answered
    share the next answer."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._asking = asyncio.Lock()
        self._made = 0
        self._last = (0, 0)  # the number that the last answer covers, and the answer

    async def answered(self, count: Callable[[Connection], Awaitable[int]]) -> int:
        self._made += 1
        number = self._made
        async with self._asking:
            if self._last[0] < number:
                self._last = (self._made, await count(self.connection))
            return self._last[1]


class Replicas:
    """The replicas of the connected server. The connection is used for nothing else: while the server waits for its
    replicas, it answers nothing else on it."""

    def __init__(self, pipeline: Pipeline, key: str, least: int, timeout: float) -> None:
        self._pipeline = pipeline
        self._key = key
        self._least = least
        self._timeout = timeout
        self._confirmations: _Confirmations | None = None

    async def confirm(self, connection: Connection, answer: Any) -> None:
        """Return once enough replicas have everything that was written so far."""
        confirmations = self._confirmations
        if confirmations is None or confirmations.connection is not connection:
            confirmations = self._confirmations = _Confirmations(connection)
        count = await confirmations.answered(self._count)
        if count < self._least:
            raise Unconfirmed(f"only {count} of {self._least} replicas confirmed it within {self._timeout:g} s", answer)

    async def _count(self, connection: Connection) -> int:
        # WAIT covers what this connection has written. After a remembered answer that is nothing,
        # and it would say at once that all replicas have it: so something is written that comes after all before it.
        await self._pipeline.ask("SET", self._key, "", "PX", _KEPT, on=connection)
        return int(await self._pipeline.ask("WAIT", self._least, round(self._timeout * 1000), on=connection))


def uncertain(server: str, error: Unconfirmed, ids: Sequence[str]) -> AddUncertain:
    """The error for jobs that too few replicas have confirmed."""
    what = f"job {ids[0]!r} is" if len(ids) == 1 else f"jobs {ids[0]!r} to {ids[-1]!r} are"
    return AddUncertain(
        f"{what} stored in {server}, but {error}, so a failover may lose it; it is safe to add it again with the same "
        "job_id, but without one it would be stored twice",
        job_ids=ids,
    )


_FIRST_REST: Final = 0.02
_LONGEST_REST: Final = 1.0
_LEFT: Final = "the connection was closed"


class ScriptRefusal(Exception):
    """A refusal by one of our own scripts; its first word says why."""

    @property
    def words(self) -> list[str]:
        return str(self).split()


class RedisClient:
    """Sends commands to one server over one connection. A command that certainly had no effect is sent again until the
    deadline. Deadlines are this process's own and use the system's clock, whatever clock the store's times come
    from."""

    def __init__(self, address: RedisAddress, connector: Connector) -> None:
        self._address = address
        self._pipeline = Pipeline(connector)
        self._confirmed = Pipeline(connector)
        key = f"{fleet_base(address.prefix)}{FLEET['confirm']}{SYSTEM.unique()}:confirm"
        self._replicas = Replicas(self._confirmed, key, address.replicas, address.replicas_timeout)

    async def close(self) -> None:
        await self._pipeline.close()
        await self._confirmed.close()

    async def ask(self, *command: Any) -> Any:
        """The answer to a command. Only for commands that may be sent twice."""
        return await self.run(command, again=True)

    async def run(self, command: tuple[Any, ...], *, again: bool, source: str | None = None, sure: bool = False) -> Any:
        """The answer to a command. `again`: it may be sent twice, because it only reads or recognizes repeated calls.
        `source` is the script that it calls by its hash, in case the server does not know it. `sure`: wait for
        replicas, if the address asks for that; raises `Unconfirmed` if too few confirm."""
        until, rest = SYSTEM.monotonic() + self._address.timeout, _FIRST_REST
        reason: Exception | None = None
        while True:
            try:
                if sure and self._address.replicas:
                    return await self._run_confirmed(until, command)
                return await self._pipeline.ask(*command, until=until)
            except Unconfirmed:
                raise
            except NoScript:
                assert source is not None  # noqa: S101 - nothing else is called by its hash
                command = ("EVAL", source, *command[2:])
                continue
            except (RedisFault, OSError, EngineUnavailable) as error:  # a TimeoutError is an OSError
                reason = reason if reason is not None and isinstance(error, TimeoutError) else error
                if not _may_pass(error, again=again) or SYSTEM.monotonic() + rest > until:
                    raise self._translated(reason) from None
                if passes(error):  # this request only: others that are in flight may have taken effect
                    self._pipeline.drop(_LEFT)
                    self._confirmed.drop(_LEFT)
            await SYSTEM.sleep(rest * (0.5 + SYSTEM.random() / 2))
            rest = min(rest * 2, _LONGEST_REST)

    async def _run_confirmed(self, until: float, command: tuple[Any, ...]) -> Any:
        """Take both steps on one connection: another one may lead to a server that does not know of the first step."""
        try:
            async with asyncio.timeout(max(0.001, until - SYSTEM.monotonic())):
                connection = await self._confirmed.connection()
                answer = await self._confirmed.ask(*command, on=connection)
                await self._replicas.confirm(connection, answer)
                return answer
        except TimeoutError:
            self._confirmed.drop("no answer in time")
            raise

    def _translated(self, error: BaseException) -> TorilError | ScriptRefusal:
        if isinstance(error, ErrorReply) and str(error).startswith("TORIL"):
            return ScriptRefusal(str(error))
        if isinstance(error, TimeoutError):
            error = TimeoutError(f"no answer within {self._address.timeout:g} s")
        cause = error.__cause__ if isinstance(error, NotSent) else error
        if isinstance(cause, Exception) and not isinstance(cause, TorilError):
            return translated(cause, self._address.shown)
        return EngineUnavailable(f"cannot reach {self._address.shown}: {error}")


def _may_pass(error: Exception, *, again: bool) -> bool:
    """Whether to send it again: it had no effect, or may happen twice, and the next answer may differ."""
    cause = error.__cause__ if isinstance(error, NotSent) and error.__cause__ is not None else error
    if isinstance(cause, Exception) and is_refusal(cause):
        return False
    if isinstance(error, NotSent) or passes(error):
        return True
    return again and not isinstance(error, ErrorReply)


_OLDEST: Final = (6, 2)


async def check_server(server: RedisClient, address: RedisAddress) -> RedisAddress:
    """Check the server. `EngineUnusable` names what is wrong and what to do. Returns the address as it turned out to
    be: a single server may be a node of a cluster."""
    if address.kind == "cluster":
        _check_tag(address)
    await server.ask("PING")  # unlike INFO, this is refused while the server loads its data
    facts = await _facts(server, "server", "memory", "cluster")
    version = tuple(int(part) for part in facts.get("redis_version", "0.0").split(".")[:2] if part.isdecimal())
    if version < _OLDEST:
        raise EngineUnusable(
            f"{address.shown} runs Redis {facts.get('redis_version')}; Toril needs Redis 6.2 or newer, or Valkey"
        )
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and not address.allow_eviction:
        raise EngineUnusable(
            f"{address.shown} evicts keys when it is full (maxmemory-policy {policy}), which would lose jobs; "
            "set maxmemory-policy to noeviction, or add ?allow_eviction=1 to the URL"
        )
    if facts.get("cluster_enabled") != "1":
        return address
    _check_tag(address)
    return in_cluster(address)


def _check_tag(address: RedisAddress) -> None:
    if not address.prefix.startswith("{"):
        raise EngineUnusable(
            f"{address.shown} is a cluster, where all keys of an app must share a hash slot; "
            f"use App(prefix='{{{address.prefix}}}'), and the same prefix in Node"
        )


async def keeps_well(server: RedisClient) -> bool:
    """Whether the last snapshot and the last write to the append-only file succeeded, as far as the server tells."""
    try:
        facts = await _facts(server, "persistence")
    except EngineRefused:  # this user has no permission
        return True
    return "err" not in (facts.get("rdb_last_bgsave_status"), facts.get("aof_last_write_status"))


async def _facts(server: RedisClient, *sections: str) -> dict[str, str]:
    facts = {}
    for section in sections:
        for line in str(await server.ask("INFO", section)).splitlines():
            name, separator, value = line.partition(":")
            if separator:
                facts[name] = value
    return facts
