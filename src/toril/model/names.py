"""The rules for names and ids. They are checked once, where a name comes in."""

import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

from toril.errors import InvalidName, InvalidOption, preview

__all__ = [
    "MAX_ID_BYTES",
    "MAX_JOB_NAME_BYTES",
    "MAX_QUEUE_NAME_BYTES",
    "RESERVED_IDS",
    "check_app_name",
    "check_chosen_worker_name",
    "check_circuit_key",
    "check_group",
    "check_job_id",
    "check_job_name",
    "check_label",
    "check_prefix",
    "check_queue_name",
    "check_signal_id",
    "check_signal_key",
    "check_signal_name",
    "check_step_key",
    "check_step_name",
    "check_stored_key",
    "check_subject",
    "check_worker_name",
    "near_name",
]

MAX_QUEUE_NAME_BYTES = 128
MAX_JOB_NAME_BYTES = 255
MAX_ID_BYTES = 256
MAX_STEP_NAME_BYTES = 128  # of signals too
MAX_STEP_KEY_BYTES = 256
MAX_STORED_KEY_BYTES = 512  # of a step: its scope, name and key
_MAX_CHOSEN_NAME_BYTES = 90  # of a worker, after which senders of calls are named

# In the Redis layout these are keys next to those of jobs: a job with such an id would overwrite one.
RESERVED_IDS = frozenset(
    [
        "active",
        "completed",
        "de",
        "delay",
        "delayed",
        "dn",
        "events",
        "failed",
        "id",
        "limiter",
        "marker",
        "meta",
        "metrics",
        "paused",
        "pc",
        "prioritized",
        "priority",
        "repeat",
        "stalled",
        "stalled-check",
        "toril",
        "wait",
        "waiting-children",
    ]
)

_LIKENESS = 0.8  # the similarity of "emial" and "email"
_SHORTEST_SLIP = 4  # letters: "sned" is a typo of "send", but "ab" is a name
_DIGITS = re.compile(r"\d+")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)\Z")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")  # nearly every name; the slow path is for the rest
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.:/@-]{1,128}\Z")  # the same for workers' names
_KEY_SYNTAX = {
    ":": "it separates the parts of a key",
    "{": "it would move the queue to another cluster slot",
    "}": "it would move the queue to another cluster slot",
    "*": "it is a pattern character",
    "?": "it is a pattern character",
    "[": "it is a pattern character",
    "]": "it is a pattern character",
    "\\": "it is a pattern character",
    "/": "names appear in URLs and file names",
    "%": "names appear in URLs",
}
# Characters that are invisible, so that two names would look alike: joiners, fillers, variation selectors.
# Other invisible ones (controls, bidi overrides, zero width, odd spaces) are not printable to Python.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LONGEST_DECOMPOSITION = 4  # code points that the normal form can combine into one


def check_queue_name(name: object) -> str:
    """The name in its normal form (NFC), or `InvalidName`."""
    if type(name) is str and _PLAIN_NAME.match(name):
        return name
    return _check_key_part("a queue name", name)


def check_label(what: str, name: object) -> str:
    """The rules of queue names for schedules, workers, deduplication keys and the like."""
    if type(name) is str and _PLAIN_NAME.match(name):
        return name
    return _check_key_part(what, name)


def check_app_name(name: object) -> str:
    """The name of an app, or `InvalidName`: a single line of up to 256 bytes."""
    return _check_line("an app's name", name)


def check_circuit_key(key: object) -> str:
    """The key of a circuit, or `InvalidName`: a single line of up to 256 bytes."""
    return _check_line("a breaker's key", key)


def _check_line(what: str, text: object) -> str:
    if not isinstance(text, str) or not text or not text.isprintable() or len(text.encode("utf-8", "replace")) > 256:
        raise InvalidName(f"{what} must be a single line of 1 to 256 bytes, not {preview(text)}")
    return str(text)


