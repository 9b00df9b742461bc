"""What the facts of a server or a file mean."""

from dataclasses import replace
from typing import Any

import pytest

from toril.model import Fault, FaultKind, FileFacts, ServerFacts, Severity
from toril.policy.doctor import finding_of, judged

SERVER = ServerFacts(
    place="redis://h:1/0", version="7.0.15", policy="noeviction", maxmemory=0, used=10, total=1000, evicted=0, log=True,
    log_ok=True, snapshots=True, snapshot_ok=True, unsaved=3, role="master", link_ok=True, replicas=1,
    replicas_behind=0, pings=(0.2, 90.0), skew=20.0, refused=(), scripts=40,
)  # fmt: skip
FILE = FileFacts(
    place="/data/jobs.db", version="3.40.1", damage=(), journal="wal", synchronous="full", log=0, free=10**9,
    mode=0o600, filesystem="ext4", network=False,
)  # fmt: skip


def test_a_sound_server_and_a_sound_file_give_no_finding() -> None:
    assert judged(SERVER) == judged(FILE) == []
    assert judged(replace(FILE, place="memory://", journal="memory", free=None, mode=None, synchronous="full")) == []


@pytest.mark.parametrize(
    ("facts", "code", "severity", "said"),
    [
        ({"version": "6.0.9"}, "version", "error", "6.0.9"),
        ({"policy": "allkeys-lru"}, "eviction", "error", "allkeys-lru"),
        ({"evicted": 4}, "evicted", "error", "4 keys"),
        ({"used": 950}, "memory", "error", "950 of 1000"),
        ({"used": 95, "maxmemory": 100}, "memory", "error", "95 of 100"),
        ({"log": False, "snapshots": False}, "persistence", "error", "writes nothing to disk"),
        ({"log": False}, "persistence", "warning", "3 changes"),
        ({"log": False, "snapshots": None}, "persistence", "notice", "does not say"),
        ({"log": None}, "persistence", "notice", "does not say"),
        ({"log_ok": False}, "log", "error", "append-only"),
        ({"snapshot_ok": False}, "snapshot", "error", "snapshot"),
        ({"role": "slave"}, "replica", "error", "accepts no writes"),
        ({"replicas_behind": 1}, "behind", "warning", "1 of 1"),
        ({"pings": (30.0, 44.0)}, "latency", "warning", "30.0 ms"),
        ({"skew": -5000.0}, "clock", "warning", "5.0 s behind"),
        ({"refused": ("NOPERM eval",)}, "scripts", "error", "NOPERM"),
        ({"scripts": 50_000}, "script_cache", "warning", "50000"),
    ],
)
def test_each_fact_that_endangers_jobs_is_a_finding(facts: dict[str, Any], code: str, severity: str, said: str) -> None:
    (finding,) = judged(replace(SERVER, **facts))

    assert (finding.code, finding.severity, finding.where) == (code, Severity(severity), "redis://h:1/0")
    assert said in finding.summary
    assert finding.fix
    assert finding.fault is None


@pytest.mark.parametrize(
    ("facts", "code", "severity"),
    [
        ({"damage": ("row 3 missing from index",)}, "damage", "error"),
        ({"damage": None}, "unread", "notice"),
        ({"journal": "delete"}, "journal", "error"),
        ({"synchronous": "normal"}, "synchronous", "notice"),
        ({"log": 2**30}, "log", "warning"),
        ({"free": 1000}, "disk", "error"),
        ({"mode": 0o666}, "permissions", "warning"),
        ({"mode": 0o644}, "permissions", "notice"),
        ({"network": True, "filesystem": "nfs4"}, "network", "error"),
    ],
)
def test_each_fact_that_endangers_a_file_is_a_finding(facts: dict[str, Any], code: str, severity: str) -> None:
    (finding,) = judged(replace(FILE, **facts))

    assert (finding.code, finding.severity) == (code, Severity(severity))


@pytest.mark.parametrize("counted", [True, False])
def test_what_was_left_out_is_told_and_nothing_else(counted: bool) -> None:
    (finding,) = judged(replace(FILE, damage=None), counted=counted)

    assert "not checked for damage" in finding.summary
    assert ("and its jobs were not counted" in finding.summary) is not counted


@pytest.mark.parametrize("kind", list(FaultKind))
def test_every_fault_has_its_sentence_and_its_fix(kind: FaultKind) -> None:
    finding = finding_of(Fault(kind=kind, queue="q", subject="j7", place="bull:q:wait"))

    assert finding.code == kind.value
    assert "j7" in finding.summary
    assert "queue 'q'" in finding.summary
    assert (finding.fault is None) == (kind in {FaultKind.FOREIGN, FaultKind.UNREADABLE})
