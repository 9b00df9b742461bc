"""The slow rounds: recovery, pruning, signs of life, leadership."""

from collections.abc import Sequence

from toril.engines.redis.connection.presence import Presence
from toril.engines.redis.controls import RedisControls
from toril.engines.redis.layout import FLEET
from toril.engines.redis.runner import bounded
from toril.engines.redis.scripts import script
from toril.model import MAX_REASON_BYTES, Beat, Lease, Recovered, WorkerOrder, order_of, storable, whole
from toril.model.names import check_label, check_queue_name, check_worker_name

__all__ = ["RedisUpkeep"]

_LONGEST = 2**42


class RedisUpkeep(RedisControls):
    """What keeps a fleet going."""

    _presence: Presence
    _circuits_known: int = 0

    async def recover(
        self,
        queue: str,
        *,
        dead: Sequence[Lease] = (),
        cause: str | None = None,
        limit: int = 1000,
        now: int | None = None,
    ) -> Recovered:
        bounded(dead)
        queue = check_queue_name(queue)
        whole("limit", limit, 1, 10_000)
        reason = "" if cause is None else storable(cause, MAX_REASON_BYTES)
        arguments: list[object] = [limit, reason, "" if cause is None else "1"]
        for lease in dead:
            arguments += (lease.id, lease.token)
        ended, deadline, more, moment = await self._read("recover", queue, arguments, now)
        returned, failed, cancelled = map(tuple, ended)
        return Recovered(returned, failed, cancelled, deadline, more=more == 1, now=moment)

    async def prune(self, queue: str, *, limit: int = 1000, now: int | None = None) -> int:
        queue = check_queue_name(queue)
        whole("limit", limit, 1, 10_000)
        removed, self._circuits_known = await self._read("prune", queue, [limit], now)
        return int(removed)

    async def beat(self, beat: Beat, *, ttl: int, now: int | None = None) -> tuple[WorkerOrder, ...]:
        whole("ttl", ttl, 0, _LONGEST)
        heard = list(map(str, beat.heard))
        declared = [part for queue, said in (beat.declares or {}).items() for part in (queue, said.dump())]
        words = [ttl, beat.worker, beat.dump(), beat.started_at, len(heard), *heard, *declared]
        left = await self._read("beat", "", words, now)
        (self._presence.show if ttl else self._presence.hide)(beat.worker, list(beat.queues))
        return tuple(order_of(word) for word in left)

    async def signal(self, worker: str, order: WorkerOrder, *, now: int | None = None) -> bool:
        check_worker_name(worker)
        return bool(await self._read("signal", "", [worker, str(order)], now))

    async def lead(self, role: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        check_label("a role", role)
        check_worker_name(owner)
        whole("ttl", ttl, 1, _LONGEST)
        return await self._term("lead", role, owner, ttl, now)

    async def resign(self, role: str, owner: str) -> bool:
        check_label("a role", role)
        check_worker_name(owner)
        return await self._term("resign", role, owner, 0, None)

    async def once(self, key: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        check_label("a key", key)
        check_worker_name(owner)
        whole("ttl", ttl, 1, _LONGEST)
        return await self._term("once", key, owner, ttl, now)

    async def _term(self, verb: str, name: str, owner: str, ttl: int, now: int | None) -> bool:
        self._check_open()
        kind = "once" if verb == "once" else "lead"
        key = f"{self._fleet}{FLEET[kind]}{name}:{kind}"
        arguments = [self._now(now), verb, owner, ttl]
        return bool(await self._server.run(script("term"), (key, self._fleet), arguments, again=True))
