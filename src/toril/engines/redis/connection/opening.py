"""What a server must be before jobs are trusted to it."""

from typing import Final

from toril.engines.redis.connection.place import Address, in_cluster
from toril.engines.redis.connection.server import Server
from toril.errors import EngineRefused, EngineUnusable

__all__ = ["check_server", "keeps_well"]

_OLDEST: Final = (6, 2)


async def check_server(server: Server, address: Address) -> Address:
    """`EngineUnusable` names what is wrong, and what to do. Gives the address as it has turned out to be: that of one
    server may be a node of a cluster."""
    if address.kind == "cluster":
        _check_tag(address)
    await server.ask("PING")  # unlike the next question, this is not answered while the server still loads its data
    facts = await _facts(server, "server", "memory", "cluster")
    version = tuple(int(part) for part in facts.get("redis_version", "0.0").split(".")[:2] if part.isdecimal())
    if version < _OLDEST:
        raise EngineUnusable(
            f"{address.shown} is Redis {facts.get('redis_version')}; Toril needs 6.2 or newer, or Valkey"
        )
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and not address.allow_eviction:
        raise EngineUnusable(
            f"{address.shown} throws keys away when it is full (maxmemory-policy {policy}), and jobs with them; "
            "set it to noeviction, or add ?allow_eviction=1 to the URL"
        )
    if facts.get("cluster_enabled") != "1":
        return address
    _check_tag(address)
    return in_cluster(address)


def _check_tag(address: Address) -> None:
    if not address.prefix.startswith("{"):
        raise EngineUnusable(
            f"{address.shown} is a cluster, where all keys of an app must lie together: "
            f"give the App prefix='{{{address.prefix}}}', and Node's queues too"
        )


async def keeps_well(server: Server) -> bool:
    """Whether the server's last snapshot and its log could be written, as far as it tells."""
    try:
        facts = await _facts(server, "persistence")
    except EngineRefused:  # a user who may not ask
        return True
    return "err" not in (facts.get("rdb_last_bgsave_status"), facts.get("aof_last_write_status"))


async def _facts(server: Server, *sections: str) -> dict[str, str]:
    facts = {}
    for section in sections:
        for line in str(await server.ask("INFO", section)).splitlines():
            name, separator, value = line.partition(":")
            if separator:
                facts[name] = value
    return facts
