"""The simulator: a fleet and a store on a virtual clock, with seeded faults, in one thread.

- `loop`, `clock`, `node`: virtual time, and processes that can be killed and paused
- `faults`, `chaos`: what goes wrong; `wire`, `link`: the engine as a process has it, over a network that fails
- `store`: the store under test; `script`, `client`, `crew`: jobs, worker, producers, reaper, operator
- `journal`, `ledger`, `witness`, `controls`: what happened, and after every effect whether it may have; `checker`: the
  total at the end
- `plan`, `world`: what a seed stands for, and one run of it; `replay`: the same from the command line
- `stage`, `scenario`, `brittle`: one fault at a time, at every point of every call; `mutants`: bugs to plant
"""
