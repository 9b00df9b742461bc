"""What a seed stands for: the fleet, the jobs, the terms and the faults of one simulation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tests.sim.clock import stream
from tests.sim.faults import Fate, Fault, draw_mix, draw_rough
from tests.sim.script import QUEUE, Kind, draw_weights

__all__ = ["GROUPED", "POSTED", "QUEUE", "ROUGH_FROM", "AnyPlan", "Plan", "SmallPlan", "StruckCall", "Terms"]

GROUPED = 5_000  # from this seed on jobs are of groups, of which one runs at a time
POSTED, POSTED_TO = 9_000, 9_900  # of these seeds the supervisor's rules say when a dead worker is replaced
ROUGH_FROM, ROUGH_TO = 8_000, 9_000  # seeds of rough weather: clocks jump, and connections go one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a worker works. The lease is in milliseconds, the grace in seconds."""

    slots: int = 1
    lease: int = 3000
    max_stalls: int = 1
    grace: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is drawn beforehand. Times are seconds, where they are not said to be milliseconds."""

    seed: int
    workers: int
    producers: int
    jobs: int
    terms: Terms
    concurrency: int | None
    storm: float
    patience: float
    mix: dict[Fault, float]
    weights: Mapping[Kind, float]
    operator: bool
    supervised: bool
    skew: int
    farewell: Literal["none", "stop", "force", "order"]
    impatient: bool = False  # the operator cancels more than anything else, and often
    clerk: bool = False
    grouped: bool = False
    posted: bool = False
    unfit: float = 0.0  # for so long no worker process can start
    look_every: int = 8  # effects between two looks into the whole store
    healthy: frozenset[str] = frozenset()  # processes that nothing befalls: they must get on while the others suffer
    late_jobs: int = 0  # that are added when the faults are over and every worker rests
    crowd_size: int | None = None  # ended jobs from which a worker exchanges on both connections; None: its own default

    @classmethod
    def lively(cls, seed: int) -> "Plan":
        """Two workers of three and all producers are spared. What needs no person must end while the storm lasts."""
        drawn = cls.draw(seed)
        hard = dict.fromkeys((Fault.RESTART, Fault.STORE_CLOCK), 0.0)  # they would befall all
        return replace(
            drawn, workers=3, jobs=60, storm=180.0, operator=False, clerk=False, concurrency=None, farewell="none",
            mix=drawn.mix | {Fault.KILL: 0.6, Fault.PAUSE: 0.6, Fault.CUT: 0.6} | hard,
            weights={Kind.QUICK: 2, Kind.LONG: 2, Kind.FLAKY: 1}, healthy=frozenset({"w0", "w1", "p0", "p1"}),
        )  # fmt: skip

    def with_groups(self) -> "Plan":
        """Jobs belong to groups, of which one job runs at a time."""
        return replace(self, grouped=True)

    def with_rough_weather(self) -> "Plan":
        """Clocks jump, and connections go one by one."""
        return replace(self, mix=self.mix | draw_rough(stream(self.seed, "rough")))

    def with_two_lanes(self) -> "Plan":
        """A worker exchanges on both of its connections as soon as one job has ended."""
        terms = replace(self.terms, slots=6)
        return replace(self, jobs=60, workers=min(self.workers, 2), terms=terms, crowd_size=1)

    def with_posts(self) -> "Plan":
        """Supervised workers that are killed again and again, often before they have done anything."""
        chance = stream(self.seed, "posts")
        harder = {Fault.KILL: chance.choice((0.3, 0.8, 2.0)), Fault.STOP: chance.choice((1.0, 4.0))}
        return replace(
            self, workers=chance.choice((1, 2, 3)), jobs=chance.randint(10, 30), storm=40.0, mix=self.mix | harder,
            supervised=True, posted=True,
        )  # fmt: skip

    def with_long_jobs(self) -> "Plan":
        """Jobs that run for long, some of them past their timeout, beside some that bring their process down. An
        operator interferes, and connections are cut for longer than a lease. When all jobs have ended, more are added.
        """
        chance = stream(self.seed, "long jobs")
        stalls = chance.choice((1, 2))
        terms = replace(
            self.terms, slots=chance.choice((1, 2, 2, 4)), lease=chance.choice((1000, 3000)), max_stalls=stalls
        )
        faults = {
            Fault.LOST_REQUEST: chance.choice((0.0, 0.01, 0.06)), Fault.LOST_REPLY: chance.choice((0.0, 0.01, 0.06)),
            Fault.CRASH_POINT: 0.0, Fault.KILL: chance.choice((0.0, 6.0)), Fault.PAUSE: chance.choice((0.0, 0.0, 2.0)),
            Fault.CUT: chance.choice((0.6, 2.0, 6.0)), Fault.RESTART: chance.choice((0.0, 6.0)), Fault.STOP: 0.0,
        }  # fmt: skip
        weights = {
            Kind.QUICK: 2, Kind.LONG: chance.choice((2, 8)), Kind.MARATHON: chance.choice((3, 8)), Kind.FLAKY: 1,
            Kind.FATAL: 2, Kind.SCARE: chance.choice((0.5, 2)), Kind.DEAF: 1.5,
        }  # fmt: skip
        return replace(
            self, workers=chance.choice((1, 2, 2, 3)), jobs=chance.randint(8, 16), late_jobs=chance.randint(4, 16),
            terms=terms, storm=chance.uniform(4, 12), mix=self.mix | faults, weights=weights,
            operator=True, clerk=chance.random() < 0.8, concurrency=None,
        )  # fmt: skip

    def with_full_slots(self) -> "Plan":
        """More long jobs than there are slots, so that a worker hears of a suspect while it can do nothing about it."""
        plan = self.with_long_jobs()
        return replace(
            plan, workers=2, jobs=24, late_jobs=16, storm=2 * plan.storm, terms=replace(plan.terms, slots=2),
            mix=plan.mix | {Fault.CUT: 0.0}, operator=self.operator,
            weights={Kind.MARATHON: 8, Kind.SCARE: 2, Kind.QUICK: 1},
        )  # fmt: skip

    def with_pauses(self) -> "Plan":
        """Processes stand still or are cut off for longer than their leases, and others have room to take over; the
        store goes away for some time, for all of them."""
        chance = stream(self.seed, "pauses")
        terms = replace(self.terms, slots=chance.choice((1, 2, 4)), lease=1000, max_stalls=chance.choice((1, 2)))
        faults = {
            Fault.CRASH_POINT: 0.0, Fault.KILL: 0.0, Fault.PAUSE: chance.choice((0.6, 1.2)),
            Fault.CUT: chance.choice((0.6, 1.2)), Fault.RESTART: chance.choice((0.0, 2.0)), Fault.STOP: 0.0,
        }  # fmt: skip
        weights = {Kind.QUICK: chance.choice((1, 4)), Kind.LONG: 4, Kind.FATAL: 2, Kind.BLOCKS: 8}
        return replace(
            self, workers=chance.choice((4, 6)), jobs=chance.randint(14, 24), late_jobs=chance.randint(6, 12),
            terms=terms, storm=chance.uniform(12, 24), mix=self.mix | faults, weights=weights,
            operator=False, clerk=chance.random() < 0.8, concurrency=None,
        )  # fmt: skip

    def with_late_wishes(self) -> "Plan":
        """Running jobs are asked to stop while their process is held up, and end to run again before they hear it."""
        plan = self.with_pauses()
        return replace(
            plan, operator=True, impatient=True, workers=2, jobs=40, late_jobs=0,
            terms=replace(plan.terms, slots=4, lease=3000),
            mix=plan.mix | {Fault.CUT: 0.0, Fault.PAUSE: 0.6},
            weights={Kind.BLOCKS: 3, Kind.FLAKY: 8, Kind.SNOOZES: 8},
        )  # fmt: skip

    @classmethod
    def crowd(cls, seed: int) -> "Plan":
        """Many short jobs for a few large workers. What a person would do to single jobs is for the other seeds."""
        drawn = cls.draw(seed)
        few = {Kind.QUICK: 90, Kind.FLAKY: 6, Kind.FATAL: 1, Kind.SNOOZES: 2, Kind.GIVEN_BACK: 1}
        return replace(
            drawn, workers=4, producers=4, jobs=1000, storm=40.0, operator=False, clerk=False, concurrency=None,
            weights=few, terms=replace(drawn.terms, slots=16, max_stalls=100), look_every=800,
        )  # fmt: skip

    @classmethod
    def draw(cls, seed: int) -> "Plan":
        chance = stream(seed, "plan")
        rough = draw_rough(stream(seed, "rough")) if ROUGH_FROM <= seed < ROUGH_TO else {}
        terms = Terms(
            slots=chance.choice((1, 2, 4)),
            lease=chance.choice((1000, 3000, 3000, 10_000)),
            max_stalls=chance.choice((0, 1, 1, 1, 2)),
            grace=chance.choice((0.2, 2.0, 10.0)),
        )
        drawn = cls(
            seed=seed,
            workers=chance.choice((1, 1, 2, 2, 3, 5)),
            producers=chance.choice((1, 1, 2)),
            jobs=chance.randint(6, 18),
            terms=terms,
            concurrency=chance.choice((None, None, None, None, 1, 3)),
            storm=chance.uniform(2, 4 + terms.lease / 1000),
            patience=chance.choice((0.1, 0.5)),
            mix=draw_mix(chance) | rough,
            weights=draw_weights(chance),
            operator=chance.random() < 0.6,
            supervised=chance.random() < 0.5,
            skew=chance.choice((0, 0, -7_200_000, 7_200_000)),
            farewell=chance.choice(("none", "stop", "stop", "force", "order")),
            grouped=GROUPED <= seed < ROUGH_FROM,
            clerk=seed % 10 in {5, 6},  # not drawn: the others stay as they are known
        )
        return drawn.with_posts() if POSTED <= seed < POSTED_TO else drawn


@dataclass(frozen=True, slots=True)
class StruckCall:
    """What becomes of one call of the first worker, counted from 0 among those that change jobs or schedules."""

    at: int
    fate: Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallPlan:
    """What a seed stands for in the worlds of schedules, flows and circuit breakers. Times are seconds."""

    seed: int
    workers: int
    terms: Terms
    storm: float
    patience: float
    mix: dict[Fault, float]
    skew: int = 0
    meddler: bool = False
    rest: float = 5.0
    tasks: int = 14
    struck_call: StruckCall | None = None  # in place of the mix: nothing else befalls any call

    @classmethod
    def calm(cls) -> "SmallPlan":
        """A short day on which nothing happens by itself."""
        none = dict.fromkeys(Fault, 0.0)
        terms = Terms(slots=4, lease=600, max_stalls=1, grace=3.0)
        return cls(seed=0, workers=1, terms=terms, storm=1.2, patience=0.1, mix=none, rest=2.0, tasks=4)

    @classmethod
    def draw(cls, seed: int) -> "SmallPlan":
        chance = stream(seed, "agenda")
        lease = chance.choice((1000, 2000, 3000))
        return cls(
            seed=seed,
            workers=chance.choice((1, 2, 2, 3)),
            terms=Terms(slots=chance.choice((2, 4)), lease=lease, max_stalls=chance.choice((0, 1, 2)), grace=3.0),
            storm=chance.uniform(2, 5),
            patience=chance.choice((0.1, 0.5)),
            mix=draw_mix(chance),
            skew=chance.choice((0, 0, -7_200_000, 7_200_000)),
            meddler=chance.random() < 0.6,
        )

    def with_rough_weather(self) -> "SmallPlan":
        """Clocks jump, and connections go one by one."""
        return replace(self, mix=self.mix | draw_rough(stream(self.seed, "rough")))

    def with_slow_calls(self) -> "SmallPlan":
        """Calls take so long that jobs stall, and that what a process knew is no longer so when it acts on it."""
        chance = stream(self.seed, "slow calls")
        return replace(
            self, workers=4, storm=chance.uniform(10, 16), mix=self.mix | {Fault.SLOW: 0.2},
            terms=replace(self.terms, lease=1000, max_stalls=2),
        )  # fmt: skip


AnyPlan = Plan | SmallPlan
