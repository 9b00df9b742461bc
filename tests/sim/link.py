"""The engine as a simulated process has it: every method goes over the wire, under the eyes of the witness."""

from collections.abc import Sequence
from typing import Any, Literal

from tests.sim.controls import Controls
from tests.sim.wire import Wire
from tests.sim.witness import Witness
from toril.model import (
    Added,
    Call,
    Claim,
    ControlResult,
    DeadLetterRow,
    Exchange,
    Finished,
    Health,
    Heartbeat,
    JobRow,
    Lease,
    NewJob,
    Page,
    Recovered,
    Renewed,
    Replay,
    Report,
    Setting,
    Settings,
    Settlement,
    Swept,
    Update,
    Verdict,
    WorkerRequest,
)
from toril.model.states import State

__all__ = ["Link"]


class Link:
    """An `Engine`, as far as its user can tell."""

    def __init__(self, name: str, wire: Wire, witness: Witness) -> None:
        self._name = name
        self._wire = wire
        self._witness = witness
        self._controls = Controls(witness)
        self.dead_letters = _LinkedDeadLetters(name, wire, witness)
        self.circuits = None  # no queue of this world has a breaker

    async def open(self) -> None:
        """The store is there already."""

    async def close(self) -> None:
        """The store stays."""

    def twin(self) -> "Link":
        return self

    async def health(self) -> Health:
        return await self._wire.rest("health", lambda store: store.health())

    async def add(
        self, queue: str, jobs: Sequence[NewJob], *, call: Call | None = None, now: int | None = None
    ) -> list[Added]:
        def seen(answer: list[Added]) -> None:
            self._witness.added(self._name, jobs, call, answer)

        return await self._wire.carry("add", lambda store: store.add(queue, jobs, call=call, now=now), seen, call=call)

    async def exchange(
        self,
        queue: str,
        batch: Sequence[Settlement],
        claim: Claim,
        *,
        call: Call | None = None,
        now: int | None = None,
    ) -> Exchange:
        self._witness.conduct.exchanging(self._name, batch, claim)

        def seen(answer: Exchange) -> None:
            self._witness.exchanged(self._name, batch, claim, call, answer)

        answer = await self._wire.carry(
            "exchange", lambda store: store.exchange(queue, batch, claim, call=call, now=now), seen, call=call
        )
        self._witness.conduct.answered(claim)
        return answer

    async def renew(self, leases: Sequence[Lease], *, ttl: int, now: int | None = None) -> Renewed:
        self._witness.conduct.renewing(self._name, leases)

        def seen(answer: Renewed) -> None:
            self._witness.extended(self._name, leases, ttl, answer)

        answer = await self._wire.carry("renew", lambda store: store.renew(leases, ttl=ttl, now=now), seen)
        self._witness.conduct.renewed(leases, answer)
        return answer

    async def wait(self, queues: Sequence[str], *, timeout: int) -> set[str]:
        return await self._wire.rest("wait", lambda store: store.wait(queues, timeout=timeout))

    async def report(
        self, queue: str, reports: Sequence[Report], *, call: Call | None = None, now: int | None = None
    ) -> list[Verdict]:
        def seen(answer: list[Verdict]) -> None:
            self._witness.reported(self._name, reports, call, answer)

        return await self._wire.carry(
            "report", lambda store: store.report(queue, reports, call=call, now=now), seen, call=call
        )

    async def jobs(self, queue: str, ids: Sequence[str]) -> list[JobRow | None]:
        return await self._wire.carry("jobs", lambda store: store.jobs(queue, ids), self._plain("jobs"))

    async def finished(self, queue: str, ids: Sequence[str], *, timeout: int) -> list[Finished]:
        return await self._wire.rest("finished", lambda store: store.finished(queue, ids, timeout=timeout))

    async def recover(
        self,
        queue: str,
        *,
        dead: Sequence[Lease] = (),
        cause: str | None = None,
        limit: int = 1000,
        now: int | None = None,
    ) -> Recovered:
        self._witness.conduct.recovering(self._name)

        def seen(answer: Recovered) -> None:
            self._witness.recovered(self._name, dead, answer)

        return await self._wire.carry(
            "recover", lambda store: store.recover(queue, dead=dead, cause=cause, limit=limit, now=now), seen
        )

    async def prune(self, queue: str, *, limit: int = 1000, now: int | None = None) -> int:
        return await self._wire.carry(
            "prune", lambda store: store.prune(queue, limit=limit, now=now), self._plain("prune")
        )

    async def heartbeat(self, beat: Heartbeat, *, ttl: int, now: int | None = None) -> tuple[WorkerRequest, ...]:
        return await self._wire.carry(
            "heartbeat", lambda store: store.heartbeat(beat, ttl=ttl, now=now), self._plain("heartbeat")
        )

    async def lead(self, role: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        return await self._wire.carry(
            "lead", lambda store: store.lead(role, owner, ttl=ttl, now=now), self._plain("lead")
        )

    async def resign(self, role: str, owner: str) -> bool:
        return await self._wire.carry("resign", lambda store: store.resign(role, owner), self._plain("resign"))

    async def signal(self, worker: str, order: WorkerRequest, *, now: int | None = None) -> bool:
        return await self._wire.carry(
            "signal", lambda store: store.signal(worker, order, now=now), self._plain("signal")
        )

    async def once(self, key: str, owner: str, *, ttl: int, now: int | None = None) -> bool:
        return await self._wire.carry(
            "once", lambda store: store.once(key, owner, ttl=ttl, now=now), self._plain("once")
        )

    async def retry(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        def seen(answer: ControlResult) -> None:
            self._controls.retried(self._name, ids, call, answer)

        return await self._wire.carry(
            "retry", lambda store: store.retry(queue, ids, call=call, now=now), seen, call=call
        )

    async def promote(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        def seen(answer: ControlResult) -> None:
            self._controls.promoted(self._name, ids, call, answer)

        return await self._wire.carry(
            "promote", lambda store: store.promote(queue, ids, call=call, now=now), seen, call=call
        )

    async def cancel(
        self, queue: str, ids: Sequence[str], *, reason: str, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        def seen(answer: ControlResult) -> None:
            self._controls.cancelled(self._name, ids, reason, call, answer)

        return await self._wire.carry(
            "cancel", lambda store: store.cancel(queue, ids, reason=reason, call=call, now=now), seen, call=call
        )

    async def remove(
        self, queue: str, ids: Sequence[str], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        def seen(answer: ControlResult) -> None:
            self._controls.removed(self._name, ids, call, answer)

        return await self._wire.carry(
            "remove", lambda store: store.remove(queue, ids, call=call, now=now), seen, call=call
        )

    async def update(
        self, queue: str, updates: Sequence[Update], *, call: Call | None = None, now: int | None = None
    ) -> ControlResult:
        def seen(answer: ControlResult) -> None:
            self._controls.updated(self._name, updates, call, answer)

        return await self._wire.carry(
            "update", lambda store: store.update(queue, updates, call=call, now=now), seen, call=call
        )

    async def drain(
        self,
        queue: str,
        *,
        states: frozenset[State],
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        def seen(answer: Swept) -> None:
            self._controls.drained(self._name, states, limit, call, answer)

        return await self._wire.carry(
            "drain", lambda store: store.drain(queue, states=states, limit=limit, call=call, now=now), seen, call=call
        )

    async def clean(
        self,
        queue: str,
        *,
        state: State,
        grace: int,
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        def seen(answer: Swept) -> None:
            self._controls.cleaned(self._name, state, limit, call, answer)

        return await self._wire.carry(
            "clean",
            lambda store: store.clean(queue, state=state, grace=grace, limit=limit, call=call, now=now),
            seen,
            call=call,
        )

    async def obliterate(
        self,
        queue: str,
        *,
        running: Literal["refuse", "remove"] = "refuse",
        limit: int = 1000,
        call: Call | None = None,
        now: int | None = None,
    ) -> Swept:
        def seen(answer: Swept) -> None:
            self._controls.obliterated(self._name, limit, answer)

        return await self._wire.carry(
            "obliterate", lambda store: store.obliterate(queue, running=running, limit=limit, call=call, now=now), seen
        )

    async def configure(
        self, queue: str, settings: Sequence[Setting], *, call: Call | None = None, now: int | None = None
    ) -> Settings:
        def seen(answer: Settings) -> None:
            self._controls.configured(self._name, call, answer)

        return await self._wire.carry(
            "configure", lambda store: store.configure(queue, settings, call=call, now=now), seen, call=call
        )

    def _plain(self, what: str) -> "_Plain":
        return _Plain(self._witness, self._name, what)


class _LinkedDeadLetters:
    """A `DeadLetterStore`, as far as the operators of this world use it."""

    def __init__(self, name: str, wire: Wire, witness: Witness) -> None:
        self._name = name
        self._wire = wire
        self._witness = witness
        self._controls = Controls(witness)

    async def page(self, *, limit: int) -> Page[DeadLetterRow]:
        seen = _Plain(self._witness, self._name, "letters")
        return await self._wire.carry("letters", lambda store: store.dead_letters.page(limit=limit), seen)

    async def replay(self, queue: str, replays: Sequence[Replay], *, call: Call | None = None) -> ControlResult:
        def seen(answer: ControlResult) -> None:
            self._controls.replayed(self._name, replays, call, answer)

        return await self._wire.carry(
            "replay", lambda store: store.dead_letters.replay(queue, replays, call=call), seen, call=call
        )

    async def discard(self, ids: Sequence[str], *, call: Call | None = None) -> ControlResult:
        def seen(answer: ControlResult) -> None:
            self._controls.discarded(self._name, ids, call, answer)

        return await self._wire.carry(
            "discard", lambda store: store.dead_letters.discard(ids, call=call), seen, call=call
        )


class _Plain:
    """For answers that the ledger has nothing to say to."""

    def __init__(self, witness: Witness, node: str, what: str) -> None:
        self._witness = witness
        self._node = node
        self._what = what

    def __call__(self, answer: Any) -> None:
        self._witness.saw(self._node, self._what, f"{answer}")
