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
    """List the groups of QUEUE; pause, resume or limit one."""


@groups.command("list")
@queue_argument
@click.option("--all", "every", is_flag=True, help="List all groups, not only the first hundred.")
@store_options
@json_option
def listed(*, queue: str, every: bool, place: StoreOption, as_json: bool) -> None:
    """List groups of QUEUE that have unfinished jobs or limits of their own."""

    async def look(app: App) -> list[GroupRecord]:
        found = (await declared(app, queue)).groups
        page = await found.list()
        seen = list(page)
        while every and page.cursor is not None:
            page = await found.list(page.cursor, 1000)
            seen += page
        return seen

    show(Lines(map(_document, on_store(place, look)), _COLUMNS, _row, "No groups have jobs."), as_json=as_json)


@groups.command()
@queue_argument
@click.argument("group")
@store_options
@json_option
def pause(*, queue: str, group: str, place: StoreOption, as_json: bool) -> None:
    """Pause GROUP on all workers until it is resumed. Running jobs finish, and jobs can still be added."""

    async def act(app: App) -> GroupRecord:
        return await (await declared(app, queue)).groups.pause(group)

    _tell(on_store(place, act), f"Paused group {group}", as_json=as_json)


@groups.command()
@queue_argument
@click.argument("group")
@store_options
@json_option
def resume(*, queue: str, group: str, place: StoreOption, as_json: bool) -> None:
    """Resume GROUP."""

    async def act(app: App) -> GroupRecord:
        return await (await declared(app, queue)).groups.resume(group)

    _tell(on_store(place, act), f"Resumed group {group}", as_json=as_json)


@groups.command("set")
@queue_argument
@click.argument("group", required=False)
@click.option("--concurrency", metavar="N", help="Run at most N jobs of a group at once; 1 also keeps their order.")
@click.option("--rate", metavar="MAX/TIME", help="Start at most MAX jobs of a group in any TIME, as in 10/1m.")
@click.option("--max-waiting", metavar="N", help="Refuse jobs for a group that has N waiting.")
@click.option("--weight", metavar="N", help="How many turns it gets for each turn of another group.")
@store_options
@json_option
def set_(*, queue: str, group: str | None, place: StoreOption, as_json: bool, **words: str | None) -> None:
    """Set limits for GROUP, or, without GROUP, for every group of QUEUE. They override the code; `none` removes one."""
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

    found = on_store(place, act)
    if group is None and not as_json:
        click.echo(plain(f"Default group limits for {queue}: {_limits(_document(found)) or 'none'}."))
    else:
        _tell(found, f"Group {group}", as_json=as_json)


_NAMES: Final = ("concurrency", "rate_limit", "max_waiting", "weight")


def _given(words: dict[str, str | None]) -> dict[str, Any]:
    """The limits that were given."""
    rate = words.pop("rate")
    found: dict[str, Any] = {} if rate is None else {"rate_limit": rate_or_none(rate)}
    for name, text in words.items():
        if text is not None:
            found[name] = number_or_none(text, f"--{name.replace('_', '-')}")
    return found


def _tell(view: GroupRecord, what: str, *, as_json: bool) -> None:
    found = _document(view)
    limits = _limits(found) or "none"
    text = f"{what}: {view.waiting} waiting, {view.running} running; limits: {limits}."
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
        found["rate_max"] and f"{found['rate_max']} per {found['rate_per_ms'] / 1000:g} s",
        found["max_waiting"] and f"at most {found['max_waiting']} waiting",
        found["weight"] > 1 and f"weight {found['weight']}",
    ]
    return ", ".join(part for part in parts if part)


def _row(found: dict[str, Any]) -> list[object]:
    state = "paused" if found["paused"] else f"rate limited, next start {ahead(found['till'])}" if found["till"] else ""
    return [found["group"], found["waiting"], found["running"], _limits(found), state]
