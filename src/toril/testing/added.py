"""What was added in a test, and whether that is what the test wants."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from toril.codec.encoding import readable
from toril.errors import shown
from toril.model import NewJob, moment
from toril.records import RetryDelay, as_record

__all__ = ["DURATIONS", "OPTIONS", "AddedJob", "Wanted", "found"]

DURATIONS: Final = ("timeout", "expires", "result_ttl")  # stored as milliseconds
OPTIONS: Final = tuple(field.name for field in fields(NewJob) if field.name not in {"name", "data", "delay"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedJob:
    """One job that was stored in this test; `data` is its payload as JSON has it. `options` is what else was
    asked for, such as `attempts`, `priority` and `timeout`; durations are seconds."""

    queue: str
    name: str
    id: str
    data: Any
    delay: float
    options: Mapping[str, Any]

    @classmethod
    def of(cls, queue: str, job: NewJob, identity: str, now: int) -> "AddedJob":
        due = now + job.delay if job.due is None else job.due
        return cls(
            queue=queue, name=job.name, id=identity, data=readable(job.data), delay=max(0, due - now) / 1000,
            options={name: _option(name, getattr(job, name)) for name in OPTIONS},
        )  # fmt: skip

    def __str__(self) -> str:
        later = f", delayed by {self.delay:g} s" if self.delay else ""
        return f"{self.queue}: {self.name} {shown(self.data)}{later}"


def _option(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "backoff":
        return as_record(RetryDelay, value)
    if name == "due":
        return moment(value)
    return value / 1000 if name in DURATIONS else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which jobs a test means. What is None is not looked at."""

    name: str | None
    queue: str | None
    data: Any
    any_data: bool
    delay: float | None
    options: Mapping[str, Any]

    def means(self, added: AddedJob) -> bool:
        return (
            self.name in {None, added.name}
            and self.queue in {None, added.queue}
            and (self.any_data or within(self.data, added.data))
            and (self.delay is None or self.delay == added.delay)
            and all(added.options[name] == value for name, value in self.options.items())
        )

    def __str__(self) -> str:
        parts = [f"{self.queue or 'any queue'}: {self.name or 'any job'}"]
        if not self.any_data:
            parts.append(shown(self.data))
        if self.delay is not None:
            parts.append(f"delayed by {self.delay:g} s")
        parts += [f"with {name}={shown(value)}" for name, value in self.options.items()]
        return " ".join(parts)


def within(part: Any, whole: Any) -> bool:
    """Whether all fields of `part` are in `whole` too, with the same values, at any depth."""
    if isinstance(part, Mapping) and isinstance(whole, Mapping):
        return all(name in whole and within(value, whole[name]) for name, value in part.items())
    if isinstance(part, Sequence) and isinstance(whole, Sequence) and not isinstance(part, str):
        return len(part) == len(whole) and all(map(within, part, whole))
    return bool(part == whole)


def found(
    wanted: Wanted, added: Sequence[AddedJob], times: int | None, why: Callable[[int], str] = "{} times".format
) -> list[AddedJob]:
    """The jobs that are meant. `AssertionError`, with all that was added, where there are not as many as wanted."""
    meant = [each for each in added if wanted.means(each)]
    if len(meant) == times or (times is None and meant):
        return meant
    expected = "at least once" if times is None else why(times)
    there = "".join(f"\n  {each}" for each in added[-50:]) or " nothing"
    raise AssertionError(f"{wanted} was to be added {expected}, and was added {why(len(meant))}; added were:{there}")
