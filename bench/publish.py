"""Write the figures of a run into the documentation.

    python -m bench.publish [.bench/results.json]

With a file: keeps it as bench/results.json. Then rewrites what stands between `<!-- bench:NAME -->` and
`<!-- /bench -->` in docs/performance.md and docs/comparison.md, and the charts in docs/charts/. `--check` only says
whether that would change anything.
"""

import argparse
import re
import shutil
import sys
from pathlib import Path

from bench.charts import draw
from bench.installing import ROOT
from bench.results import Results
from bench.tables import TABLES

__all__ = ["KEPT_RESULTS", "PAGES", "filled"]

KEPT_RESULTS = ROOT / "bench" / "results.json"
PAGES = [ROOT / "docs" / "performance.md", ROOT / "docs" / "comparison.md"]
CHARTS = ROOT / "docs" / "charts"
_MARKED = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def filled(text: str, results: Results) -> str:
    """The page with the tables of this run in their places."""

    def table(found: re.Match[str]) -> str:
        name = found[2]
        if name not in TABLES:
            sys.exit(f"there is no table {name!r}; there are {', '.join(TABLES)}")
        return f"{found[1]}{TABLES[name](results)}\n{found[3]}"

    return _MARKED.sub(table, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.results is not None:
        shutil.copyfile(options.results, KEPT_RESULTS)
    results = Results.read(KEPT_RESULTS)
    stale = [page for page in PAGES if filled(page.read_text("utf-8"), results) != page.read_text("utf-8")]
    if options.check:
        sys.exit(f"not as the results say: {', '.join(page.name for page in stale)}" if stale else 0)
    for page in stale:
        page.write_text(filled(page.read_text("utf-8"), results), "utf-8")
    draw(results, CHARTS)


if __name__ == "__main__":
    main()
