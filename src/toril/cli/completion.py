"""Shell completion of names from the store or the app. A user has pressed Tab and is waiting: on any error or delay,
nothing is completed and nothing is printed."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from typing import Final

import click

from toril import App
from toril.cli.store_option import StoreOption, check_there
from toril.operate.lookup import find_queues
from toril.store.engine import Store

__all__ = ["job_names", "queue_argument", "queue_names", "queue_words", "schedule_words", "worker_names"]

_PATIENCE: Final = 2.0  # seconds

# Lists names from an app and its store, which is None if there is none yet.
Look = Callable[[App, Store | None], Awaitable[Iterable[str]]]


def queue_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The queues in the store and those that the app declares."""

    async def look(app: App, store: Store | None) -> Iterable[str]:
        return {*app.queues, *([] if store is None else await find_queues(store))}

    return _beginning(incomplete, _found(ctx, look))


queue_argument = click.argument("queue", shell_complete=queue_names)


def job_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The jobs for which the app, or a live worker, has handlers in the given queue."""
    queue = _given(ctx, "queue") or ""

    async def look(app: App, store: Store | None) -> Iterable[str]:
        own = app.queues[queue].handlers.names if queue in app.queues else ()
        declared = () if store is None else (await store.declarations(queue)).items
        return {*own, *(name for each in declared for name in each.declaration.handlers or ())}

    return _beginning(incomplete, _found(ctx, look)) if queue else []


def worker_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The workers that are alive."""

    async def look(_app: App, store: Store | None) -> Iterable[str]:
        return [] if store is None else [worker.id for worker in await store.workers()]

    return _beginning(incomplete, _found(ctx, look))


def queue_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a queue. What follows it is an id, and there may be millions of those."""
    return [] if ctx.params.get(param.name or "") else queue_names(ctx, param, incomplete)


def schedule_words(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a queue, then one of its schedules."""
    words = ctx.params.get(param.name or "") or ()
    if not words:
        return queue_names(ctx, param, incomplete)

    async def look(_app: App, store: Store | None) -> Iterable[str]:
        views = () if store is None else (await store.schedules.page(words[0], limit=1000)).items
        return [view.schedule.id for view in views]

    return _beginning(incomplete, _found(ctx, look)) if len(words) == 1 else []


def _given(ctx: click.Context, name: str) -> str | None:
    """An argument that was typed before. While an option is waiting for its value, click has not assigned any."""
    first = next((param.name for param in ctx.command.params if isinstance(param, click.Argument)), None)
    return ctx.params.get(name) or (ctx.args[0] if ctx.args and name == first else None)


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _found(ctx: click.Context, look: Look) -> Iterable[str]:
    url, prefix = ctx.params.get("url"), ctx.params.get("prefix") or "bull"
    app = None if url else _given(ctx, "target") or ctx.params.get("app") or os.environ.get("TORIL_APP")
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # noqa: PTH123 - no path
        try:
            return asyncio.run(_looked(StoreOption(url=url, prefix=prefix, wait=0, app=app), look))
        except (Exception, SystemExit):  # nobody wants a traceback from pressing Tab
            return ()


async def _looked(place: StoreOption, look: Look) -> Iterable[str]:
    app = place.to_app()
    try:
        check_there(app.url, named=True)
    except click.ClickException:
        return await look(app, None)
    async with asyncio.timeout(_PATIENCE), app:
        return await look(app, app.store)
