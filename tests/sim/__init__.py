"""The simulator: a fleet of real workers and a store on a virtual clock, with seeded faults, in one thread.

- `loop`, `clock`, `node`: virtual time, and processes that can be killed, paused and blocked
- `faults`, `chaos`: what goes wrong; `wire`, `link`: the engine as a process has it, over a network that fails
- `store`: the store under test; `sim_worker`: a worker process, the real one; `script`, `acting`: its jobs and
  handlers; `producers`: producers, with the real queue, and an operator
- `journal`, `ledger`, `witness`, `controls`: what happened, and after every effect whether it may have; `conduct`,
  `outcomes`: whether workers did what follows from what their handlers did; `checker`: the total at the end
- `plan`, `world`: what a seed stands for, and one run of it; `small_world`: what `schedule_world`, `flow_world`,
  `circuit_world` and `step_world` share, and `remote_store`: the store as they have it; `step_ledger`: what must be
  true of durable steps; `result`: what came of a run of any world
- `kept`: plans as files, made small; `replay`: runs one again from the command line
- `step_kills`: one handler with steps, killed at one await or one call
- `stage`, `scenario`, `brittle`: one fault at a time, at every point of every call; `mutants` (of the store),
  `mutants_loop`, `mutants_worker`: bugs to plant
"""
