"""The stand and the adapters' protocol, with our own engines as the peer."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from bench.cases import CASES, Case, run
from bench.measuring import adding, behind, draining, latency
from bench.measuring import waiting as rate_of
from bench.roster import PEERS, Peer
from bench.stand import Stand


@pytest.fixture
def stand() -> Iterator[Stand]:
    made = Stand()
    yield made
    made.close()


def test_what_an_adapter_adds_a_worker_works_off(stand: Stand) -> None:
    drained = draining(stand, PEERS["toril-file"], 10, 60, "io")

    assert 0 < drained["rate"] < 1000  # ten at once, of 10 ms each
    assert drained["resident"] > 10


def test_pick_up_is_measured_from_the_call_that_adds(stand: Stand) -> None:
    found = latency(stand, PEERS["toril"], 1, 5)

    assert 0 < found["p50"] <= found["p95"] <= found["p99"] < 30_000


def test_what_is_added_is_weighed(stand: Stand) -> None:
    assert 300 < adding(stand, PEERS["toril"], "many", 500)["bytes"] < 3000


def test_whoever_comes_first_does_not_bear_what_the_server_keeps_for_itself(stand: Stand) -> None:
    first, second = (adding(stand, PEERS["toril"], "many", 500)["bytes"] for _ in range(2))

    assert abs(first - second) < 300  # its figures of a dozen commands would be a thousand bytes a job


def test_jobs_are_worked_off_while_a_backlog_stays(stand: Stand) -> None:
    found = behind(stand, PEERS["toril"], 10, 50, "delayed", 200)

    assert found["rate"] > 0
    assert stand.server.tell("ZCARD", "bull:bench:delayed") == b":200"
    assert stand.held == ("delayed", 200)
    assert stand.server.tell("LLEN", "bull:bench:active") == b":0"  # the next worker finds nothing of this one's


def test_what_is_compared_is_measured_by_turns_each_on_its_own_server() -> None:
    order: list[tuple[str, int]] = []

    def case(size: str, rounds: int) -> Case:
        def measure(stand: Stand, _: Peer, __: float) -> dict[str, float]:
            order.append((size, stand.server.port))
            return {"rate": 1.0}

        return replace(CASES[f"grow-waiting-{size}"], measure=measure, rounds=rounds)

    found = list(run([case("1k", 2), case("1m", 1)], [PEERS["toril"]], rounds=3, scale=1, tell=lambda _: None))

    small, large = dict(order)["1k"], dict(order)["1m"]
    assert small != large
    made, first, second = [("1k", small), ("1m", large)], [("1m", large), ("1k", small)], [("1k", small)]
    assert order == [*made, *first, *second]
    assert [(sample.case[-2:], sample.turn) for sample in found] == [("1m", 1), ("1k", 1), ("1k", 2)]


def test_a_peer_that_cannot_run_is_shown_and_stops_nobody() -> None:
    broken = replace(PEERS["toril-file"], name="broken", adapter="nobody_peer")
    told: list[str] = []
    PEERS["broken"] = broken
    try:
        found = list(run([CASES["file-bulk"]], [broken, PEERS["toril-file"]], rounds=2, scale=0.01, tell=told.append))
    finally:
        del PEERS["broken"]

    assert [(sample.peer, bool(sample.failed)) for sample in found] == [
        ("broken", True), ("toril-file", False), ("toril-file", False),
    ]  # fmt: skip
    assert "nobody_peer" in found[0].failed
    assert len(told) == 3


def test_whatever_goes_wrong_once_is_tried_again_and_told() -> None:
    tries: list[str] = []

    def measure(_: Stand, peer: Peer, __: float) -> dict[str, float]:
        tries.append(peer.name)
        if peer.name == "huey" or tries.count(peer.name) == 1:
            raise IndexError("it stumbled")
        return {"rate": 1.0}

    case, told = replace(CASES["one"], measure=measure), list[str]()
    found = list(run([case], [PEERS["huey"], PEERS["toril"]], rounds=2, scale=1, tell=told.append))

    assert tries == ["huey", "huey", "toril", "toril", "toril"]
    assert [(sample.peer, sample.figures, sample.failed, sample.first_try) for sample in found] == [
        ("huey", {}, "IndexError: it stumbled", ""),
        ("toril", {"rate": 1.0}, "", "IndexError: it stumbled"),
        ("toril", {"rate": 1.0}, "", ""),
    ]
    assert "at the second try" in told[1]


def test_rates_are_over_the_time_from_the_first_start() -> None:
    assert rate_of("noop", 3, [(10.0, 0.0), (10.5, 0.0), (11.0, 0.0)]) == 2.0
    assert rate_of("io", 3, [(10.0, 10.2), (10.0, 11.5), (10.5, 10.7)]) == 2.0
