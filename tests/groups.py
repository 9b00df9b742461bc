"""Several servers of our own that belong together: a pair under Sentinels, and a cluster."""

import atexit
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from redis.crc import key_slot

from tests.servers import RedisServer, free_port

__all__ = ["Cluster", "Pair", "Sentinel", "running_cluster", "until"]

SERVICE = "toril"
_QUICK = ("--save", "", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-backlog-size", "64mb")


def until(true: Callable[[], bool], what: str = "") -> None:
    end = time.monotonic() + 240  # a Sentinel that got no turn trusts itself again after 30 s, and again
    while not true():
        assert time.monotonic() < end, f"it never came to be {what}"
        time.sleep(0.01)


class Sentinel(RedisServer):
    """One Sentinel. What it knows is in its file, which it rewrites."""

    def watching(self, port: int, down_after: int) -> "Sentinel":
        (self.folder / "sentinel.conf").write_text(
            f"sentinel monitor {SERVICE} 127.0.0.1 {port} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {down_after}\n"
            # Also how long a replica may follow nobody before the Sentinels put it right: longer than `cut_off` needs.
            f"sentinel failover-timeout {SERVICE} 10000\n"
        )
        self._options = ("--sentinel",)
        return self

    def _first(self) -> tuple[str, ...]:
        return (str(self.folder / "sentinel.conf"),)


class Pair:
    """A server and its replica, and three Sentinels that replace the one by the other."""

    def __init__(self, *, down_after: int = 3000) -> None:
        self.servers = [RedisServer(*_QUICK), RedisServer(*_QUICK)]
        self._down_after = down_after
        self.sentinels: list[Sentinel] = []

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def start(self) -> "Pair":
        first, second = self.servers
        first.start()
        second.start("--replicaof", "127.0.0.1", str(first.port))
        until(self.in_step, "in step")
        self.sentinels = [Sentinel().watching(first.port, self._down_after) for _ in range(3)]
        for sentinel in self.sentinels:
            sentinel.start()
        until(lambda: all(_knows(sentinel) for sentinel in self.sentinels), "known to the Sentinels")
        return self

    def in_step(self) -> bool:
        """Whether the replica hears from the server."""
        return self.servers[1].facts("replication").get("master_link_status") == "up"

    def cut_off(self) -> None:
        """Have the replica hear no more from the server, which goes on without knowing."""
        assert self.servers[1].tell("REPLICAOF", "127.0.0.1", "1") == b"+OK"

    def fail_over(self) -> None:
        """Kill the server, and return when its replica has taken its place."""
        self.servers[0].kill()
        self.servers.reverse()
        until(lambda: self.servers[0].facts("replication").get("role") == "master", "promoted")

    def rejoin(self) -> None:
        """Start the one that was killed, as a replica."""
        self.servers[1].start("--replicaof", "127.0.0.1", str(self.servers[0].port))
        until(self.in_step, "in step")

    def settled(self) -> None:
        """Return when the Sentinels are done with the last failover, and know of the replica."""
        until(lambda: all(_knows(each, self.servers[0].port) for each in self.sentinels), "settled")

    def stop(self) -> None:
        for server in (*self.sentinels, *self.servers):
            server.kill()  # one that is stopped, or waits for its replica, would not end in time
            server.stop()


def _knows(sentinel: Sentinel, port: int | None = None) -> bool:
    said = sentinel.facts("sentinel").get("master0", "")
    return "status=ok" in said and "slaves=1" in said and "sentinels=3" in said and str(port or "") in said


@contextmanager
def pair(*, down_after: int = 3000) -> Iterator[Pair]:
    made = Pair(down_after=down_after)
    try:
        yield made.start()
    finally:
        made.stop()


class Cluster:
    """Three nodes that share the slots."""

    def __init__(self) -> None:
        self._gossip = [free_port() for _ in range(3)]
        options = ("--save", "", "--cluster-enabled", "yes", "--cluster-node-timeout", "5000", "--cluster-port")
        self.nodes = [RedisServer(*options, str(port)) for port in self._gossip]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def start(self) -> "Cluster":
        shares = [(0, 5460), (5461, 10922), (10923, 16383)]
        for number, (node, (first, last)) in enumerate(zip(self.nodes, shares, strict=True), 1):
            node.start()
            node.tell("CLUSTER", "SET-CONFIG-EPOCH", str(number))
            assert node.tell("CLUSTER", "ADDSLOTSRANGE", str(first), str(last)) == b"+OK"
        for node in self.nodes[1:]:
            node.tell("CLUSTER", "MEET", "127.0.0.1", str(self.nodes[0].port), str(self._gossip[0]))
        until(lambda: all("cluster_state:ok" in node.text("CLUSTER INFO") for node in self.nodes), "a cluster")
        until(lambda: all("cluster_known_nodes:3" in node.text("CLUSTER INFO") for node in self.nodes), "whole")
        return self

    def owner(self, prefix: str) -> RedisServer:
        """The node that has the keys of a prefix."""
        return self.nodes[min(key_slot(prefix.encode()) // 5461, 2)]

    def empty(self) -> None:
        for node in self.nodes:
            assert node.tell("FLUSHALL") == b"+OK"

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


@cache
def running_cluster() -> Cluster:
    """The cluster that this test process shares."""
    cluster = Cluster().start()
    atexit.register(cluster.stop)
    return cluster
