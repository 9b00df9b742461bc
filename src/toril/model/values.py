"""A faster way of creating the frozen values that every job needs."""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

__all__ = ["fast_frozen", "fast_frozen_kw"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def fast_frozen(cls: type[T]) -> type[T]:
    """A frozen dataclass to the type checker, a plain slotted one at run time.

    A truly frozen one sets each field through `object.__setattr__`, which takes four times as long; the values
    marked with this are made several times for every job.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def fast_frozen_kw(cls: type[T]) -> type[T]:
    """The same, for values with many fields."""
    return dataclass(slots=True, unsafe_hash=True, kw_only=True)(cls)
