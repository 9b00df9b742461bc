"""Errors in threads that nobody waits for."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from toril.runtime.logs import log

__all__ = ["logged"]


@contextmanager
def logged() -> Iterator[None]:
    """While workers run, a thread that dies by an error is logged, as asyncio does for tasks, and not just printed.
    Whoever had asked to be told of such errors before is still told."""
    before = threading.excepthook

    def write(args: threading.ExceptHookArgs) -> None:
        error = args.exc_value
        if error is not None and not isinstance(error, SystemExit):
            name = "?" if args.thread is None else args.thread.name
            log.error("thread %s ended with an error", name, exc_info=error)
        if before is not threading.__excepthook__:
            before(args)

    threading.excepthook = write
    try:
        yield
    finally:
        threading.excepthook = before
