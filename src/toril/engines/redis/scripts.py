"""Assembles the Lua scripts, which the server then knows by their hash.

A subject is a file of `lua/lib/`: on its first line what it is about, on the second the subjects that it `needs`, then
its state, then its functions, which begin and end in the first column. A script works in stages: after a line
`-- uses jobs leases` comes the first, after `-- then settle` the next. In front of a stage stand the functions that it
reaches and that no stage before it has, so that the usual case defines little.

A header names the subjects that the text below it uses, no more and no less: what those need is theirs to name.
A later stage names what the stages before it have not. Every script has `context`, and no header names it.

`K.`, `G.`, `F.` and `N.` name what `layout` knows.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Final, NamedTuple

from toril.engines.redis import layout
from toril.model import DEAD_LETTERS, LASTING, REAPER
from toril.model.names import RESERVED_IDS

__all__ = ["Assembler", "BadScript", "Script", "assembler", "script", "scripts"]

_EVERYWHERE: Final = "context"
_HEADER: Final = re.compile(r"-- .+\n-- needs (.+)\n")
_STAGE: Final = re.compile(r"^-- (?:uses|then) (.+)\n", re.MULTILINE)
_FUNCTION: Final = re.compile(r"^function (\w+)\.(\w+)(?s:[^\n]* end|.*?\nend)\n", re.MULTILINE)
_NAME: Final = re.compile(r"(?<![\w.:])([a-z]\w*)(?:\.(\w+))?")
_FIELD: Final = re.compile(r"(?:[{,]\s*|^\w+\.)(\w+) = ", re.MULTILINE)
_LOCAL: Final = re.compile(r"^local (?:function )?([\w, ]*\w)", re.MULTILINE)
_COMMENT: Final = re.compile(r"^[ \t]*(?:--.*)?\n", re.MULTILINE)
_IGNORED: Final = re.compile(r"'(?:[^'\\\n]|\\.)*'|--.*")
_NAMED: Final = re.compile(r"\b([KGFN])\.(\w+)")
_TEXTS: Final = {
    "remembered": f"'{layout.NUMBERS['remembered']}'",
    "lasting": f"('{LASTING}')",
    "reaper": f"'{REAPER}'",
    "reserved": f"(':{':'.join(sorted(RESERVED_IDS))}:')",
}
_LISTS: Final = {"record_fields": layout.RECORD_FIELDS, "schedule_fields": layout.SCHEDULE_FIELDS}


class BadScript(Exception):
    """A script or a subject that does not fit the others."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, and the hash under which the server may know it."""

    name: str
    source: str
    sha: str


@dataclass(frozen=True, slots=True)
class _Subject:
    """A file of `lua/lib/`: its state, the fields of that, and its functions by name."""

    name: str
    needs: tuple[str, ...]
    state: str
    fields: frozenset[str]
    functions: Mapping[str, str]


class _Part(NamedTuple):
    """A function of a subject or, under the name "", its state."""

    subject: str
    function: str


@cache
def script(name: str, dead_letters: str = DEAD_LETTERS, *, named: bool = False) -> Script:
    """The script `lua/NAME.lua`, ready to be sent, for a store whose dead letters are in this queue; `named` says that
    the user has chosen it. A queue's name has no bracket that could end a text of Lua's."""
    text = assembler().assemble(name)
    texts = _TEXTS | {"dead_letters": f"[[{dead_letters}]]", "named_letters": str(named).lower()}
    source = _NAMED.sub(partial(_spelled, texts), text)
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())  # noqa: S324 - what Redis calls it by


def scripts() -> list[str]:
    """The names of all scripts."""
    return _names("lua")


@cache
def assembler() -> "Assembler":
    """The assembler of the package's own scripts."""
    return Assembler(_read, _names("lua/lib"))


