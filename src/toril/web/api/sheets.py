"""Tables to download. A cell is a text to whoever opens it, and never a formula."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

__all__ = ["CSV", "cell", "sheet"]

CSV: Final = "text/csv"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")  # with which spreadsheets take a text for something to do


def cell(value: Any) -> str:
    """A value as a cell's text."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if text.startswith(_FORMULA) else text


def sheet(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], name: str, cursor: str | None) -> Response:
    """A file of this name; what goes on after it is told in a header, since a table has no place for it."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerow(columns)
    writer.writerows([cell(row[column]) for column in columns] for row in rows)
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    if cursor is not None:
        headers["x-cursor"] = cursor
    return Response(out.getvalue().encode("utf-8", "backslashreplace"), media_type=CSV, headers=headers)
