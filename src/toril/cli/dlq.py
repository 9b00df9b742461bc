"""`toril dlq`: list, show, replay and discard dead letters."""

import functools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from toril import App, DeadLetterFilter, Exponential, Fixed, Keep
from toril.cli.arguments import agreed, yes_option
from toril.cli.completion import queue_names
from toril.cli.escaping import as_json as on_a_line
from toril.cli.escaping import compact, plain
from toril.cli.exit import CommandFailed, say
from toril.cli.job import details, never_started, show_letter
from toril.cli.store_option import StoreOption, on_store, secrets_option, store_options
from toril.cli.terminal import Column, Lines, age, duration, json_option, show, since
from toril.model import Page
from toril.model.durations import UNITS
from toril.operate.dead_letters import Replayed
from toril.operate.documents import of_letter

__all__ = ["dlq"]

T = TypeVar("T")

_COLUMNS: Final = [
    Column("letter"), Column("name", 1), Column("cause", 5), Column("attempts", 4, numbers=True), Column("failed", 3),
    Column("error", 2),
]  # fmt: skip


_FAMILIES: Final = "Dead children of a flow are replayed together with their parent."


@click.group()
def dlq() -> None:
    """Manage dead letters: jobs that failed for good, in all queues.

    A dead letter is named by its queue and job id, as listed: email/17.
    """


def _filter_options(fn: Callable[..., T]) -> Callable[..., T]:
    """Give a command the options that select dead letters, as its argument `where`."""

    @click.option(
        "--queue", "-q", multiple=True, callback=_once, shell_complete=queue_names, help="Only from this queue."
    )
    @click.option("--name", multiple=True, callback=_once, help="Only jobs with this name.")
    @click.option("--error", multiple=True, callback=_once, help="Only with this text in the error.")
    @click.option("--type", "kind", multiple=True, callback=_once, help="Only with this type of error.")
    @click.option(
        "--cause",
        type=click.Choice(["failed", "stalled"]),
        multiple=True,
        callback=_once,
        help="Only with this cause.",
    )
    @click.option("--within", type=duration, help="Only failed within this time: 2h.")
    @click.option("--older-than", type=duration, help="Only failed longer ago than this: 7d.")
    @click.option("--payload", multiple=True, metavar="KEY=VALUE", help="Only with this in the payload: user.id=7.")
    @functools.wraps(fn)
    def command(
        *, within: float | None, older_than: float | None, payload: tuple[str, ...], cause: Any, **rest: Any
    ) -> T:
        given = {name: rest.pop(name) for name in ("queue", "name", "error", "kind")}
        where = DeadLetterFilter(
            after=since(within), before=since(older_than), payload=dict(map(_pair, payload)), cause=cause, **given
        )
        return fn(where=where, **rest)

    return command


