"""Payloads and results as text, and back."""
