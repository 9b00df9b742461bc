"""The kinds of Redis and PostgreSQL on which the conformance suite runs."""

import atexit
import os
import re
from functools import cache
from pathlib import Path

from tests import servers
from tests.authority import authority
from tests.groups import Cluster, running_cluster
from tests.postgres import emptied
from tests.servers import RedisServer, free_port
from toril.engines.postgres import PostgresEngine
from toril.engines.redis import RedisEngine
from toril.runtime.clock import Clock

__all__ = [
    "ASKED_FOR",
    "GUARDED",
    "KINDS",
    "KINDS_THAT_MOVE_STEPS",
    "KINDS_WITH_STEPS",
    "POSTGRES",
    "REDIS",
    "acl_line",
    "postgres_of",
    "redis_of",
]

REDIS = ["redis", "redis6", "valkey"]  # 7.0 of Debian; 6.2 and Valkey 9 as packages
# A cluster of three; a user with the rights of docs/redis.md; TLS; and such a user in a cluster.
GUARDED = ["cluster", "acl", "tls", "strict"]
POSTGRES = ["postgres", "postgres-general"]  # the second without the functions of the hot path
ASKED_FOR = [kind for kind in os.environ.get("TORIL_ENGINES", "").split(",") if kind]
# `make test` sets TORIL_QUICK, so that what it leaves to `make test-all` is not even collected.
_QUICK = bool(os.environ.get("TORIL_QUICK"))
KINDS = ASKED_FOR or (
    ["memory", "sqlite", "redis"] if _QUICK else ["memory", "sqlite", *REDIS, *POSTGRES, "tls", "strict"]
)
# Kinds of store that have durable steps, and whose jobs take them along to another store: all.
KINDS_WITH_STEPS = KINDS
KINDS_THAT_MOVE_STEPS = KINDS
_DOCUMENT = Path(__file__).parents[1] / "docs" / "redis.md"


def redis_of(kind: str, clock: Clock) -> RedisEngine:
    """An engine on an empty server of this kind, not yet opened."""
    match kind:
        case "cluster":
            running_cluster().empty()
            return RedisEngine.from_url(running_cluster().url, clock=clock, prefix="{bull}")
        case "strict":
            _strict().empty()
            url = _strict().url.replace("://", "://toril:secret@")
            return RedisEngine.from_url(url, clock=clock, prefix="{bull}")
        case "acl" | "tls":
            server, url = _acl() if kind == "acl" else _tls()
        case _:
            server = servers.running(kind)
            url = server.url
    assert server.tell("FLUSHALL") == b"+OK"
    return RedisEngine.from_url(url, clock=clock)


def postgres_of(kind: str, clock: Clock) -> PostgresEngine:
    """An engine on an empty store of this kind, not yet opened."""
    return PostgresEngine.from_url(emptied(), clock=clock, general=kind == "postgres-general")


def acl_line(prefix: str = "bull") -> list[str]:
    """The command of the documentation that makes a user, for this prefix."""
    (line,) = re.findall(r"^ACL SETUSER .*(?:\n  .*)*", _DOCUMENT.read_text("utf-8"), re.MULTILINE)
    return str(line).replace("PASSWORD", "secret").replace("bull:", f"{prefix}:").split()


@cache
def _acl() -> tuple[RedisServer, str]:
    server = servers.RedisServer().start()
    atexit.register(server.stop)
    assert server.tell(*acl_line()) == b"+OK"
    return server, server.url.replace("redis://", "redis://toril:secret@")


@cache
def _tls() -> tuple[RedisServer, str]:
    port = free_port()
    server = RedisServer("--save", "", "--tls-port", str(port), *authority().options()).start()
    atexit.register(server.stop)
    return server, f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority().certificate}"


@cache
def _strict() -> Cluster:
    cluster = Cluster().start()
    atexit.register(cluster.stop)
    for node in cluster.nodes:
        assert node.tell(*acl_line("{bull}")) == b"+OK"
    return cluster
