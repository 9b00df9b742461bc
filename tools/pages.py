"""Hooks for mkdocs. Links that lead out of the documentation become names, and the site gets what assistants read.

In the repository such links lead to tests and examples; in the site there is nothing behind them.
"""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # mkdocs loads this file by its path

from tools import assistants

_OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+((?!\.\.)[^)]*)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """A hook of mkdocs: the text of a page, before it is made."""
    deep = page.file.src_uri.count("/")
    return _OUTSIDE.sub(lambda found: _named(found, deep), markdown)


def on_post_build(*, config: Any, **_: Any) -> None:
    """A hook of mkdocs: the site is built."""
    assistants.write(Path(config["site_dir"]))


def _named(found: "re.Match[str]", deep: int) -> str:
    steps = found[0].partition("](")[2].count("../")
    if steps <= deep:
        return found[0]
    text = found[1].strip("`")
    return f"{text} (`{found[2]}`)" if text != found[2] else f"`{found[2]}`"
