"""Words the entries of the audit log."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from toril.model import AuditEntry
from toril.web.templates import Name, Words, compact, number, plural

__all__ = ["ACTIONS", "in_words", "sentence"]

Body: TypeAlias = Mapping[str, Any]
_NAMED: Final = 3  # ids to list; beyond that, only their number
_TEXT: Final = 80  # characters of a text from a request


def in_words(entry: AuditEntry) -> Words:
    """The entry as a sentence in parts: `Replayed 12 dead letters of webhooks, error 429`. A refused request is worded
    as tried."""
    worded = ACTIONS.get(entry.action)
    if worded is None:
        return (f"{entry.action[:1].upper()}{entry.action[1:]} ", Name(entry.target), f" {compact(entry.detail)}")
    past, infinitive, what = worded
    verb = past if entry.ended == "done" else f"Tried to {infinitive}"
    left = f"; {number(entry.refused)} refused" if entry.refused else ""
    return (f"{verb} ", *what(entry, _body(entry.detail)), *((left,) if left else ()))


def sentence(entry: AuditEntry) -> str:
    """The same as one text."""
    parts = (part if isinstance(part, str) else part.text for part in in_words(entry))
    return "".join(parts).replace("\u00a0", " ").strip()


def _body(detail: str) -> Body:
    try:
        found = json.loads(detail) if detail else {}
    except ValueError:  # a long body was cut
        return {}
    return found if isinstance(found, dict) else {}


# The objects of the sentences.


def _queue(entry: AuditEntry, _: Body) -> Words:
    return "queue ", _queue_name(entry.target)


def _queue_name(name: str) -> Name:
    return Name(name, ("queues", name))


def _job(entry: AuditEntry, body: Body) -> Words:
    queue, identity = _parted(entry.target)
    reason = body.get("reason")
    why = (": ", Name(compact(str(reason), _TEXT))) if reason else ()
    return *_one_job(queue, identity), *why


def _parted(target: str) -> tuple[str, str]:
    """A queue, and the rest of the target."""
    queue, _, rest = target.partition("/")
    return queue, rest


def _one_job(queue: str, identity: str) -> Words:
    return "job ", Name(identity, ("queues", queue, "jobs", identity)), " in ", _queue_name(queue)


def _jobs(entry: AuditEntry, body: Body) -> Words:
    """The jobs of a bulk action: those named, or those that matched a search."""
    ids = body.get("ids")
    if isinstance(ids, list):
        if len(ids) == 1:
            return _one_job(entry.target, str(ids[0]))
        return f"{_many(entry, len(ids), 'job')} in ", _queue_name(entry.target), *_listed(ids)
    return f"{_many(entry, None, _jobs_in(body.get('state')))} in ", _queue_name(entry.target), *_sought(body)


_STATES: Final = {"active": "running", "prioritized": "waiting", "waiting_children": "waiting"}


def _jobs_in(state: Any) -> str:
    return f"{_STATES.get(state, state)} job" if isinstance(state, str) else "job"


def _letters(entry: AuditEntry, body: Body) -> Words:
    ids, where = body.get("ids"), body.get("where")
    if isinstance(ids, list):
        if len(ids) == 1:
            return "dead letter ", Name(str(ids[0]), ("dead", str(ids[0])))
        return _many(entry, len(ids), "dead letter"), *_listed(ids)
    given = where if isinstance(where, dict) else {}
    queue = given.get("queue")
    of: Words = (" in ", _queue_name(str(queue))) if queue else ()
    return _many(entry, None, "dead letter"), *of, *_sought({**given, "queue": None})


def _many(entry: AuditEntry, named: int | None, noun: str) -> str:
    """How many were changed; if everything was refused, how many were meant."""
    count = entry.done if entry.done is not None else named
    return f"{noun}s" if count is None else plural(count, noun)


def _listed(ids: list[Any]) -> Words:
    parts: list[str | Name] = [": "]
    for place, each in enumerate(ids[:_NAMED]):
        parts += [", "] if place else []
        parts.append(Name(str(each)))
    return (*parts, f" and {number(len(ids) - _NAMED)} more") if len(ids) > _NAMED else tuple(parts)


_SOUGHT: Final = {
    "name": "name", "error": "error", "kind": "error", "q": "text", "key": "data", "worker": "worker",
    "cause": "cause", "queue": "queue",
}  # fmt: skip


def _sought(body: Body) -> Words:
    parts: list[str | Name] = []
    for field, word in _SOUGHT.items():
        if body.get(field):
            parts += [f", {word} ", Name(compact(str(body[field]), _TEXT))]
    return tuple(parts)


def _removed(entry: AuditEntry, body: Body) -> Words:
    """How many jobs of a state were removed."""
    return f"{_many(entry, None, _jobs_in(body.get('state', 'waiting')))} in ", _queue_name(entry.target)


def _emptied(entry: AuditEntry, _: Body) -> Words:
    count = f" with {plural(entry.done, 'job')}" if entry.done is not None else ""
    return "queue ", _queue_name(entry.target), count


def _limits(entry: AuditEntry, body: Body) -> Words:
    said = []
    if "concurrency" in body:
        said.append("no concurrency limit" if body["concurrency"] is None else f"concurrency {body['concurrency']}")
    if "rate" in body:
        rate = body["rate"]
        said.append(
            f"rate {rate.get('max')} per {_seconds(rate.get('per'))}" if isinstance(rate, dict) else "no rate limit"
        )
    return "the limits of queue ", _queue_name(entry.target), f" to {', '.join(said)}" if said else ""


def _seconds(value: Any) -> str:
    return f"{value:g} s" if isinstance(value, int | float) else "?"


def _group(entry: AuditEntry, _: Body) -> Words:
    queue, group = _parted(entry.target)
    return "group ", Name(group, ("groups",), {"queue": queue, "q": group}), " in ", _queue_name(queue)


def _group_limits(entry: AuditEntry, body: Body) -> Words:
    words = {"concurrency": "concurrency", "max_waiting": "max waiting", "weight": "weight", "rate_max": "max starts"}
    said = [
        f"{words[name]} {'as in the queue' if body[name] is None else body[name]}" for name in words if name in body
    ]
    return "the limits of ", *_group(entry, body), f": {', '.join(said)}" if said else ""


def _added(entry: AuditEntry, body: Body) -> Words:
    return "a job ", Name(str(body.get("name", "")) or "?"), " to ", _queue_name(entry.target)


def _changed(entry: AuditEntry, body: Body) -> Words:
    fields = ", ".join(name for name in ("data", "priority", "delay") if name in body)
    return f"{fields} of " if fields else "", *_job(entry, {})


def _signal_to_job(entry: AuditEntry, _: Body) -> Words:
    job, name = entry.target.rpartition("/")[::2]
    queue, identity = _parted(job)
    return "the signal ", Name(name), " to ", *_one_job(queue, identity)


def _signal_by_key(entry: AuditEntry, body: Body) -> Words:
    queue, name = _parted(entry.target)
    key = compact(str(body.get("key", "")), _TEXT) or "?"
    return "the signal ", Name(name), " by the key ", Name(key), " to ", _queue_name(queue)


def _rewound(entry: AuditEntry, body: Body) -> Words:
    step = body.get("to")
    where: Words = (" to the step ", Name(compact(str(step), _TEXT))) if step else (" to the beginning",)
    return *_job(entry, {}), *where


def _schedule(entry: AuditEntry, _: Body) -> Words:
    queue, identity = _parted(entry.target)
    return "schedule ", Name(identity, ("schedules",), {"q": identity}), " in ", _queue_name(queue)


def _worker(entry: AuditEntry, _: Body) -> Words:
    return "worker ", Name(entry.target, ("workers",), {"worker": entry.target})


def _circuit(entry: AuditEntry, body: Body) -> Words:
    seconds = body.get("seconds")
    return (
        "circuit ",
        Name(entry.target, ("breakers",), {"q": entry.target}),
        f" for {_seconds(seconds)}" if seconds else "",
    )


def _store(_: AuditEntry, body: Body) -> Words:
    queues = body.get("queues")
    if not isinstance(queues, list):
        return ("the store",)
    return "queues ", *_listed(queues)[1:]


# By the name of an endpoint's function: the verb for done, the verb for tried, and the object.
ACTIONS: Final[Mapping[str, tuple[str, str, Callable[[AuditEntry, Body], Words]]]] = {
    "pause queue": ("Paused", "pause", _queue),
    "resume queue": ("Resumed", "resume", _queue),
    "drain queue": ("Removed", "remove", _removed),
    "clean queue": ("Removed", "remove", _removed),
    "obliterate queue": ("Removed", "remove", _emptied),
    "retry failed": ("Retried", "retry", lambda entry, _: _removed(entry, {"state": "failed"})),
    "set limits": ("Set", "set", _limits),
    "pause group": ("Paused", "pause", _group),
    "resume group": ("Resumed", "resume", _group),
    "limit group": ("Set", "set", _group_limits),
    "add job": ("Added", "add", _added),
    "job stack": ("Asked for", "ask for", lambda entry, body: ("the stack of ", *_job(entry, body))),
    "retry job": ("Retried", "retry", _job),
    "promote job": ("Promoted", "promote", _job),
    "cancel job": ("Cancelled", "cancel", _job),
    "change job": ("Changed", "change", _changed),
    "signal job": ("Sent", "send", _signal_to_job),
    "signal queue": ("Sent", "send", _signal_by_key),
    "rewind job": ("Rewound", "rewind", _rewound),
    "remove job": ("Removed", "remove", _job),
    "retry jobs": ("Retried", "retry", _jobs),
    "promote jobs": ("Promoted", "promote", _jobs),
    "cancel jobs": ("Cancelled", "cancel", _jobs),
    "remove jobs": ("Removed", "remove", _jobs),
    "replay letters": ("Replayed", "replay", _letters),
    "discard letters": ("Discarded", "discard", _letters),
    "put schedule": ("Set", "set", _schedule),
    "run schedule": ("Ran", "run", _schedule),
    "pause schedule": ("Paused", "pause", _schedule),
    "resume schedule": ("Resumed", "resume", _schedule),
    "remove schedule": ("Removed", "remove", _schedule),
    "quiet worker": ("Quieted", "quiet", _worker),
    "stop worker": ("Stopped", "stop", _worker),
    "trip breaker": ("Opened", "open", _circuit),
    "reset breaker": ("Closed", "close", _circuit),
    "repair store": ("Repaired", "repair", _store),
}
