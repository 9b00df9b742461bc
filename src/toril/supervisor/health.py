"""What the supervisor knows of itself: whether it lives, whether it is ready, and the details."""

from itertools import count
from typing import Any, Final

from toril.errors import TorilError
from toril.model.states import State
from toril.runtime.clock import Clock
from toril.store.engine import Store
from toril.supervisor.supervisor import Supervisor

__all__ = ["Vitals"]

_ASK: Final = (1.0, 2.5)  # seconds between two questions to the store: a quarter of the time that it may be away
_SELDOM: Final = 4  # questions between two looks at the oldest jobs
_SLOW: Final = 30.0  # seconds without a tick after which a loop counts as dead, unless it is replaced before
_GONE: Final = 5.0  # seconds for which a child may be missing
_OLDEST: Final = 10  # queues whose oldest job is looked for


class Vitals:
    """Watches the store and the children. Its answers cost nothing: they are ready when they are asked for."""

    def __init__(self, supervisor: Supervisor, clock: Clock) -> None:
        self._supervisor = supervisor
        self._clock = clock
        self._answered = self._complete = clock.monotonic()
        self._detail = ""
        self._oldest: dict[str, float | None] = {}

    async def watch(self) -> None:
        """Until cancelled."""
        soonest, latest = _ASK
        for number in count():
            self.problems()  # so that it is known since when a child is missing, however seldom others ask
            await self._ask(self._supervisor.store, oldest=number % _SELDOM == 0)
            await self._clock.sleep(min(latest, max(soonest, self._supervisor.plan.unready_after / 4)))

    def problems(self) -> list[str]:
        """Why it is not ready; nothing if it is."""
        supervisor, now = self._supervisor, self._clock.monotonic()
        found = []
        if supervisor.draining:
            found.append("draining")
        elif not supervisor.up.is_set():
            found.append("booting")
        if now - self._answered > supervisor.plan.unready_after:
            found.append(f"the store has not answered for {now - self._answered:.0f} s: {self._detail}")
        alive = [child for child in supervisor.posted if child.ready]
        if len(alive) >= supervisor.plan.processes:
            self._complete = now
        elif now - self._complete > _GONE:
            found.append(f"{len(alive)} of {supervisor.plan.processes} worker processes are ready")
        dead = [child.pid for child in alive if now - child.table.ticked > min(_SLOW, supervisor.plan.hang_timeout)]
        return found + [f"the loop of worker process {pid} stands still" for pid in dead]

    def document(self) -> dict[str, Any]:
        """Everything, for people and dashboards."""
        supervisor, now = self._supervisor, self._clock.monotonic()
        problems = self.problems() + self._dead_pollers()
        hello = supervisor.hello or {}
        return {
            "status": "OK" if not problems else "DEGRADED",
            "message": "; ".join(problems) or "all is well",
            "draining": supervisor.draining,
            "pollers": _worst({poller["state"] for child in supervisor.children.values() for poller in child.pollers}),
            "store": {"ok": now - self._answered <= supervisor.plan.unready_after, "detail": self._detail},
            "queues": hello.get("queues", {}),
            "oldest_waiting": self._oldest,
            "restarts": supervisor.restarts,
            "workers": [
                {
                    "pid": child.pid,
                    "ready": child.ready,
                    "draining": child.draining,
                    "running": child.table.running,
                    "ended": child.table.ended,
                    "silent_seconds": round(max(0.0, now - child.table.ticked), 3) if child.table.ticked else None,
                    "loop_lag_seconds": round(child.table.late, 3),
                    "rss_bytes": child.rss(),
                    "pollers": child.pollers,
                }
                for child in supervisor.children.values()
            ],
        }

    def _dead_pollers(self) -> list[str]:
        """Those that wait to be started again. That is no reason to be not ready: jobs are run all the same."""
        return [
            f"poller {poller['name']} of worker process {child.pid} died, and will be started again: {poller['error']}"
            for child in self._supervisor.children.values()
            for poller in child.pollers
            if poller["state"] == "restarting"
        ]

    async def _ask(self, store: Store | None, *, oldest: bool) -> None:
        if store is None:  # in memory, in the child; or not open yet
            self._answered = self._clock.monotonic()
            return
        health = await store.health()
        self._detail = health.detail
        if health.ok:
            self._answered = self._clock.monotonic()
            if oldest:
                await self._look_for_the_oldest(store, health.now)

    async def _look_for_the_oldest(self, store: Store, now: int) -> None:
        try:
            for queue in list((self._supervisor.hello or {}).get("queues", {}))[:_OLDEST]:
                page = await store.page(queue, State.WAITING, limit=1)
                self._oldest[queue] = (now - page.items[0].added_at) / 1000 if page.items else None
        except TorilError as error:
            self._detail = str(error)


def _worst(states: set[str]) -> str:
    """One word for all pollers."""
    return next((state for state in ("restarting", "running", "standby", "finished") if state in states), "disabled")
