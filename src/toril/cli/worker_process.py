"""The worker processes that `toril run` starts."""

import asyncio
import faulthandler
import gc
import importlib
import json
import logging
import os
import selectors
import signal
import sys
import sysconfig
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any, Final, NoReturn

import click

from toril import App, TorilError
from toril.cli.loading import load
from toril.cli.terminal import write_logs
from toril.runtime.clock import plain_asyncio
from toril.runtime.hooks import worker_name
from toril.runtime.logs import outages
from toril.worker.isolation import SuspectPolicy
from toril.worker.messages import pieces
from toril.worker.supervised import SIGNALS, SupervisorLink

__all__ = ["chosen_queues", "loop_factory", "main"]

_SHORT: Final = 0.1  # seconds; a millisecond does not matter in longer waits
_HIGHEST: Final = 1024  # the first descriptor that `select` cannot handle

if sys.platform == "linux":

    class _PreciseSelector(selectors.EpollSelector):
        """Waits exactly as long as it is told to. Python's own selector rounds up to whole milliseconds, in which many
        jobs could have run; here a call with microseconds waits, and the usual one then says what is ready."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and 0 < timeout < _SHORT and self.fileno() < _HIGHEST:
                select([self.fileno()], [], [], timeout)
                timeout = 0
            return super().select(timeout)

    def _fine_loop() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(_PreciseSelector())

else:  # other systems' selectors do not round
    _fine_loop = asyncio.new_event_loop


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """What creates the event loop with this name."""
    if name != "asyncio":
        made: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(name).new_event_loop
        return made
    return asyncio.new_event_loop if plain_asyncio() else _fine_loop


_log: Final = logging.getLogger("toril")
_MOMENT: Final = 2.0  # seconds for handlers' threads to end after everything else
_OURS: Final = str(Path(__file__).parents[1])


def main(orders: str, descriptors: str) -> int:
    """Load the app and run its queues. If the boot fails, the supervisor is told, and words the error."""
    given = json.loads(orders)
    line, memory, stacks = map(int, descriptors.split(","))
    for descriptor in (line, memory, stacks):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - not ours
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):  # a terminal sends them to the whole group
        signal.signal(number, lambda *_: None)  # the supervisor decides
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    write_logs(given["log_level"])
    under = SupervisorLink(line, memory, SuspectPolicy[given["suspects"]])
    outages.pass_on = lambda text: under.say(trouble=text)
    try:
        app = load(given["target"])
        queues = chosen_queues(app, [(name, slots) for name, slots in given["queues"]])
        _check_shared(app, given["processes"])
    except click.UsageError as error:
        under.tell(failed=[2, error.format_message(), True])
        return 2
    if app.services.in_memory:  # no other process can reach its jobs
        under.suspects = SuspectPolicy.HOLD_CLAIMS
    elif under.suspects is SuspectPolicy.ONLY:
        queues = dict.fromkeys(queues, 1)
    place = {"url": app.url, "prefix": app.prefix, "options": app.store_options, "outbox": app.outbox_url}
    name = worker_name(app.services.clock) if given["name"] is None else f"{given['name']}-{os.getpid()}"
    under.tell(hello={**place, "queues": queues, "worker": name})
    for piece in pieces(sources()) if given["reload"] else ():
        under.tell(sources=piece)
    gc.collect()
    gc.freeze()  # scanning what is loaded again and again would hold up jobs for milliseconds
    return _worked(app, queues, name, given, under)


def _check_shared(app: App, processes: int) -> None:
    if processes > 1 and app.services.in_memory:
        raise click.UsageError(
            f"--processes {processes} needs a store that processes can share, and memory:// is private to one process: "
            "use sqlite://, postgresql:// or redis://, or --processes 1"
        )


def sources() -> list[str]:
    """The application's source files: everything loaded from outside Python's libraries and Toril."""
    libraries = tuple({*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")), _OURS})
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [file for file in files if file is not None and not file.startswith(libraries)]


def _worked(app: App, queues: dict[str, int], name: str, given: dict[str, Any], under: SupervisorLink) -> int:
    try:
        with asyncio.Runner(loop_factory=loop_factory(given["loop"])) as runner:
            options = {key: given[key] for key in ("grace", "burst", "stall_interval")}
            return runner.run(app.run(queues=queues, name=name, under=under, **options))
    except BaseExceptionGroup as group:
        return _failed(_innermost(group), under)
    except Exception as error:
        return _failed(error, under)


def _failed(error: BaseException, under: SupervisorLink) -> int:
    if isinstance(error, TorilError):
        under.tell(failed=[1, str(error)])
    else:
        _log.error("the app failed", exc_info=error)
        under.tell(failed=[1, f"the app failed: {type(error).__name__}: {error}"])
    return 1


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def chosen_queues(app: App, chosen: list[tuple[str, int | None]]) -> dict[str, int]:
    """The queues to serve, each with its concurrency."""
    if not chosen:
        found = {name: queue.options.concurrency for name, queue in app.queues.items() if queue.handlers.names}
        if not found:
            raise click.BadParameter("the app has no queue with a handler", param_hint="MODULE:APP")
        return found
    for name, _ in chosen:
        if name not in app.queues:
            known = ", ".join(app.queues) or "none"
            raise click.BadParameter(f"the app has no queue {name!r}; it has {known}", param_hint="-q")
    return {name: slots or app.queues[name].options.concurrency for name, slots in chosen}


def _leave(code: int) -> NoReturn:
    """Exit, and report what handlers have left behind. Their threads get a moment, because Python would wait for them
    forever."""
    with suppress(OSError):  # not on Linux
        pid = os.getpid()
        left = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
        if left:
            _log.warning("processes started by handlers are still running: %s", ", ".join(left))
    timer = threading.Timer(_MOMENT, _end, (code,))
    timer.daemon = True
    timer.start()
    sys.exit(code)


def _end(code: int) -> NoReturn:
    alive = [thread.name for thread in threading.enumerate() if not thread.daemon and thread.name != "MainThread"]
    _log.warning("threads started by handlers are still running: %s; exiting without them", ", ".join(alive))
    os._exit(code)


if __name__ == "__main__":
    _leave(main(*sys.argv[1:]))
