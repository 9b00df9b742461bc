"""The table of leases in shared memory, against a model of it: any names, any order, and a look at any moment."""

import os
import random
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType, ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.planting import planted
from toril.model import Lease
from toril.worker import lease_table as real

MODULE = "toril.worker.lease_table"
LENGTHS = (0, 1, 36, 100, 240, 255, 256, 700, 768, 2_000)
LETTERS = ("a", "\0", "é", "\n", "😀", "\udc80", '"')


class Wrong(AssertionError):
    """The reader saw what was never held, or did not see what was."""


@contextmanager
def tables(module: ModuleType, **options: int) -> Iterator[tuple[Any, Any]]:
    """The writer's and the reader's view of one table."""
    memory = real.new_memory()
    writer, reader = module.LeaseTable(memory, 2, **options), module.LeaseTable(memory, 2, **options)
    try:
        yield writer, reader
    finally:
        writer.close()
        reader.close()
        os.close(memory)


def entry(module: ModuleType, chance: random.Random, number: int) -> Any:
    name = chance.choice(LETTERS) * chance.choice(LENGTHS) + str(number)
    lease = Lease("q" * chance.choice((1, 30)), name, f"token-{number}")
    return module.LeaseEntry(lease, float(number), chance.choice((1_000, 86_400_000 * 60)), 500)


@contextmanager
def at_each_line(of: tuple[str, ...], act: Callable[[], None]) -> Iterator[None]:
    """Call `act` before each line that these functions of the table run, as another process might run then."""
    inside = False

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal inside
        if inside or not frame.f_code.co_filename.endswith("table.py") or frame.f_code.co_name not in of:
            return None
        if event == "line":
            inside = True
            try:
                act()
            finally:
                inside = False
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        yield
    finally:
        sys.settrace(before)


def looked_at_any_moment(module: ModuleType, seed: int, steps: int = 25) -> None:
    """Entries come and go. At each line of the writer the reader sees those that are there throughout, and no others
    but the one that comes or goes."""
    chance = random.Random(seed)
    with tables(module) as (writer, reader):
        held: dict[Lease, Any] = {}

        def check(comes_or_goes: Any = None) -> None:
            seen = {each.lease: each for each in reader.held()}
            for lease, wanted in held.items():
                if wanted is not comes_or_goes and seen.get(lease) != wanted:
                    raise Wrong("an entry is not seen as it was written")
            strangers = seen.keys() - held.keys() - ({comes_or_goes.lease} if comes_or_goes else set())
            if strangers:
                raise Wrong("an entry is seen that is not held")
            if comes_or_goes is not None and seen.get(comes_or_goes.lease, comes_or_goes) != comes_or_goes:
                raise Wrong("half an entry is taken for a whole one")
            if reader.unreadable:
                raise Wrong("an entry cannot be read")

        for number in range(1, steps + 1):
            if held and chance.random() < 0.4:
                going = held[chance.choice(list(held))]
                with at_each_line(("drop", "_remove"), lambda going=going: check(going)):  # type: ignore[misc]
                    writer.drop(going.lease)
                del held[going.lease]
            else:
                coming = entry(module, chance, number)
                with at_each_line(("put", "_write_chain"), lambda coming=coming: check(coming)):  # type: ignore[misc]
                    assert writer.put(coming)
                held[coming.lease] = coming
            check()


def slots_are_used_again(module: ModuleType, seed: int) -> None:
    """However many entries come and go, the table grows only with how many there are at once."""
    chance = random.Random(seed)
    with tables(module) as (writer, _):
        for number in range(1, 200):
            coming = entry(module, chance, number)
            writer.put(coming)
            writer.drop(coming.lease)
        if writer.slots > 64:
            raise Wrong("slots of entries that went are not used again")


def written_while_it_is_read(module: ModuleType, seed: int, rounds: int = 40) -> None:
    """The writer goes on at a random line of the reader, which then sees each entry whole or not at all."""
    chance = random.Random(seed)
    with tables(module) as (writer, reader):
        ever: dict[Lease, Any] = {}
        held: list[Any] = []
        numbers = count(1)

        def write() -> None:
            if chance.random() < 0.05:
                for going in held:
                    writer.drop(going.lease)
                held.clear()
                for _ in range(3):
                    coming = entry(module, chance, next(numbers))
                    ever[coming.lease] = coming
                    held.append(coming)
                    writer.put(coming)

        writer.put(first := entry(module, chance, next(numbers)))
        ever[first.lease] = first
        held.append(first)
        for _ in range(rounds):
            with at_each_line(("_read",), write):
                seen = reader.held()
            for each in seen:
                if ever.get(each.lease) != each:
                    raise Wrong("what was read was never written")
        if {each.lease for each in reader.held()} != {each.lease for each in held}:
            raise Wrong("an entry is seen that is not held, or one that is held is not seen")


