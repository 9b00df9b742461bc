"""`toril groups`: list groups, pause them, and limit them."""

from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from toril import App, GroupLimits, GroupRecord
from toril.cli.completion import queue_argument, queue_names
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import plain
from toril.cli.queues import number_or_none, rate_or_none
from toril.cli.store_option import StoreOption, declared, on_store, store_options
from toril.cli.terminal import Column, Lines, ahead, json_option, show
from toril.model import ms_of, per_ms

__all__ = ["groups"]

_COLUMNS: Final = [
    Column("group"), Column("waiting", 1, numbers=True), Column("running", 2, numbers=True), Column("limits", 3),
    Column("state", 4),
]  # fmt: skip


class _Groups(click.Group):
    """`toril groups QUEUE` lists; the other words are commands."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = ["list", *args]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = queue_names(ctx, click.Argument(["queue"]), incomplete)
        return [*super().shell_complete(ctx, incomplete), *map(CompletionItem, names)]


@click.group(cls=_Groups)
def groups() -> None:
    """List the groups of a QUEUE; pause, resume or limit one."""


@groups.command("list")
@queue_argument
@click.option("--all", "every", is_flag=True, help="All of them, not just the first hundred.")
@store_options
@json_option
def listed(*, queue: str, every: bool, place: StoreOption, as_json: bool) -> None:
    """Groups of QUEUE that have jobs which have not ended, or limits of their own."""

    async def look(app: App) -> list[GroupRecord]:
        found = (await declared(app, queue)).groups
        page = await found.list()
        seen = list(page)
        while every and page.cursor is not None:
            page = await found.list(page.cursor, 1000)
            seen += page
        return seen

    show(Lines(map(_document, on_store(place, look)), _COLUMNS, _row, "No group has jobs."), as_json=as_json)


@groups.command()
@queue_argument
@click.argument("group")
@store_options
@json_option
def pause(*, queue: str, group: str, place: StoreOption, as_json: bool) -> None:
    """Start nothing more of GROUP, anywhere, until it is resumed. What runs goes on, and jobs can be added."""

    async def act(app: App) -> GroupRecord:
        return await (await declared(app, queue)).groups.pause(group)

    _tell(on_store(place, act), "is paused", as_json=as_json)


@groups.command()
@queue_argument
@click.argument("group")
@store_options
@json_option
def resume(*, queue: str, group: str, place: StoreOption, as_json: bool) -> None:
    """Let GROUP go on."""

    async def act(app: App) -> GroupRecord:
        return await (await declared(app, queue)).groups.resume(group)

    _tell(on_store(place, act), "goes on", as_json=as_json)


@groups.command("set")
@queue_argument
@click.argument("group", required=False)
@click.option("--concurrency", metavar="N", help="At most N of a group at once; 1 also keeps their order.")
@click.option("--rate", metavar="MAX/TIME", help="At most MAX starts of a group in any TIME, as in 10/1m.")
@click.option("--max-waiting", metavar="N", help="Refuse jobs of a group that has N waiting.")
@click.option("--weight", metavar="N", help="How many turns it gets where others get one.")
@store_options
@json_option
def set_(*, queue: str, group: str | None, place: StoreOption, as_json: bool, **words: str | None) -> None:
    """Give GROUP limits of its own, or, without one, give them to each group of QUEUE, over what the code says. `none`
    takes one back."""
    given = _given(words)

    async def act(app: App) -> GroupRecord:
        found = await declared(app, queue)
        if group is not None:
            return await found.groups.set(group, **given)
        now = (await found.settings()).groups
        limits = GroupLimits(**{name: given.get(name, getattr(now, name)) for name in _NAMES})
        return GroupRecord(
            name="each group", limits=await found.groups.set_all(None if limits == GroupLimits() else limits)
        )

    _tell(on_store(place, act), "has these limits", as_json=as_json)


_NAMES: Final = ("concurrency", "rate_limit", "max_waiting", "weight")


def _given(words: dict[str, str | None]) -> dict[str, Any]:
    """Those that were named, and not the others."""
    rate = words.pop("rate")
    found: dict[str, Any] = {} if rate is None else {"rate_limit": rate_or_none(rate)}
    for name, text in words.items():
        if text is not None:
            found[name] = number_or_none(text, f"--{name.replace('_', '-')}")
    return found


def _tell(view: GroupRecord, what: str, *, as_json: bool) -> None:
    found = _document(view)
    limits = _limits(found) or "none"
    text = f"{view.name} {what}; {view.waiting} wait, {view.running} run; limits: {limits}."
    click.echo(on_a_line(found) if as_json else plain(text))


def _document(view: GroupRecord) -> dict[str, Any]:
    rate = view.limits.rate_limit
    return {
        "group": view.name, "waiting": view.waiting, "running": view.running, "paused": view.paused,
        "concurrency": view.limits.concurrency, "rate_max": rate and rate.max, "rate_per_ms": rate and per_ms(rate),
        "max_waiting": view.limits.max_waiting, "weight": view.limits.weight or 1, "till": ms_of(view.till),
    }  # fmt: skip


def _limits(found: dict[str, Any]) -> str:
    parts = [
        found["concurrency"] and f"{found['concurrency']} at once",
        found["rate_max"] and f"{found['rate_max']} in {found['rate_per_ms'] / 1000:g} s",
        found["max_waiting"] and f"{found['max_waiting']} may wait",
        found["weight"] > 1 and f"weight {found['weight']}",
    ]
    return ", ".join(part for part in parts if part)


def _row(found: dict[str, Any]) -> list[object]:
    state = "paused" if found["paused"] else f"rate used up, goes on {ahead(found['till'])}" if found["till"] else ""
    return [found["group"], found["waiting"], found["running"], _limits(found), state]
