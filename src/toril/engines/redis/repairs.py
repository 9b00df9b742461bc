"""What is wrong with the layout, and how it is mended."""

from collections.abc import AsyncGenerator, Sequence
from itertools import groupby
from typing import Final, Literal

from toril.engines.redis.checkup import server_facts
from toril.engines.redis.upkeep import RedisUpkeep
from toril.engines.redis.walk import Walk
from toril.errors import EngineUnusable
from toril.model import Fault, FaultKind, Page, ServerFacts

__all__ = ["RedisRepairs"]

_AT_ONCE: Final = 50  # faults a step
_LATER: Final = -1


class RedisRepairs(RedisUpkeep):
    """Repairs of the seam."""

    async def checkup(self, *, quick: bool = False) -> ServerFacts:  # noqa: ARG002 - it never takes long
        self._check_open()
        return await server_facts(self._server, self._address.shown)

    def faults(
        self,
        queues: Sequence[str],
        *,
        cursor: str | None = None,
        quick: bool = False,  # noqa: ARG002 - each look is
    ) -> AsyncGenerator[Page[Fault], None]:
        self._check_open()
        walk = Walk(self._address, self._fleet, self._server.ask, self._read, self._there)
        return walk.faults(queues, cursor)

    async def mend(
        self, faults: Sequence[Fault], *, mode: Literal["look", "mend"], now: int | None = None
    ) -> list[bool]:
        lost = {fault.queue for fault in faults if fault.kind is FaultKind.LOST}
        answers: dict[Fault, bool] = {}
        for queue, group in groupby(sorted(faults, key=lambda fault: fault.queue), key=lambda fault: fault.queue):
            answers |= await self._mend(queue, list(group), mode, now)
        for queue in lost if mode == "mend" else ():
            while (await self.recover(queue, now=now)).more:
                pass
        return [answers[fault] for fault in faults]

    async def _mend(self, queue: str, faults: Sequence[Fault], mode: str, now: int | None) -> dict[Fault, bool]:
        """Those of one queue. What would take too long in one step is asked for in the next."""
        answers: dict[Fault, bool] = {}
        left, at_once = list(faults), _AT_ONCE
        while left:
            batch = left[:at_once]
            words = [word for fault in batch for word in self._words(fault)]
            try:
                found = await self._read("mend", queue, [mode, *words], now)
            except EngineUnusable:  # a key of another program's: of whom it belongs to nothing can be told
                if len(batch) == 1:
                    answers[left.pop(0)] = False
                at_once = 1
                continue
            answers |= {fault: word == 1 for fault, word in zip(batch, found, strict=True) if word != _LATER}
            left = [fault for fault in left if fault not in answers]
        return answers

    def _words(self, fault: Fault) -> tuple[str, str, str]:
        return fault.kind.value, fault.subject, fault.place.removeprefix(self._base(fault.queue))

    async def _there(self, faults: Sequence[Fault]) -> list[Fault]:
        found = await self.mend(faults, mode="look") if faults else []
        return [fault for fault, there in zip(faults, found, strict=True) if there]
