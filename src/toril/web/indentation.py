"""Keeps the indentation of templates out of the pages.

A line break in a template is for its readers only, as in JSX. Next to a tag, a statement or a value it vanishes,
together with the spaces around it; between two words it becomes one space. Write `{{ " " }}` for a space that must
survive at the end of a line. Inside `<pre>` nothing is changed.
"""

import re
from typing import Final

from jinja2.ext import Extension

__all__ = ["Unindented"]

_JINJA: Final = r"\{\{.*?\}\}|\{%.*?%\}|\{\#.*?\#\}"
_MARKUP: Final = re.compile(
    rf"""
    (?P<kept> <pre\b.*?</pre> | {_JINJA} )
    | (?P<tag> </?[a-zA-Z!] (?: {_JINJA} | "(?: {_JINJA} | [^"] )*" | '[^']*' | [^<>"'] )* > )
    """,
    re.DOTALL | re.VERBOSE,
)
_BREAK: Final = re.compile(r"\s*\n\s*")
_OUTER: Final = re.compile(r"\A\s*\n\s*|\s*\n\s*\Z")
# A condition inside a tag brings its own space: `<option{% if chosen %} selected{% endif %}>`.
_BEFORE_CONDITION: Final = re.compile(r"\s*\n\s*(?=\{%)")


class Unindented(Extension):
    """The Jinja extension. Errors still name the right line of the template."""

    def preprocess(self, source: str, *_: str | None) -> str:
        parts, end = [], 0
        for found in _MARKUP.finditer(source):
            parts.append(_text(source[end : found.start()]))
            parts.append(_tag(found.group()) if found.lastgroup == "tag" else found.group())
            end = found.end()
        return "".join([*parts, _text(source[end:])])


def _text(source: str) -> str:
    return _with_lines_of(source, _BREAK.sub(" ", _OUTER.sub("", source)))


def _tag(source: str) -> str:
    return _with_lines_of(source, _BREAK.sub(" ", _BEFORE_CONDITION.sub("", source)))


def _with_lines_of(source: str, text: str) -> str:
    """The text, followed by a comment that has the line breaks it has lost, so that Jinja counts them."""
    lost = source.count("\n") - text.count("\n")
    return text + "{#" + "\n" * lost + "#}" if lost else text
