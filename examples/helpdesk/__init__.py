"""The worker of a support product: 25 queues, 30 schedules, a database of its own, and external services that fail.

    toril run helpdesk.worker:app    runs all of it; start it in the folder `examples`
    python -m helpdesk               shows it at work for some seconds, on a file, or on the store in $TORIL_URL

Begin with `tables.py`, which configures each queue, then read any file in `queues/`.
"""
