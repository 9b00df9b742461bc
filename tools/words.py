"""Collects what users read into `tests/words/strings.txt`, so that a change of words shows in a diff.

python -m tools.words            say whether the file is up to date
python -m tools.words --write    write it

The file has errors, log lines, texts of commands, labels of the dashboard and messages of the HTTP API, from the source
itself: string literals of Python and JavaScript, and the text of templates. `{…}` stands for a value. Strings are
sorted, so that moving code from file to file does not change them. Docstrings are in the reference of the API instead.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

__all__ = ["FILE", "collected", "in_python", "in_script", "in_template", "text"]

ROOT: Final = Path(__file__).parents[1]
SRC: Final = ROOT / "src" / "toril"
FILE: Final = ROOT / "tests" / "words" / "strings.txt"

_HEAD: Final = """\
# What users read, written by `make words`. Read a change of this file as a user would: is it plain English, does it
# name the value, does it say what to do? docs/vocabulary.md has the word for each concept.
"""
_VALUE: Final = "{…}"
_LOGGED: Final = {"debug", "info", "warning", "error", "exception", "critical"}
# Packages of commands and pages, in which a single word with a capital is a label.
_LABELLED: Final = ("cli", "web")
# Calls whose strings nobody reads.
_PATTERNS: Final = {
    "cast", "compile", "match", "fullmatch", "search", "sub", "split", "findall", "finditer", "getLogger",
}  # fmt: skip
_UNREAD_KEYWORDS: Final = {"param_hint", "headers", "style"}
# SQL, replies of servers that are compared, regular expressions, media types and styles of the terminal.
_STATEMENT: Final = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|PRAGMA|BEGIN|WITH|WHERE|AND|VALUES|ATTACH|EXPLAIN|SAVEPOINT"
    r"|RELEASE|ROLLBACK|FOR UPDATE|CAST\(|INTEGER|BIGINT|ERR|NOSCRIPT|local|default-src|public,|bold)\b"
    r"|.*\(\?:|[a-z]+/[a-z]+; charset"
)
_SENTENCE: Final = re.compile(r"[A-Za-z]{2}.*\s|\s.*[A-Za-z]{2}", re.DOTALL)
_LABEL: Final = re.compile(r"[A-Z][a-z]+(-[a-z]+)?[.?…]?")


def in_python(source: str, *, labels: bool = False) -> Iterator[tuple[str, str]]:
    """The strings of a module that users read, each with its kind. With `labels`, single words with a capital too."""
    yield from _Strings(labels=labels).found_in(ast.parse(source))


class _Strings:
    """Walks a tree, and knows what the string that it comes to is for."""

    def __init__(self, *, labels: bool) -> None:
        self._labels = labels

    def found_in(self, node: ast.AST, kind: str = "") -> Iterator[tuple[str, str]]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Module():
                yield from self._definition(node)
            case ast.AnnAssign(annotation=annotation, value=value):
                if value is not None and not (isinstance(annotation, ast.Name) and annotation.id == "TypeAlias"):
                    yield from self.found_in(value, kind)
            case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
                return
            case ast.Subscript(value=ast.Name(id="Literal" | "cast")):
                return
            case ast.Raise(exc=ast.Call() as call):
                yield from self._call(call, "errors")
            case ast.Call():
                yield from self._call(node, kind)
            case ast.Tuple(elts=[ast.Attribute(value=ast.Name(id="logging")), *lines]):
                for line in lines:
                    yield from self.found_in(line, "log")
            case ast.JoinedStr() | ast.Constant(value=str()) | ast.BinOp(op=ast.Add()):
                yield from self._string(node, kind)
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from self.found_in(child, kind)

    def _definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
    ) -> Iterator[tuple[str, str]]:
        body = node.body
        said = ast.get_docstring(node)
        if said is not None:
            body = body[1:]
        if not isinstance(node, ast.Module):
            for decorator in node.decorator_list:
                yield from self.found_in(decorator)
            if said is not None and any(_is_command(each) for each in node.decorator_list):
                yield "help", " ".join(said.split("\f")[0].split())
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    yield from self.found_in(default)
        for each in body:
            yield from self.found_in(each)

    def _call(self, call: ast.Call, kind: str) -> Iterator[tuple[str, str]]:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in _PATTERNS:
            return
        if name.endswith(("Error", "Exception")) or name in {"Problem", "BadParameter"}:
            kind = "errors"
        elif name in _LOGGED and isinstance(call.func, ast.Attribute):
            kind = "log"
        if name == "Column" and call.args and isinstance(call.args[0], ast.Constant):
            yield "labels", str(call.args[0].value)
        yield from self.found_in(call.func, kind)
        for argument in call.args:
            yield from self.found_in(argument, kind)
        for keyword in call.keywords:
            if keyword.arg not in _UNREAD_KEYWORDS:
                yield from self.found_in(keyword.value, "help" if keyword.arg == "help" else kind)

    def _string(self, node: ast.expr, kind: str) -> Iterator[tuple[str, str]]:
        said = "".join(_parts(node))
        words = said.replace(_VALUE, "")
        if kind in ("errors", "log"):
            wanted = re.search(r"[A-Za-z]{2}", words) is not None and not re.fullmatch(r"[a-z_]+", words)
            wanted |= kind == "log" and re.fullmatch(r"[a-z_]+", words) is not None
        else:
            wanted = _SENTENCE.search(words.strip(" ") if words.count(" ") > 1 else words) is not None
            wanted |= self._labels and _LABEL.fullmatch(words) is not None
        if wanted and not _STATEMENT.match(said):
            yield kind, said
        yield from self._nested(node)

    def _nested(self, node: ast.expr) -> Iterator[tuple[str, str]]:
        """Strings within the values of an f-string."""
        match node:
            case ast.JoinedStr(values=values):
                for value in values:
                    if isinstance(value, ast.FormattedValue) and not _words_of(value.value):
                        yield from self.found_in(value.value)
            case ast.BinOp(left=left, right=right):
                for side in (left, right):
                    if not isinstance(side, ast.Constant | ast.JoinedStr | ast.BinOp):
                        yield from self.found_in(side)
                    else:
                        yield from self._nested(side)
            case _:
                return


def _is_command(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr in {"command", "group"}


def _parts(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str() as value):
            yield value
        case ast.JoinedStr(values=values):
            for value in values:
                yield from _parts(value)
        case ast.FormattedValue(value=value):
            words = _words_of(value)
            yield "{" + " | ".join(words) + "}" if words else _VALUE
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            yield from _parts(left)
            yield from _parts(right)
        case _:
            yield _VALUE


def _words_of(value: ast.expr) -> list[str]:
    """The alternatives of a value that is one of some texts."""
    match value:
        case ast.IfExp(body=body, orelse=orelse):
            sides = [_words_of(side) for side in (body, orelse)]
            return [word for side in sides for word in side] if all(sides) else []
        case ast.Constant(value=str() as said):
            return [said]
        case ast.JoinedStr():
            return ["".join(_parts(value))]
        case _:
            return []


class _Page(HTMLParser):
    """The text of a template, and of those attributes that people see or hear."""

    _SEEN: Final = {"aria-label", "aria-description", "title", "placeholder", "alt", "content"}
    _SAID: Final = {"data-word", "data-done", "data-noun", "data-about", "data-label", "data-tip", "data-title"}

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"b", "code", "em", "strong", "small", "span", "time", "kbd", "i", "br", "abbr"}:
            self._end()
        self.found += [value for name, value in attrs if value and name in self._SEEN | self._SAID]

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"b", "code", "em", "strong", "small", "span", "time", "kbd", "i", "abbr"}:
            self._end()

    def handle_data(self, data: str) -> None:
        self._text += data

    def close(self) -> None:
        super().close()
        self._end()

    def _end(self) -> None:
        self.found.append(self._text)
        self._text = ""


_COMMENT: Final = re.compile(r"\{#.*?#\}", re.DOTALL)
_LOGIC: Final = re.compile(r"\{%-?\s*(\w+).*?%\}", re.DOTALL)
_SHOWN: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_QUOTED: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'")


def in_template(source: str) -> Iterator[str]:
    """The texts of a Jinja template: between the tags, in attributes, and within expressions."""
    source = re.sub(r"\{\{ \" \" \}\}", " ", _COMMENT.sub("", source))
    for shown in (*_SHOWN.finditer(source), *_LOGIC.finditer(source)):
        for pair in _QUOTED.findall(shown[0]):
            said = "".join(pair)
            if _SENTENCE.search(said.strip()) or _LABEL.fullmatch(said):
                yield said
    page = _Page()
    choices = _LOGIC.sub(lambda found: " | " if found[1] in ("else", "elif") else "", _SHOWN.sub(_VALUE, source))
    page.feed(choices)
    page.close()
    for said in page.found:
        words = " ".join(said.split()).strip("| ")
        if re.search(r"[A-Za-z]{2}", words.replace(_VALUE, "")):
            yield words


_TOKEN: Final = re.compile(
    r"(?P<skipped>/\*.*?\*/|//[^\n]*|(?<=[(=:,!&|?\[;])\s*/(?![*/])(?:\\.|\[[^\]]*\]|[^/\n\\])+/[a-z]*)"
    r"|'(?P<single>(?:\\.|[^'\\\n])*)'|\"(?P<double>(?:\\.|[^\"\\\n])*)\"|(?P<template>`)",
    re.DOTALL,
)
_UNREAD: Final = re.compile(
    r"(?:class|style|d|className|cls):\s*$|(?:\$\$?|querySelector(?:All)?|closest|matches)\(\s*$"
)
_NOT_WORDS: Final = re.compile(r"[#\[=<>]|\w\.\w|^[a-z-]+( [a-z-]+)* ?$|^use strict$")


def in_script(source: str) -> Iterator[str]:
    """The strings of a script that users read. Strings that are joined by `+` are one."""
    joined, ended = "", 0
    for said, start, end, inner in _script_strings(source):
        for nested in inner:
            yield from in_script(nested)
        if joined and re.fullmatch(r"\s*\+\s*", source[ended:start]):
            joined += said
        else:
            yield from _script_words(joined)
            joined = "" if _UNREAD.search(source, max(0, start - 40), start) else said
        ended = end
    yield from _script_words(joined)


def _script_words(said: str) -> Iterator[str]:
    words = said.replace(_VALUE, "")
    if (_SENTENCE.search(words.strip()) or _LABEL.fullmatch(words.strip())) and not _NOT_WORDS.search(words):
        yield " ".join(said.replace("\\u00a0", " ").replace("\\'", "'").split())


def _script_strings(source: str) -> Iterator[tuple[str, int, int, list[str]]]:
    """Each string of a script, with where it begins and ends, and the expressions in it."""
    at = 0
    while (found := _TOKEN.search(source, at)) is not None:
        at = found.end()
        if found["template"]:
            said, at, inner = _template(source, at)
            yield said, found.start(), at, inner
        elif not found["skipped"]:
            yield found["single"] or found["double"] or "", found.start(), at, []


def _template(source: str, at: int) -> tuple[str, int, list[str]]:
    """The template literal that begins before a place, where it ends, and the expressions in it."""
    said, inner = "", []
    while source[at] != "`":
        if source.startswith("${", at):
            start, at = at + 2, _closing(source, at + 2)
            inner.append(source[start : at - 1])
            said += _VALUE
        else:
            step = 2 if source[at] == "\\" else 1
            said += source[at : at + step]
            at += step
    return said, at + 1, inner


def _closing(source: str, at: int) -> int:
    """The place after the brace that closes an expression."""
    depth = 1
    while depth:
        if source[at] == "`":
            at = _template(source, at + 1)[1]
            continue
        depth += {"{": 1, "}": -1}.get(source[at], 0)
        at += 1
    return at


@cache
def collected() -> dict[str, list[str]]:
    """All strings, by section, each once and sorted."""
    found: dict[str, set[str]] = {}
    for path in sorted(SRC.rglob("*.py")):
        area = path.relative_to(SRC).parts[0].removesuffix(".py")
        for kind, said in in_python(path.read_text("utf-8"), labels=area in _LABELLED):
            found.setdefault(_section(area, kind), set()).add(said)
    for path in sorted((SRC / "web" / "templates").glob("*.html")):
        found.setdefault("The dashboard's pages", set()).update(in_template(path.read_text("utf-8")))
    for path in sorted((SRC / "web" / "assets").glob("*.js")):
        found.setdefault("The dashboard's script", set()).update(in_script(path.read_text("utf-8")))
    return {section: sorted(strings, key=lambda said: (said.casefold(), said)) for section, strings in found.items()}


_SECTIONS: Final = {
    "cli": "Commands", "web": "The HTTP API and the dashboard", "supervisor": "The supervisor",
    "integrations": "Integrations", "torture": "toril torture", "operate": "Explanations, findings and alerts",
    "policy": "Explanations, findings and alerts", "alerts": "Explanations, findings and alerts",
    "engines": "The stores", "store": "The stores",
}  # fmt: skip
_KINDS: Final = {"errors": "Errors", "log": "Log lines", "help": "Help", "labels": "Columns"}


def _section(area: str, kind: str) -> str:
    return _KINDS.get(kind) or _SECTIONS.get(area, "The API and the worker")


def text() -> str:
    """The file as it should be. What a string has in it of line breaks is escaped."""
    found = collected()
    lines = [_HEAD]
    for section in (*_KINDS.values(), *sorted(set(found) - set(_KINDS.values()))):
        lines += [f"== {section}", "", *(said.replace("\n", "\\n") for said in found[section]), ""]
    return "\n".join(lines)


def main() -> int:
    wanted = text()
    if "--write" in sys.argv:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(wanted, "utf-8")
        return 0
    if not FILE.exists() or FILE.read_text("utf-8") != wanted:
        print("tests/words/strings.txt is out of date: run  make words, and read what has changed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