class Assembler:
    """Puts scripts together from subjects; raises `BadScript` for whatever does not fit."""

    def __init__(self, read: Callable[[str], str], subjects: Iterable[str]) -> None:
        self._read = read
        self._names = frozenset(subjects)
        self._subjects: dict[str, _Subject] = {}
        self._needs: dict[str, tuple[str, ...]] = {}
        self._references: dict[_Part, tuple[_Part, ...]] = {}

    def assemble(self, name: str) -> str:
        """The whole text of a script, without comments."""
        definitions, stages, there = list[str](), list[str](), set[_Part]()
        for stage, reached, usable in self._stages(name):
            definitions.append(self._definitions(usable, reached - there))
            stages.append(stage)
            there |= reached
        _check_locals(name, "".join(definitions), "".join(stages))
        return "".join(before + stage for before, stage in zip(definitions, stages, strict=True))

    def unreached(self, names: Iterable[str]) -> list[str]:
        """The functions that none of these scripts reaches."""
        reached = {part for name in names for _, parts, _ in self._stages(name) for part in parts}
        subjects = (self._subject(name, "a script") for name in sorted(self._names))
        parts = (_Part(subject.name, function) for subject in subjects for function in subject.functions)
        return [f"{part.subject}.{part.function}" for part in parts if part not in reached]

    def _stages(self, name: str) -> Iterator[tuple[str, set[_Part], list[str]]]:
        """Each stage of a script: its text, what it reaches, and the subjects that it and those before it may reach."""
        opening, *stages = _STAGE.split(self._read(f"{name}.lua"))
        if not stages or _COMMENT.sub("", opening).strip():
            raise BadScript(f"{name}: what it uses must be said after its comment, before anything else")
        usable, ordered = list[str](), {_EVERYWHERE: None}
        for words, text in zip(stages[::2], stages[1::2], strict=True):
            stage, needs = _COMMENT.sub("", text), _needs(words)
            for subject in needs:
                ordered |= dict.fromkeys(self._with_needs(subject, (f"{name}.lua",)))
            found = list(self._found_in(name, stage, [*usable, *needs]))
            _check_needs(name, needs, stage, usable)
            usable += needs
            yield stage, self._reached(found), list(ordered)

    def _reached(self, parts: Iterable[_Part]) -> set[_Part]:
        """These parts, everything that they reach, and what every script has."""
        reached, ahead = set[_Part](), [_Part(_EVERYWHERE, ""), *parts]
        while ahead:
            part = ahead.pop()
            if part not in reached:
                reached.add(part)
                ahead += self._references_of(part)
        return reached

    def _references_of(self, part: _Part) -> tuple[_Part, ...]:
        if part not in self._references:
            subject = self._subject(part.subject, "a script")
            declared = f"local {subject.name} = "
            text = subject.functions.get(part.function) or subject.state.replace(declared, "", 1)
            self._references[part] = tuple(self._found_in(subject.name, text, (subject.name, *subject.needs)))
        return self._references[part]

    def _found_in(self, where: str, text: str, usable: Collection[str]) -> Iterator[_Part]:
        """The functions that a text names, and the states of their subjects."""
        for name, function in dict.fromkeys(_NAME.findall(_IGNORED.sub("", text))):
            if name not in self._names:
                continue
            if not function:
                raise BadScript(f"{where}: {name!r} is a subject, and cannot be the name of something else")
            if name not in usable and name != _EVERYWHERE:
                raise BadScript(f"{where}: uses {name}.{function}, and does not need {name!r}")
            subject = self._subject(name, where)
            if function in subject.functions:
                yield _Part(name, function)
            elif function not in subject.fields:
                raise BadScript(f"{where}: there is no {name}.{function}")
            yield _Part(name, "")

    def _with_needs(self, name: str, path: tuple[str, ...]) -> tuple[str, ...]:
        """A subject, after everything that it needs."""
        if name in path:
            raise BadScript(f"{' needs '.join([*path, name])}: no subject can need itself")
        if name not in self._needs:
            needs: dict[str, None] = {}
            for needed in self._subject(name, path[-1] if path else "a script").needs:
                needs |= dict.fromkeys(self._with_needs(needed, (*path, name)))
            self._needs[name] = (*needs, name)
        return self._needs[name]

    def _subject(self, name: str, by: str) -> _Subject:
        if name not in self._subjects:
            if name not in self._names:
                raise BadScript(f"{by}: there is no subject {name!r}")
            self._subjects[name] = _parsed(name, self._read(f"lib/{name}.lua"))
        return self._subjects[name]

    def _definitions(self, usable: Iterable[str], parts: Collection[_Part]) -> str:
        """The states of subjects, then their functions: these may name each other in any order."""
        states, functions = list[str](), list[str]()
        for subject in (self._subjects[name] for name in usable):
            reached = [name for name in subject.functions if _Part(subject.name, name) in parts]
            functions += (subject.functions[name] for name in reached)
            if _Part(subject.name, "") in parts:
                states.append(_with_room(subject, reached))
        return "".join(states + functions)


