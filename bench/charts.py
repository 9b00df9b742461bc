"""Charts of a run as SVG: bars, and a line a peer over the size of the backlog."""

from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from pathlib import Path

from bench.cases import SHAPES, SIZES
from bench.results import Results
from bench.roster import PEERS
from bench.tables import number
from bench.targets import NODE

__all__ = ["bars", "draw", "lines"]

WIDTH, ROW, LEFT, RIGHT, TOP = 720, 26, 170, 90, 44
OURS, THEIRS, GREY = "#d9480f", "#4a6fa5", "#666"
FONT = 'font-family="system-ui, sans-serif" font-size="13"'

Row = tuple[str, float, str]  # title, value, colour


def draw(results: Results, folder: Path) -> list[Path]:
    """Every chart that the run has figures for, as files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {name: text for name, text in _charts(results).items() if text}
    for name, text in made.items():
        (folder / f"{name}.svg").write_text(text, "utf-8")
    return [folder / f"{name}.svg" for name in made]


def _charts(results: Results) -> dict[str, str]:
    return {
        "drain": _bars(results, "drain-100", "rate", "No-op jobs per second, one worker process, 100 at once"),
        "bulk": _bars(results, "bulk", "rate", "Jobs per second, added in bulk by one producer"),
        "latency": _bars(results, "latency", "p50", "Milliseconds until a job starts, p50, light load"),
        "files": _bars(results, "file-drain", "rate", "No-op jobs per second on a SQLite file, fully synced"),
        "growth": _growth(results),
    }


def _bars(results: Results, case: str, figure: str, title: str) -> str:
    found = [(name, results.median(case, name, figure)) for name in results.peers(case)]
    rows = [
        (PEERS[name].title, value, OURS if PEERS[name].ours else THEIRS) for name, value in found if value is not None
    ]
    return bars(title, rows) if rows else ""


def _growth(results: Results) -> str:
    found: dict[str, list[float]] = {}
    for name in ("toril", NODE):
        for shape in SHAPES:
            rates = [results.median(f"grow-{shape}-{size}", name) for size in SIZES]
            known = [rate for rate in rates if rate is not None]
            if len(known) == len(SIZES):
                found[f"{PEERS[name].title}, {shape}"] = known
    return lines("No-op jobs per second, by the size of the backlog", list(SIZES.values()), found) if found else ""


def bars(title: str, rows: Sequence[Row]) -> str:
    """A bar a row, as long as its share of the longest."""
    longest = max(value for _, value, _ in rows) or 1.0
    room = WIDTH - LEFT - RIGHT
    parts = []
    for index, (name, value, colour) in enumerate(rows):
        y, length = TOP + index * ROW, max(1.0, value / longest * room)
        parts += [
            _text(LEFT - 8, y + 14, name, "end"),
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{ROW - 8}" rx="2" fill="{colour}"/>',
            _text(LEFT + length + 6, y + 14, number(value)),
        ]
    return _picture(title, TOP + len(rows) * ROW + 8, parts)


def lines(title: str, sizes: Sequence[int], rates: Mapping[str, Sequence[float]]) -> str:
    """A line a name over sizes that are told by their powers of ten; the scale begins at zero."""
    high, height = max(max(values) for values in rates.values()), 240
    first, last = log10(sizes[0]), log10(sizes[-1])
    across = [LEFT / 2 + (log10(size) - first) / (last - first) * (WIDTH - LEFT / 2 - 230) for size in sizes]
    parts = [_text(x, TOP + height + 18, f"{size:,}", "middle") for x, size in zip(across, sizes, strict=True)]
    for index, (name, values) in enumerate(rates.items()):
        colour, dash = OURS if name.startswith("Toril") else THEIRS, ("none", "6 3", "2 3")[index % 3]
        points = [(x, TOP + height * (1 - value / high)) for x, value in zip(across, values, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        style = f'fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        y = TOP + 20 * index + 10
        parts += [
            f'<polyline points="{path}" {style}/>',
            f'<line x1="{WIDTH - 210}" y1="{y - 4}" x2="{WIDTH - 180}" y2="{y - 4}" {style}/>',
            _text(WIDTH - 174, y, name),
        ]
    floor = TOP + height
    parts += [
        f'<line x1="{LEFT / 2}" y1="{floor}" x2="{WIDTH - 230}" y2="{floor}" stroke="{GREY}"/>',
        _text(LEFT / 2 - 6, TOP + 4, number(high), "end"),
        _text(LEFT / 2 - 6, floor, "0", "end"),
    ]
    return _picture(title, floor + 34, parts)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{GREY}" {FONT}>{escape(text)}</text>'


def _picture(title: str, height: float, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">'
    told = escape(title)
    name = f'<title>{told}</title><text x="8" y="22" fill="{GREY}" {FONT} font-weight="600">{told}</text>'
    return "\n".join([head, name, *parts, "</svg>\n"])
