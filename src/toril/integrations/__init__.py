"""Toril in other programs: one module for each, imported by those who use it and by nothing else."""
