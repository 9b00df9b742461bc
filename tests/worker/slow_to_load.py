"""A module that, in a child process, is not loaded before the file at $GATE is there."""

import os
import time
from pathlib import Path

from toril import SyncJobContext

_MOST = 20.0  # seconds that it is waited for

if "TORIL_MAIN_FILE" in os.environ:
    _until = time.monotonic() + _MOST
    while not Path(os.environ["GATE"]).exists():
        if time.monotonic() > _until:
            raise TimeoutError("nobody has opened the gate")
        time.sleep(0.01)


def size(ctx: SyncJobContext[str]) -> int:
    return len(ctx.data)
