"""The shared memory in which a worker process and its supervisor tell each other about leases.

The worker writes an entry for each lease that it holds, without a system call; the supervisor reads them at any time,
even after the worker has died or while it is frozen. The supervisor in turn writes when it last renewed each of them,
and how urgently the worker is to stop.

An entry stands in one slot, or in a chain of slots where its names are long. Its generation is written last and cleared
first, and a checksum covers the rest, so half an entry is never taken for a whole one.
"""

import mmap
import os
import struct
import tempfile
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from toril.model import Lease

__all__ = ["LONGEST", "LeaseEntry", "LeaseTable", "new_memory"]

# Native formats, so that each aligned field is copied in one piece and never read half-written.
_WORKER: Final = struct.Struct("@ddQQ")  # last tick of the loop, how late it was, jobs ended, jobs held
_ENDED: Final = struct.Struct("@Q")
_ENDED_AT: Final = 16
_URGENCY: Final = struct.Struct("@I")  # how urgently the supervisor wants the worker to stop
_URGENCY_AT: Final = 64

_FIRST: Final = 128  # offset of the first slot
_SIZE: Final = 256  # bytes of a slot
# What an entry begins with: its generation (0: none begins here), the next slot of its chain (0: none, else the slot's
# number + 1), the checksum of its facts and text, and when the supervisor last renewed it. A further slot of a chain
# has the first two.
_HEAD: Final = struct.Struct("@QIId")
_LINK: Final = struct.Struct("@QI")
_GENERATION: Final = struct.Struct("@Q")
_RENEWED: Final = struct.Struct("@d")
_RENEWED_AT: Final = 16
_FACTS: Final = struct.Struct("@dQQIII")  # since when, length and renewal in ms; bytes of queue, id and token
_TEXT: Final = _HEAD.size + _FACTS.size
_ROOM: Final = _SIZE - _TEXT  # bytes of text in the first slot
_MORE: Final = _SIZE - _LINK.size  # and in each further one

LONGEST: Final = 1 << 20  # bytes of text in one entry
_LARGEST: Final = 1 << 26  # bytes of a table
_ANY_TEXT: Final = "surrogatepass"  # an id may contain invalid text


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    """One entry. `since` is by a clock that all processes of the machine share."""

    lease: Lease
    since: float
    ttl: int
    renew: int


