"""`toril bench`"""

from typing import Any, Final

import click

from toril import App
from toril.cli.bench.course import Course, Figure
from toril.cli.exit import say
from toril.cli.output import Column, Lines, json_option, show
from toril.cli.place import Place, on_store, store_options
from toril.runtime.clock import SYSTEM

__all__ = ["bench"]

_COLUMNS: Final = [Column("what"), Column("figure", numbers=True), Column("unit")]


@click.command()
@click.option(
    "--jobs", type=click.IntRange(10), default=20_000, show_default=True, help="To add in bulk, and work off."
)
@click.option("--light", type=click.IntRange(1), default=200, show_default=True, help="To add one now and then.")
@click.option("-c", "--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True)
@store_options
@json_option
def bench(*, jobs: int, light: int, concurrency: int, place: Place, as_json: bool) -> None:
    """Measure what your store does: adding, working off, and how soon a job is picked up.

    The jobs are no-ops of about 100 bytes in a queue of their own, which is removed afterwards. They are worked off by
    `toril run` with one process. The rate is jobs over the time from the first handler to the last; a job is picked up
    when its handler starts, counted from the call that adds it. Best done while nothing else is going on.
    """

    async def measured(app: App) -> list[Figure]:
        if app.url.startswith("memory:"):
            raise click.UsageError("memory:// is within one process; give a store that a worker process can reach")
        name = f"bench-{SYSTEM.unique()[:12]}"
        course = Course(app=app, name=name, alone=max(1, jobs // 10), bulk=jobs, light=light, concurrency=concurrency)
        return await course.run(say)

    found = on_store(place, measured, missing="create")
    documents = [{"what": each.what, "value": round(each.value, 3), "unit": each.unit} for each in found]
    show(Lines(documents, _COLUMNS, _row, "Nothing was measured."), as_json=as_json)


def _row(figure: dict[str, Any]) -> list[object]:
    value = figure["value"]
    return [figure["what"], f"{value:,.0f}" if figure["unit"] == "jobs/s" else f"{value:.2f}", figure["unit"]]
