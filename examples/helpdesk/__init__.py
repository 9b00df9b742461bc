"""The worker of a support product: 25 queues, 30 schedules, a database of its own, and an outside world that fails.

    toril run helpdesk.worker:app    works all of it, from the folder `examples`
    python -m helpdesk               shows it at work for some seconds, on a store in a file, or on what $TORIL_URL says

Begin with `tables.py`, which says how each queue is worked, then read any file of `queues/`.
"""
