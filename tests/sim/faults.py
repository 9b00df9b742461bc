"""What can go wrong, how often, and what becomes of one call."""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, Protocol

__all__ = ["CALM", "KIND", "ROUGH", "Fate", "Fault", "Point", "Storm", "Weather", "draw_mix", "draw_rough"]


class Fault(StrEnum):
    """The kinds of fault. The first five befall a call, the others a process, a connection or the store; the last
    three only seeds that ask for rough weather, so that the others stay as they are known."""

    LOST_REQUEST = "lost request"
    LOST_REPLY = "lost reply"
    LATE_REQUEST = "late request"
    SLOW = "slow"
    CRASH_POINT = "crash at a point"
    KILL = "kill"
    PAUSE = "pause"
    CUT = "cut connection"
    RESTART = "store restart"
    STOP = "graceful stop"
    SWIZZLE = "swizzle of connections"
    WALL_CLOCK = "wall clock step"
    STORE_CLOCK = "store clock jump"


KIND: Final = "kind of fault: "  # before the name by which a fault is counted once more, and more exactly
PER_CALL: Final = frozenset(list(Fault)[:5])
ROUGH: Final = (Fault.SWIZZLE, Fault.WALL_CLOCK, Fault.STORE_CLOCK)

# Nothing, a little, much, a storm: the share of calls, and the mean seconds between two faults of a kind.
_SHARES: Final = (0.0, 0.01, 0.06, 0.25)
_GAPS: Final = (0.0, 6.0, 2.0, 0.6)
_LEVELS: Final = (9, 5, 4, 2)  # how many seeds of twenty have which level of a kind
_RESTS: Final = frozenset({"wait", "finished", "health"})  # calls without an effect


def draw_mix(chance: random.Random) -> dict[Fault, float]:
    """Which faults this seed has and how often. Mixes differ: some bugs hide behind a fault that is always there."""
    mix = dict.fromkeys(Fault, 0.0)
    for fault in (fault for fault in Fault if fault not in ROUGH):
        (level,) = chance.choices(range(4), _LEVELS)
        mix[fault] = (_SHARES if fault in PER_CALL else _GAPS)[level]
    mix[Fault.CRASH_POINT] /= 5  # a dead process makes no further calls, which the other faults need
    return mix


def draw_rough(chance: random.Random) -> dict[Fault, float]:
    """The faults of rough weather, at least one of them."""
    chosen = chance.sample(ROUGH, chance.randint(1, len(ROUGH)))
    return {fault: chance.choice(_GAPS[1:]) for fault in chosen}


class Point(StrEnum):
    """Where within a call its sender may die."""

    BEFORE_SEND = "before send"
    AFTER_EFFECT = "after effect"
    AFTER_REPLY = "after reply"


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one call. Times are seconds on the way to the store and back.

    `late` is how long after it was given up a request still arrives; `outlives` says that a request under way
    arrives although its sender has died.
    """

    request: float = 0.0
    reply: float = 0.0
    lost: Literal["nothing", "request", "reply"] = "nothing"
    late: float | None = None
    crash: Point | None = None
    outlives: bool = True


CALM: Final = Fate()


class Weather(Protocol):
    """Decides over calls. `patience` is how many seconds a caller waits for an answer."""

    patience: float

    def fate(self, node: str, what: str) -> Fate: ...


class Storm:
    """Seeded faults, until it is over."""

    def __init__(
        self, chance: random.Random, mix: Mapping[Fault, float], *, patience: float, lateness: float,
        spared: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self.patience = patience
        self._spared = spared
        self.over = False
        self.tally: Counter[str] = Counter()
        self._chance = chance
        self._mix = mix
        self._lateness = lateness
        self._cut: dict[str, Literal["request", "reply"]] = {}

    def fate(self, node: str, what: str) -> Fate:
        """Every call draws equally often, so that one fault more or less does not change all that follow."""
        draws = [self._chance.random() for _ in range(9)]
        request, reply = 0.0005 + draws[0] * 0.01, 0.0005 + draws[1] * 0.01
        if self.over or node.partition(".")[0] in self._spared:
            return Fate(request, reply)
        if node in self._cut:
            return Fate(request, reply, lost=self._cut[node])
        if draws[2] < self._mix[Fault.SLOW]:
            self.tally[Fault.SLOW] += 1
            self.tally[f"{KIND}slow call"] += 1
            request, reply = request + draws[7] * 0.4, reply + draws[8] * 0.4
        outlives = draws[6] < 0.5
        fault = self._strikes(draws[3], draws[4])
        if what in _RESTS and fault in {Fault.LATE_REQUEST, Fault.CRASH_POINT}:
            fault = None  # nothing to take effect late, nothing to die within
        point = list(Point)[int(draws[5] * 3)]
        if fault is not None:
            self.tally[fault] += 1
            self.tally[KIND + (f"death {point}" if fault is Fault.CRASH_POINT else fault)] += 1
        match fault:
            case Fault.LOST_REQUEST:
                return Fate(request, reply, lost="request", outlives=outlives)
            case Fault.LOST_REPLY:
                return Fate(request, reply, lost="reply", outlives=outlives)
            case Fault.LATE_REQUEST:
                return Fate(request, reply, late=draws[5] * self._lateness, outlives=outlives)
            case Fault.CRASH_POINT:
                return Fate(request, reply, crash=point, outlives=outlives)
            case _:
                return Fate(request, reply, outlives=outlives)

    def _strikes(self, draw: float, crash: float) -> Fault | None:
        if crash < self._mix[Fault.CRASH_POINT]:
            return Fault.CRASH_POINT
        for fault in (Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.LATE_REQUEST):
            if draw < self._mix[fault]:
                return fault
            draw -= self._mix[fault]
        return None

    def cut(self, node: str, way: Literal["request", "reply"]) -> None:
        """Nothing gets through from this node, or to it."""
        self._cut[node] = way

    def mend(self, node: str) -> None:
        self._cut.pop(node, None)

    def end(self) -> None:
        self.over = True
        self._cut.clear()
