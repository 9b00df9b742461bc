"""What an app has to say about the store it stands on: whether it is sound, and how it is mended."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from toril.clock import Clock
from toril.declaring import PLAIN
from toril.doctor import Doctor
from toril.engine import Store
from toril.metrics import Overview, overview
from toril.model import Finding, Repaired
from toril.queue import Queue

__all__ = ["Tended"]


class Tended:
    """A part of `App`, which has what is declared here."""

    _clock: Clock
    queues: Mapping[str, Queue]

    @property
    @abstractmethod
    def store(self) -> Store: ...

    async def overview(self) -> Overview:
        """All queues, declared here or known to the store, each with its counts and its last hour; asked for in few
        questions to the store."""
        names = sorted({*await self.store.queues(), *self.queues})
        options = {name: self.queues[name].options if name in self.queues else PLAIN for name in names}
        targets = {name: each.target_wait / 1000 for name, each in options.items()}
        return await overview(self.store, names, targets)

    async def doctor(self, queues: Sequence[str] | None = None) -> list[Finding]:
        """Look the store over, and these queues or all: what is wrong, the worst first, each with its fix. Only reads;
        what it finds is there at two looks a second apart."""
        return await Doctor(self.store, self._clock).findings(queues)

    async def repair(self, findings: Sequence[Finding]) -> list[Repaired]:
        """Mend what `doctor` has found and can be mended. Safe beside workers: each repair looks again in the step that
        mends."""
        return await Doctor(self.store, self._clock).repair(findings)
