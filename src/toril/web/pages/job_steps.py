"""The durable steps of a job: what it has recorded, what it rests for, and how far it can be rewound."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toril.codec.steps import load_received, load_step
from toril.job import Job
from toril.model import JobRow, SignalWait, StepKind
from toril.model.states import State
from toril.web.api.common import kept_in
from toril.web.api.steps import step_documents
from toril.web.pages.rests import RestView, rest_of, signal_words
from toril.web.templates import compact, plural

__all__ = ["StepLine", "StepList", "steps_of"]

_SHOWN: Final = 300  # steps on a page
_A_PAGE: Final = 100
_SHORT: Final = 100  # characters of a value that is not folded
_NAMED: Final = 8  # steps to name that would run again
# The job may be rewound in these states, unless it is a dead letter.
_REWINDS: Final = frozenset(
    {State.WAITING, State.PRIORITIZED, State.DELAYED, State.WAITING_CHILDREN, State.COMPLETED, State.FAILED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A step. `state` is what became of it; `value` is given if there is one, `short` if it fits into the line."""

    key: str
    kind: str
    cls: str
    icon: str
    state: str
    number: int | None
    at: int | None
    took: int | None = None
    attempt: int | None = None
    until: int | None = None
    rests: bool = False
    error: str | None = None
    value: Any = None
    short: str | None = None
    folded: bool = False
    jobs: Sequence[Mapping[str, str]] = ()
    signals: Sequence[SignalWait] = ()
    again: Sequence[str] = ()
    more: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepList:
    """The steps in the order in which they were recorded. `cut` says that there are more."""

    lines: Sequence[StepLine]
    rest: RestView | None
    rewinds: bool
    cut: bool = False


async def steps_of(job: Job[Any], row: JobRow) -> StepList | None:
    """The durable steps of a job; None if it has recorded none and rests for none."""
    rows: list[tuple[str, str]] = []
    cursor: str | None = None
    while len(rows) < _SHOWN:
        page = await job.queue.store.steps.page(
            job.queue.name, job.id, cursor=cursor, limit=_A_PAGE, where=kept_in(job)
        )
        rows += page.items
        cursor = page.cursor
        if cursor is None:
            break
    rest = rest_of(row)
    if not rows and rest is None:
        return None
    documents = list(step_documents(rows, job))
    keys = [key for key, _ in rows]
    lines = [
        _line(document, text, rest, keys[number:])
        for number, (document, (_, text)) in enumerate(zip(documents, rows, strict=True))
    ]
    rewinds = row.state in _REWINDS and row.dead_letter is None
    return StepList(lines=lines, rest=rest, rewinds=rewinds, cut=cursor is not None)


# Kind of a row: its name, look and icon, and what became of it.
_LOOKS: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "step": ("step", "done", "done", "recorded"),
    "failed": ("step", "failed", "failed", "failed, and the handler caught it"),
    "retry": ("step", "warn", "warn", "failed"),
    "sleep": ("sleep", "done", "rest", "over"),
    "wait": ("signal", "delayed", "person", "asked for"),
    "signal": ("signal", "done", "person", "received"),
    "call": ("call", "done", "flow", "called"),
    "version": ("version", "done", "done", "recorded"),
    "unreadable": ("unreadable", "warn", "warn", "cannot be read by this version of Toril"),
}


def _line(document: Mapping[str, Any], text: str, rest: RestView | None, again: Sequence[str]) -> StepLine:
    kind, value = document["kind"], document["value"]
    name, cls, icon, state = _LOOKS[kind]
    rests = rest is not None and document["key"] in rest.keys
    signals: Sequence[SignalWait] = ()
    until = document["until"]
    if kind == "retry":
        state = f"failed {plural(document['tries'], 'time')}" + (", tries again" if until else "")
    elif rests and rest is not None:
        signals = rest.signals_of(document["key"])
        words = {"sleep": "sleeping", "wait": f"waiting for {signal_words(signals)}", "call": "waiting for its jobs"}
        cls, state = "children" if kind == "call" else "delayed", words.get(kind, state)
    elif kind == "signal" and _timed_out(document["key"], text):
        cls, icon, state = "warn", "delayed", "timed out, no signal came"
    shown = kind in ("step", "signal", "version", "unreadable") and not state.startswith("timed out")
    short = compact(value, _SHORT + 1) if shown else None
    return StepLine(
        key=document["key"], kind=name, cls=cls, icon=icon, state=state, number=document["number"], at=document["at"],
        took=None if not document["took"] or name != "step" else round(document["took"] * 1000),
        attempt=document["attempt"], until=until if rests or kind == "retry" else None, rests=rests,
        error=document["error"], value=value,
        short=short if short is not None and len(short) <= _SHORT and "\n" not in short else None,
        folded=short is not None and (len(short) > _SHORT or "\n" in short),
        jobs=value if kind == "call" else (), signals=signals, again=again[:_NAMED], more=max(0, len(again) - _NAMED),
    )  # fmt: skip


def _timed_out(key: str, text: str) -> bool:
    row = load_step(key, text)
    return row is not None and row.kind is StepKind.RECEIVED and load_received(row.text) is None
