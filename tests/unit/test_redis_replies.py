"""A prompt answer wakes who waits for it when it comes. For all else it is a future like any other."""

import asyncio
import sys
from contextvars import ContextVar

import pytest

from toril.engines.redis.connection.connection import PromptReply, Reply, answer_kind
from toril.runtime.clock import plain_asyncio, yield_to_ready

pytestmark = pytest.mark.usefixtures("both_kinds_of_asyncio")


def _answer() -> Reply[int]:
    return answer_kind()(asyncio.get_running_loop())


async def _waited(answer: Reply[int], seen: list[object]) -> None:
    try:
        seen.append(await answer)
    except BaseException as error:
        seen.append(error)
        raise


async def _off_any_task(callback: object, *values: object) -> None:
    """Have it called by the loop itself, as it calls who reads from a connection."""
    done = asyncio.Event()

    def call() -> None:
        callback(*values)  # type: ignore[operator]
        done.set()

    asyncio.get_running_loop().call_soon(call)
    await done.wait()


async def test_who_waits_goes_on_before_come_returns_unless_it_is_plain() -> None:
    answer, seen = _answer(), list[object]()
    task = asyncio.create_task(_waited(answer, seen))
    await yield_to_ready()
    at_return = list[object]()

    def come() -> None:
        answer.come(5)
        at_return.extend(seen)

    await _off_any_task(come)
    assert at_return == ([5] if isinstance(answer, PromptReply) else [])
    await task
    assert seen == [5]


async def test_within_a_task_it_wakes_as_any_future_does() -> None:
    answer, seen = _answer(), list[object]()
    task = asyncio.create_task(_waited(answer, seen))
    await yield_to_ready()
    answer.come(5)
    assert seen == []
    await task
    assert seen == [5]


async def test_one_that_came_before_it_was_awaited_is_there() -> None:
    answer = _answer()
    await _off_any_task(answer.come, 5)
    assert await answer == 5


async def test_a_task_that_waits_for_it_can_be_cancelled() -> None:
    answer, seen = _answer(), list[object]()
    task = asyncio.create_task(_waited(answer, seen))
    await yield_to_ready()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert answer.cancelled()


async def test_an_error_is_raised_where_it_is_awaited() -> None:
    answer, seen = _answer(), list[object]()
    task = asyncio.create_task(_waited(answer, seen))
    await yield_to_ready()
    answer.set_exception(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await task


async def test_all_who_wait_for_it_get_it() -> None:
    answer, seen = _answer(), list[object]()
    tasks = [asyncio.create_task(_waited(answer, seen)) for _ in range(3)]
    await yield_to_ready()
    await _off_any_task(answer.come, 5)
    await asyncio.gather(*tasks)
    assert seen == [5, 5, 5]


async def test_who_gave_up_is_not_woken() -> None:
    answer = _answer()
    seen = list[object]()
    answer.add_done_callback(seen.append)
    assert answer.remove_done_callback(seen.append) == 1
    await _off_any_task(answer.come, 5)
    assert seen == []


async def test_who_goes_on_finds_his_own_context() -> None:
    mark: ContextVar[str] = ContextVar("mark", default="nobody's")
    answer, seen = _answer(), list[str]()

    async def wait() -> None:
        mark.set("mine")
        await answer
        seen.append(mark.get())

    task = asyncio.create_task(wait())
    await yield_to_ready()
    await _off_any_task(answer.come, 5)
    await task
    assert seen == ["mine"]
    assert mark.get() == "nobody's"


async def test_a_callback_that_fails_is_told_to_the_loop_and_harms_nobody() -> None:
    answer, told = _answer(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    wrong = LookupError("a callback's own")

    def fail(_: object) -> None:
        raise wrong

    answer.add_done_callback(fail)
    await _off_any_task(answer.come, 5)
    await yield_to_ready()

    assert told == [wrong]
    assert answer.result() == 5


@pytest.mark.parametrize(
    ("given", "version", "plain"),
    [
        (None, (3, 11, 0), False), (None, (3, 14, 9), False), (None, (3, 15, 0), True), ("", (3, 15, 0), True),
        ("1", (3, 11, 0), True), ("0", (3, 11, 0), False), ("0", (3, 15, 0), False),
    ],
)  # fmt: skip
def test_answers_are_plain_when_told_to_or_on_a_python_that_nobody_has_tested(
    given: str | None, version: tuple[int, ...], plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is None:
        monkeypatch.delenv("TORIL_PLAIN_ASYNCIO")
    else:
        monkeypatch.setenv("TORIL_PLAIN_ASYNCIO", given)
    monkeypatch.setattr(sys, "version_info", version)

    assert plain_asyncio() is plain
    assert answer_kind() is (Reply if plain else PromptReply)
