"""The leases that a worker process holds, in memory that it shares with its supervisor.

The worker writes an entry at each claim, without a system call; the supervisor reads it whenever it likes, also after
the worker has died. An entry's generation is written last and taken away first, so half an entry is never read.
"""

import mmap
import os
import struct
import tempfile
from dataclasses import dataclass
from typing import Final

from toril.model import Lease

__all__ = ["Held", "Table", "new_memory"]

_HEADER: Final = struct.Struct("<dIQd")  # when the loop last ticked, jobs held, jobs ended, how late that tick was
_ENDED: Final = struct.Struct("<Q")
_ENDED_AT: Final = struct.calcsize("<dI")
_ENTRY: Final = struct.Struct("<IHdII")  # generation (0: free), bytes of text, since when, length, renewal
_GENERATION: Final = struct.Struct("<I")
_FIRST: Final = 64
_SIZE: Final = 768  # the longest names, and a token


@dataclass(frozen=True, slots=True)
class Held:
    """One entry: since when the lease is held, by a clock that all processes of the machine share."""

    lease: Lease
    since: float
    ttl: int
    renew: int


def new_memory() -> int:
    """Memory that has a descriptor, to be handed to a child, and no name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("toril-leases")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Table:
    """One worker process's entries. One side writes, the other reads."""

    def __init__(self, descriptor: int, slots: int = 64) -> None:
        self._descriptor = descriptor
        self._size = 0
        self._memory: mmap.mmap | None = None
        self._map(max(os.fstat(descriptor).st_size, _FIRST + slots * _SIZE))
        self._places: dict[Lease, int] = {}
        self._free: list[int] = list(range(self.slots - 1, -1, -1))
        self._generation = 0
        self._known: dict[int, tuple[int, Held]] = {}
        self._ended = 0

    @property
    def slots(self) -> int:
        return (self._size - _FIRST) // _SIZE

    # the worker's side

    def put(self, held: Held) -> None:
        if not self._free:
            before = self.slots
            self._map(_FIRST + 2 * before * _SIZE)
            self._free = list(range(self.slots - 1, before - 1, -1))
        lease, slot = held.lease, self._free.pop()
        text = "\0".join((lease.queue, lease.id, lease.token)).encode()
        self._generation = self._generation % 0xFFFFFFFF + 1
        memory, start = self._mapped, _FIRST + slot * _SIZE
        _ENTRY.pack_into(memory, start, 0, len(text), held.since, held.ttl, held.renew)
        memory[start + _ENTRY.size : start + _ENTRY.size + len(text)] = text
        _GENERATION.pack_into(memory, start, self._generation)
        self._places[lease] = slot

    def drop(self, lease: Lease) -> None:
        slot = self._places.pop(lease, None)
        if slot is not None:
            _GENERATION.pack_into(self._mapped, _FIRST + slot * _SIZE, 0)
            self._free.append(slot)
            self._ended += 1
            _ENDED.pack_into(self._mapped, _ENDED_AT, self._ended)  # a crash may come before the next tick

    def tick(self, now: float, late: float) -> None:
        """The loop is alive."""
        _HEADER.pack_into(self._mapped, 0, now, len(self._places), self._ended, late)

    # the supervisor's side

    @property
    def ticked(self) -> float:
        """When the loop last ticked; 0 before it first did."""
        return float(self._header[0])

    @property
    def running(self) -> int:
        return int(self._header[1])

    @property
    def ended(self) -> int:
        return int(self._header[2])

    @property
    def late(self) -> float:
        """How late the last tick was, in seconds: what a handler kept the loop from doing."""
        return float(self._header[3])

    def held(self) -> list[Held]:
        """Every whole entry. What has not changed since the last look is not read again."""
        size = os.fstat(self._descriptor).st_size
        if size != self._size:
            self._map(size)
        found = []
        for slot in range(self.slots):
            generation = _GENERATION.unpack_from(self._mapped, _FIRST + slot * _SIZE)[0]
            if not generation:
                continue
            known = self._known.get(slot)
            if known is None or known[0] != generation:
                entry = self._read(slot, generation)
                if entry is None:
                    continue
                known = self._known[slot] = (generation, entry)
            found.append(known[1])
        return found

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    @property
    def _mapped(self) -> mmap.mmap:
        assert self._memory is not None  # noqa: S101 - used after it was closed
        return self._memory

    @property
    def _header(self) -> tuple[float, int, int, float]:
        when, running, ended, late = _HEADER.unpack_from(self._mapped)
        return when, running, ended, late

    def _read(self, slot: int, generation: int) -> Held | None:
        memory, start = self._mapped, _FIRST + slot * _SIZE
        _, length, since, ttl, renew = _ENTRY.unpack_from(memory, start)
        text = memory[start + _ENTRY.size : start + _ENTRY.size + length]
        if _GENERATION.unpack_from(memory, start)[0] != generation:
            return None  # it was changed meanwhile; the next look sees what it is now
        queue, identity, token = text.decode().split("\0")
        return Held(Lease(queue, identity, token), since, ttl, renew)

    def _map(self, size: int) -> None:
        if os.fstat(self._descriptor).st_size < size:
            os.ftruncate(self._descriptor, size)
        self.close()
        self._memory, self._size = mmap.mmap(self._descriptor, size), size
