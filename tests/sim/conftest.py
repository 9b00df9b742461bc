"""Plants the bug that TORIL_MUTANT names, so that one can see which tests find it."""

from collections.abc import Iterator

import pytest

from tests.sim.bugs import chosen


@pytest.fixture(scope="session", autouse=True)
def _planted_bug() -> Iterator[None]:
    with chosen():
        yield
