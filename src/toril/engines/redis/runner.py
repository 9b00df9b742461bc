"""What every method of the engine begins with: is it open, whose time counts, how are the keys called."""

from collections.abc import Sequence
from typing import Any, Final

from toril.engines.redis.connection.client import Complaint, Server
from toril.engines.redis.connection.topology import ServerWay
from toril.engines.redis.connection.url import Address
from toril.engines.redis.layout import fleet_base, may_be_id, queue_base
from toril.engines.redis.scripts import Script, script
from toril.errors import (
    CallTooLate,
    Closed,
    EngineUnusable,
    InvalidOption,
    QueueFull,
    TorilError,
    WrongState,
)
from toril.model import BATCH, Call, Kept, letter_id
from toril.model.names import check_queue_name
from toril.runtime.clock import SYSTEM, Clock

__all__ = ["RedisStore", "bounded"]

_NO_CALL: Final = ("", "")
# What workers hand in is not waited for on replicas: if it is lost, the job runs again, as it may anyway.
_OF_WORKERS: Final = frozenset({"exchange", "report"})


class RedisStore:
    """A server, and how it is spoken to. Times are the server's, unless the clock is another than the system's."""

    def __init__(self, address: Address, *, clock: Clock = SYSTEM) -> None:
        self._address = address
        self._clock = clock
        self._fleet = fleet_base(address.prefix)
        self._way = ServerWay(address)
        self._server = Server(address, self._way)
        self._open = False

    def __repr__(self) -> str:
        return f"<Toril store in {self._address.shown}, prefix {self._address.prefix}>"

    @property
    def dead_letter_queue(self) -> str:
        """The queue that they are in, in which nobody else may have jobs."""
        return self._address.dead_letters

    def _script(self, name: str) -> Script:
        return script(name, self._address.dead_letters, named=self._address.names_dead_letters)

    def _base(self, queue: str) -> str:
        return queue_base(self._address.prefix, queue)

    def _job_key(self, queue: str, job_id: str, where: Kept) -> str | None:
        """The key of a job, or of its dead letter; None where an id is none."""
        queue = check_queue_name(queue)
        if where == "dead_letters":
            return self._base(self.dead_letter_queue) + letter_id(queue, job_id)
        return self._base(queue) + job_id if may_be_id(job_id) else None

    def _now(self, now: int | None) -> int | str:
        if now is not None:
            return now
        return "" if self._clock is SYSTEM else self._clock.now()

    def _check_open(self) -> None:
        if not self._open:
            raise Closed(f"{self!r} is not open; open it first, or it was closed")

    async def _write(self, name: str, queue: str, arguments: Sequence[Any], call: Call | None, now: int | None) -> Any:
        """A script that changes a queue, and knows its calls."""
        sender = _NO_CALL if call is None else (call.sender, call.seq)
        sure = call is not None and name not in _OF_WORKERS
        return await self._run(name, queue, (self._now(now), *sender, *arguments), again=call is not None, sure=sure)

    async def _read(self, name: str, queue: str, arguments: Sequence[Any] = (), now: int | None = None) -> Any:
        """A script that may run twice."""
        return await self._run(name, queue, (self._now(now), *arguments), again=True)

    async def _run(self, name: str, queue: str, arguments: Sequence[Any], *, again: bool, sure: bool = False) -> Any:
        self._check_open()
        keys = (self._base(queue), self._fleet)
        try:
            return await self._server.run(self._script(name), keys, arguments, again=again, sure=sure)
        except Complaint as complaint:
            raise _understood(complaint, queue, self.dead_letter_queue) from None


def _understood(complaint: Complaint, queue: str, letters: str) -> TorilError:  # noqa: PLR0911 - an arm a refusal
    """What our own scripts refuse."""
    match complaint.words:
        case ["TORILFULL", most, held, refused]:
            return QueueFull(
                f"queue {queue!r} may hold {most} waiting jobs and has {held}; {refused} more were refused"
            )
        case ["TORILGROUP", most, held, refused, *name]:
            return QueueFull(
                f"group {' '.join(name)!r} of queue {queue!r} may hold {most} waiting jobs and has {held}; "
                f"{refused} more were refused"
            )
        case ["TORILLATE", last]:
            return CallTooLate(f"this call came too late: {last} of its sender has been answered already")
        case ["TORILRUNNING", count]:
            return WrongState(f"queue {queue!r} has {count} running jobs; stop them, or force it")
        case ["TORILTAKEN", *_]:
            return EngineUnusable(
                f"dead letters cannot be stored: the queue {letters!r} is another program's; choose another with "
                "dead_letter_queue=…"
            )
        case ["TORILMOVING", *_]:
            return WrongState("a move to another store has not come to its end: finish that one first")
        case ["TORILTYPE", *words]:
            return EngineUnusable(f"{' '.join(words)}: another program writes under this prefix; give the App its own")
        case _:
            return EngineUnusable(str(complaint))


def bounded(batch: Sequence[object], verb: str = "takes") -> None:
    if len(batch) > BATCH:
        raise InvalidOption(f"one call {verb} at most {BATCH} jobs, not {len(batch)}")
