"""The connection between a worker process and its supervisor: messages of any size, cut anywhere, and ones that make no
sense."""

import json
import random
from collections.abc import Callable
from types import ModuleType

import pytest

from tests.worker.planting import planted
from toril.worker import messages as real

MODULE = "toril.worker.messages"


def drawn(chance: random.Random) -> list[dict[str, object]]:
    texts = ("", "a", "\0", "\n", "é😀", "\udc80", "x" * 70_000, '{"lost": []}\n')
    return [
        {chance.choice(("hello", "lost", "ready")): [chance.choice(texts) for _ in range(chance.choice((0, 1, 3)))]}
        for _ in range(chance.randrange(1, 12))
    ]


def arrives_however_it_is_cut(module: ModuleType, chance: random.Random) -> None:
    """Sent in pieces of any size, with lines between them that are no messages, all messages arrive in their order."""
    sent = drawn(chance)
    lines = [module.encoded(message) for message in sent]
    for _ in range(3):
        lines.insert(
            chance.randrange(len(lines) + 1),
            chance.choice((b"\n", b"17\n", b"[1]\n", b"{\n", b"\xff\n", b"[" * 9_999 + b"\n")),
        )
    data, decoder, heard = b"".join(lines), module.Decoder(), []
    while data:
        size = chance.choice((1, 2, 7, 100, 65_536, len(data)))
        heard += decoder.feed(data[:size])
        assert decoder.incomplete == (data[:size][-1:] != b"\n")
        data = data[size:]
    assert heard == json.loads(json.dumps(sent))


def ends_without_its_line_end(module: ModuleType, chance: random.Random) -> None:
    """What never ends is an error before it fills the memory."""
    decoder = module.Decoder(longest=1000)
    decoder.feed(b"x" * chance.randrange(500, 1000))
    with pytest.raises(module.MessageTooLong):
        decoder.feed(b"x" * chance.randrange(501, 1000))


def lists_go_in_pieces(module: ModuleType, chance: random.Random) -> None:
    """A list of any length is told in messages that are all small, and nothing of it is left out."""
    texts = [f"/app/{'m' * chance.randrange(200)}/{number}.py" for number in range(chance.choice((0, 1, 3_000)))]
    pieces = list(module.pieces(texts))
    assert [text for piece in pieces for text in piece] == texts
    assert all(sum(map(len, piece)) <= 1 << 15 for piece in pieces)


CHECKS = (arrives_however_it_is_cut, ends_without_its_line_end, lists_go_in_pieces)


def run(check: Callable[[ModuleType, random.Random], None], module: ModuleType) -> None:
    for seed in range(25):
        check(module, random.Random(seed))


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_said_is_heard(check: Callable[[ModuleType, random.Random], None]) -> None:
    run(check, real)


BUGS = {
    "the end of a line is looked for past a message": ("max(start, searched)", "start + searched"),
    "what has been read is read again": ("del self._rest[:start]", "pass"),
    "one line that makes no sense ends the connection": ("except (ValueError, RecursionError):", "except KeyError:"),
    "a document of another kind is passed on": ("if isinstance(message, dict):", "if message is not None:"),
    "a line without an end fills the memory": ("if len(self._rest) > self._longest:", "if False:"),
    "text goes as it is": ("json.dumps(message).encode()", 'str(message).encode("utf-8", "replace")'),
    "a list goes as one message": ("if piece and length + len(text) > _PIECE:", "if False:"),
    "the last piece is left out": ("    if piece:\n        yield piece", "    if False:\n        yield piece"),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_that_is_planted_in_the_messages_is_found(bug: str) -> None:
    module, found = planted(MODULE, *BUGS[bug]), 0

    for check in CHECKS:
        try:
            run(check, module)
        except (AssertionError, ValueError, RecursionError, pytest.fail.Exception):
            found += 1

    assert found
