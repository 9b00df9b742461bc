"""TLS: a server whose certificate is wrong is refused, with the reason, and never spoken to in plain."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.authority import Authority, authority
from tests.conformance.jobs import add, claim_one, settle
from tests.servers import RedisServer, free_port
from toril.engines.redis import connect
from toril.errors import EngineRefused, EngineUnavailable
from toril.model import NewJob, Verdict


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """A server with these certificates; its URL, with the authority to trust."""
    port = free_port()
    server = RedisServer("--save", "", "--tls-port", str(port), *options).start()
    try:
        yield f"rediss://127.0.0.1:{port}/0?timeout=2&ssl_ca_certs={authority().certificate}"
    finally:
        server.stop()


async def test_a_server_with_a_good_certificate_is_used() -> None:
    with serving(*authority().options()) as url:
        engine = connect(url)
        await engine.open()

        await add(engine, NewJob(name="n"))
        assert await settle(engine, (await claim_one(engine)).lease) is Verdict.OK
        await engine.close()


@pytest.mark.covers("F73")
@pytest.mark.parametrize(("fault", "reason"), [
    ("expired", "certificate has expired"),
    ("of another host", "IP address mismatch, certificate is not valid for '127.0.0.1'"),
    ("of another authority", "self-signed certificate in certificate chain"),
])  # fmt: skip
async def test_a_certificate_that_is_wrong_is_refused_with_the_reason(fault: str, reason: str) -> None:
    options = {
        "expired": lambda: authority().options(days=-1),
        "of another host": lambda: authority().options("DNS:elsewhere"),
        "of another authority": lambda: Authority("a stranger").options(),
    }[fault]()

    with serving(*options) as url, pytest.raises(EngineRefused, match=reason) as refused:
        await connect(url).open()

    assert "cannot be verified" in str(refused.value)


@pytest.mark.covers("F73")
async def test_a_server_without_tls_is_not_spoken_to_in_plain() -> None:
    server = RedisServer().start()
    try:
        with pytest.raises(EngineUnavailable):
            await connect(server.url.replace("redis://", "rediss://") + "?timeout=0.5").open()
        commands = server.facts("stats")["total_commands_processed"]
        assert int(commands) <= 2  # the test's own
    finally:
        server.stop()
