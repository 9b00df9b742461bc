"""How a command line chooses queues."""

import click

__all__ = ["queue_choice"]


def queue_choice(written: str) -> tuple[str, int | None]:
    """`name` or `name:concurrency`."""
    name, colon, slots = written.partition(":")
    if not colon:
        return name, None
    if not (slots.isascii() and slots.isdecimal() and 1 <= int(slots[:9]) <= 10_000):
        raise click.BadParameter(f"the concurrency of {name!r} is a whole number from 1 to 10,000, not {slots!r}")
    return name, int(slots)
