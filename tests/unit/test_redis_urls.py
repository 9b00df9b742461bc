"""URLs of Redis that name more than one host, and what is asked for beside."""

from typing import Any

import pytest

from toril.engines.redis.connection.url import Trust, parse
from toril.errors import InvalidOption
from toril.store.engine import connect, redacted


def test_sentinels_are_listed_before_the_service_and_the_database() -> None:
    address = parse("redis+sentinel://user:p%40ss@one:7001,two,[::1]:7003/jobs/3?sentinel_password=other")

    assert address.kind == "sentinel"
    assert address.hosts == (("one", 7001), ("two", 26379), ("::1", 7003))
    assert address.service == "jobs"
    assert (address.arguments["username"], address.arguments["password"], address.arguments["db"]) == (
        "user", "p@ss", 3,
    )  # fmt: skip
    assert address.asking.get("password") == "other"
    assert "username" not in address.asking
    assert address.shown == "redis+sentinel://one:7001,two:26379,::1:7003/jobs/3"


def test_nodes_of_a_cluster_are_asked_as_the_user_that_works_there() -> None:
    address = parse("rediss+cluster://:secret@one,two:7002?ssl_ca_certs=/ca.pem", prefix="{bull}")

    assert address.hosts == (("one", 6379), ("two", 7002))
    assert address.arguments["tls"] == Trust(ca_certs="/ca.pem")
    assert address.asking["password"] == "secret"
    assert "secret" not in repr(address)


@pytest.mark.covers("B61")
@pytest.mark.parametrize(("url", "why"), [
    ("redis+sentinel://one:26379", "the service name is missing"),
    ("redis+sentinel:///jobs", "the host is missing"),
    ("redis+sentinel://one:x/jobs", "the port must be a number"),
    ("redis+sentinel://one/jobs/first", "the database must be a number"),
    ("redis+cluster://one/1", "a cluster has database 0 only"),
    ("redis+cluster://one?sentinel_password=x", "unknown option 'sentinel_password'"),
    ("redis+cluster://", "the host is missing"),
    ("redis://one/first", "the database must be a number"),
    ("redis://one?db=first", "db must be a whole number"),
    ("unix://", "the path of the socket is missing"),
    ("redis://one?ssl_ca_certs=/ca.pem", "ssl_ca_certs requires TLS; use rediss://"),
    ("rediss://one?ssl_cert_reqs=sometimes", "ssl_cert_reqs must be one of none, optional, required"),
    ("rediss://one?ssl_check_hostname=perhaps", "ssl_check_hostname must be 1 or 0"),
    ("rediss://one?ssl_min_version=TLSv1.3", "ssl_min_version must be a whole number"),
    ("redis://one?dead_letter_queue=a:b", "dead_letter_queue: a queue name must not contain ':'"),
    ("redis://one?dead_letter_queue=", "dead_letter_queue: a queue name"),
    ("redis://one?replicas=2", "replicas requires durability=replicated"),
    ("redis://one?durability=sometimes", "durability must be 'replicated'"),
    ("redis://one?durability=replicated&replicas=0", "replicas must be a whole number from 1 to 100"),
    ("redis://one?durability=replicated&replicas_timeout=x", "replicas_timeout must be between 10ms and 1h"),
])  # fmt: skip
def test_what_makes_no_sense_is_named(url: str, why: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        connect(url)

    assert why in str(refused.value)


@pytest.mark.parametrize("url", [
    "redis+sentinel://user:hunter2@one,two/jobs", "redis+cluster://user:hunter2@one,two",
    "redis+sentinel://one/jobs?sentinel_password=hunter2",
])  # fmt: skip
def test_no_password_is_shown(url: str) -> None:
    assert "hunter2" not in redacted(url)
    assert "hunter2" not in repr(connect(url))


@pytest.mark.parametrize("url", ["redis://user:hunter2/x@one/0", "redis+sentinel://user:hunter2/x@one/jobs"])
def test_a_password_that_should_have_been_escaped_is_not_shown_either(url: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        connect(url)

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("durability", ["always", "", 1])
def test_there_is_one_durability_to_ask_for(durability: Any) -> None:
    with pytest.raises(InvalidOption, match="durability must be 'replicated'"):
        connect("redis://one", durability=durability)
