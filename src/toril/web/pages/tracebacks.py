"""A traceback as it is read: frames of the application in ink, those of libraries dimmed and folded. Pure."""

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["Line", "lines_of"]

_FRAME: Final = re.compile(r'^\s*File "([^"]*)", line \d+')
_LIBRARY: Final = re.compile(
    r"(?:.*(?:site|dist)-packages|/lib/python3\.\d+|<frozen)[\\/ ]?([\w.-]*)"
    r"|[\\/](toril)[\\/](?:worker|context|handlers)"
)
_MARKS: Final = re.compile(r"\s*[~^]+\s*")  # where in its line a call stands: more to read, and no more to know
_UNFOLDED: Final = 1  # frames of libraries in a row that are shown
_MOST: Final = 400  # lines


@dataclass(frozen=True, slots=True)
class Line:
    """`kind` is `lib`, `err`, or nothing for the application's own."""

    text: str
    kind: str = ""


def lines_of(traceback: str) -> list[Line]:
    """The lines, in order; the last one is the error itself."""
    given = traceback.rstrip().split("\n")[-_MOST:]
    if not given or not given[0]:
        return []
    blocks = _blocks(given[:-1])
    out: list[Line] = []
    at = 0
    while at < len(blocks):
        run = at
        while run < len(blocks) and blocks[run][1]:
            run += 1
        if run == at:
            out += [Line(text) for text in blocks[at][0]]
            at += 1
            continue
        out += _folded(blocks[at:run])
        at = run
    return [*out, Line(given[-1], "err")]


def _blocks(lines: list[str]) -> list[tuple[list[str], str]]:
    """Each frame with its lines, and the library that it is of; nothing for the application's."""
    found: list[tuple[list[str], str]] = []
    for text in lines:
        frame = _FRAME.match(text)
        if frame is not None:
            library = _LIBRARY.search(frame.group(1))
            found.append(([text], (library.group(1) or library.group(2) or "Python") if library else ""))
        elif _MARKS.fullmatch(text):
            continue
        elif not found or not text.startswith("    "):
            found.append(([text], "-"))  # what stands between stacks, as "Traceback (most recent call last):"
        else:
            found[-1][0].append(text)
    return found


def _folded(run: list[tuple[list[str], str]]) -> list[Line]:
    frames = [block for block in run if block[1] != "-"]
    if len(frames) <= _UNFOLDED + 1:
        return [Line(text, "lib") for lines, _ in run for text in lines]
    out = [Line(text, "lib") for lines, library in run if library == "-" for text in lines]
    out += [Line(text, "lib") for text in frames[0][0]]
    names = sorted({library for _, library in frames[_UNFOLDED:]})
    return [*out, Line(f"  … {len(frames) - _UNFOLDED} frames in {', '.join(names)}", "lib")]