def check_subject(subject: object) -> str:
    """The subject of a job, or `InvalidName`: a single line of up to 256 bytes."""
    return _check_line("a job's subject", subject)


def check_group(name: object) -> str:
    """The name of a group, or `InvalidName`: a single line of up to 128 bytes."""
    if not isinstance(name, str) or not name or not name.isprintable() or len(name.encode("utf-8", "replace")) > 128:
        raise InvalidName(f"a group's name must be a single line of 1 to 128 bytes, not {preview(name)}")
    return str(name)


def check_worker_name(name: object) -> str:
    """The name of a worker: one printable word of up to 128 bytes, which may contain `:`."""
    if type(name) is str and _PLAIN_WORD.match(name):
        return name
    if not isinstance(name, str):
        raise InvalidName(f"a worker's name must be a string, not {preview(name)}")
    _check_length("a worker's name", name, MAX_QUEUE_NAME_BYTES)
    if not name.isprintable() or " " in name:
        raise InvalidName(f"a worker's name must be one printable word, not {preview(name)}")
    return str(name)


def check_chosen_worker_name(name: object) -> str:
    """A name that a user chose for a worker or reaper, or `InvalidName`."""
    text = check_worker_name(name)
    _check_length("a worker's name", text, _MAX_CHOSEN_NAME_BYTES)
    return text


def check_job_name(name: object) -> str:
    """The name of a job, or `InvalidName`."""
    if type(name) is str and _PLAIN_NAME.match(name):
        return name
    return _check_text("a job name", name, MAX_JOB_NAME_BYTES)


def check_job_id(job_id: object) -> str:
    """An id that a user chose, or `InvalidName`. Toril's own ids are integers, so users' ids may not be."""
    text = _check_text("a job id", job_id, MAX_ID_BYTES)
    if _INTEGER.match(text):
        raise InvalidName(
            f"a job id must not be an integer, because Toril numbers other jobs that way; got {preview(text)}"
        )
    if text in RESERVED_IDS:
        raise InvalidName(f"{preview(text)} is reserved and cannot be a job id")
    if ":" in text:
        _check_parts(text)
    return text


def check_step_name(name: object) -> str:
    """The name of a step, or `InvalidName`: the characters that part a stored key are not in it."""
    return _check_step_name("a step's name", name)


def check_signal_name(name: object) -> str:
    """The name of a signal, or `InvalidName`: the rules of steps' names."""
    return _check_step_name("a signal's name", name)


def _check_step_name(what: str, name: object) -> str:
    if type(name) is str and _PLAIN_NAME.match(name):
        return name
    text = _check_text(what, name, MAX_STEP_NAME_BYTES)
    for character in "/#:":
        if character in text:
            raise InvalidName(f"{what} must not contain {character!r}; got {preview(text)}")
    return text


def check_step_key(key: object) -> str:
    """The key that tells apart steps of one name, or `InvalidName`: a single line of up to 256 bytes."""
    return _check_text("a step's key", key, MAX_STEP_KEY_BYTES)


def check_signal_key(key: object) -> str:
    """The key by which a signal finds its job, or `InvalidName`: a single line of up to 256 bytes."""
    return _check_text("a signal's key", key, MAX_STEP_KEY_BYTES)


def check_signal_id(identity: object) -> str:
    """The id that makes a repeated signal harmless, or `InvalidName`: a single line of up to 256 bytes."""
    return _check_text("a signal's id", identity, MAX_STEP_KEY_BYTES)


def check_stored_key(key: object) -> str:
    """The key of a step as it is stored, or `InvalidName`: a single line of up to 512 bytes."""
    if type(key) is str and _PLAIN_NAME.match(key):
        return key
    return _check_text("a step's key, with its name and those of the gathers around it,", key, MAX_STORED_KEY_BYTES)