def _once(_ctx: click.Context, option: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The value that was given, if any. With several, click would silently take the last."""
    if len(given) > 1:
        raise click.BadParameter(f"can be given only once, not {len(given)} times", param=option)
    return given[0] if given else None


def _pair(text: str) -> tuple[str, Any]:
    """A key and a value, which is JSON if it can be parsed, else text."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise click.BadParameter(f"expected KEY=VALUE, not {text!r}", param_hint="--payload")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


@dlq.command("list")
@_filter_options
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@click.option("--cursor", metavar="CURSOR", help="Continue from an earlier listing.")
@secrets_option
@store_options
@json_option
def list_(*, where: DeadLetterFilter, limit: int, cursor: str | None, place: StoreOption, as_json: bool) -> None:
    """List dead letters, most recent failure first."""

    async def look(app: App) -> Page[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        at = cursor
        while True:
            page = await app.dead_letters.rows(where, cursor=at, limit=limit - len(found))
            found += [of_letter(letter, app.redaction) for letter in page.items]
            at = page.cursor
            if at is None or len(found) == limit:
                return Page(tuple(found), at)

    page = on_store(place, look)
    show(Lines(list(page.items), _COLUMNS, _row, "There are no dead letters."), as_json=as_json)
    if page.cursor is not None:
        say(on_a_line({"cursor": page.cursor}) if as_json else f"There are more; continue with  --cursor {page.cursor}")


def _row(letter: dict[str, Any]) -> list[object]:
    error = f"{letter['error_kind']}: {letter['error']}" if letter["error_kind"] else letter["error"]
    attempts = "none" if never_started(letter) else letter["attempts_made"]
    return [
        letter["id"], letter["name"], letter["cause"], attempts, age(letter["failed_at"]),
        compact(error),
    ]  # fmt: skip


@dlq.command("show")
@click.argument("letter")
@secrets_option
@store_options
@json_option
def show_(*, letter: str, place: StoreOption, as_json: bool) -> None:
    """Show everything about LETTER: its attempts' errors, log, data and flow."""

    async def look(app: App) -> dict[str, Any]:
        row = await app.dead_letters.row(letter)
        return of_letter(row, app.redaction) | await details(app, app.dead_letters.as_job(row))

    found = on_store(place, look)
    if as_json:
        click.echo(on_a_line(found))
    else:
        show_letter(found)


def _which(fn: Callable[..., T]) -> Callable[..., T]:
    """Give a command the dead letters to act on, selected by id or by a filter, as its argument `which`."""

    @click.argument("letters", nargs=-1)
    @click.option("--all", "everything", is_flag=True, help="All dead letters.")
    @_filter_options
    @click.option("--dry-run", is_flag=True, help="Only count them.")
    @yes_option
    @store_options
    @json_option
    @functools.wraps(fn)
    def command(*, letters: tuple[str, ...], everything: bool, where: DeadLetterFilter, **rest: Any) -> T:
        filtered = where != DeadLetterFilter()
        if bool(letters) + filtered + everything != 1:
            raise click.UsageError("give LETTERS, or options that select them, or --all")
        return fn(which=list(letters) or where, **rest)

    return command


@dlq.command()
@click.option(
    "--attempts", type=click.IntRange(1, 10_000), help="Maximum number of attempts, in place of the original."
)
@click.option(
    "--backoff", type=duration, help="How long to wait before the first retry, doubled for each later one: 5s."
)
@click.option("--fixed", is_flag=True, help="Do not double --backoff.")
@_which
def replay(
    *,
    which: Any,
    attempts: int | None,
    backoff: float | None,
    fixed: bool,
    dry_run: bool,
    yes: bool,
    place: StoreOption,
    as_json: bool,
) -> None:
    """Replay dead letters in their original queues, under the same name and id.

    The parent of a flow waits for its children that have not succeeded: their dead letters are replayed with it.
    """
    many = _meant(place, which)
    if dry_run:
        _tell({"would_replay": many}, f"This would replay {_letters(many)}. {_FAMILIES}", as_json=as_json)
        return
    agreed(f"This replays {_letters(many)}. {_FAMILIES}", yes=yes or many <= 1)
    waiting = None if backoff is None else (Fixed if fixed else Exponential)(backoff)

    async def act(app: App) -> Replayed:
        with _progress("replayed", many, as_json=as_json) as on_progress:
            return await app.dead_letters.replay(which, attempts=attempts, backoff=waiting, on_progress=on_progress)

    _ended(on_store(place, act), "replayed", "Replayed", as_json=as_json)


@dlq.command()
@_which
def discard(*, which: Any, dry_run: bool, yes: bool, place: StoreOption, as_json: bool) -> None:
    """Delete dead letters for good."""
    many = _meant(place, which)
    if dry_run:
        _tell({"would_discard": many}, f"This would discard {_letters(many)}.", as_json=as_json)
        return
    if not many and isinstance(which, DeadLetterFilter):
        _tell({"discarded": 0, "refused": {}}, "No dead letters match.", as_json=as_json)
        return
    agreed(f"This deletes {_letters(many)} for good.", yes=yes)

    async def act(app: App) -> Replayed:
        with _progress("discarded", many, as_json=as_json) as on_progress:
            return await app.dead_letters.discard(which, on_progress=on_progress)

    _ended(on_store(place, act), "discarded", "Discarded", as_json=as_json)


def _or_none(kind: Any) -> Callable[[str], Any]:
    """A type of option that also accepts `none`."""
    convert = click.types.convert_type(kind)
    return lambda text: "none" if text == "none" else convert(text)


def _set(given: Any, before: T | None) -> T | None:
    return before if given is None else None if given == "none" else given


@dlq.command()
@click.option(
    "--count", type=_or_none(click.IntRange(0)), help="Keep at most this many, the newest; `none` for no limit."
)
@click.option("--age", "longest", type=_or_none(duration), help="Keep them for this long: 30d; `none` for ever.")
@store_options
@json_option
def keep(*, count: int | str | None, longest: float | str | None, place: StoreOption, as_json: bool) -> None:
    """Show or set how many dead letters are kept, and for how long. A limit that you leave out stays as it is."""

    async def act(app: App) -> Keep:
        now = await app.store.dead_letters.keep(None)
        if count is None and longest is None:
            return now
        return await app.dead_letters.keep(Keep(_set(count, now.count), _set(longest, now.age)))

    kept = on_store(place, act)
    bounds = [] if kept.count is None else [f"at most {kept.count}"]
    bounds += [] if kept.age is None else [f"for {_written(kept.age)}"]
    _tell({"count": kept.count, "age": kept.age}, f"Kept: {', '.join(bounds) or 'all'}.", as_json=as_json)


def _written(seconds: float) -> str:
    """A duration as `--age` takes it: in the largest unit of which it is a whole number."""
    for unit in ("d", "h", "m"):
        many, rest = divmod(seconds, UNITS[unit])
        if many and not rest:
            return f"{many:.0f}{unit}"
    return f"{seconds:.15g}s"


def _meant(place: StoreOption, which: Any) -> int:
    async def look(app: App) -> int:
        if isinstance(which, DeadLetterFilter):
            return await app.dead_letters.count(which)
        return sum(letter is not None for letter in await app.store.dead_letters.get(which))

    return on_store(place, look)


@contextmanager
def _progress(what: str, many: int, *, as_json: bool) -> Iterator[Callable[[int], object] | None]:
    """A progress bar, if there is a terminal and something to show."""
    if as_json or many < 100 or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - only where there is a terminal

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=many)
        yield lambda done: bar.update(task, completed=done)


def _ended(found: Replayed, word: str, done: str, *, as_json: bool) -> None:
    left = {
        each.id: "gone" if each.state is None else f"another job has its id: {each.state}" for each in found.refused
    }
    left |= found.invalid
    _tell({word: found.count, "refused": left}, f"{done} {_letters(found.count)}.", as_json=as_json)
    for letter, why in list(left.items())[:10]:
        say(f"{letter}: {why}")
    if left:
        raise CommandFailed(f"{_letters(len(left))} left unchanged")


def _tell(document: dict[str, Any], line: str, *, as_json: bool) -> None:
    click.echo(on_a_line(document) if as_json else plain(line))


def _letters(many: int) -> str:
    return "1 dead letter" if many == 1 else f"{many} dead letters"
