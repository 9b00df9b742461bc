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

_KEPT: Final = 60_000  # ms for which the key stays whose writing is waited for


class Unconfirmed(EngineUnavailable):
    """It was done, and `answer` is what was said to it, but too few replicas have it so far."""

    def __init__(self, message: str, answer: Any) -> None:
        super().__init__(message)
        self.answer = answer


class _Confirmations:
    """To know of all that was written on one connection so far. Those that come while one is answered are answered
    together."""

    def __init__(self, line: Connection) -> None:
        self.line = line
        self._asking = asyncio.Lock()
        self._made = 0
        self._last = (0, 0)  # up to which number the last answer is, and the answer

    async def answered(self, count: Callable[[Connection], Awaitable[int]]) -> int:
        self._made += 1
        number = self._made
        async with self._asking:
            if self._last[0] < number:
                self._last = (self._made, await count(self.line))
            return self._last[1]


class Replicas:
    """The replicas of the server at the other end of a link. The link is for this alone: while the server waits for its
    replicas it does nothing else for who asked."""

    def __init__(self, link: Pipeline, key: str, least: int, timeout: float) -> None:
        self._link = link
        self._key = key
        self._least = least
        self._timeout = timeout
        self._confirmations: _Confirmations | None = None

    async def confirm(self, line: Connection, answer: Any) -> None:
        """Return once enough replicas have all that was written on this connection up to now."""
        confirmations = self._confirmations
        if confirmations is None or confirmations.line is not line:
            confirmations = self._confirmations = _Confirmations(line)
        count = await confirmations.answered(self._count)
        if count < self._least:
            raise Unconfirmed(f"only {count} of {self._least} replicas confirmed it within {self._timeout:g} s", answer)

    async def _count(self, line: Connection) -> int:
        # The server waits for what this connection has written. If the answer was a remembered one, that is nothing,
        # and it would say at once that all replicas have it: so something is written that comes after all before it.
        await self._link.ask("SET", self._key, "", "PX", _KEPT, on=line)
        return int(await self._link.ask("WAIT", self._least, round(self._timeout * 1000), on=line))


def uncertain(server: str, error: Unconfirmed, ids: Sequence[str]) -> AddUncertain:
    """What a producer is told of jobs that too few replicas have."""
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
    """What one of our own scripts refuses; its first word says why."""

    @property
    def words(self) -> list[str]:
        return str(self).split()


class RedisClient:
    """One server, asked over one connection. What certainly did not happen is tried again until the deadline.

    Its deadlines are of this process and run on the system's clock, whatever clock the store's times come from.
    """

    def __init__(self, address: RedisAddress, way: Connector) -> None:
        self._address = address
        self._link = Pipeline(way)
        self._sure = Pipeline(way)
        key = f"{fleet_base(address.prefix)}{FLEET['confirm']}{SYSTEM.unique()}:confirm"
        self._replicas = Replicas(self._sure, key, address.replicas, address.replicas_timeout)

    async def close(self) -> None:
        await self._link.close()
        await self._sure.close()

    async def ask(self, *command: Any) -> Any:
        """A command's answer; only for commands that may be sent twice."""
        return await self.run(command, again=True)

    async def run(self, command: tuple[Any, ...], *, again: bool, source: str | None = None, sure: bool = False) -> Any:
        """A command's answer. `again` says that it may be sent twice: it reads, or knows its calls. `source` is the
        script that it calls by its hash, for a server that does not know it. `sure`: replicas must have it, if the
        address asks for that; `Unconfirmed` says that too few have."""
        until, rest = SYSTEM.monotonic() + self._address.timeout, _FIRST_REST
        reason: Exception | None = None
        while True:
            try:
                if sure and self._address.replicas:
                    return await self._run_confirmed(until, command)
                return await self._link.ask(*command, until=until)
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
                if passes(error):  # of this request alone: what else is on its way there may have been done
                    self._link.drop(_LEFT)
                    self._sure.drop(_LEFT)
            await SYSTEM.sleep(rest * (0.5 + SYSTEM.random() / 2))
            rest = min(rest * 2, _LONGEST_REST)

    async def _run_confirmed(self, until: float, command: tuple[Any, ...]) -> Any:
        """Both steps on one connection: another may lead to a server that has not heard of the first."""
        try:
            async with asyncio.timeout(max(0.001, until - SYSTEM.monotonic())):
                line = await self._sure.line()
                answer = await self._sure.ask(*command, on=line)
                await self._replicas.confirm(line, answer)
                return answer
        except TimeoutError:
            self._sure.drop("no answer in time")
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
    """Whether to ask once more: nothing has happened, or it may happen twice; and the next answer may be another."""
    cause = error.__cause__ if isinstance(error, NotSent) and error.__cause__ is not None else error
    if isinstance(cause, Exception) and is_refusal(cause):
        return False
    if isinstance(error, NotSent) or passes(error):
        return True
    return again and not isinstance(error, ErrorReply)


_OLDEST: Final = (6, 2)


async def check_server(server: RedisClient, address: RedisAddress) -> RedisAddress:
    """`EngineUnusable` names what is wrong, and what to do. Gives the address as it has turned out to be: that of one
    server may be a node of a cluster."""
    if address.kind == "cluster":
        _check_tag(address)
    await server.ask("PING")  # unlike the next question, this is not answered while the server still loads its data
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
    """Whether the server's last snapshot and its log could be written, as far as it tells."""
    try:
        facts = await _facts(server, "persistence")
    except EngineRefused:  # a user who may not ask
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
