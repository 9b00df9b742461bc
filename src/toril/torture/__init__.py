"""`toril torture`: runs real processes under real faults, and counts what is lost.

- `plan`: what a seed stands for: settings, jobs, and faults with their times
- `app`: the app of a run, and the ledger that its producers and handlers write outside of the store
- `child`, `fleet`: the processes, and how they are restarted
- `faults`: a connection, a Redis server and a disk that can fail
- `driver`: one run; `checker`: what came of it, from the ledgers and the final store alone; `cleanup`: nothing is left
"""