def new_memory() -> int:
    """Memory with a descriptor, to be passed to a child, and without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("toril-leases")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class LeaseTable:
    """One worker process's entries. One side writes them, the other reads them."""

    def __init__(self, descriptor: int, slots: int = 64, largest: int = _LARGEST) -> None:
        self._descriptor = descriptor
        self._largest = largest
        self._size = 0
        self._memory: mmap.mmap | None = None
        self._map(max(os.fstat(descriptor).st_size, _FIRST + slots * _SIZE))
        self._places: dict[Lease, int] = {}
        self._chains: dict[int, list[int]] = {}  # further slots of long entries, by their first slot
        self._left_out: set[Lease] = set()  # held, but not in the table
        self._free: list[int] = list(range(self.slots - 1, -1, -1))
        self._generation = 0
        self._known: dict[int, tuple[int, LeaseEntry]] = {}
        self._read_at: dict[Lease, tuple[int, int]] = {}  # slot and generation of the entries read
        self._ended = 0
        self.unreadable: dict[int, int] = {}  # slots of malformed entries at the last read

    @property
    def slots(self) -> int:
        return (self._size - _FIRST) // _SIZE

    # the worker's side

    def put(self, held: LeaseEntry) -> bool:
        """Write an entry. False if that is impossible, because it is too long or the table is at its largest: the
        supervisor then does not know this lease."""
        lease = held.lease
        if lease in self._places:
            self._remove(lease)
        queue, identity = lease.queue.encode(errors=_ANY_TEXT), lease.id.encode(errors=_ANY_TEXT)
        token = lease.token.encode(errors=_ANY_TEXT)
        text = queue + identity + token
        length = len(text)
        further = -(-(length - _ROOM) // _MORE) if length > _ROOM else 0
        if length > LONGEST or (len(self._free) <= further and not self._grow(1 + further)):
            self._left_out.add(lease)
            return False
        slot, following = self._free.pop(), 0
        if further:
            slots = [self._free.pop() for _ in range(further)]
            following = self._write_chain(slots, text[_ROOM:])
            self._chains[slot] = slots
            text_here = text[:_ROOM]
        else:
            text_here = text
        self._places[lease] = slot
        self._generation = generation = self._generation + 1
        facts = _FACTS.pack(held.since, held.ttl, held.renew, len(queue), len(identity), len(token))
        head = _HEAD.pack(0, following, crc32(text, crc32(facts, generation)), 0.0)
        memory, start = self._mapped, _FIRST + slot * _SIZE
        memory[start : start + _TEXT + len(text_here)] = head + facts + text_here
        _GENERATION.pack_into(memory, start, generation)
        return True

    def _write_chain(self, slots: list[int], text: bytes) -> int:
        """Write the rest of an entry, last slot first; returns the link for the first slot."""
        following = 0
        for number in range(len(slots) - 1, -1, -1):
            part = text[number * _MORE : (number + 1) * _MORE]
            start = _at(slots[number])
            self._mapped[start : start + _LINK.size + len(part)] = _LINK.pack(0, following) + part
            following = slots[number] + 1
        return following

    def drop(self, lease: Lease) -> None:
        """The lease is no longer held."""
        if self._remove(lease):
            self._ended += 1
            _ENDED.pack_into(self._mapped, _ENDED_AT, self._ended)  # the process may crash before the next tick

    def tick(self, now: float, late: float) -> None:
        """The loop is alive."""
        _WORKER.pack_into(self._mapped, 0, now, late, self._ended, len(self._places) + len(self._left_out))

    def renewed(self, lease: Lease) -> float:
        """When the supervisor last renewed this lease; 0 if never."""
        slot = self._places.get(lease)
        return 0.0 if slot is None else float(_RENEWED.unpack_from(self._mapped, _at(slot) + _RENEWED_AT)[0])

    @property
    def urgency(self) -> int:
        """How urgently the supervisor wants the worker to stop; 0 if not at all."""
        return int(_URGENCY.unpack_from(self._mapped, _URGENCY_AT)[0])

    # the supervisor's side

    def renew(self, lease: Lease, at: float) -> None:
        """The lease was renewed at this time; nothing happens if it is no longer here."""
        slot, generation = self._read_at.get(lease, (0, 0))
        memory = self._memory
        if generation and memory is not None and _GENERATION.unpack_from(memory, _at(slot))[0] == generation:
            _RENEWED.pack_into(memory, _at(slot) + _RENEWED_AT, at)

    def stop(self, urgency: int) -> None:
        """Ask the worker to stop. It reads this when it gets a signal, so an early or repeated signal is not mistaken
        for another request."""
        _URGENCY.pack_into(self._mapped, _URGENCY_AT, max(urgency, self.urgency))

    @property
    def ticked(self) -> float:
        """When the loop last ticked; 0 before it first did."""
        return float(self._header[0])

    @property
    def late(self) -> float:
        """How late the last tick was, in seconds: how long handlers kept the loop busy."""
        return float(self._header[1])

    @property
    def ended(self) -> int:
        return int(self._header[2])

    @property
    def running(self) -> int:
        return int(self._header[3])

    def held(self) -> list[LeaseEntry]:
        """Every readable entry. Unchanged entries are not read again; malformed ones are left out, and listed in
        `unreadable`."""
        size = os.fstat(self._descriptor).st_size
        if size > self._size:
            self._map(size)
        found, self.unreadable = [], {}
        for slot in range(self.slots):
            generation = _GENERATION.unpack_from(self._mapped, _at(slot))[0]
            if not generation:
                continue
            known = self._known.get(slot)
            if known is None or known[0] != generation:
                entry = self._read(slot, generation)
                if entry is None:
                    if _GENERATION.unpack_from(self._mapped, _at(slot))[0] == generation:
                        self.unreadable[slot] = generation
                    continue  # otherwise it was changed meanwhile, and the next read sees it
                if known is not None:
                    self._read_at.pop(known[1].lease, None)
                known = self._known[slot] = (generation, entry)
                self._read_at[entry.lease] = (slot, generation)
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
    def _header(self) -> tuple[float, float, int, int]:
        when, late, ended, held = _WORKER.unpack_from(self._mapped)
        return when, late, ended, held

    def _read(self, slot: int, generation: int) -> LeaseEntry | None:
        memory, start = self._mapped, _at(slot)
        _, following, checksum, _ = _HEAD.unpack_from(memory, start)
        facts = memory[start + _HEAD.size : start + _TEXT]
        since, ttl, renew, queue, identity, token = _FACTS.unpack(facts)
        length = queue + identity + token
        if length > LONGEST:
            return None
        text = memory[start + _TEXT : start + _TEXT + min(length, _ROOM)]
        while len(text) < length:
            if not 0 < following <= self.slots:
                return None
            start = _at(following - 1)
            _, following = _LINK.unpack_from(memory, start)
            text += memory[start + _LINK.size : start + _LINK.size + min(length - len(text), _MORE)]
        if crc32(text, crc32(facts, generation)) != checksum:
            return None
        names = (text[:queue], text[queue : queue + identity], text[queue + identity :])
        try:
            lease = Lease(*(name.decode(errors=_ANY_TEXT) for name in names))
        except UnicodeDecodeError:
            return None
        return LeaseEntry(lease, since, ttl, renew)

    def _remove(self, lease: Lease) -> bool:
        """False if it was not held."""
        slot = self._places.pop(lease, None)
        if slot is None:
            held = lease in self._left_out
            self._left_out.discard(lease)
            return held
        _GENERATION.pack_into(self._mapped, _FIRST + slot * _SIZE, 0)
        self._free.append(slot)
        if slot in self._chains:
            self._free.extend(self._chains.pop(slot))
        return True

    def _grow(self, wanted: int) -> bool:
        """Make room for this many free slots. False if there cannot be so many."""
        missing = wanted - len(self._free)
        before = self.slots
        most = (self._largest - _FIRST) // _SIZE - before
        if missing > most:
            return False
        try:
            self._map(_at(before + min(max(before, missing), most)))
        except OSError:
            return False
        self._free[:0] = range(self.slots - 1, before - 1, -1)
        return True

    def _map(self, size: int) -> None:
        if os.fstat(self._descriptor).st_size < size:
            os.ftruncate(self._descriptor, size)
        # The old mapping is not closed: another thread may be writing to it, and that reaches the same memory.
        self._memory, self._size = mmap.mmap(self._descriptor, size), size


def _at(slot: int) -> int:
    return _FIRST + slot * _SIZE
