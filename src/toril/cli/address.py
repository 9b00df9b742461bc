"""`HOST:PORT` on the command line."""

from typing import Final

import click

__all__ = ["DEFAULT", "address"]

DEFAULT: Final = ("127.0.0.1", 8484)


def address(written: str) -> tuple[str, int]:
    """`127.0.0.1:8484`, `[::1]:8484`, `:8484`."""
    host, colon, port = written.rpartition(":")
    if not (colon and port.isascii() and port.isdecimal() and int(port[:6]) <= 65_535):
        raise click.BadParameter(f"{written!r} is not an address such as 127.0.0.1:8484")
    return host.removeprefix("[").removesuffix("]") or DEFAULT[0], int(port)
