"""Other systems, each driven by a small adapter in an interpreter of its own."""
