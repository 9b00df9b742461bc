"""Whom the bench compares: one line a peer, with what it can do and about how fast, from which sizes follow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["PEERS", "Peer"]

Verb = Literal["one", "many"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One system, as it is driven here."""

    name: str
    title: str
    adapter: str  # a module of bench.peers; for Node, the file
    store: Literal["redis", "file"]
    needs: str | None = None  # its file of requirements
    library: str | None = None  # the file of what our own interpreter needs besides
    language: Literal["python", "node"] = "python"
    slots: tuple[int, ...] = (1, 10, 100)  # how many jobs at once it can be told to run
    bulk: Literal["own", "gathered", "none"] = "none"
    keeps: Literal["until done", "until taken"] = "until done"
    copies: Literal["by itself", "by us"] = "by us"  # who starts several worker processes
    cases: tuple[str, ...] = ()  # only these
    environment: Mapping[str, str] = field(default_factory=dict)
    rates: Mapping[str, int] = field(default_factory=dict)  # jobs a second, about: one, many, and by slots

    @property
    def ours(self) -> bool:
        return self.adapter == "toril_peer"

    def rate(self, what: str) -> int:
        return self.rates.get(what, 1000)


def _rates(one: int, many: int, *drained: int) -> dict[str, int]:
    by_slots = zip(("1", "10", "100"), drained, strict=False)
    return {"one": one, "many": many, **dict(by_slots)}


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            name="toril", title="Toril", adapter="toril_peer", store="redis", bulk="own", copies="by itself",
            rates=_rates(5000, 40_000, 4000, 20_000, 25_000),
        ),
        Peer(
            name="toril-uvloop", title="Toril, uvloop", adapter="toril_peer", store="redis", bulk="own",
            copies="by itself", library="uvloop", environment={"BENCH_LOOP": "uvloop"},
            cases=("drain-1", "drain-10", "drain-100", "io", "latency"),
            rates=_rates(5000, 40_000, 4000, 20_000, 25_000),
        ),
        Peer(
            name="bullmq-node", title="BullMQ (Node)", adapter="bullmq.mjs", store="redis", language="node", bulk="own",
            rates=_rates(5000, 25_000, 4000, 20_000, 25_000),
        ),
        Peer(
            name="bullmq-alike", title="BullMQ (Node), Toril's options", adapter="bullmq.mjs", store="redis",
            language="node", bulk="own", cases=("bulk",), environment={"BENCH_OPTIONS": "alike"},
            rates=_rates(5000, 25_000),
        ),
        Peer(
            name="bullmq-py", title="bullmq (Python)", adapter="bullmq_peer", store="redis", needs="bullmq", bulk="own",
            rates=_rates(4700, 25_000, 2000, 2200, 2100),
        ),
        Peer(
            name="dramatiq", title="Dramatiq", adapter="dramatiq_peer", store="redis", needs="dramatiq",
            rates=_rates(5000, 5000, 250, 2000, 4000),
        ),
        Peer(
            name="huey", title="Huey", adapter="huey_peer", store="redis", needs="huey", keeps="until taken",
            rates=_rates(7000, 7000, 2500, 2600, 3000),
        ),
        Peer(
            name="taskiq", title="taskiq", adapter="taskiq_peer", store="redis", needs="taskiq", bulk="gathered",
            rates=_rates(3700, 4600, 2500, 2200, 2000),
        ),
        Peer(
            name="saq", title="SAQ", adapter="saq_peer", store="redis", needs="saq", bulk="gathered",
            rates=_rates(4600, 10_000, 950, 2200, 2300),
        ),
        Peer(
            name="arq", title="arq", adapter="arq_peer", store="redis", needs="arq", bulk="gathered",
            rates=_rates(2700, 6000, 80, 1000, 2000),
        ),
        Peer(
            name="streaq", title="streaq", adapter="streaq_peer", store="redis", needs="streaq", bulk="own",
            rates=_rates(3300, 13_000, 800, 1000, 1100),
        ),
        Peer(
            name="celery", title="Celery", adapter="celery_peer", store="redis", needs="celery",
            rates=_rates(1900, 1900, 1000, 1000, 1000),
        ),
        Peer(
            name="rq", title="RQ", adapter="rq_peer", store="redis", needs="rq", bulk="own", slots=(1,),
            rates=_rates(2600, 13_000, 350),
        ),
        Peer(
            name="toril-file", title="Toril", adapter="toril_peer", store="file", bulk="own", slots=(100,),
            rates=_rates(1000, 30_000) | {"100": 15_000},
        ),
        Peer(
            name="huey-file", title="SqliteHuey, its consumer", adapter="huey_peer", store="file", needs="huey",
            slots=(1,), keeps="until taken", rates=_rates(3500, 3500, 2000),
        ),
        Peer(
            name="huey-loop", title="SqliteHuey, a bare loop", adapter="huey_peer", store="file", needs="huey",
            slots=(0,), keeps="until taken", rates=_rates(3500, 3500) | {"0": 3500},
        ),
        Peer(
            name="litequeue", title="litequeue, a bare loop", adapter="litequeue_peer", store="file",
            needs="litequeue", slots=(1,), rates=_rates(10_000, 10_000, 3500),
        ),
        Peer(
            name="persist-queue", title="persist-queue, a bare loop", adapter="persistqueue_peer", store="file",
            needs="persistqueue", slots=(1,), rates=_rates(4000, 4000, 2500),
        ),
    )
}  # fmt: skip
