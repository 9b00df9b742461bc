"""The options that say which store a command works on."""

import asyncio
import functools
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import unquote, urlsplit

import click
from click.core import ParameterSource

from toril import App, EngineUnavailable, Queue, UnknownQueue
from toril.cli.exit import CommandFailed, say
from toril.cli.loading import load
from toril.cli.terminal import duration
from toril.operate.lookup import find_queues
from toril.runtime.clock import SYSTEM
from toril.store.connect import is_in_memory
from toril.store.engine import redacted

__all__ = [
    "StoreOption",
    "check_there",
    "declared",
    "is_typed",
    "on_store",
    "refuse_early_options",
    "secrets_option",
    "store_options",
]

T = TypeVar("T")

_LOOK_AGAIN: Final = 0.2  # seconds between attempts to reach a store that is waited for
_SHOW_SECRETS: Final = "toril.show_secrets"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOption:
    """The store that the command line names: by its app or by its URL."""

    url: str | None
    prefix: str
    wait: float
    app: str | None = None

    def of(self, target: str | None) -> "StoreOption":
        """The same, for a command that takes an app as its argument."""
        if target is None:
            return self
        if any(map(is_typed, ("app", "url", "prefix"))):
            raise click.UsageError("an app has its own store: give MODULE:APP, or --url and --prefix, not both")
        return replace(self, app=target)

    def to_app(self) -> App:
        """The app itself, with its queues and its `redact`, or an app that knows only the store."""
        if self.app is None:
            return App(self.url, prefix=self.prefix)
        with redirect_stdout(sys.stderr):  # what its modules print is not output of the command
            return load(self.app)


def store_options(fn: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--app`, `--url`, `--prefix` and `--wait`, as its argument `place`."""

    @click.option(
        "--app", "-A", metavar="MODULE:APP", envvar="TORIL_APP", help="Use the store of this app. [default: $TORIL_APP]"
    )
    @click.option("--url", metavar="URL", help="Store URL. [default: $TORIL_URL, else sqlite:///toril.db]")
    @click.option("--prefix", default="bull", envvar="TORIL_PREFIX", show_default=True, help="Redis key prefix.")
    @click.option("--wait", type=duration, default="0", help="How long to wait for the store to become available.")
    @functools.wraps(fn)
    def command(*, app: str | None, url: str | None, prefix: str, wait: float, **rest: Any) -> T:
        if url is not None and redacted(url) != url:
            say("Warning: other users of this machine can see a password on the command line; set TORIL_URL instead")
        if is_typed("url") or is_typed("prefix"):
            if is_typed("app"):
                raise click.UsageError("an app has its own store: give --app, or --url and --prefix, not both")
            app = None
        return fn(place=StoreOption(url=url, prefix=prefix, wait=wait, app=app), **rest)

    return command


def is_typed(option: str) -> bool:
    """Whether it was given on the command line. A variable such as `$TORIL_URL` may be meant for something else."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def refuse_early_options(ctx: click.Context) -> None:
    """For a group that can be called without a subcommand: an option before the subcommand would not reach it, and the
    subcommand would use a different store from the one that was named."""
    for option in ctx.command.params:
        if ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"put {option.opts[0]} after {ctx.invoked_subcommand!r}", ctx)


def secrets_option(fn: Callable[..., T]) -> Callable[..., T]:
    """Give a command that shows payloads and errors `--show-secrets`. What the app's `redact` hides stays hidden."""

    def note(ctx: click.Context, _option: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's way
        ctx.meta[_SHOW_SECRETS] = given

    decorate = click.option(
        "--show-secrets",
        is_flag=True,
        expose_value=False,
        callback=note,
        help="Show values that look like secrets, which are otherwise shown as ***.",
    )
    return decorate(fn)


def on_store(
    place: StoreOption,
    work: Callable[[App], Awaitable[T]],
    *,
    missing: Literal["refuse", "create"] = "refuse",
    hint: str = "",
) -> T:
    """Run `work` with the store open, and return its answer. A command that only reads does not create a store; `hint`
    is added to the error that there is none."""
    return asyncio.run(_worked(place, work, missing=missing, hint=hint))


async def _worked(
    place: StoreOption, work: Callable[[App], Awaitable[T]], *, missing: Literal["refuse", "create"], hint: str
) -> T:
    app = place.to_app()
    ctx = click.get_current_context(silent=True)
    app.redaction.secrets = "show" if ctx is not None and ctx.meta.get(_SHOW_SECRETS) else "mask"
    until, reported = SYSTEM.monotonic() + place.wait, False
    while True:
        try:
            if missing == "refuse":
                check_there(app.url, named=bool(place.app or place.url or os.environ.get("TORIL_URL")), hint=hint)
            await app.open()
            break
        except (CommandFailed, EngineUnavailable) as error:
            if SYSTEM.monotonic() >= until:
                raise
            if not reported:
                say(f"Waiting: {error}")
                reported = True
        await SYSTEM.sleep(_LOOK_AGAIN)
    try:
        return await work(app)
    finally:
        await app.close()


def check_there(url: str, *, named: bool, hint: str = "") -> None:
    if is_in_memory(url):
        raise click.UsageError(
            "memory:// is private to one process: other commands cannot see it; use sqlite://, postgresql:// or redis://"
        )
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or Path(unquote(parts.path[1:], errors="surrogateescape")).exists():
        return
    if not named:
        raise click.UsageError(
            "no store is given, and there is no toril.db in this folder: use --app MODULE:APP or --url URL, or set "
            f"TORIL_APP or TORIL_URL{hint}"
        )
    raise CommandFailed(f"there is no store at {redacted(url)}{hint}")


async def declared(app: App, name: str, *, hint: str = "") -> Queue:
    """A queue that the app declares, the store knows or a live worker serves, even if it has no jobs yet; a typo must
    not create another queue. `hint` is added to the error."""
    if name in app.queues:
        return app.queues[name]
    queue = app.queue(name)
    known = await find_queues(app.store)
    if queue.name not in known:
        near = get_close_matches(queue.name, known, n=1)
        known_ones = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, known[:10])) or 'none'}"
        raise UnknownQueue(f"there is no queue {queue.name!r} in this store; {known_ones}{hint}")
    return queue
