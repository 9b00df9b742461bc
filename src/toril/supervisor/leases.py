"""The leases of all worker processes: renewed while they live, recovered when they die."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from toril.errors import EngineUnavailable, TorilError
from toril.model import BATCH, EXCHANGE, Call, Claim, Lease, Recovered, Released, Renewed, Settlement
from toril.runtime.clock import Clock
from toril.runtime.logs import log
from toril.store.engine import Engine
from toril.supervisor.child import ChildProcess
from toril.worker.leases import RETRY, HeldLease, LeaseKeeper, Tell

__all__ = ["FleetLeases"]

T = TypeVar("T")

_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0


class FleetLeases(LeaseKeeper):
    """Renews the leases in the children's tables, over a connection of the supervisor's own."""

    def __init__(self, engine: Engine, clock: Clock, name: str, children: Callable[[], Iterable[ChildProcess]]) -> None:
        super().__init__(engine, clock)
        self._children = children
        self._name = name
        self._calls = 0
        self._heard: set[Lease] = set()  # lost leases that the child knows of
        self._lost: set[Lease] = set()  # still in a table, but lost
        self._reported: set[tuple[int, int, int]] = set()  # entries that could not be read

    async def renew_due(self) -> None:
        self._look()
        await super().renew_due()

    def _look(self) -> None:
        """Read the tables."""
        seen = set()
        for child in self._children():
            tell = _Teller(child, self._heard)
            for entry in child.held():
                seen.add(entry.lease)
                if entry.lease not in self._held and entry.lease not in self._lost:
                    self.hold(entry.lease, ttl=entry.ttl, renew=entry.renew, since=entry.since, tell=tell)
            self._report(child)
        for lease in self._held.keys() - seen:
            super().release(lease)
        self._heard &= seen
        self._lost &= seen

    def _report(self, child: ChildProcess) -> None:
        """Log entries that cannot be read, each once."""
        found = {(child.pid, slot, generation) for slot, generation in child.table.unreadable.items()}
        for _ in found - self._reported:
            log.error("worker process %s has a lease that the supervisor cannot read, and renews it itself", child.pid)
        self._reported = found | {each for each in self._reported if each[0] != child.pid}

    def _renewed(self, lease: Lease, held: HeldLease, sent: float) -> None:
        super()._renewed(lease, held, sent)
        if isinstance(held.tell, _Teller):
            held.tell.child.table.renew(lease, sent)

    def _postpone(self, leases: list[Lease], tell: Tell) -> None:  # noqa: ARG002 - nobody hears of it
        """The store did not answer. Whether the lease is lost is for its worker to decide, which sees in the table that
        it was not renewed, and tries itself."""
        now = self._clock.monotonic()
        for lease in leases:
            if (held := self._held.get(lease)) is not None:
                held.due = now + RETRY

    def release(self, lease: Lease) -> None:
        """The store says that it is lost."""
        super().release(lease)
        self._lost.add(lease)

    async def recover(self, leases: Sequence[Lease], cause: str, patience: float) -> list[tuple[str, Recovered]]:
        """Recover the jobs of a process that died: each has stalled, and can be claimed again unless it has stalled too
        often."""
        found = []
        for queue, some in _by_queue(leases, BATCH):
            recover = partial(self._engine.recover, queue, dead=some, cause=cause)
            answer = await self._patiently(recover, patience)
            if answer is not None:
                found.append((queue, answer))
        return found

    async def release_all(self, leases: Sequence[Lease], patience: float) -> int:
        """Release the jobs of a process that we stopped: to the front of their queues, without counting a stall."""
        for queue, some in _by_queue(leases, EXCHANGE):
            self._calls += 1
            call = Call(f"{self._name}/release", self._calls)
            claim = Claim(want=0, token=f"{self._name}:{self._calls}", lease=1000, worker=self._name)
            batch = [Settlement(lease, Released()) for lease in some]
            await self._patiently(partial(self._engine.exchange, queue, batch, claim, call=call), patience)
        return len(leases)

    async def _patiently(self, ask: Callable[[], Awaitable[T]], patience: float) -> T | None:
        """The answer; None if the store does not answer until the leases have expired by themselves."""
        until, pause = self._clock.monotonic() + patience, _PAUSE
        while True:
            try:
                return await ask()
            except EngineUnavailable as error:
                if self._clock.monotonic() + pause > until:
                    log.warning(
                        "jobs could not be returned to their queues; they will be when their leases run out: %s", error
                    )
                    return None
            except TorilError:
                log.exception("jobs could not be returned to their queues")
                return None
            await self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


class _Teller:
    """Tells the child what a renewal found, each thing once: the child may not be able to read."""

    def __init__(self, child: ChildProcess, heard: set[Lease]) -> None:
        self.child = child
        self._heard = heard

    def __call__(self, found: Renewed) -> None:
        lost = [lease for lease in found.lost if lease not in self._heard]
        requests = [request for request in found.cancelled if request.lease not in self._heard]
        self._heard.update(lost, (request.lease for request in requests))
        if lost or requests:
            self.child.say(
                lost=[_words(lease) for lease in lost],
                cancelled=[[*_words(request.lease), request.reason] for request in requests],
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Teller) and other.child is self.child

    def __hash__(self) -> int:
        return id(self.child)


def _words(lease: Lease) -> list[str]:
    return [lease.queue, lease.id, lease.token]


def _by_queue(leases: Sequence[Lease], most: int) -> list[tuple[str, list[Lease]]]:
    """Batches that fit into one call."""
    queues: dict[str, list[Lease]] = {}
    for lease in leases:
        queues.setdefault(lease.queue, []).append(lease)
    return [(queue, held[at : at + most]) for queue, held in queues.items() for at in range(0, len(held), most)]
