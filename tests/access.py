"""Access for tests that are about something else."""

from toril.web import CustomAccess, Role, Who

__all__ = ["ANYONE_MAY_ACT"]

ANYONE_MAY_ACT = CustomAccess(lambda _: Who("local", Role.ADMIN))
