"""The pytest plugin, loaded by pytest itself: the `toril_memory` fixture."""

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
    """`toril.testing.memory`, but a job that fails also fails the test: `async with toril_memory(app) as test:`."""
    from toril.testing import memory  # noqa: PLC0415 - for those who use it

    return partial(memory, on_failure="raise")
