"""What a parent is told of its child."""

from typing import Literal, NamedTuple

from toril.engines.sql.options import Link

__all__ = ["Told"]


class Told(NamedTuple):
    """A child's end, for its parent to know. `stays`: it can still be run again."""

    id: str
    parent: Link
    ending: Literal["completed", "failed", "removed"]
    text: str = ""
    stays: bool = False
