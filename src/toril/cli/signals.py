"""`toril signal` and `toril waits`: send signals by key, and see who waits for one."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from toril import App, Signalled, WrongState
from toril.cli.arguments import complete_queues, json_given
from toril.cli.completion import queue_argument
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.exit import CommandFailed, say
from toril.cli.store_option import StoreOption, declared, on_store, store_options
from toril.cli.terminal import Column, Lines, age, ahead, duration, json_option, show
from toril.client.options import as_workers_declare
from toril.model import SignalOutcome
from toril.operate.documents import of_waiting
from toril.operate.steps import waiting_for_signals

__all__ = ["check_sent", "sent_text", "signal", "signal_options", "waits"]

T = TypeVar("T")


def signal_options(fn: Callable[..., T]) -> Callable[..., T]:
    """Give a command `--data` and `--id`, as its arguments `data` and `identity`."""
    fn = click.option("--id", "identity", metavar="ID", help="A second signal with this id has no effect.")(fn)
    return click.option(
        "--data",
        metavar="JSON|-|@FILE",
        help="The payload; `-` reads it from stdin, `@FILE` from a file. Default: true.",
    )(fn)


def check_sent(sent: Signalled, name: str, job_id: str) -> None:
    """Raise if the job did not get the signal."""
    if sent.outcome is SignalOutcome.ENDED:
        raise WrongState(f"job {job_id!r} has ended, so nothing reads its signals")
    if sent.outcome is SignalOutcome.NOT_WAITING:
        raise CommandFailed(f"job {job_id!r} is not waiting for the signal {name!r} now; nothing was sent")


def sent_text(sent: Signalled, to: str) -> str:
    """What became of a signal `to` a job or a key."""
    match sent.outcome:
        case SignalOutcome.DUPLICATE:
            return f"A signal with this id was sent before {to}; this one has no effect."
        case SignalOutcome.WOKEN:
            return f"Sent the signal {to}, which now runs again."
        case _:
            return f"Sent the signal {to}, which is not waiting for it now; it is kept until then."


@click.command()
@queue_argument
@click.argument("name")
@click.option("--key", required=True, help="Whom it is for, such as invoice:7.")
@signal_options
@click.option("--ttl", type=duration, default="1d", show_default=True, help="How long to keep it while no job waits.")
@store_options
@json_option
def signal(
    *,
    queue: str,
    name: str,
    key: str,
    data: str | None,
    identity: str | None,
    ttl: float,
    place: StoreOption,
    as_json: bool,
) -> None:
    """Send the signal NAME to whichever job of QUEUE waits for it by this key, now or later.

    To send one to a job by its id, use `toril job signal`.
    """
    payload = True if data is None else json_given(data, "--data")

    async def send(app: App) -> Signalled:
        found = await declared(app, queue)
        await as_workers_declare(found)  # refuses queues with a serializer that only the application has
        return await found.signal(name, payload, key=key, id=identity, ttl=ttl)

    sent = on_store(place, send)
    if as_json:
        facts = {"queue": queue, "signal": name, "key": key, "id": sent.job_id, "outcome": sent.outcome.value}
        click.echo(on_a_line(facts))
    elif sent.job_id is None and sent.outcome is SignalOutcome.KEPT:
        click.echo(plain(f"No job of {queue} waits for {name} by the key {key}; the signal is kept until one does."))
    else:
        to = f"by the key {key} in {queue}" if sent.job_id is None else f"to job {sent.job_id} in {queue}"
        click.echo(plain(sent_text(sent, to)))


_COLUMNS: Final = [
    Column("queue", 1), Column("job"), Column("name", 2), Column("waits for"), Column("since", 3), Column("until", 4),
]  # fmt: skip
_PAGE: Final = 1000


@click.command()
@click.argument("queues", nargs=-1, metavar="[QUEUE]...", shell_complete=complete_queues)
@click.option("--signal", "name", metavar="NAME", help="Only jobs that wait for this signal.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@click.option("--cursor", metavar="CURSOR", help="Continue from an earlier listing.")
@store_options
@json_option
def waits(
    *, queues: tuple[str, ...], name: str | None, limit: int, cursor: str | None, place: StoreOption, as_json: bool
) -> None:
    """List the jobs that wait for a signal, in all queues or in QUEUE."""

    async def look(app: App) -> tuple[list[dict[str, Any]], str | None]:
        names = [(await declared(app, each)).name for each in queues] or await app.store.queues()
        found: list[dict[str, Any]] = []
        after = cursor
        while True:
            most = min(limit - len(found), _PAGE)
            page = await waiting_for_signals(app.store, names, name, cursor=after, limit=most)
            found += map(of_waiting, page)
            after = page.cursor
            if after is None or len(found) == limit:
                return found, after

    found, after = on_store(place, look)
    none = "No jobs wait for a signal." if name is None else f"No jobs wait for the signal {name}."
    show(Lines(found, _COLUMNS, _row, none), as_json=as_json)
    if after is not None:
        say(on_a_line({"cursor": after}) if as_json else f"There are more; continue with  --cursor {after}")


def _row(found: dict[str, Any]) -> list[object]:
    signals = [each["name"] + (f" ({each['key']})" if each["key"] else "") for each in found["signals"]]
    until = "no timeout" if found["until"] is None else ahead(found["until"]).replace("due in", "in")
    return [found["queue"], found["id"], found["name"], ", ".join(signals), age(found["since"]), until]
