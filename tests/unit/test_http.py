"""From a response's status and headers to what becomes of the job."""

from types import SimpleNamespace
from typing import Any

import pytest

from toril import PermanentError, TransientError, raise_for_status
from toril.http import LONGEST_WAIT, judge_status, retry_after

NOW = 1_700_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT


def wait(status: int, **headers: str) -> Any:
    error = judge_status(status, {name.replace("_", "-"): value for name, value in headers.items()}, now=NOW)
    assert isinstance(error, TransientError)
    return error.retry_after


@pytest.mark.covers("R066", "R069")
@pytest.mark.parametrize("status", [400, 401, 404, 410, 418, 301, 304, 101])
def test_what_is_refused_is_not_asked_again(status: int) -> None:
    assert isinstance(judge_status(status, {}, now=NOW), PermanentError)


@pytest.mark.covers("R068")
@pytest.mark.parametrize("status", [500, 502, 503, 504, 599])
def test_trouble_of_the_server_passes(status: int) -> None:
    assert wait(status) is None


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_success_is_no_error(status: int) -> None:
    assert judge_status(status, {}, now=NOW) is None


@pytest.mark.covers("R067", "X31")
def test_too_many_requests_wait_for_as_long_as_the_service_says() -> None:
    assert wait(429) == 60
    assert wait(429, Retry_After="120") == 120
    assert wait(429, X_Retry_After="7") == 7
    assert wait(429, retry_after_ms="1500") == 1.5
    assert wait(429, retry_after="Tue, 14 Nov 2023 22:15:20 GMT") == 120
    assert wait(503, retry_after="9") == 9


@pytest.mark.covers("R067")
@pytest.mark.parametrize("odd", ["", "soon", "-5", "nan", "1e999x", "Tue, 99 Nov", "\x00"])
def test_a_wish_that_cannot_be_understood_counts_as_none(odd: str) -> None:
    assert wait(429, retry_after=odd) == 60


def test_a_wish_is_bounded_and_never_in_the_past() -> None:
    assert retry_after({"Retry-After": "1e300"}, now=NOW) == LONGEST_WAIT
    assert retry_after({"Retry-After": "inf"}, now=NOW) == LONGEST_WAIT
    assert retry_after({"Retry-After": "Tue, 14 Nov 2000 22:15:20 GMT"}, now=NOW) == 0


def test_a_response_of_any_library_is_understood_and_its_secrets_are_not_told() -> None:
    url = "https://user:hidden@api.example.com/v1/send?key=hidden"
    refused = SimpleNamespace(status_code=403, headers={}, url=url)
    busy = SimpleNamespace(status=429, headers={"retry-after": "3"}, url="")

    raise_for_status(SimpleNamespace(status_code=200, headers={}))
    with pytest.raises(PermanentError, match=r"^https://api.example.com/v1/send was refused with status 403$"):
        raise_for_status(refused)
    with pytest.raises(TransientError) as found:
        raise_for_status(busy)
    assert found.value.retry_after == 3


def test_what_is_no_response_is_refused() -> None:
    with pytest.raises(TypeError, match="status"):
        raise_for_status("200")
