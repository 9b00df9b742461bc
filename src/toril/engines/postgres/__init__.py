"""Toril in a schema of a PostgreSQL database."""

from toril.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
