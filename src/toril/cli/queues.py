"""`toril queues`, `pause`, `resume` and `limit`: look at queues and control them."""

import re
from typing import Any, Final

import click

from toril import App, RateLimit
from toril.cli.completion import queue_argument
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.store_option import StoreOption, declared, on_store, store_options
from toril.cli.terminal import Column, Lines, duration, json_option, show
from toril.model import ms_of, per_ms
from toril.operate.documents import of_declaration, of_rate
from toril.operate.lookup import find_queues

__all__ = ["limit", "number_or_none", "pause", "queues", "rate_or_none", "resume"]

_RATE: Final = re.compile(r"(\d{1,9})/(.+)\Z", re.ASCII)


@click.command()
@queue_argument
@click.option(
    "--rate", metavar="MAX/TIME", help="Start at most MAX jobs in any TIME, as in 100/1s; `none` removes the limit."
)
@click.option("--fixed", is_flag=True, help="Count in BullMQ's fixed windows, for fleets with Node workers.")
@click.option("--concurrency", metavar="N", help="Run at most N jobs at once across all workers; `none` for no limit.")
@store_options
@json_option
def limit(
    *, queue: str, rate: str | None, fixed: bool, concurrency: str | None, place: StoreOption, as_json: bool
) -> None:
    """Show or set the limits of QUEUE across all workers. Limits set here override the code.

    Without options, show the limits that are set and those that the code of the live workers declares.
    """
    wanted_rate = None if rate is None else _limit_rate(rate, "fixed" if fixed else "sliding")
    wanted = None if concurrency is None else _number(concurrency)

    async def set_them(app: App) -> dict[str, Any]:
        found = await declared(app, queue)
        if wanted_rate is not None:
            await found.set_rate_limit(wanted_rate[0])
        if wanted is not None:
            await found.set_concurrency(wanted[0])
        settings = await found.settings()
        limited = settings.rate
        return {
            "queue": found.name, "concurrency": settings.concurrency, "rate_max": limited and limited.max,
            "rate_per_ms": limited and per_ms(limited), "rate_window": limited and limited.window,
            "held_till": ms_of(settings.held_till),
            "declared": of_declaration(await app.store.declarations(found.name)),
        }  # fmt: skip

    found = on_store(place, set_them)
    if as_json:
        click.echo(on_a_line(found))
        return
    for line in (_summary(found), *_declared(found["declared"], rate_is_set=found["rate_max"] is not None)):
        click.echo(plain(line))


def _limit_rate(text: str, window: Any) -> tuple[RateLimit | None]:
    """The rate in a tuple, so that `none` differs from not given."""
    if text == "none":
        return (None,)
    found = _RATE.match(text)
    if found is None:
        raise click.BadParameter(
            f"invalid rate {text!r}; expected MAX/TIME, such as 100/1s or 5/10m", param_hint="--rate"
        )
    return (RateLimit(int(found[1]), duration(found[2]), window),)


def _number(text: str) -> tuple[int | None]:
    return (number_or_none(text, "--concurrency"),)


def rate_or_none(text: str) -> RateLimit | None:
    """Parse a sliding rate, such as 100/1s."""
    return _limit_rate(text, "sliding")[0]


def number_or_none(text: str, option: str) -> int | None:
    """Parse a number, or `none`."""
    if text == "none":
        return None
    if not text.isdecimal():
        raise click.BadParameter(f"expected a number or 'none', not {text!r}", param_hint=option)
    return int(text)


def _summary(found: dict[str, Any]) -> str:
    """The limits that are set. What is not set here follows the code."""
    most = "no concurrency limit" if found["concurrency"] is None else f"at most {found['concurrency']} at once"
    rate = "no rate limit"
    if found["rate_max"] is not None:
        rate = f"at most {_starts(found['rate_max'], found['rate_per_ms'] / 1000, found['rate_window'])}"
    return f"{found['queue']}: {most}, {rate}."


def _declared(said: dict[str, Any] | None, *, rate_is_set: bool) -> list[str]:
    """Sentences about what the workers declare."""
    if said is None:
        return ["No live worker serves it."]
    many = "its worker" if said["workers"] == 1 else f"each of its {said['workers']} workers"
    slots = "" if said["workers"] == 1 else f" ({said['slots']} slots)"
    rate = "no rate limit"
    if said["rate"] is not None:
        starts = _starts(said["rate"]["max"], said["rate"]["per"], said["rate"]["window"])
        rate = f"at most {starts}" + (", which the limit set here overrides" if rate_is_set else "")
    lines = [f"The code declares {said['concurrency']} at once in {many}{slots}, {rate}."]
    if said["differs"]:
        differs = ", ".join(said["differs"])
        lines.append(f"Its workers declare different values for {differs}; these are the newest.")
    return lines


def _starts(most: int, seconds: float, window: str) -> str:
    return f"{most} per {seconds:g} s ({window})"


