"""The facts of a server, asked of itself. What it will not say is left open."""

from typing import Any, Final

from toril.engines.redis.connection.server import Server
from toril.engines.redis.scripts import script, scripts
from toril.errors import TorilError
from toril.model import ServerFacts
from toril.runtime.clock import SYSTEM

__all__ = ["server_facts"]

_PINGS: Final = 11
_COMPILES: Final = "local made, reason = loadstring(ARGV[1]) return made and '' or reason"


async def server_facts(server: Server, place: str) -> ServerFacts:
    """All that is needed to say whether jobs can be trusted to this server."""
    info = await _info(server)
    pings, skew = await _timed(server)
    return ServerFacts(
        place=place,
        version=info.get("valkey_version") or info.get("redis_version", "0"),
        policy=info.get("maxmemory_policy"),
        maxmemory=_number(info, "maxmemory"),
        used=_number(info, "used_memory"),
        total=_number(info, "total_system_memory"),
        evicted=_number(info, "evicted_keys"),
        log=info["aof_enabled"] == "1" if "aof_enabled" in info else None,
        log_ok=info.get("aof_last_write_status", "ok") == "ok" and info.get("aof_last_bgrewrite_status", "ok") == "ok",
        snapshots=await _snapshots(server),
        snapshot_ok=info.get("rdb_last_bgsave_status", "ok") == "ok",
        unsaved=_number(info, "rdb_changes_since_last_save"),
        role=info.get("role", "master"),
        link_ok=info.get("master_link_status", "up") == "up",
        replicas=_number(info, "connected_slaves"),
        replicas_behind=sum("state=online" not in value for name, value in info.items() if _is_replica(name)),
        pings=pings,
        skew=skew,
        refused=await _refused(server),
        scripts=_number(info, "number_of_cached_scripts"),
    )


async def _info(server: Server) -> dict[str, str]:
    """What INFO says; nothing where it may not be asked."""
    try:
        lines = str(await server.ask("INFO")).splitlines()
    except TorilError:
        return {}
    return dict(line.split(":", 1) for line in lines if ":" in line)


async def _snapshots(server: Server) -> bool | None:
    try:
        found = await server.ask("CONFIG", "GET", "save")
    except TorilError:  # rented servers do not show their configuration
        return None
    return bool(found and found[1])


async def _timed(server: Server) -> tuple[tuple[float, ...], float]:
    """How long several pings took, in ms, and by how much the clocks differ at least."""
    pings: list[float] = []
    differences: list[tuple[float, float]] = []
    for _ in range(_PINGS):
        began, now = SYSTEM.monotonic(), SYSTEM.now()
        seconds, micros = await server.ask("TIME")
        took = (SYSTEM.monotonic() - began) * 1000
        pings.append(took)
        differences.append((took, int(seconds) * 1000 + int(micros) / 1000 - now - took / 2))
    shortest, skew = min(differences)
    sure = max(0.0, abs(skew) - shortest / 2 - 1)
    return tuple(pings), sure if skew > 0 else -sure


async def _refused(server: Server) -> tuple[str, ...]:
    """Scripts of ours that the server cannot run, and why. None of them is run, or put into its cache."""
    refused = []
    for name in scripts():
        try:
            reason: Any = await server.ask("EVAL", _COMPILES, 0, script(name).source)
        except TorilError as error:
            return (str(error),)
        if reason:
            refused.append(f"{name}: {reason}")
    return tuple(refused)


def _is_replica(name: str) -> bool:
    return name.startswith("slave") and name[5:].isdecimal()


def _number(info: dict[str, str], name: str) -> int:
    text = info.get(name, "0")
    return int(text) if text.isdecimal() else 0
