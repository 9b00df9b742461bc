"""How a command line chooses queues."""

import click

__all__ = ["complete_queues", "queue_choice"]


def complete_queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """For a shell. A supervisor does without the code of apps, which this needs."""
    from toril.cli.completion import queue_names  # noqa: PLC0415 - as above

    return queue_names(ctx, param, incomplete)


def queue_choice(written: str) -> tuple[str, int | None]:
    """`name` or `name:concurrency`."""
    name, colon, slots = written.partition(":")
    if not colon:
        return name, None
    if not (slots.isascii() and slots.isdecimal() and 1 <= int(slots[:9]) <= 10_000):
        raise click.BadParameter(f"the concurrency of {name!r} is a whole number from 1 to 10,000, not {slots!r}")
    return name, int(slots)
