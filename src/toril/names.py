"""What may be called what. Names and ids are checked once, at the edge, and never parsed afterwards."""

import re
import unicodedata

from toril.errors import InvalidName, InvalidOption, shown

__all__ = [
    "MAX_ID_BYTES",
    "MAX_JOB_NAME_BYTES",
    "MAX_QUEUE_NAME_BYTES",
    "RESERVED_IDS",
    "check_job_id",
    "check_job_name",
    "check_label",
    "check_prefix",
    "check_queue_name",
]

MAX_QUEUE_NAME_BYTES = 128
MAX_JOB_NAME_BYTES = 255
MAX_ID_BYTES = 256

# In the Redis layout these are keys beside the jobs' own: a job of that id would overwrite one.
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

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)\Z")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")  # nearly every name; the long road is for the rest
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
# Cc control, Cf formatting (zero width, bidi overrides), Cs lone surrogates, Co and Cn unassigned, Zl and Zp line ends.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def check_queue_name(name: object) -> str:
    """The name in its normal form (NFC), or InvalidName."""
    if isinstance(name, str) and _PLAIN_NAME.match(name):
        return name
    return _check_key_part("a queue name", name)


def check_label(what: str, name: object) -> str:
    """The same rules as for queue names, for schedules, workers, deduplication keys and the like."""
    if isinstance(name, str) and _PLAIN_NAME.match(name):
        return name
    return _check_key_part(what, name)


def check_job_name(name: object) -> str:
    """The job's name as given, or InvalidName."""
    if not isinstance(name, str):
        raise InvalidName(f"a job name must be a string, not {shown(name)}")
    if _PLAIN_NAME.match(name):
        return name
    _check_length("a job name", name, MAX_JOB_NAME_BYTES)
    if any(unicodedata.category(c) in {"Cc", "Cs"} for c in name):
        raise InvalidName(f"a job name must not contain control characters, and {shown(name)} does")
    return name


def check_job_id(job_id: object) -> str:
    """An id that a user chose, or InvalidName. Ids that Toril gives out are integers, so users' ids may not be."""
    if not isinstance(job_id, str):
        raise InvalidName(f"a job id must be a string, not {shown(job_id)}")
    _check_length("a job id", job_id, MAX_ID_BYTES)
    if _INTEGER.match(job_id):
        raise InvalidName(f"a job id must not be an integer, and {shown(job_id)} is: Toril numbers the others itself")
    if job_id in RESERVED_IDS:
        raise InvalidName(f"{shown(job_id)} is a word of the layout and cannot be a job id")
    if ":" in job_id and (job_id.count(":") != 2 or job_id.startswith("0:")):
        raise InvalidName(f"a job id must not contain ':', and {shown(job_id)} does")
    if any(unicodedata.category(c) in {"Cc", "Cs"} for c in job_id):
        raise InvalidName(f"a job id must not contain control characters, and {shown(job_id)} does")
    return job_id


def check_prefix(prefix: object) -> str:
    """The key prefix of an App: a name, or `{name}` where a cluster needs the tag."""
    if isinstance(prefix, str):
        bare = prefix[1:-1] if prefix.startswith("{") and prefix.endswith("}") else prefix
        try:
            _check_key_part("a prefix", bare)
        except InvalidName as error:
            raise InvalidOption(str(error)) from None
        return prefix
    raise InvalidOption(f"a prefix must be a string, not {shown(prefix)}")


def _check_key_part(what: str, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidName(f"{what} must be a string, not {shown(name)}")
    if any(unicodedata.category(c) in _UNSEEN for c in name):
        raise InvalidName(f"{what} must not contain control or invisible characters, and {shown(name)} does")
    name = unicodedata.normalize("NFC", name)
    _check_length(what, name, MAX_QUEUE_NAME_BYTES)
    if name != name.strip():
        raise InvalidName(f"{what} must not begin or end with a space, and {shown(name)} does")
    for character in name:
        if character in _KEY_SYNTAX:
            raise InvalidName(
                f"{what} must not contain {character!r} ({_KEY_SYNTAX[character]}), and {shown(name)} does"
            )
    if name.startswith(".") or ".." in name:
        raise InvalidName(f"{what} must not begin with '.' or contain '..', and {shown(name)} does")
    return name


def _check_length(what: str, name: str, limit: int) -> None:
    size = len(name.encode("utf-8", "surrogatepass"))
    if not name or name.isspace():
        raise InvalidName(f"{what} must not be empty")
    if size > limit:
        raise InvalidName(f"{what} must have at most {limit} bytes, and {shown(name)} has {size}")
