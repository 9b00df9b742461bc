"""Which store a command works on, and how it gets there."""

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import unquote, urlsplit

import click

from toril import App, EngineUnavailable, Queue, UnknownQueue
from toril.cli.endings import Failure, say
from toril.cli.times import duration
from toril.clock import SYSTEM
from toril.engine import redacted

__all__ = ["Place", "check_there", "declared", "on_store", "store_options"]

T = TypeVar("T")

_LOOK_AGAIN: Final = 0.2  # seconds between looks for a store that is waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A store, as the command line names it."""

    url: str | None
    prefix: str
    wait: float


def store_options(fn: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--url`, `--prefix` and `--wait`, as its argument `place`."""

    @click.option("--url", metavar="URL", help="The store. [default: $TORIL_URL, else sqlite:///toril.db]")
    @click.option(
        "--prefix", default="bull", envvar="TORIL_PREFIX", show_default=True, help="What its keys begin with."
    )
    @click.option("--wait", type=duration, default="0", help="Wait for the store for so long.")
    @functools.wraps(fn)
    def command(*, url: str | None, prefix: str, wait: float, **rest: Any) -> T:
        if url is not None and redacted(url) != url:
            say("Warning: a password on the command line is seen by others on this machine; set TORIL_URL instead")
        return fn(place=Place(url=url, prefix=prefix, wait=wait), **rest)

    return command


def on_store(
    place: Place, work: Callable[[App], Awaitable[T]], *, missing: Literal["refuse", "create"] = "refuse"
) -> T:
    """What `work` answers, with the store open. A command that only looks does not make a store in order to do so."""
    return asyncio.run(_worked(place, work, missing=missing))


async def _worked(place: Place, work: Callable[[App], Awaitable[T]], *, missing: Literal["refuse", "create"]) -> T:
    app = App(place.url, prefix=place.prefix)
    until, told = SYSTEM.monotonic() + place.wait, False
    while True:
        try:
            if missing == "refuse":
                check_there(app.url, named=bool(place.url or os.environ.get("TORIL_URL")))
            await app.open()
            break
        except (Failure, EngineUnavailable) as error:
            if SYSTEM.monotonic() >= until:
                raise
            if not told:
                say(f"Waiting: {error}")
                told = True
        await SYSTEM.sleep(_LOOK_AGAIN)
    try:
        return await work(app)
    finally:
        await app.close()


def check_there(url: str, *, named: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme == "memory":
        raise click.UsageError("memory:// is a store within one process, which other commands cannot see")
    if parts.scheme != "sqlite" or Path(unquote(parts.path[1:], errors="surrogateescape")).exists():
        return
    if not named:
        raise click.UsageError("no store is given, and there is no toril.db here: use --url, or set TORIL_URL")
    raise Failure(f"there is no store at {redacted(url)}")


async def declared(app: App, name: str, *, hint: str = "") -> Queue:
    """A queue that the store knows; a slip of the pen must not make another. `hint` ends the error."""
    queue = app.queue(name)
    known = await app.store.queues()
    if queue.name not in known:
        near = get_close_matches(queue.name, known, n=1)
        known_ones = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, known[:10])) or 'none'}"
        raise UnknownQueue(f"there is no queue {queue.name!r} in this store; {known_ones}{hint}")
    return queue
