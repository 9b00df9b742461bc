"""Access for tests that are about something else."""

from toril.web import Asked, Role, Who

__all__ = ["ANYONE_MAY_ACT"]

ANYONE_MAY_ACT = Asked(lambda _: Who("local", Role.ADMIN))
