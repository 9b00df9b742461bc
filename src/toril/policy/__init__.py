"""Decisions without I/O: clocks and chance are arguments."""
