"""`toril torture`: real processes under real faults, and a count of what was lost.

- `orders`, `plan`: what a seed stands for: the jobs, and the blows with their times
- `setting`, `work`, `child`: what the processes are told, the app that they work, and how they start
- `ledger`: what producers and handlers wrote down outside of the store
- `proxy`, `server`, `disk`, `stations`: the wire, the server, the disk and the processes that are struck
- `driver`: one run; `reading`, `checker`: what came of it, from the ledgers and the final store alone; `report`: told
"""
