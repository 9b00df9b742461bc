"""Moving to another store and from one: a script a part."""

from collections.abc import Sequence
from typing import Any, Final

from toril.engines.redis import bales
from toril.engines.redis.crates import parcel_of
from toril.engines.redis.layout import FLEET, KEYS
from toril.engines.redis.runner import RedisStore
from toril.errors import InvalidOption
from toril.model import (
    LOAD,
    Arrival,
    FactsParcel,
    JobParcel,
    JobRef,
    LedgerParcel,
    LetterParcel,
    Load,
    Parcel,
    Part,
    ScheduleParcel,
    SettingsParcel,
    Unloaded,
    known,
    whole,
)
from toril.model.names import check_queue_name
from toril.runtime.clock import SYSTEM

__all__ = ["RedisMoves"]

_STORE: Final = "store"  # in the hash of what moves: the name of this store
_OF_THE_STORE: Final = {Part.LETTERS, Part.FACTS}


class RedisMoves(RedisStore):
    """The moves of the seam. Each of its steps can be sent twice."""

    async def identity(self) -> str:
        self._check_open()
        await self._server.ask("HSETNX", self._moving, _STORE, SYSTEM.unique())
        return str(await self._server.ask("HGET", self._moving, _STORE))

    async def departure(self, queue: str) -> str | None:
        self._check_open()
        found = await self._server.ask("HGET", self._moving, f"queue:{check_queue_name(queue)}")
        return None if found is None else str(found).partition(" ")[0]

    async def pack(
        self, part: Part, queue: str, *, to: str, mark: str, limit: int = LOAD, now: int | None = None
    ) -> Load | None:
        part, limit = known(Part, part), whole("limit", limit, 1, 10_000)
        queue = self.dead_letter_queue if part in _OF_THE_STORE else check_queue_name(queue)
        more = await self._keys(queue) if part is Part.LEDGER else [limit]
        found = await self._surely(f"pack_{part.value}", queue, [queue, to, mark, *more], now)
        if found is None:
            return None
        number, old_mark, rows, moment = found
        parcels = (parcel_of(row, prefix=self._address.prefix, now=moment) for row in rows)
        return Load(number, old_mark, to, tuple(parcels))

    async def unload(self, load: Load, *, sender: str, now: int | None = None) -> Arrival:
        name, queue, arguments = self._arguments(load.parcels)
        outcome, refs = await self._surely(name, queue, [sender, load.number, load.mark, *arguments], now)
        return Arrival(Unloaded(outcome), tuple(JobRef(*ref) for ref in refs))

    async def forget(self, load: Load, *, now: int | None = None) -> bool:
        return bool(await self._read("forget", self.dead_letter_queue, [load.number, load.mark, load.to], now))

    async def _surely(self, name: str, queue: str, arguments: Sequence[Any], now: int | None) -> Any:
        """A step that may be sent again, and that replicas confirm where adds are: the other store acts upon it."""
        return await self._run(name, queue, (self._now(now), *arguments), again=True, sure=True)

    @property
    def _moving(self) -> str:
        return self._fleet + FLEET["moving"]

    async def _keys(self, queue: str) -> list[str]:
        """The queue's deduplication keys, which stand in no list."""
        first = f"{self._base(queue)}{KEYS['dedup']}:"
        cursor, found = "0", []
        while True:
            cursor, keys = await self._server.ask("SCAN", cursor, "MATCH", _literally(first) + "*", "COUNT", 1000)
            found += [key[len(first) :] for key in keys]
            if cursor == "0":
                return found

    def _arguments(self, parcels: Sequence[Parcel]) -> tuple[str, str, list[Any]]:
        """The script that unloads these, of which queue it speaks, and what it takes."""
        match parcels:
            case (SettingsParcel() as settings,):
                return "unload_settings", settings.queue, [bales.dump_settings(settings)]
            case (LedgerParcel() as ledger,):
                return "unload_ledger", ledger.queue, [bales.dump_records(ledger, self._address.prefix), ledger.queue]
            case (FactsParcel() as facts,):
                return "unload_facts", self.dead_letter_queue, bales.dump_store_facts(facts)
            case _:
                return self._many(parcels)

    def _many(self, parcels: Sequence[Parcel]) -> tuple[str, str, list[Any]]:
        prefix, queue, arguments = self._address.prefix, "", []
        for parcel in parcels:
            match parcel:
                case JobParcel():
                    arguments += ["job", bales.dump_job(parcel, prefix)]
                case LetterParcel():
                    arguments += ["letter", bales.dump_dead_letter(parcel, prefix)]
                case ScheduleParcel():
                    queue = parcel.view.queue
                    arguments += ["schedule", bales.dump_schedule(parcel)]
                case SettingsParcel() | LedgerParcel() | FactsParcel():
                    raise InvalidOption("settings, figures and facts come in loads of their own")
        return ("unload_schedules", queue, arguments) if queue else ("unload_jobs", self.dead_letter_queue, arguments)


def _literally(text: str) -> str:
    return "".join(f"\\{sign}" if sign in "*?[]\\" else sign for sign in text)
