"""A store whose every step breaks at every one of its statements, before it is made."""

import sqlite3
from typing import Any, TypeVar

from tests.sim.store import MemoryStore
from toril.engines.sql.threads import InlineWriter
from toril.engines.sql.transaction import Op
from toril.engines.sql.writer import Writer
from toril.errors import EngineUnavailable
from toril.store.engine import Store

__all__ = ["BrittleStore"]

T = TypeVar("T")

_MOST = 200


class _Fragile:
    """A connection that fails at the statement of which it was told."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.fails_at = -1
        self.made = 0

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        self.made += 1
        if self.made - 1 == self.fails_at:
            raise sqlite3.OperationalError(f"broken on purpose at {sql[:40]!r}")
        return self._connection.execute(sql, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class _Breaking(InlineWriter):
    """Makes each step once for every statement that it has, broken there; and then whole."""

    def __init__(self, writer: Writer, store: "BrittleStore") -> None:
        super().__init__(writer)
        self._store = store

    async def write(self, op: Op[T], now: int | None, *, grows: bool = False, brief: bool = False) -> T:
        connection = self._writer._connection
        assert isinstance(connection, sqlite3.Connection)
        before = list(connection.iterdump())
        fragile = _Fragile(connection)
        self._writer._connection = fragile
        try:
            for statement in range(_MOST):
                fragile.fails_at, fragile.made = statement, 0
                try:
                    return await super().write(op, now, grows=grows, brief=brief)
                except EngineUnavailable:
                    self._store.broken += 1
                    assert list(connection.iterdump()) == before, f"statement {statement} left something behind"
            raise AssertionError(f"a step has more than {_MOST} statements, or is broken for good")
        finally:
            self._writer._connection = connection


class BrittleStore(MemoryStore):
    """`broken` counts how often a step was broken off."""

    broken = 0

    def whole(self) -> Store:
        """The same store, which breaks nowhere."""
        return super().view()

    def view(self) -> Store:
        self._engine._runner = _Breaking(self._engine._writer, self)
        return super().view()
