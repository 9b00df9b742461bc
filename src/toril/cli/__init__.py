"""The command line, built on the public API only: one file per group of commands."""
