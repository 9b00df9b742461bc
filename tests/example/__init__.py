"""The example application, and what it shows of the whole."""
