"""What the server's complaints mean, and what they do not."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from toril import EngineUnavailable
from toril.engines.redis.connection.client import RedisClient
from toril.engines.redis.connection.errors import ConnectionLost, ErrorReply, is_refusal, passes
from toril.engines.redis.connection.topology import Topology
from toril.engines.redis.connection.url import parse

IN_SCRIPT = "Error running script (call to f_0a1b): @user_script:12: @user_script: 12: "


@pytest.mark.parametrize("error", [
    ErrorReply("READONLY You can't write against a read only replica."),
    ErrorReply("LOADING Redis is loading"),
    ErrorReply("BUSY Redis is busy running a script"),
    ErrorReply(f"ERR {IN_SCRIPT}-READONLY You can't write"),
    ErrorReply("ERR max number of clients reached"),
])  # fmt: skip
def test_a_server_that_is_not_ready_will_be(error: Exception) -> None:
    assert passes(error)
    assert not is_refusal(error)


@pytest.mark.parametrize("error", [
    ErrorReply("TORILTYPE bull:TASKS:wait is a string, not a list"),
    ErrorReply("TORILTYPE bull:BUSY MOVED -NOPERM NOAUTH:wait is a string, not a list"),
    ErrorReply("WRONGTYPE -READONLY LOADING NOPERM CERTIFICATE_VERIFY_FAILED"),
    ErrorReply(f"ERR {IN_SCRIPT}-WRONGTYPE LOADING NOAUTH"),
    ConnectionLost("READONLY: the connection broke"),
])  # fmt: skip
def test_a_word_in_a_name_means_nothing(error: Exception) -> None:
    assert not passes(error)
    assert not is_refusal(error)


@pytest.mark.parametrize("complaint", ["BUSY Redis is busy running a script", "LOADING Redis is loading"])
async def test_a_request_sent_beside_one_that_was_turned_away_is_not_sent_again(complaint: str) -> None:
    seen: Counter[bytes] = Counter()
    ended = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Turns the first away, and leaves the one after it unanswered."""
        try:
            while head := await reader.readline():
                words = [(await reader.readline(), await reader.readline())[1].strip() for _ in range(int(head[1:]))]
                seen[words[-1]] += 1
                if words[-1] == b"first" and seen[b"first"] == 1:
                    await reader.readuntil(b"second\r\n")
                    seen[b"second"] += 1
                    writer.write(f"-{complaint}\r\n".encode())
                else:
                    writer.write(b"+OK\r\n")
        except OSError:
            pass
        finally:
            writer.close()
            ended.release()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        address = parse(f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        server = RedisClient(address, Topology(address))
        answers: list[Any] = await asyncio.gather(
            *(server.run(("EVALSHA", "0a1b", 1, "key", word), again=False) for word in ("first", "second")),
            return_exceptions=True,
        )
        await server.close()
        for _ in range(2):
            await ended.acquire()

    assert answers[0] == "OK"
    assert isinstance(answers[1], EngineUnavailable)
    assert (seen[b"first"], seen[b"second"]) == (2, 1)
