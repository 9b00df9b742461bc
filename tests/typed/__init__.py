"""What a type checker must accept, and what it must report."""
