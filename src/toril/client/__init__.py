"""How jobs are added: options, checks and batches."""
