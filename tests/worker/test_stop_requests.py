"""How urgently a worker process and its supervisor stop: signals to one of them or to the group, in any order."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from signal import SIGINT, SIGTERM
from types import ModuleType
from typing import Any

import pytest

from tests.worker.planting import planted
from toril.runtime import stop_requests as real

MODULE = "toril.runtime.stop_requests"


@dataclass
class Group:
    """A supervisor and its worker process. Signals arrive when they like; the supervisor passes on what it decides, by
    the memory that both share and a signal of its own."""

    module: ModuleType
    chance: random.Random
    now: float = 0.0
    memory: int = 0
    under_way: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.supervisor: Any = self.module.StopRequests()
        self.worker: Any = self.module.StopRequests(supervised=True)

    def send(self, number: int, *, group: bool) -> None:
        self.under_way.append(("supervisor", number))
        if group:
            self.under_way.append(("worker", number))

    def deliver(self) -> None:
        """All that is under way arrives, in any order and within a moment."""
        while self.under_way:
            whom, number = self.under_way.pop(self.chance.randrange(len(self.under_way)))
            self.now += self.chance.choice((0.0, 0.001, 0.01))
            if whom == "worker":
                self.worker.signalled(number, self.now, self.memory)
                continue
            before = self.supervisor.urgency
            after = self.supervisor.signalled(number, self.now)
            if after != before:
                self.memory = max(self.memory, int(after))
                self.under_way.append(("worker", SIGTERM))

    @property
    def urgencies(self) -> tuple[int, int]:
        return int(self.supervisor.urgency), int(self.worker.urgency)


def each_request_counts_once(module: ModuleType, chance: random.Random) -> None:
    """A person interrupts up to three times, with seconds between: both sides are as urgent as that."""
    group = Group(module, chance)
    for times in (1, 2, 3):
        number = chance.choice((SIGTERM, SIGINT))
        group.send(number, group=chance.random() < 0.7)
        if chance.random() < 0.3:  # `timeout` signals its child, and then the group
            group.send(number, group=True)
        if number == SIGINT and chance.random() < 0.3:  # a process manager passes it on
            group.send(SIGTERM, group=False)
        group.deliver()
        assert group.urgencies == (times, times)
        group.now += chance.uniform(1.5, 20)


def the_worker_alone_drains(module: ModuleType, chance: random.Random) -> None:
    """SIGTERM to the worker process only, however often, lets its jobs end; SIGINT does nothing there."""
    requests = module.StopRequests(supervised=True)
    for _ in range(chance.randrange(1, 5)):
        requests.signalled(SIGINT, chance.uniform(0, 100))
    assert requests.urgency == 0
    for _ in range(chance.randrange(1, 5)):
        requests.signalled(SIGTERM, chance.uniform(0, 100))
    assert requests.urgency == 1


def it_never_becomes_less_urgent(module: ModuleType, chance: random.Random) -> None:
    requests, before, now = module.StopRequests(supervised=chance.random() < 0.5), 0, 0.0
    for _ in range(12):
        now += chance.uniform(0, 3)
        match chance.randrange(4):
            case 0:
                requests.requested(chance.randrange(0, 4))
            case 1:
                requests.orphaned()
            case _:
                requests.signalled(chance.choice((SIGTERM, SIGINT)), now, chance.randrange(0, 3))
        assert before <= requests.urgency <= 3
        before = requests.urgency


def who_is_alone_counts_from_then_on(module: ModuleType, chance: random.Random) -> None:
    """A worker process whose supervisor has died drains, and the signals that come then hurry and end it."""
    requests = module.StopRequests(supervised=True)
    for _ in range(chance.randrange(3)):
        requests.signalled(SIGTERM, 0.0)
    heard = int(requests.urgency)
    assert requests.orphaned() == 1
    assert requests.signalled(SIGINT, 50.0) == 1 + heard
    assert requests.signalled(SIGINT, 100.0) == 2 + heard


CHECKS = (
    each_request_counts_once, the_worker_alone_drains, it_never_becomes_less_urgent, who_is_alone_counts_from_then_on,
)  # fmt: skip


def run(check: Callable[[ModuleType, random.Random], None], module: ModuleType) -> None:
    for seed in range(200):
        check(module, random.Random(seed))


@pytest.mark.parametrize("check", CHECKS)
def test_both_stop_as_urgently_as_they_were_asked_to(check: Callable[[ModuleType, random.Random], None]) -> None:
    run(check, real)


BUGS = {
    "a worker process counts signals itself": ("self._signals = 1\n", "self._signals += 1\n"),
    "what the supervisor asks for is not looked at": ("max(self._signals, requested)", "self._signals"),
    "a signal that was passed on counts again": ("return True", "pass"),
    "every signal is the one before it": ("if at - when < (", "if at - when < 999 + ("),
    "a later request takes an earlier one back": ("max(self.urgency, urgency)", "urgency"),
    "a worker process stops at an interrupt": ("if number == signal.SIGTERM:", "if number:"),
    "whose supervisor is gone counts nothing": ("self._supervised = False", "pass"),
    "whose supervisor is gone works on": ("return self.requested(Urgency.DRAIN)", "return self.urgency"),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_that_is_planted_in_the_requests_is_found(bug: str) -> None:
    module, found = planted(MODULE, *BUGS[bug]), 0

    for check in CHECKS:
        try:
            run(check, module)
        except AssertionError:
            found += 1

    assert found
