"""Errors of PostgreSQL by their SQLSTATE, as ours: named by what the caller should do."""

from typing import Final

from toril.errors import EngineFull, EngineRefused, EngineUnavailable, EngineUnusable, TorilError

__all__ = ["CUT_OFF", "GAVE_WAY", "PostgresError", "translated"]

CUT_OFF: Final = "08006"  # a connection failure, as PostgreSQL itself calls it


class PostgresError(Exception):
    """What the server, or the driver, says of a statement that failed."""

    def __init__(self, message: str, sqlstate: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


# Nothing of the transaction happened, and it may succeed if it is made again: a serialization failure, a deadlock, a
# lock that was not given in time.
GAVE_WAY: Final = {"40001", "40P01", "55P03"}
_FULL: Final = {"53100"}
_REFUSED: Final = {
    "28000",  # invalid authorization
    "28P01",  # wrong password
    "3D000",  # no such database
    "42501",  # no right to
}
_UNUSABLE: Final = {
    "XX001",  # data corrupted
    "XX002",  # index corrupted
    "42P01",  # no such table
    "42883",  # no such function
    "42703",  # no such column
    "3F000",  # no such schema
}
_CONSTRAINT: Final = "23"  # the class of broken constraints
_WAYS_OUT: Final = {
    "28P01": "check the user and the password in the URL",
    "3D000": "create the database, or name another in the URL",
    "42501": "grant the user what it lacks",
    "25006": "the server is read-only, such as a standby; use the URL of the primary",
    "53300": "the server allows no more connections; raise max_connections, or start fewer processes",
    "57P01": "the server is shutting down",
    "57P02": "the server has crashed",
    "57P03": "the server is starting",
    "55P03": "another transaction holds a lock for too long",
}


def translated(error: Exception, name: str) -> TorilError:
    """The server's complaint as one of our errors."""
    state = error.sqlstate if isinstance(error, PostgresError) else CUT_OFF
    said = " ".join(str(error).split())
    way_out = f"; {_WAYS_OUT[state]}" if state in _WAYS_OUT else ""
    message = f"PostgreSQL at {name}: {said}{way_out}"
    if state in _FULL:
        return EngineFull(message)
    if state in _REFUSED:
        return EngineRefused(message)
    if state in _UNUSABLE or state.startswith(_CONSTRAINT):
        return EngineUnusable(message)
    return EngineUnavailable(message)
