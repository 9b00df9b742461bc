"""Claim, run, hand in."""
