"""Decisions without I/O: clock and randomness are arguments."""
