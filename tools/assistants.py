"""What assistants read on the site: `llms.txt`, an index of the pages, and `llms-full.txt`, all of them in one file.

Both follow the navigation in mkdocs.yml, and are written when the site is built, together with the pages that the index
links to, as Markdown.
"""

import inspect
import re
from collections.abc import Iterator
from enum import Enum, EnumType
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

__all__ = ["full", "index", "pages", "sections", "write"]

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
LEFT_OUT: Final = ("Evidence", "Contributing")  # sections that nobody needs in order to use Toril

HEAD: Final = """# Toril

> Background jobs for Python 3.11 and newer: on a SQLite file with no server, or on Redis or Valkey in BullMQ's data layout. Typed handlers, retries, dead letters, schedules, flows, groups, rate limits, deduplication, circuit breakers, cancellation, an outbox, a supervisor, a dashboard, an HTTP API and a test harness.

- A handler takes one argument: `async def send(ctx: JobContext[Payload]) -> Result`, or `def send(ctx: SyncJobContext[Payload]) -> Result`, which runs in a thread. The payload is `ctx.data`.
- Declare: `app = App(url)`; `queue = app.queue("mail", [send], concurrency=5, retry=Retry(5, Exponential(1)))`.
- Add: `task = queue.task(send)` binds a handler to its queue, typed; `await task.add(payload, delay="1m")` inside `async with app:`; `task.sync.add(payload)` in blocking code; `await queue.add("send", payload)` by name; `app.outbox(connection).add(send, payload)` in a database transaction of your own.
- Run: `toril run module:app`. Test: `async with toril.testing.memory(app) as test: await test.after("1h")`.
- Durations are seconds, a `timedelta` or text such as `"10m"`. `attempts` includes the first run. A job may run twice: use `ctx.job_id` as an idempotency key.
- Ended jobs are removed unless `keep_completed` or `keep_failed` says otherwise; results are kept with `result_ttl`; failed jobs become dead letters.
- All pages in one file: [llms-full.txt](llms-full.txt)
"""  # noqa: E501 - one line per paragraph, as the format has it


def write(site: Path) -> None:
    """Write all of it into a site."""
    (site / "llms.txt").write_text(index(), "utf-8")
    (site / "llms-full.txt").write_text(full(), "utf-8")
    for file, text in pages():
        (site / file).write_text(text, "utf-8")


def sections() -> dict[str, list[tuple[str, str]]]:
    """For each section of the navigation, the titles and files of its pages. Pages without a section come first."""
    found: dict[str, list[tuple[str, str]]] = {"Start": []}
    for entry in yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]:
        ((title, below),) = entry.items()
        if isinstance(below, str):
            found["Start"].append((title, below))
        elif title not in LEFT_OUT:
            found[title] = [page for each in below for page in each.items()]
    return found


def index() -> str:
    """The text of `llms.txt`."""
    lines = [HEAD]
    for title, listed in sections().items():
        lines += [f"## {title}", "", *(f"- [{name}]({file}){_described(file)}" for name, file in listed), ""]
    return "\n".join(lines)


def _described(file: str) -> str:
    """What a page is about: its headings."""
    text = re.sub(r"^```.*?^```$", "", (DOCS / file).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = "; ".join(heading.replace("`", "") for heading in re.findall(r"^## (.+)$", text, re.MULTILINE))
    return f": {headings}" if headings else ""


def pages() -> Iterator[tuple[str, str]]:
    """The file and the text of every page of the index. The API reference has its docstrings."""
    for listed in sections().values():
        for _, file in listed:
            yield file, _expanded((DOCS / file).read_text("utf-8"))


def full() -> str:
    """The text of `llms-full.txt`: all these pages."""
    return "\n".join([HEAD, *(f"<!-- {file} -->\n\n{text.strip()}\n" for file, text in pages())])


def _expanded(text: str) -> str:
    """A page with the docstrings that the site puts in place of its `:::` lines."""
    return re.sub(
        r"^::: ([\w.]+)\n(?:    options:\n      members: \[([^\]]*)\]\n)?",
        lambda found: "\n".join(_reference(found[1], found[2])),
        text,
        flags=re.MULTILINE,
    )


def _reference(name: str, members: str | None) -> Iterator[str]:
    thing = _found(name)
    if inspect.ismodule(thing):
        for member in (members or "").split(", "):
            yield from _reference(f"{name}.{member}", None)
        return
    yield from _shown(name, thing, "###")
    if inspect.isclass(thing) and members is None:
        for member, value in inspect.getmembers(
            thing, lambda each: inspect.isfunction(each) or isinstance(each, property)
        ):
            if not any(re.search(pattern, member) for pattern in _left_out()):
                yield from _shown(member, value, "####")


def _found(name: str) -> Any:
    above, _, last = name.rpartition(".")
    return getattr(import_module(above), last, None) or import_module(name)


@cache
def _left_out() -> tuple[str, ...]:
    """The members that the site does not show."""
    plugins = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["plugins"]
    (handler,) = (each["mkdocstrings"]["handlers"]["python"] for each in plugins if "mkdocstrings" in each)
    return tuple(pattern.removeprefix("!") for pattern in handler["options"]["filters"])


def _shown(name: str, thing: Any, heading: str) -> Iterator[str]:
    try:
        signature = "" if isinstance(thing, property | EnumType) else str(inspect.signature(thing))
    except (TypeError, ValueError):  # a typed dict
        signature = ""
    if inspect.isclass(thing):
        signature = signature.removesuffix(" -> None")
    signature = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", signature).replace("(self, ", "(").replace("(self)", "()")
    signature = re.sub(r"<[^<]*(?:<lambda>)? at 0x[0-9a-f]+>", "…", signature)
    signature = re.sub(r"<(\w+\.\w+): [^>]+>", r"\1", signature)
    signature = re.sub(r"(?<=frozenset\(\{)[^}]+", lambda found: ", ".join(sorted(found[0].split(", "))), signature)
    said = inspect.getdoc(thing)
    yield f"{heading} `{name}{signature}`\n"
    if said:
        yield f"{said}\n"
    if isinstance(thing, EnumType):
        members: list[Enum] = list(thing)
        yield f"Values: {', '.join(f'`{member.value}`' for member in members)}\n"
