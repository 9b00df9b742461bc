"""What an app has to say about the store it stands on: whether it is sound, and how it is mended."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

from toril.client.declaring import PLAIN
from toril.model import Finding, Page, Repaired
from toril.model.durations import Duration, milliseconds
from toril.operate.doctor import Doctor
from toril.operate.metrics import Overview, overview
from toril.queue import Queue
from toril.runtime.clock import Clock
from toril.store.engine import Store

__all__ = ["Tended"]

_PATIENCE: Final = 2.0  # seconds that one call looks for
_SOONER: Final = 0.1  # seconds between two looks, where someone waits for the answer


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

    async def look_over(
        self, queues: Sequence[str] | None = None, *, cursor: str | None = None, patience: Duration = _PATIENCE,
        quick: bool = True,
    ) -> Page[Finding]:  # fmt: skip
        """A part of what `doctor` looks at: as much as can be looked at in so many seconds, however large the store is.
        With the cursor the next part is asked for, until there is none. What takes the longer the more jobs there are
        is left out, and a notice says so: an SQLite file is not read through for damage, and its jobs are only counted
        if it need not be `quick`. The two looks are a tenth of a second apart."""
        return await Doctor(self.store, self._clock, between=_SOONER).part(
            queues, cursor=cursor, patience=milliseconds("patience", patience) / 1000, quick=quick
        )

    async def repair(self, findings: Sequence[Finding]) -> list[Repaired]:
        """Mend what `doctor` has found and can be mended. Safe beside workers: each repair looks again in the step that
        mends."""
        return await Doctor(self.store, self._clock).repair(findings)
