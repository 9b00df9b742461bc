"""Asking the server: deadlines, trying again, and scripts it does not know."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from toril.engines.redis.connection.errors import NoScript, Said, Trouble, is_refusal, passes, translated
from toril.engines.redis.connection.line import Way
from toril.engines.redis.connection.pipeline import Link, Unsent
from toril.engines.redis.connection.place import Address
from toril.engines.redis.connection.replicas import Replicas, Unconfirmed
from toril.engines.redis.layout import FLEET, fleet_base
from toril.engines.redis.scripts import Script
from toril.errors import EngineUnavailable, TorilError
from toril.runtime.clock import SYSTEM

__all__ = ["Complaint", "Server"]

_Once: TypeAlias = Callable[[float, tuple[Any, ...], Script | None], Awaitable[Any]]
_FIRST_REST: Final = 0.02
_LONGEST_REST: Final = 1.0
_LEFT: Final = "the connection was given up"


class Complaint(Exception):
    """What one of our own scripts refuses; its first word says why."""

    @property
    def words(self) -> list[str]:
        return str(self).split()


class Server:
    """One server, asked over one connection. What certainly did not happen is tried again until the deadline.

    Its deadlines are of this process and run on the system's clock, whatever clock the store's times come from.
    """

    def __init__(self, address: Address, way: Way) -> None:
        self._address = address
        self._link = Link(way)
        self._sure = Link(way)
        key = f"{fleet_base(address.prefix)}{FLEET['confirm']}{SYSTEM.unique()}:confirm"
        self._replicas = Replicas(self._sure, key, address.replicas, address.replicas_timeout)
        self._late = f"no answer within {address.timeout:g} s"

    async def close(self) -> None:
        await self._link.close()
        await self._sure.close()

    async def run(
        self, script: Script, keys: tuple[str, str], arguments: Sequence[Any], *, again: bool, sure: bool = False
    ) -> Any:
        """A script's answer. `again` says that it may be sent twice: it reads, or knows its calls. `sure`: replicas
        must have it, if the address asks for that; `Unconfirmed` says that too few have."""
        once = self._surely if sure and self._address.replicas else self._once
        return await self._patiently(("EVALSHA", script.sha, 2, *keys, *arguments), script, once, again=again)

    async def ask(self, *command: Any) -> Any:
        """A command's answer; only for commands that may be sent twice."""
        return await self._patiently(command, None, self._once, again=True)

    async def _patiently(self, command: tuple[Any, ...], script: Script | None, once: _Once, *, again: bool) -> Any:
        until, rest = SYSTEM.monotonic() + self._address.timeout, _FIRST_REST
        reason: Exception | None = None
        while True:
            try:
                return await once(until, command, script)
            except Unconfirmed:
                raise
            except (Trouble, OSError, EngineUnavailable) as error:  # a TimeoutError is an OSError
                reason = reason if reason is not None and isinstance(error, TimeoutError) else error
                if not _may_pass(error, again=again) or SYSTEM.monotonic() + rest > until:
                    raise self._told(reason) from None
                if passes(error):  # of this request alone: what else is on its way there may have been done
                    self._link.drop(_LEFT)
                    self._sure.drop(_LEFT)
            await SYSTEM.sleep(rest * (0.5 + SYSTEM.random() / 2))
            rest = min(rest * 2, _LONGEST_REST)

    async def _once(self, until: float, command: tuple[Any, ...], script: Script | None) -> Any:
        try:
            try:
                return await self._link.ask(*command, until=until)
            except NoScript:
                assert script is not None  # noqa: S101 - nothing else is called by its hash
                return await self._link.ask("EVAL", script.source, *command[2:], until=until)
        except TimeoutError:
            raise TimeoutError(self._late) from None

    async def _surely(self, until: float, command: tuple[Any, ...], script: Script | None) -> Any:
        try:
            async with asyncio.timeout(max(0.001, until - SYSTEM.monotonic())):
                return await self._confirmed(command, script)
        except TimeoutError:
            self._sure.drop("no answer in time")
            raise TimeoutError(self._late) from None

    async def _confirmed(self, command: tuple[Any, ...], script: Script | None) -> Any:
        """Both steps on one connection: another may lead to a server that has not heard of the first."""
        line = await self._sure.line()
        try:
            answer = await self._sure.ask(*command, on=line)
        except NoScript:
            assert script is not None  # noqa: S101 - nothing else is called by its hash
            answer = await self._sure.ask("EVAL", script.source, *command[2:], on=line)
        await self._replicas.confirm(line, answer)
        return answer

    def _told(self, error: BaseException) -> TorilError | Complaint:
        if isinstance(error, Said) and str(error).startswith("TORIL"):
            return Complaint(str(error))
        cause = error.__cause__ if isinstance(error, Unsent) else error
        if isinstance(cause, Exception) and not isinstance(cause, TorilError):
            return translated(cause, self._address.shown)
        return EngineUnavailable(f"{self._address.shown} does not answer: {error}")


def _may_pass(error: Exception, *, again: bool) -> bool:
    """Whether to ask once more: nothing has happened, or it may happen twice; and the next answer may be another."""
    cause = error.__cause__ if isinstance(error, Unsent) and error.__cause__ is not None else error
    if isinstance(cause, Exception) and is_refusal(cause):
        return False
    if isinstance(error, Unsent) or passes(error):
        return True
    return again and not isinstance(error, Said)
