"""For pytest, which loads this by itself: fixtures that cost nothing until a test asks for one."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from toril.testing import Memory

__all__ = ["toril_memory"]


@pytest.fixture
def toril_memory() -> "Callable[..., AbstractAsyncContextManager[Memory]]":
    """`toril.testing.memory`, in which a job that fails fails the test: `async with toril_memory(app) as test:`."""
    from toril.testing import memory  # noqa: PLC0415 - for those who use it

    return partial(memory, on_failure="raise")
