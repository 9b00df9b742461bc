"""No-op tasks through SqliteHuey: added one by one (it has no bulk call), then worked off. Run by an interpreter that
has huey:  python bench/peers/huey_drain.py FILE JOBS consumer|loop

`consumer` is Huey's own worker process with one thread, which is its fastest (more contend for the lock of the file);
`loop` takes and executes in a plain loop, with no scheduler and no threads, so that nobody can say the consumer was
held wrong. SQLite is at FULL, as Huey leaves it. Results are not stored, as Toril stores none for these jobs.
"""

import json
import logging
import resource
import sys
import threading
import time

from huey import SqliteHuey  # type: ignore[import-not-found]

DATA = {"user_id": 12345, "email": "someone@example.org", "text": "x" * 50}

file, wanted, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
logging.getLogger("huey").setLevel(logging.WARNING)
huey = SqliteHuey("drain", filename=file, fsync=True, results=False)
times: list[float] = []
done = 0
over = threading.Event()


@huey.task()  # type: ignore[untyped-decorator]
def noop(_: dict[str, object]) -> None:
    global done  # noqa: PLW0603 - the consumer calls it from a thread of its own
    done += 1
    if done in (1, wanted):
        times.append(time.monotonic())
    if done == wanted:
        over.set()


def used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


began = time.monotonic()
for _ in range(wanted):
    noop(DATA)
added = time.monotonic() - began
before = used()
if how == "consumer":
    consumer = huey.create_consumer(workers=1, worker_type="thread", periodic=False)
    consumer.start()
    over.wait()
    consumer.stop(graceful=True)
else:
    while (task := huey.dequeue()) is not None:
        huey.execute(task)
print(json.dumps({"jobs": wanted, "add": added, "drain": times[-1] - times[0], "cpu": used() - before}))
