"""`toril metrics`: show a queue's throughput, failures and latency."""

from typing import Any, Final

import click

from toril import App
from toril.cli.completion import queue_argument
from toril.cli.store_option import StoreOption, declared, on_store, store_options
from toril.cli.terminal import Column, Lines, json_option, show, span
from toril.operate.documents import of_metrics

__all__ = ["metrics"]

_COLUMNS: Final = [
    Column("queue"), Column("range", 8), Column("completed", 1, numbers=True), Column("failed", 2, numbers=True),
    Column("rate", 3, numbers=True), Column("cancelled", 6, numbers=True), Column("wait p50", 7, numbers=True),
    Column("p95", 4, numbers=True),
    Column("run p50", 7, numbers=True), Column("p95", 4, numbers=True), Column("retries", 5, numbers=True),
    Column("stalls", 5, numbers=True), Column("fails most", 6),
]  # fmt: skip


@click.command()
@queue_argument
@click.option("--range", "over", type=click.Choice(["1h", "4h", "12h", "1d", "7d"]), default="1h", show_default=True)
@store_options
@json_option
def metrics(*, queue: str, over: Any, place: StoreOption, as_json: bool) -> None:
    """Show how many jobs of QUEUE completed, failed or were cancelled recently, and how long they waited and ran.

    `--json` prints everything, including the points over time.
    """

    async def look(app: App) -> list[dict[str, Any]]:
        return [of_metrics(await (await declared(app, queue)).metrics(over))]

    show(Lines(on_store(place, look), _COLUMNS, _row, ""), as_json=as_json)


def _row(found: dict[str, Any]) -> list[object]:
    times = [_time(found[kind][share]) for kind in ("wait", "run") for share in ("p50", "p95")]
    most = next((f"{name} ({count})" for name, count in found["failures"].items()), "")
    rate = f"{found['failure_rate']} %"
    ended = [found["completed"], found["failed"], rate, found["cancelled"]]
    return [found["queue"], found["range"], *ended, *times, found["retries"], found["stalls"], most]


def _time(seconds: float | None) -> str:
    return "" if seconds is None else span(round(seconds * 1000))