_COLUMNS: Final = [
    Column("queue"),
    Column("waiting", 1, numbers=True),
    Column("prioritized", 7, numbers=True),
    Column("active", 2, numbers=True),
    Column("delayed", 5, numbers=True),
    Column("children", 9, numbers=True),
    Column("resting", 13, numbers=True),
    Column("completed", 6, numbers=True),
    Column("failed", 3, numbers=True),
    Column("cancelled", 10, numbers=True),
    Column("kept", 8, numbers=True),
    Column("slots", 11, numbers=True),
    Column("rate", 12, numbers=True),
    Column("paused", 4),
]


@click.command()
@click.option("--bytes", "sizes", is_flag=True, help="Also estimate the size of each queue in the store.")
@store_options
@json_option
def queues(*, sizes: bool, place: StoreOption, as_json: bool) -> None:
    """List queues and their job counts.

    `resting` counts jobs that rest between durable steps; they are delayed or wait for children as well. `completed`,
    `failed` and `cancelled` count all jobs that ended that way; `kept` counts those still stored. `slots`
    is how many jobs the live workers can run at once, within the queue's limit. `rate` is how many jobs may start in a
    period, as set in the store or else declared by the workers' code. With `--bytes`, the largest queue comes first;
    sizes are estimated from up to 100 jobs of each queue.
    """
    found = on_store(place, _with_sizes if sizes else _documents)
    columns = [*_COLUMNS, Column("bytes", numbers=True)] if sizes else _COLUMNS
    show(Lines(found, columns, _row, "There are no queues yet."), as_json=as_json)


async def _documents(app: App) -> list[dict[str, Any]]:
    return [await _document(app, name) for name in await find_queues(app.store)]


async def _with_sizes(app: App) -> list[dict[str, Any]]:
    found = [
        {**document, "bytes": (await app.store.usage(document["queue"])).bytes} for document in await _documents(app)
    ]
    return sorted(found, key=lambda document: (-document["bytes"], document["queue"]))


async def _document(app: App, name: str) -> dict[str, Any]:
    view = await app.store.queue(name)
    counts = view.counts
    return {
        "queue": name,
        "waiting": counts.waiting,
        "prioritized": counts.prioritized,
        "active": counts.active,
        "delayed": counts.delayed,
        "waiting_children": counts.waiting_children,
        "resting": counts.resting,
        "completed": counts.completed,
        "failed": counts.failed,
        "paused": counts.paused,
        "completed_total": view.completed_total,
        "failed_total": view.failed_total,
        "cancelled_total": view.cancelled_total,
        "concurrency": view.settings.concurrency,
        "rate": of_rate(view.settings.rate),
        "max_waiting": view.settings.max_waiting,
        "declared": of_declaration(await app.store.declarations(name)),
    }


def _row(queue: dict[str, Any]) -> list[object]:
    ended = [queue[f"{ending}_total"] for ending in ("completed", "failed", "cancelled")]
    kept = queue["completed"] + queue["failed"]
    counts = [queue[name] for name in ("waiting", "prioritized", "active", "delayed", "waiting_children", "resting")]
    sizes = [f"{queue['bytes']:,}"] if "bytes" in queue else []
    limits = [_slots(queue), _rate(queue)]
    return [queue["queue"], *counts, *ended, kept, *limits, "paused" if queue["paused"] else "", *sizes]


def _slots(queue: dict[str, Any]) -> object:
    """A limit for the whole fleet leaves some of the slots unused."""
    slots = queue["declared"]["slots"] if queue["declared"] else 0
    return slots if queue["concurrency"] is None else f"{min(slots, queue['concurrency'])} of {slots}"


def _rate(queue: dict[str, Any]) -> str:
    rate = queue["rate"] or (queue["declared"] and queue["declared"]["rate"])
    return f"{rate['max']}/{rate['per']:g}s" if rate else ""


@click.command()
@queue_argument
@store_options
@json_option
def pause(*, queue: str, place: StoreOption, as_json: bool) -> None:
    """Pause QUEUE on all workers until it is resumed. Running jobs finish, and jobs can still be added."""

    async def switch(app: App) -> dict[str, Any]:
        await (await declared(app, queue)).pause()
        return await _state(app, queue)

    found = on_store(place, switch)
    line = f"Paused {queue} ({found['active']} still running, {found['waiting']} waiting)."
    _tell(found, line, as_json=as_json)


@click.command()
@queue_argument
@store_options
@json_option
def resume(*, queue: str, place: StoreOption, as_json: bool) -> None:
    """Resume QUEUE."""

    async def switch(app: App) -> dict[str, Any]:
        await (await declared(app, queue)).resume()
        return await _state(app, queue)

    found = on_store(place, switch)
    _tell(found, f"Resumed {queue} ({found['waiting']} waiting).", as_json=as_json)


async def _state(app: App, name: str) -> dict[str, Any]:
    counts = await app.queue(name).counts()
    waiting = counts.waiting + counts.prioritized
    return {"queue": name, "paused": counts.paused, "active": counts.active, "waiting": waiting}


def _tell(found: dict[str, Any], line: str, *, as_json: bool) -> None:
    click.echo(on_a_line(found) if as_json else plain(line))
