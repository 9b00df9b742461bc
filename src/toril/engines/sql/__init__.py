"""The SQL engine, independent of the database driver."""
