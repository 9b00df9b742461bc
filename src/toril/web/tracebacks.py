"""Formats tracebacks for reading: the application's frames stand out, those of libraries are dimmed and folded."""

import re
from dataclasses import dataclass
from itertools import groupby
from typing import Final

__all__ = ["TracebackLine", "lines_of", "lines_of_stack"]

_FRAME: Final = re.compile(r'^\s*File "([^"]*)", line \d+')
_OURS: Final = "toril"
_NO_FRAME: Final = "-"  # for text between stacks, such as "Traceback (most recent call last):"
_LIBRARY: Final = re.compile(
    r"(?:.*(?:site|dist)-packages|/lib/python3\.\d+|<frozen)[\\/ ]?([\w.-]*)"
    rf"|[\\/]({_OURS})[\\/](?:(?:worker|integrations|testing)[\\/]"
    r"|(?:app|calls|context|handlers|job|middleware|payload|portal|queue|signal|sync|telemetry|typed)\.py)"
)
_MARKS: Final = re.compile(r"\s*[~^]+\s*")  # markers of positions, which add nothing
_UNFOLDED: Final = 1  # frames to show of a row of library frames; of our own, none
_MOST: Final = 400  # lines


@dataclass(frozen=True, slots=True)
class TracebackLine:
    """`kind` is `lib`, `err`, or nothing for the application's own."""

    text: str
    kind: str = ""


def lines_of(traceback: str) -> list[TracebackLine]:
    """The lines, in order; the last one is the error itself."""
    *frames, error = traceback.rstrip().split("\n")[-_MOST:]
    return [*_dimmed(frames), TracebackLine(error, "err")] if error else []


def lines_of_stack(stack: str) -> list[TracebackLine]:
    """The same for a stack, which does not end in an error."""
    return _dimmed(stack.rstrip().split("\n")[-_MOST:]) if stack.strip() else []


def _dimmed(lines: list[str]) -> list[TracebackLine]:
    out: list[TracebackLine] = []
    for library, blocks in groupby(_blocks(lines), key=lambda block: block.library and block.library != _NO_FRAME):
        found = list(blocks)
        if library:
            out += _folded(found)
        else:
            out += [TracebackLine(text, "lib" if block.library else "") for block in found for text in block.lines]
    return out


@dataclass(frozen=True, slots=True)
class _Block:
    """A frame's lines, and the library to which it belongs; empty for the application."""

    lines: list[str]
    library: str


def _blocks(lines: list[str]) -> list[_Block]:
    found: list[_Block] = []
    for text in lines:
        frame = _FRAME.match(text)
        if frame is not None:
            library = _LIBRARY.search(frame.group(1))
            found.append(_Block([text], _name(library) if library else ""))
        elif _MARKS.fullmatch(text):
            continue
        elif not found or not text.startswith("    "):
            found.append(_Block([text], _NO_FRAME))
        else:
            found[-1].lines.append(text)
    return found


def _name(library: re.Match[str]) -> str:
    """The name of a library; a file of the standard library is Python's."""
    name = library.group(1) or library.group(2) or ""
    return "Python" if not name or name.endswith(".py") else name


def _folded(frames: list[_Block]) -> list[TracebackLine]:
    """A row of library frames: the first, and how many more there are. Our own frames are left out."""
    shown = [frame for frame in frames if frame.library != _OURS]
    if len(shown) > _UNFOLDED + 1:
        shown = shown[:_UNFOLDED]
    out = [TracebackLine(text, "lib") for frame in shown for text in frame.lines]
    folded = [frame for frame in frames if frame not in shown]
    if folded:
        names = ", ".join(sorted({frame.library for frame in folded}))
        out.append(TracebackLine(f"  … {len(folded)} {'frame' if len(folded) == 1 else 'frames'} in {names}", "lib"))
    return out
