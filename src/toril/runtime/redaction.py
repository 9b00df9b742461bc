"""What people may see of a job's payload, result and errors. The app decides; if it fails to, nothing is shown."""

import copy
import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from toril.errors import InvalidOption, preview
from toril.model import MAX_REASON_BYTES
from toril.policy.redaction import COVER, masked, redacted, showable
from toril.runtime.logs import log

__all__ = ["Part", "Redact", "Redaction", "RedactionContext"]

Part: TypeAlias = Literal["data", "result", "error", "traceback", "progress", "metadata", "log", "step", "signal"]
_TEXTS: Final = frozenset({"error", "traceback", "log", "result"})  # parts whose text may contain a secret
VARIABLE: Final = "TORIL_REDACT"  # MODULE:FUNCTION, for processes that do not load the app's code


@dataclass(frozen=True, slots=True)
class RedactionContext:
    """What is about to be shown, of which queue and job name."""

    part: Part
    queue: str
    name: str


Redact: TypeAlias = Callable[[Any, RedactionContext], Any]


class Redaction:
    """A function `(value, context)` that returns a value as people may see it; it gets a copy. Without one,
    `$TORIL_REDACT` may name a function. If that cannot be loaded, or fails, nothing is shown. With `secrets` set to
    `mask`, values that are named or look like secrets are masked after that."""

    secrets: Literal["show", "mask"] = "show"

    def __init__(self, redact: Redact | None = None) -> None:
        if redact is not None and not callable(redact):
            raise InvalidOption(f"redact must be a function of a value and a RedactionContext, not {preview(redact)}")
        self._redact = redact
        self._named = "" if redact is not None else os.environ.get(VARIABLE, "")

    def seen(self, value: Any, part: Part, queue: str, name: str) -> Any:
        """The value as it may be shown, in a form that can be shown: see `showable`."""
        found = self._redacted(value, part, queue, name)
        if self.secrets == "show":
            return found
        if isinstance(found, str) and part in _TEXTS and len(found) <= MAX_REASON_BYTES:
            return redacted(found)
        return masked(found)

    def _redacted(self, value: Any, part: Part, queue: str, name: str) -> Any:
        value = showable(value)
        if value is None or (self._redact is None and not self._named):
            return value
        try:
            found = self._function()(copy.deepcopy(value), RedactionContext(part, queue, name))
            json.dumps(found)  # fails here rather than when it is shown
        except Exception:
            log.exception("redact failed for the %s of a %r job: it is not shown", part, name)
            return COVER
        return showable(found)

    def text(self, value: str | None, part: Part, queue: str, name: str) -> str | None:
        """The same for what must remain text."""
        found = self.seen(value, part, queue, name)
        return found if found is None or isinstance(found, str) else json.dumps(found)

    def _function(self) -> Redact:
        if self._redact is None:
            # On first use: the named module may be the one that creates the app. It is searched for in the
            # current folder too, as `toril run` does.
            module, _, name = self._named.partition(":")
            if (here := str(Path.cwd())) not in sys.path:
                sys.path.insert(0, here)
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
            self._redact = found
        return self._redact
