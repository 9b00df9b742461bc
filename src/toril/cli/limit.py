"""`toril limit`"""

import re
from typing import Any, Final

import click

from toril import App, RateLimit
from toril.cli.completion import queue_argument
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.output import json_option
from toril.cli.place import Place, declared, on_store, store_options
from toril.cli.times import duration
from toril.model import ms_of, per_ms
from toril.operate.documents import of_declaration

__all__ = ["limit", "number_or_none", "rate_or_none"]

_RATE: Final = re.compile(r"(\d{1,9})/(.+)\Z", re.ASCII)


@click.command()
@queue_argument
@click.option("--rate", metavar="MAX/TIME", help="At most MAX starts in any TIME, as in 100/1s; `none` takes it back.")
@click.option("--fixed", is_flag=True, help="Count in BullMQ's fixed windows, for fleets with workers of Node.")
@click.option("--concurrency", metavar="N", help="At most N at once over the whole fleet; `none` for no bound.")
@store_options
@json_option
def limit(*, queue: str, rate: str | None, fixed: bool, concurrency: str | None, place: Place, as_json: bool) -> None:
    """Show or set how fast QUEUE may go, for every worker at once. What is set here wins over the code.

    Without options it shows what is set, and what the code of the living workers declares.
    """
    wanted_rate = None if rate is None else _rate(rate, "fixed" if fixed else "sliding")
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
    for line in (_told(found), *_declared(found["declared"], rate_is_set=found["rate_max"] is not None)):
        click.echo(plain(line))


def _rate(text: str, window: Any) -> tuple[RateLimit | None]:
    """In a tuple, so that nothing asked for and nothing wanted are two things."""
    if text == "none":
        return (None,)
    found = _RATE.match(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a rate such as 100/1s or 5/10m", param_hint="--rate")
    return (RateLimit(int(found[1]), duration(found[2]), window),)


def _number(text: str) -> tuple[int | None]:
    return (number_or_none(text, "--concurrency"),)


def rate_or_none(text: str) -> RateLimit | None:
    """A sliding rate, such as 100/1s."""
    return _rate(text, "sliding")[0]


def number_or_none(text: str, option: str) -> int | None:
    """A number; `none` is none."""
    if text == "none":
        return None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is not a number, nor none", param_hint=option)
    return int(text)


def _told(found: dict[str, Any]) -> str:
    """What is set, and then what the code says: what is not set is as it says."""
    most = (
        "no bound on how many run at once"
        if found["concurrency"] is None
        else f"at most {found['concurrency']} at once"
    )
    rate = "no rate set"
    if found["rate_max"] is not None:
        rate = f"at most {_starts(found['rate_max'], found['rate_per_ms'] / 1000, found['rate_window'])}"
    return f"{found['queue']}: {most}, {rate}."


def _declared(said: dict[str, Any] | None, *, rate_is_set: bool) -> list[str]:
    """The sentences on what workers declare."""
    if said is None:
        return ["No living worker declares it."]
    many = "its worker" if said["workers"] == 1 else f"each of its {said['workers']} workers"
    slots = "" if said["workers"] == 1 else f" ({said['slots']} slots)"
    rate = "no rate"
    if said["rate"] is not None:
        starts = _starts(said["rate"]["max"], said["rate"]["per"], said["rate"]["window"])
        rate = f"at most {starts}" + (", which what is set here replaces" if rate_is_set else "")
    lines = [f"The code declares {said['concurrency']} at once in {many}{slots}, {rate}."]
    if said["differs"]:
        differs = ", ".join(said["differs"])
        lines.append(f"Its workers declare different values for {differs}; these are the newest.")
    return lines


def _starts(most: int, seconds: float, window: str) -> str:
    return f"{most} in {seconds:g} s ({window})"
