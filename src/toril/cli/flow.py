"""`toril flow`: draw a flow."""

from typing import Final

import click
from rich.text import Text
from rich.tree import Tree as Drawing

from toril import App, FlowTree
from toril.cli.arguments import one
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.job import found_job
from toril.cli.store_option import StoreOption, on_store
from toril.cli.terminal import console
from toril.operate.documents import of_tree, standing

__all__ = ["flow"]

_COLOURS: Final = {
    "completed": "green", "failed": "red", "active": "blue", "waiting_children": "cyan", "ignored": "yellow",
    "cancelled": "magenta",
}  # fmt: skip


@click.command()
@click.option(
    "--depth", default=10, show_default=True, type=click.IntRange(0, 100), help="Levels to show below the root."
)
@click.option(
    "--width", default=20, show_default=True, type=click.IntRange(1, 1000), help="Children to show for each job."
)
@one("job", "job_id")
def flow(*, queue: str | None, job_id: str, depth: int, width: int, place: StoreOption, as_json: bool) -> None:
    """Draw the flow a job belongs to, from its root, with the state of each job."""

    async def look(app: App) -> FlowTree:
        return await app.tree(await found_job(app, queue, job_id), depth=depth, width=width)

    tree = on_store(place, look)
    if as_json:
        click.echo(on_a_line(of_tree(tree)))
    else:
        console().print(_drawn(tree))


def _drawn(tree: FlowTree) -> Drawing:
    drawing = Drawing(_label(tree))
    for child in tree.children:
        drawing.add(_drawn(child))
    left = tree.family.total - len(tree.children)
    if left > 0:
        drawing.add(Text(f"and {left} more", style="dim"))
    return drawing


def _label(tree: FlowTree) -> Text:
    word, family = standing(tree), tree.family
    label = Text(plain(f"{tree.name or '-'}  {tree.queue} {tree.id}  ")).append(word, style=_COLOURS.get(word, ""))
    if family.total:
        counts = (("open", family.open), ("completed", family.completed), ("ignored", family.ignored))
        ended = ", ".join(f"{count} {name}" for name, count in (*counts, ("failed", family.failed)) if count)
        label.append(f"  ({ended})", style="dim")
    if tree.text is not None and word in {"ignored", "failed"}:
        label.append(f"  {plain(tree.text)[:200]}")
    return label
