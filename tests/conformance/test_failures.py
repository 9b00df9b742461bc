"""What a job says of its own failing travels with it, on every engine."""

import pytest

from tests.conformance.claims import add, claim_one, job
from toril import Exponential, Fixed, Retry, Strategy
from toril.engine import Store
from toril.model import NewJob


@pytest.mark.covers("R051")
@pytest.mark.parametrize("retry", [
    Retry(3, Fixed(2)),
    Retry(3, Exponential(2, cap=9, jitter=0.5)),
    Retry(3, Exponential(1, jitter="decorrelated")),
    Retry(3, Strategy("mine", Fixed(1))),
    Retry(3, on=(OSError, "some.library.Error")),
    Retry(3, give_up_on=KeyError),
], ids=["fixed", "exponential", "decorrelated", "strategy", "on", "give up"])  # fmt: skip
async def test_how_a_job_is_retried_is_stored_with_it(engine: Store, retry: Retry) -> None:
    await add(engine, NewJob(name="n", attempts=3, backoff=retry.wire()))

    assert (await job(engine, "1")).backoff == retry.wire()
    assert (await claim_one(engine)).backoff == retry.wire()
