"""`ScriptRunner`: runs scripts, with their keys, time and calls, and words what they refuse."""

from collections.abc import Sequence
from typing import Any, Final

from toril.engines.redis.connection.client import RedisClient, ScriptRefusal
from toril.engines.redis.connection.topology import Topology
from toril.engines.redis.connection.url import RedisAddress
from toril.engines.redis.layout import fleet_base, may_be_id, queue_base
from toril.engines.redis.scripts import Script, script
from toril.engines.shared import full, still_moving, still_running, too_late
from toril.errors import (
    Closed,
    EngineUnusable,
    TorilError,
)
from toril.model import Call, Kept, letter_id
from toril.runtime.clock import SYSTEM, Clock

__all__ = ["ScriptRunner"]

_NO_CALL: Final = ("", "")
# Settlements do not wait for replicas: if one is lost, the job runs again, as it may anyway. One that rests does: its
# rows say what was done.
_OF_WORKERS: Final = frozenset({"exchange", "report"})


class ScriptRunner:
    """Runs scripts on a server. Times are the server's, unless the clock is not the system's."""

    def __init__(self, address: RedisAddress, *, clock: Clock = SYSTEM) -> None:
        self.clock = clock
        self.fleet = fleet_base(address.prefix)
        self.is_open = False
        self.connect_to(address)

    def connect_to(self, address: RedisAddress) -> None:
        """Use this server from now on; the caller closes the previous one."""
        self.address = address
        self.topology = Topology(address)
        self.client = RedisClient(address, self.topology)

    def __repr__(self) -> str:
        return f"<Toril store in {self.address.shown}, prefix {self.address.prefix}>"

    @property
    def dead_letter_queue(self) -> str:
        """The queue of the dead letters, in which nobody else may have jobs."""
        return self.address.dead_letters

    def script(self, name: str) -> Script:
        return script(name, self.address.dead_letters, named=self.address.names_dead_letters)

    def base(self, queue: str) -> str:
        return queue_base(self.address.prefix, queue)

    def job_key(self, queue: str, job_id: str, where: Kept) -> str | None:
        """The key of a job, or of its dead letter; None if no job can have this id."""
        if where == "dead_letters":
            return self.base(self.dead_letter_queue) + letter_id(queue, job_id)
        return self.base(queue) + job_id if may_be_id(job_id) else None

    def time_for(self, now: int | None) -> int | str:
        if now is not None:
            return now
        return "" if self.clock is SYSTEM else self.clock.now()

    def check_open(self) -> None:
        if not self.is_open:
            raise Closed(f"{self!r} is not open; open it with `async with app:`")

    async def write(
        self,
        name: str,
        queue: str,
        arguments: Sequence[Any],
        call: Call | None,
        now: int | None,
        *,
        lasting: bool = False,
    ) -> Any:
        """Run a script that changes a queue and recognizes repeated calls. `lasting`: what a worker says is waited for
        on replicas, like everybody else's writes."""
        sender = _NO_CALL if call is None else (call.sender, call.seq)
        sure = call is not None and (lasting or name not in _OF_WORKERS)
        return await self.run(name, queue, (self.time_for(now), *sender, *arguments), again=call is not None, sure=sure)

    async def read(self, name: str, queue: str, arguments: Sequence[Any] = (), now: int | None = None) -> Any:
        """Run a script that may run twice."""
        return await self.run(name, queue, (self.time_for(now), *arguments), again=True)

    async def run(self, name: str, queue: str, arguments: Sequence[Any], *, again: bool, sure: bool = False) -> Any:
        self.check_open()
        script = self.script(name)
        command = ("EVALSHA", script.sha, 2, self.base(queue), self.fleet, *arguments)
        try:
            return await self.client.run(command, again=again, source=script.source, sure=sure)
        except ScriptRefusal as complaint:
            raise _understood(complaint, queue, self.dead_letter_queue) from None

    async def run_on(self, key: str, name: str, arguments: Sequence[Any], *, again: bool) -> Any:
        """Run a script on this key, which belongs to no queue."""
        self.check_open()
        script = self.script(name)
        command = ("EVALSHA", script.sha, 2, key, self.fleet, *arguments)
        return await self.client.run(command, again=again, source=script.source)


def _understood(complaint: ScriptRefusal, queue: str, letters: str) -> TorilError:  # noqa: PLR0911 - an arm a refusal
    """The error for a refusal by one of our own scripts."""
    match complaint.words:
        case ["TORILFULL", most, held, refused]:
            return full(queue, most=int(most), held=int(held), refused=int(refused))
        case ["TORILGROUP", most, held, refused, *name]:
            return full(queue, " ".join(name), most=int(most), held=int(held), refused=int(refused))
        case ["TORILLATE", last]:
            return too_late(int(last))
        case ["TORILRUNNING", count]:
            return still_running(queue, int(count))
        case ["TORILTAKEN", *_]:
            return EngineUnusable(
                f"dead letters cannot be stored, because another program uses the queue {letters!r}; choose another "
                "name "
                "with dead_letter_queue=…"
            )
        case ["TORILMOVING", *_]:
            return still_moving()
        case ["TORILTYPE", *words]:
            return EngineUnusable(
                f"{' '.join(words)}: another program uses this prefix; give the App a prefix of its own"
            )
        case _:
            return EngineUnusable(str(complaint))