def renewals_reach_their_own_entry(module: ModuleType, seed: int) -> None:
    """What the supervisor writes about a lease that has gone meanwhile does not reach the entry in its place."""
    with tables(module) as (writer, reader):
        old, new = (module.LeaseEntry(Lease("q", f"{seed}-{number}", "t"), 1.0, 1000, 500) for number in (1, 2))
        writer.put(old)
        reader.held()
        reader.renew(old.lease, 7.0)
        if writer.renewed(old.lease) != 7.0:
            raise Wrong("a renewal is not seen")
        writer.drop(old.lease)
        writer.put(new)
        reader.renew(old.lease, 9.0)
        if writer.renewed(new.lease) != 0.0:
            raise Wrong("the renewal of another lease is taken for its own")


def damage_is_left_out(module: ModuleType, seed: int) -> None:
    """Bytes that were overwritten by mistake cost the entries that they belong to, and no other."""
    chance = random.Random(seed)
    with tables(module) as (writer, reader):
        entries = [entry(module, chance, number) for number in range(1, 9)]
        for each in entries:
            writer.put(each)
        known = {each.lease: each for each in entries}
        spoiled = chance.randrange(128, 128 + 256 * writer.slots)
        if seed % 2 and writer._chains:  # of these bytes four say where a chain goes on
            spoiled = 128 + 256 * chance.choice(list(writer._chains)) + chance.randrange(8, 12)
        writer._memory[spoiled] ^= 1 << chance.randrange(8)
        seen = reader.held()
        if any(known.get(each.lease) != each for each in seen):
            raise Wrong("a damaged entry is taken for a whole one")
        if len(seen) < len(entries) - 1:
            raise Wrong("one damaged byte costs several entries")


CHECKS: tuple[tuple[Callable[[ModuleType, int], None], int], ...] = (
    (looked_at_any_moment, 3), (written_while_it_is_read, 3), (renewals_reach_their_own_entry, 1),
    (damage_is_left_out, 60), (slots_are_used_again, 1),
)  # fmt: skip


@pytest.mark.parametrize(("check", "seeds"), CHECKS)
def test_the_supervisor_sees_what_is_held_and_nothing_else(
    check: Callable[[ModuleType, int], None], seeds: int
) -> None:
    for seed in range(seeds):
        check(real, seed)


BUGS = {
    "an entry may run over the next one": (
        "further = -(-(length - _ROOM) // _MORE) if length > _ROOM else 0", "further = 0",
    ),
    "a chain is followed out of the table": ("if not 0 < following <= self.slots:", "if following == 0:"),
    "the checksum is not looked at": ("!= checksum:", "is None:"),
    "an entry that goes stays in the table": (
        "_GENERATION.pack_into(self._mapped, _FIRST + slot * _SIZE, 0)", "pass",
    ),
    "slots of long entries are never free again": (
        "self._free.extend(self._chains.pop(slot))", "self._chains.pop(slot)",
    ),
    "an entry is given back before it is cleared": (
        "        _GENERATION.pack_into(self._mapped, _FIRST + slot * _SIZE, 0)\n        self._free.append(slot)\n",
        "        self._free.append(slot)\n",
    ),
    "a renewal is written to whoever has the slot": (
        "and _GENERATION.unpack_from(memory, _at(slot))[0] == generation:", "and slot >= 0:",
    ),
    "a table that has grown is not mapped anew": ("if size > self._size:", "if size < 0:"),
    "an entry that is known is believed for ever": (
        "if known is None or known[0] != generation:", "if known is None:",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_that_is_planted_in_the_table_is_found(bug: str) -> None:
    module = planted(MODULE, *BUGS[bug])

    assert any(_finds(check, module, seed) for check, seeds in CHECKS for seed in range(seeds))


def _finds(check: Callable[[ModuleType, int], None], module: ModuleType, seed: int) -> bool:
    try:
        check(module, seed)
    except (Wrong, ValueError, IndexError, struct.error):  # the others are what a supervisor would have died of
        return True
    return False


@given(st.text(st.characters(), max_size=300), st.integers(1, 400 * 86_400_000), st.integers(1, 10**9))
@settings(max_examples=60, deadline=None)
def test_any_id_and_any_length_of_a_lease_come_back_as_they_were(identity: str, ttl: int, renew: int) -> None:
    held = real.LeaseEntry(Lease("q", identity, "t"), 1.5, ttl, renew)
    with tables(real) as (writer, reader):
        assert writer.put(held)
        assert reader.held() == [held]


def test_what_does_not_fit_is_refused_and_costs_nobody_else() -> None:
    small = real.LeaseEntry(Lease("q", "1", "t"), 1.0, 1000, 500)
    with tables(real, largest=4096) as (writer, reader):
        assert writer.put(small)
        assert not writer.put(real.LeaseEntry(Lease("q", "x" * (real.LONGEST + 1), "t"), 1.0, 1000, 500))
        assert not writer.put(real.LeaseEntry(Lease("q", "x" * 4000, "t"), 1.0, 1000, 500))
        assert reader.held() == [small]
        writer.tick(3.0, 0.0)
        assert reader.running == 3  # all of them are running, also those that the supervisor does not know