def _needs(words: str) -> tuple[str, ...]:
    return () if words == "nothing" else tuple(words.split())


def _check_needs(where: str, needs: tuple[str, ...], text: str, before: Collection[str] = ()) -> None:
    """Check that the text below a header uses everything that the header names, and that nothing is named twice."""
    used = {name for name, _ in _NAME.findall(_IGNORED.sub("", text))}
    for name in needs:
        if name == _EVERYWHERE:
            raise BadScript(f"{where}: every script has {name!r}, so no header names it")
        if name not in used:
            raise BadScript(f"{where}: names {name!r}, and does not use it")
        if name in before or needs.count(name) > 1:
            raise BadScript(f"{where}: names {name!r} twice")


def _with_room(subject: _Subject, functions: Iterable[str]) -> str:
    """A subject's state whose table has places for these functions from the start, so that it need not grow."""
    opening = f"local {subject.name} = {{"
    places = "".join(f"{name} = 0, " for name in functions if name not in subject.fields)
    return subject.state.replace(opening, opening + places, 1)


def _check_locals(name: str, definitions: str, stages: str) -> None:
    """What states declare holds for all functions and stages after them: none of it may be declared again."""
    states = [word for words in _LOCAL.findall(definitions) for word in words.split(", ")]
    own = {word for words in _LOCAL.findall(stages) for word in words.split(", ")}
    twice = [word for word in states if states.count(word) > 1 or word in own]
    if twice:
        raise BadScript(f"{name}: {twice[0]!r} is declared in two places")


def _parsed(name: str, text: str) -> _Subject:
    header = _HEADER.match(text)
    if header is None:
        raise BadScript(f"{name}: its first line must say what it is about, its second what it needs")
    text = _COMMENT.sub("", text)
    functions: dict[str, str] = {}
    for found in _FUNCTION.finditer(text):
        if found[1] != name:
            raise BadScript(f"{name}: defines a function of {found[1]!r}")
        functions[found[2]] = functions.get(found[2], "") + found[0]
    state, *rest = _FUNCTION.split(text)
    if any(between.strip() for between in rest[2::3]):
        raise BadScript(f"{name}: its state must stand before its functions")
    needs = _needs(header[1])
    _check_needs(name, needs, text)
    return _Subject(name, needs, state, frozenset(_FIELD.findall(state)), functions)


def _names(folder: str) -> list[str]:
    found = (files("toril.engines.redis") / folder).iterdir()
    return sorted(path.name.removesuffix(".lua") for path in found if path.name.endswith(".lua"))


def _read(name: str) -> str:
    return (files("toril.engines.redis") / "lua" / name).read_text("utf-8")


def _spelled(texts: Mapping[str, str], found: re.Match[str]) -> str:
    """The layout's text for a name, as a Lua literal; an unknown name is a mistake in the script."""
    kind, name = found[1], found[2]
    match kind:
        case "K":
            return f"'{layout.KEYS[name]}'"
        case "G":
            return f"'{layout.FLEET[name]}'"
        case "F" if name in _LISTS:
            return ", ".join(f"'{layout.FIELDS[field]}'" for field in _LISTS[name])
        case "F":
            return f"'{layout.FIELDS[name]}'"
        case _ if name in texts:
            return texts[name]
        case _:
            return str(layout.NUMBERS[name])
