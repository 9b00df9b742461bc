"""For mkdocs: what a page links to outside the documentation is named, and not linked to.

In the repository such links lead to tests and examples; in the site there is nothing behind them.
"""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+((?!\.\.)[^)]*)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """A hook of mkdocs: the text of a page, before it is made."""
    deep = page.file.src_uri.count("/")
    return _OUTSIDE.sub(lambda found: _named(found, deep), markdown)


def _named(found: "re.Match[str]", deep: int) -> str:
    steps = found[0].partition("](")[2].count("../")
    if steps <= deep:
        return found[0]
    text = found[1].strip("`")
    return f"{text} (`{found[2]}`)" if text != found[2] else f"`{found[2]}`"
