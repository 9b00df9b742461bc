"""What an app has to say about the store it stands on: whether it is sound, and how it is mended."""

from abc import abstractmethod
from collections.abc import Sequence

from toril.clock import Clock
from toril.doctor import Doctor
from toril.engine import Store
from toril.model import Finding, Repaired

__all__ = ["Tended"]


class Tended:
    """A part of `App`, which has what is declared here."""

    _clock: Clock

    @property
    @abstractmethod
    def store(self) -> Store: ...

    async def doctor(self, queues: Sequence[str] | None = None) -> list[Finding]:
        """Look the store over, and these queues or all: what is wrong, the worst first, each with its fix. Only reads;
        what it finds is there at two looks a second apart."""
        return await Doctor(self.store, self._clock).findings(queues)

    async def repair(self, findings: Sequence[Finding]) -> list[Repaired]:
        """Mend what `doctor` has found and can be mended. Safe beside workers: each repair looks again in the step that
        mends."""
        return await Doctor(self.store, self._clock).repair(findings)
