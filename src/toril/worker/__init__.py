"""The worker: claims jobs, runs their handlers, settles them."""
