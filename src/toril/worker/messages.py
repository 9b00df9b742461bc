"""Messages between a worker process and its supervisor: one JSON object per line, both ways."""

import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from toril.runtime.logs import log

__all__ = ["LONGEST", "Decoder", "Message", "MessageTooLong", "encoded", "pieces"]

Message: TypeAlias = dict[str, Any]

LONGEST: Final = 1 << 24  # bytes of one message
_PIECE: Final = 1 << 15  # characters in one piece of a list
_SHOWN: Final = 200  # bytes of an unreadable message to log


class MessageTooLong(ValueError):
    """A line that does not end: the sender is not a worker process, or is broken."""


def encoded(message: Message) -> bytes:
    """A message in the form in which it is sent. Its text is ASCII, whatever characters an id contains."""
    return json.dumps(message).encode() + b"\n"


def pieces(texts: list[str]) -> Iterator[list[str]]:
    """A long list in pieces, so that no message grows with the size of the application."""
    piece, length = list[str](), 0
    for text in texts:
        if piece and length + len(text) > _PIECE:
            yield piece
            piece, length = [], 0
        piece.append(text)
        length += len(text)
    if piece:
        yield piece


class Decoder:
    """Splits what arrives into messages, however it was split on the way."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._rest = bytearray()

    @property
    def incomplete(self) -> bool:
        """Whether the last message has not arrived completely."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. An unreadable one is logged and left out."""
        searched = len(self._rest)
        self._rest += data
        found = list[Message]()
        start = 0
        while (end := self._rest.find(b"\n", max(start, searched))) >= 0:
            message = _decoded(bytes(self._rest[start:end]))
            if message is not None:
                found.append(message)
            start = end + 1
        del self._rest[:start]
        if len(self._rest) > self._longest:
            raise MessageTooLong(f"a message is longer than {self._longest} bytes")
        return found


def _decoded(line: bytes) -> Message | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, dict):
        return message
    log.error("cannot read a message between a worker process and its supervisor: %r", line[:_SHOWN])
    return None
