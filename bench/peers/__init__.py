"""Other systems, each driven by a script of its own in an interpreter of its own."""
