"""Bugs to plant in the scripts of Redis: the file, what it says, what it says instead, and a seed that finds it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.sim.mutants import Unplantable
from toril.engines.redis import scripts

__all__ = ["FLEET_BUGS", "FLOW_BUGS", "Edit", "planted_in"]


@dataclass(frozen=True, slots=True)
class Edit:
    """A few words of a script that are changed."""

    file: str
    right: str
    wrong: str
    seed: int
    row: str


@contextmanager
def planted_in(edit: Edit) -> Iterator[None]:
    """The scripts say something else meanwhile."""
    read: Callable[[str], str] = scripts._read
    text = read(edit.file)
    if edit.right not in text:
        raise Unplantable(f"{edit.file} no longer says {edit.right!r}")
    edited = text.replace(edit.right, edit.wrong)

    def changed(path: str) -> str:
        return edited if path == edit.file else read(path)

    scripts._read = changed  # type: ignore[assignment]
    _forget()
    try:
        for name in scripts.scripts():
            scripts.script(name)  # what cannot be put together is no bug that a simulation could find
        yield
    finally:
        scripts._read = read  # type: ignore[assignment]
        _forget()


def _forget() -> None:
    """What was assembled is read anew."""
    scripts.assembler.cache_clear()
    scripts.script.cache_clear()


FLEET_BUGS: dict[str, Edit] = {
    "anyone settles": Edit("lib/leases.lua", "locks[i] == tokens[i] and", "locks[i] and", 22, "I4"),
    "a lease has no end": Edit("lib/leases.lua", "and tonumber(deadlines[i]) > now", "", 18, "I4"),
    "calls are forgotten": Edit("lib/calls.lua", "if before < seq then", "if true then", 1, "G2"),
    "late calls are heard": Edit(
        "lib/calls.lua", "return redis.error_reply('TORILLATE ' .. before)", "return nil", 1, "G2"
    ),
    "recovery takes live leases": Edit("recover.lua", "'-inf', now, 'LIMIT'", "'-inf', now + 60000, 'LIMIT'", 0, "I1"),
    "recovery leaves the job active": Edit(
        "recover.lua", "if ours and call('LREM', P .. K.active, -1, id) > 0", "if ours", 1, "I1"
    ),
    "a settled job stays active": Edit("lib/settle.lua", "line.leave_active(ids, line.running)", "", 0, "I1"),
    "a retry is not counted": Edit("lib/settle.lua", "job.made + 1, unpack", "job.made, unpack", 0, "I6"),
    "a retry comes at once": Edit("lib/settle.lua", "line.delay(id, now + delay)", "line.delay(id, now)", 1, "I1"),
    "a wish to stop is forgotten": Edit("lib/settle.lua", "if job.cancelling and", "if false and", 47, "I15"),
    "a stall is not counted": Edit("recover.lua", "(f[5]) or 0) + 1", "(f[5]) or 0)", 1, "I6"),
    "a failed job is gone": Edit(
        "lib/finish.lua", "    dead_letters.add(id, job, cause, shown, fields)\n", "", 0, "letters"
    ),
    "a replayed job is a letter too": Edit(
        "lib/replay.lua", "call('ZREM', dead_letters.base .. K.letters, letter)", "", 56, "I1"
    ),
    "a suspect is like any other": Edit("recover.lua", "P .. K.suspects, call", "P .. 'x', call", 1, "G6"),
}  # fmt: skip

FLOW_BUGS: dict[str, Edit] = {
    "the first child lets its parent go": Edit(
        "lib/parents.lua", "K.dependencies) == 0 then parents", "K.toril) then parents", 0, "I12"
    ),
    "a parent runs that should fail": Edit(
        "lib/parents.lua", "try('HSET', link.key, F.deferred, reason, F.delay, 0)", "", 0, "I12"
    ),
}
