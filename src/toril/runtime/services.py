"""The last step of an add, and the seam for whoever traces it."""

from collections.abc import Awaitable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

from toril.model import Added, NewJob

if TYPE_CHECKING:
    from toril.runtime.portal import Home

__all__ = ["Tracing", "or_nothing", "stored"]

T = TypeVar("T")


class Tracing(Protocol):
    """Whoever follows jobs from those who add them to those who run them."""

    def sending(self, queue: str, jobs: Sequence[NewJob]) -> AbstractContextManager[list[NewJob]]:
        """Around an add: the jobs, with what the worker needs to go on with the trace."""


async def stored(home: "Home", queue: str, jobs: Sequence[NewJob]) -> list[Added]:
    """Store jobs. Without tracing nothing is done but that."""
    if home.tracing is None:
        return await home.call(lambda call: home.store.add(queue, jobs, call=call))
    with home.tracing.sending(queue, jobs) as traced:
        return await home.call(lambda call: home.store.add(queue, traced, call=call))


async def or_nothing(sending: Awaitable[list[T]]) -> list[T]:
    """What an add that is on its way has stored."""
    try:
        return await sending
    except Exception:  # whoever sent it gets the error
        return []
