"""How each kind of thing is measured; each gives figures by name, for one peer, once."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers import RedisServer

from bench.installing import Unusable
from bench.roster import PEERS, Peer
from bench.stand import Stand, Usage, Worker, server_commands
from toril.cli.bench.command import percentile

__all__ = ["Figures", "adding", "behind", "draining", "idling", "latency", "waiting"]

Figures = dict[str, float]

_PATIENCE = 60.0  # seconds for what should take about one
_OF_REDIS = {"redis", "commands", "scripts"}
_SETTLED = 2.0
_IDLE = 10.0


def adding(stand: Stand, peer: Peer, verb: str, jobs: int) -> Figures:
    """Adds from one producer: the rate, what both sides use a job, and the bytes that a waiting job takes."""
    url = stand.empty(peer)
    if peer.store == "file":
        told = stand.add(peer, url, verb, jobs)
        return {"rate": jobs / told["seconds"], "producer": told["cpu"] / jobs * 1e6}
    before, weighed = stand.server.facts("cpu"), _weight(stand.server)
    commands, _ = server_commands(stand.server)
    told = stand.add(peer, url, verb, jobs)
    after, carried_out = stand.server.facts("cpu"), server_commands(stand.server)[0] - commands
    used = sum(float(after[key]) - float(before[key]) for key in ("used_cpu_user", "used_cpu_sys"))
    return {
        "rate": jobs / told["seconds"],
        "producer": told["cpu"] / jobs * 1e6,
        "redis": used / jobs * 1e6,
        "commands": carried_out / jobs,
        "bytes": (_weight(stand.server) - weighed) / jobs,
    }


def draining(
    stand: Stand,
    peer: Peer,
    slots: int,
    jobs: int,
    kind: str = "noop",
    processes: int = 1,
    *,
    default_log: bool = False,
) -> Figures:
    """Jobs that wait already, worked off: from the first handler to the last. With the log that the worker writes by
    default, or with none."""
    url = stand.empty(peer)
    stand.add(peer, url, "many" if peer.bulk != "none" else "one", jobs, kind)
    with stand.worker(peer, url, slots, jobs, processes, log="default" if default_log else "silent") as worker:
        found = _worked_off(worker, jobs, kind)
    return {key: value for key, value in found.items() if peer.store == "redis" or key not in _OF_REDIS}


def behind(stand: Stand, peer: Peer, slots: int, jobs: int, shape: str, backlog: int) -> Figures:
    """Jobs worked off while so many others wait, are delayed or have a priority. Toril makes the backlog for all."""
    filler, server = PEERS["toril"], stand.server
    if stand.held != (shape, backlog):
        stand.empty(filler)
        stand.held = shape, backlog
        if shape == "delayed":
            stand.add(filler, server.url, "many", backlog, BENCH_SHAPE=shape)
    ready = {"prioritized": ("ZCARD", "bull:bench:prioritized")}.get(shape, ("LLEN", "bull:bench:wait"))
    missing = jobs + (0 if shape == "delayed" else backlog) - int(server.tell(*ready)[1:])
    stand.add(filler, server.url, "many", missing, BENCH_SHAPE="waiting" if shape == "delayed" else shape)
    stand.settle()
    with stand.worker(peer, server.url, slots, jobs + jobs // 4, end="by itself") as worker:
        return _worked_off(worker, jobs, "noop")


def latency(stand: Stand, peer: Peer, slots: int, jobs: int) -> Figures:
    """How soon a job of another process starts, with nothing else to do: milliseconds from the call that adds it."""
    url = stand.empty(peer)
    with _ready(stand, peer, url, slots, jobs + 1) as worker:
        stand.add(peer, url, "trickle", jobs)
        worker.until(jobs + 1, _PATIENCE)
        waits = [(start - at) * 1000 for start, at in worker.boards.pairs() if at]
    return {"p50": percentile(waits, 0.5), "p95": percentile(waits, 0.95), "p99": percentile(waits, 0.99)}


def idling(peer: Peer, slots: int) -> Figures:
    """What a worker costs that has nothing to do; on a server of its own, so that others can idle meanwhile."""
    stand = Stand()
    try:
        with _ready(stand, peer, stand.empty(peer), slots, 1) as worker:
            time.sleep(_SETTLED)
            before, began = worker.usage(), time.monotonic()
            sent: Figures = {}
            if peer.store == "redis":
                sent = _commands_sent(stand.server, _IDLE)
            else:
                time.sleep(_IDLE)
            used = (worker.usage().worker - before.worker) / (time.monotonic() - began)
            resident, beside = worker.memory()
    finally:
        stand.close()
    return {**sent, "cpu": used * 100, "resident": resident, "beside": beside}


def waiting(kind: str, jobs: int, pairs: list[tuple[float, float]]) -> float:
    """Jobs a second: from the first start to the last one, or, for those that take their time, to the last end."""
    if kind == "io":
        return jobs / (max(end for _, end in pairs) - pairs[0][0])
    return (jobs - 1) / (pairs[jobs - 1][0] - pairs[0][0])


def _worked_off(worker: Worker, jobs: int, kind: str) -> Figures:
    first, last, between = worker.until(jobs, _PATIENCE)
    resident, _ = worker.memory()
    rate = waiting(kind, jobs, worker.boards.pairs())
    used = _per_job(first, last, between) if between else {}  # too few to tell, where they were seen all at once
    return {"rate": rate, "resident": resident, **used}


def _per_job(first: Usage, last: Usage, jobs: int) -> Figures:
    return {
        "worker": (last.worker - first.worker) / jobs * 1e6,
        "redis": (last.redis - first.redis) / jobs * 1e6,
        "commands": (last.commands - first.commands) / jobs,
        "scripts": (last.scripts - first.scripts) / jobs,
    }


@contextmanager
def _ready(stand: Stand, peer: Peer, url: str, slots: int, room: int) -> Iterator[Worker]:
    """A worker that has run a job, and so is there."""
    with stand.worker(peer, url, slots, room) as worker:
        stand.add(peer, url, "one", 1)
        worker.until(1, _PATIENCE)
        yield worker


def _weight(server: RedisServer) -> float:
    """Bytes, without those of loaded scripts and of what the server notes for itself: some 40 KB of figures for each
    command from its first use on, which whoever comes first would have to bear, and calls that were slow because the
    machine was busy. What it has counted is lost."""
    server.tell("SLOWLOG", "RESET")
    server.tell("CONFIG", "RESETSTAT")
    told = server.facts("memory")
    return float(told["used_memory"]) - float(told.get("used_memory_scripts", 0))


def _commands_sent(server: RedisServer, seconds: float) -> Figures:
    """Commands per second that clients send in this time; and all that are carried out, those in scripts among them."""
    asked = carried_out = 0
    until = time.monotonic() + seconds
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        connection.sendall(b"MONITOR\r\n")
        with connection.makefile("rb") as lines:
            if lines.readline() != b"+OK\r\n":
                raise Unusable("Redis does not let us listen")
            while (left := until - time.monotonic()) > 0:
                connection.settimeout(left)
                try:
                    line = lines.readline()
                except TimeoutError:
                    break
                carried_out += 1
                asked += b" lua] " not in line
    return {"asked": asked / seconds, "commands": carried_out / seconds}