def check_prefix(prefix: object) -> str:
    """The key prefix of an app: a name, or `{name}` if a cluster needs the hash tag."""
    if not isinstance(prefix, str):
        raise InvalidOption(f"a prefix must be a string, not {preview(prefix)}")
    tagged = prefix.startswith("{") and prefix.endswith("}")
    try:
        name = _check_key_part("a prefix", prefix[1:-1] if tagged else prefix)
    except InvalidName as error:
        raise InvalidOption(str(error)) from None
    return f"{{{name}}}" if tagged else name


def _check_parts(job_id: str) -> None:
    """Ids of scheduled jobs are `repeat:schedule:time`. Users' ids may have that form too, if no other key has it."""
    first, *rest = job_id.split(":")
    if len(rest) != 2 or first == "0":
        raise InvalidName(f"a job id may contain ':' only as in 'a:b:c', with three parts; got {preview(job_id)}")
    if first in RESERVED_IDS - {"repeat"} or rest[-1] in RESERVED_IDS:
        raise InvalidName(f"a job id must not begin or end with a reserved word; got {preview(job_id)}")


def _check_key_part(what: str, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidName(f"{what} must be a string, not {preview(name)}")
    if len(name) > MAX_QUEUE_NAME_BYTES * _LONGEST_DECOMPOSITION:
        raise InvalidName(_too_long(what, name, MAX_QUEUE_NAME_BYTES, len(name)))
    name = _plain(name)
    if not name.isprintable() or _BLANK.search(name):
        raise InvalidName(f"{what} must not contain control or invisible characters; got {preview(name)}")
    name = unicodedata.normalize("NFC", name)
    _check_length(what, name, MAX_QUEUE_NAME_BYTES)
    if name != name.strip():
        raise InvalidName(f"{what} must not begin or end with a space; got {preview(name)}")
    for character in name:
        if character in _KEY_SYNTAX:
            raise InvalidName(f"{what} must not contain {character!r} ({_KEY_SYNTAX[character]}); got {preview(name)}")
    if name.startswith(".") or ".." in name:
        raise InvalidName(f"{what} must not begin with '.' or contain '..'; got {preview(name)}")
    return name


def _check_text(what: str, text: object, limit: int) -> str:
    """The check for what is only a part of a value, or the last part of a key: any text on one line."""
    if not isinstance(text, str):
        raise InvalidName(f"{what} must be a string, not {preview(text)}")
    text = _plain(text)
    _check_length(what, text, limit)
    if _CONTROL.search(text):
        raise InvalidName(f"{what} must be a single line without control characters; got {preview(text)}")
    return text


def _check_length(what: str, name: str, limit: int) -> None:
    if not name or name.isspace():
        raise InvalidName(f"{what} must not be empty; got {preview(name)}")
    size = len(name) if len(name) > limit else len(name.encode("utf-8", "surrogatepass"))
    if size > limit:
        raise InvalidName(_too_long(what, name, limit, size))


def _too_long(what: str, name: str, limit: int, size: int) -> str:
    return f"{what} must have at most {limit} bytes; {preview(name)} has {size}"


def _plain(text: str) -> str:
    """The plain string: a member of a string enum, for example, would print as something else in a key."""
    return text if type(text) is str else str.__str__(text)


def near_name(name: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant, if any. Names that differ in their numbers are assumed to be intended."""
    others = [each for each in known if _DIGITS.sub("", each) != _DIGITS.sub("", name)]
    like = get_close_matches(name, others, n=1, cutoff=_LIKENESS)
    return next(iter(like or [each for each in others if _is_swapped(each, name)]), None)


def _is_swapped(one: str, other: str) -> bool:
    """Whether two neighbouring letters are swapped, which makes short names look dissimilar."""
    first, *rest = [n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b] or [0]
    return (
        len(one) == len(other) >= _SHORTEST_SLIP
        and rest == [first + 1]
        and (one[first], one[first + 1]) == (other[first + 1], other[first])
    )
