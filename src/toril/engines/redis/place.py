"""Where the server is, how to reach it, and what a URL may say about it."""

from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis.asyncio.connection import Connection, parse_url

from toril.errors import InvalidOption, shown
from toril.names import check_prefix

__all__ = ["Address", "parse"]

_SWITCH: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
# What of the client library's settings a URL may name; the rest is Toril's to decide.
_PASSED_ON: Final = frozenset(
    {
        "db", "username", "password", "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile",
        "ssl_check_hostname", "ssl_min_version",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Address:
    """A server and how Toril is to use it. `timeout` is in seconds, for one call."""

    shown: str
    connection: type[Any]
    arguments: dict[str, Any] = field(repr=False)
    prefix: str = "bull"
    timeout: float = 5.0
    node_visibility: bool = True
    allow_eviction: bool = False


def parse(url: str, *, prefix: str = "bull") -> Address:
    """What a URL says; `InvalidOption` names what it should not."""
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        port = parts.port
    except ValueError as error:
        raise InvalidOption(f"a Redis URL looks like redis://host:6379/0, and this one does not: {error}") from None
    unknown = query.keys() - _PASSED_ON - {"timeout", "node_visibility", "allow_eviction"}
    if unknown:
        raise InvalidOption(f"a Redis URL takes no {shown(min(unknown))}")
    own = {name: query.pop(name) for name in ("timeout", "node_visibility", "allow_eviction") if name in query}
    try:
        arguments: dict[str, Any] = dict(parse_url(urlunsplit(parts._replace(query=urlencode(query)))))
    except ValueError as error:
        raise InvalidOption(f"a Redis URL looks like redis://host:6379/0, and this one does not: {error}") from None
    connection = arguments.pop("connection_class", Connection)
    place = arguments.get("path") or f"{parts.hostname or 'localhost'}:{port or 6379}/{arguments.get('db', 0)}"
    return Address(
        shown=f"{parts.scheme}://{place}",
        connection=connection,
        arguments=arguments,
        prefix=check_prefix(prefix),
        timeout=_seconds(own.get("timeout", "5")),
        node_visibility=_switch("node_visibility", own.get("node_visibility", "1")),
        allow_eviction=_switch("allow_eviction", own.get("allow_eviction", "0")),
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.01 <= seconds <= 3600:
        raise InvalidOption(f"timeout must be seconds from 0.01 to 3600, not {shown(text)}")
    return seconds


def _switch(name: str, text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise InvalidOption(f"{name} must be 1 or 0, not {shown(text)}")
    return _SWITCH[text.lower()]
