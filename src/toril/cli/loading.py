"""Loads the app that `module:app` names, or says in one sentence what is wrong with it."""

import importlib
import sys
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import click

from toril import App, TorilError

__all__ = ["load"]

_OURS: Final = str(Path(__file__).parent.parent)


def load(target: str) -> App:
    """Import the app, looking for modules in the current folder too."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    name, colon, attribute = target.partition(":")
    parts = name.split(".")
    if not colon or not attribute or parts[-1] == "py" or not all(part.isidentifier() for part in parts):
        raise _wrong(f"expected MODULE:APP, {_example(target)}; got {target!r}")
    return _app_of(_module(name), attribute)


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise _wrong(f"no module {name!r} in this folder or on the Python path{_near_module(name)}") from error
        raise _wrong(f"importing {name!r} failed: {_last_line(error)}") from error
    except (Exception, SystemExit) as error:
        raise _wrong(f"importing {name!r} failed: {_last_line(error)}") from error


def _app_of(module: ModuleType, attribute: str) -> App:
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise _wrong(f"{module.__name__!r} has no {attribute!r}; {_near_app(module, attribute, apps)}") from None
    if not isinstance(found, App):
        raise _wrong(
            f"{module.__name__}:{attribute} is not a toril.App but of type {type(found).__name__!r}; "
            f"{_near_app(module, attribute, apps)}"
        )
    return found


def _near_app(module: ModuleType, attribute: str, apps: list[str]) -> str:
    if not apps:
        return "it contains no toril.App"
    near = get_close_matches(attribute, apps, n=1) or apps[:1]
    return f"did you mean {module.__name__}:{near[0]}?"


def _near_module(name: str) -> str:
    """A file with a similar name, in the folder where the module would be."""
    *parents, last = name.split(".")
    folder = Path(*parents) if parents else Path()
    try:
        files = [path.stem for path in folder.glob("*.py")] + [
            path.parent.name for path in folder.glob("*/__init__.py")
        ]
    except OSError:
        return ""
    near = get_close_matches(last, files, n=1)
    return f"; did you mean {'.'.join([*parents, near[0]])!r}?" if near else ""


def _example(target: str) -> str:
    """What the user probably meant."""
    name, _, attribute = target.partition(":")
    name = name.removesuffix(".py").replace("/", ".").strip(".")
    meant = name if name and all(part.isidentifier() for part in name.split(".")) else "jobs"
    return f"such as {meant}:{attribute if attribute.isidentifier() else 'app'}"


def _last_line(error: BaseException) -> str:
    """The last line of the traceback, and the line of the app's code that it came from."""
    text = str(error) if isinstance(error, TorilError) else f"{type(error).__name__}: {error}"
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(("<", _OURS)) and "importlib" not in file:
            place = f" ({Path(file).name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return text.strip().split("\n")[-1] + ("" if isinstance(error, SyntaxError) else place)


def _wrong(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="MODULE:APP")
