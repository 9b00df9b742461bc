"""The scorecard as a table of `docs/reliability.md`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "RESULTS", "kept", "rendered", "with_table"]

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
RESULTS = Path(__file__).with_name("results.json")
_BEGIN, _END = "<!-- scorecard: begin -->", "<!-- scorecard: end -->"


def kept() -> dict[str, Any]:
    """The figures of the last run that was kept."""
    document: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
    return document


def rendered(document: Mapping[str, Any]) -> str:
    minutes = "1 minute" if document["minutes"] == 1 else f"{document['minutes']:g} minutes"
    lines = [
        f"{document['seeds']} seeds with {minutes} of faults and {document['jobs']:,} jobs each, "
        f"on {document['machine']}.",
        "",
        "| | acknowledged | late or lost | ran to the end twice | recovered after kills | median, longest recovery time | faults |",  # noqa: E501
        "|---|---|---|---|---|---|---|",
    ]
    for peer, told in document["peers"].items():
        runs = told["runs"]
        total = {name: sum(run[name] for run in runs) for name in runs[0]}
        median = sorted(run["median recovery"] for run in runs)[len(runs) // 2]
        longest = max(run["longest recovery"] for run in runs)
        lines.append(
            f"| {peer} {told['version']} | {total['acknowledged']:,} | {total['lost']:,} | "
            f"{total['ran to its end twice']:,} | {total['recovered after kills']:,} | {median:g} s, {longest:g} s | "
            f"{total['faults']:,} |"
        )
    return "\n".join(lines)


def with_table(page: str, document: Mapping[str, Any]) -> str:
    """The page with this table between its marks."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{rendered(document)}\n{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), kept()), "utf-8")
