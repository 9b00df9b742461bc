"""Redis is away for a while: nobody spins, nobody floods the log, and all go on when it is back."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from tests.faults.fleet import SLOW, Fleet, fleet
from tests.faults.nursery import until
from tests.faults.test_health import WEB, get, port_of
from tests.faults.test_supervisor import add
from tests.servers import RedisServer

AWAY = float(os.environ.get("TORIL_OUTAGE_SECONDS", "6"))
UNREADY = 1.0


def spent(run: Fleet) -> float:
    """Seconds of processor time that the whole fleet has used."""
    fields = [
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in (run.process.pid, *run.children)
    ]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


@pytest.mark.covers("R243", "G7", "F46", "R023", "X26")
def test_workers_sit_an_outage_out_and_go_on_at_once(tmp_path: Path) -> None:
    server = RedisServer().start()
    words = ("--processes", "2", "--http", "127.0.0.1:0", "--unready-after", f"{UNREADY}s")
    try:
        with fleet(server.url, tmp_path, *words, ALIVE_SECOND="stage", **WEB) as run:
            port = port_of(run)
            add(server.url, "hold", AWAY, count=2)  # so that there are leases to be renewed meanwhile
            until(lambda: len(run.noted("start")) == 2, "both run", timeout=SLOW)
            before, lines = spent(run), run.log.read_text().count("\n")
            server.kill()
            killed = time.monotonic()
            until(lambda: get(port, "/readyz")[0] == 503, "it is not ready", timeout=SLOW)
            unready = time.monotonic() - killed
            health = json.loads(get(port, "/health")[1])
            while time.monotonic() < killed + AWAY:
                assert get(port, "/readyz")[0] == 503
                assert get(port, "/livez")[0] == 200
                time.sleep(0.5)
            load = (spent(run) - before) / AWAY
            said = run.log.read_text().splitlines()[lines:]
            server.start()
            back = time.monotonic()
            (job,) = add(server.url, "hold", 0, job_id="after")
            resumed = run.until_noted(job, "start").at - back
            until(lambda: get(port, "/readyz")[0] == 200, "it is ready again", timeout=SLOW)
            ready = time.monotonic() - back
            assert run.stop() == 0
    finally:
        server.stop()

    assert (health["status"], health["store"]["ok"]) == ("DEGRADED", False)
    assert re.search(r"the store has not answered for \d+ s", health["message"])
    troubles = [line for line in said if "the store does not answer" in line]
    print(f"{AWAY:.0f} s without Redis: processor {load:.1%}, {len(said)} lines of log, unready after {unready:.1f} s, "
          f"first job {resumed:.2f} s and ready {ready:.2f} s after its return")  # fmt: skip
    assert 1 <= len(troubles) <= 1 + AWAY / 10
    assert run.log.read_text().count("the store answers again after ") == 1
    assert [
        line
        for line in said
        if not re.search("does not answer|job lost|job started|job completed|became recovery leader", line)
    ] == []
    assert resumed < 2 + 20  # what a busy machine adds is no fault
