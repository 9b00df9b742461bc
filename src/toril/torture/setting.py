"""What the processes of a run are told, through their environment."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

__all__ = ["VARIABLE", "Setting"]

VARIABLE: Final = "TORIL_TORTURE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One run, as one of its processes sees it. Times are seconds."""

    url: str = "memory://"
    tag: str = "none"
    seed: int = 0
    jobs: int = 0
    seconds: float = 1.0
    lease: float = 2.0
    grace: float = 10.0
    folder: str = ""
    name: str = "none"
    producers: int = 1
    lane: int = 0
    concurrency: int = 8

    @property
    def logs(self) -> Path:
        return Path(self.folder)

    @property
    def log(self) -> Path:
        """Where this process notes what it does."""
        return self.logs / f"{self.name}.log" if self.folder else Path(os.devnull)

    @property
    def prefix(self) -> str:
        """What the keys of the run begin with, on stores that have keys."""
        return f"torture-{self.tag}"

    def environment(self) -> dict[str, str]:
        return os.environ | {VARIABLE: json.dumps(asdict(self)), "TORIL_NO_HTTP": "1"}

    @classmethod
    def here(cls) -> "Setting":
        """What this process was told."""
        return cls(**json.loads(os.environ.get(VARIABLE, "{}")))
