"""Parses Redis URLs, including TLS settings."""

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from toril.errors import InvalidName, InvalidOption, preview
from toril.model import DEAD_LETTERS
from toril.model.durations import seconds_written
from toril.model.names import check_prefix, check_queue_name

__all__ = ["DEMANDS", "Place", "RedisAddress", "Trust", "in_cluster", "parse", "reached"]

DEMANDS: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class Trust:
    """The certificate settings of a URL."""

    cert_reqs: str = "required"
    check_hostname: bool = True
    ca_certs: str | None = None
    ca_path: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    min_version: int | None = None

    @contextmanager
    def context(self) -> Iterator[ssl.SSLContext]:
        """The TLS context of a connection. Reading certificates takes longer than connecting, so contexts are kept, but
        not after a failure, as there may be new certificates by then."""
        try:
            yield _kept.get(self) or _kept.setdefault(self, self._read())
        except BaseException:
            _kept.pop(self, None)
            raise

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        demand = DEMANDS[self.cert_reqs]
        context.check_hostname = self.check_hostname and demand is not ssl.CERT_NONE
        context.verify_mode = demand
        if self.certfile or self.keyfile:
            context.load_cert_chain(self.certfile or "", self.keyfile)
        if self.ca_certs or self.ca_path:
            context.load_verify_locations(self.ca_certs, self.ca_path)
        if self.min_version is not None:
            context.minimum_version = ssl.TLSVersion(self.min_version)
        return context


_kept: Final[dict[Trust, ssl.SSLContext]] = {}


Place: TypeAlias = tuple[str, int]  # host and port
Kind: TypeAlias = Literal["one", "sentinel", "cluster"]

_SWITCH: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_OF_SERVERS: Final = frozenset({"db", "username", "password"})
_OF_TLS: Final = frozenset({
    "ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname",
    "ssl_min_version",
})  # fmt: skip
_OWN: Final = frozenset({
    "timeout", "node_visibility", "allow_eviction", "durability", "replicas", "replicas_timeout", "dead_letter_queue",
})  # fmt: skip
_OF_SENTINELS: Final = frozenset({"sentinel_username", "sentinel_password"})
_USUAL_PORT: Final = {"one": 6379, "sentinel": 26379, "cluster": 6379}
_DATABASE: Final = re.compile(r"/?[0-9]*/?\Z")
_LOOKS_LIKE: Final = {
    "one": "redis://host:6379/0",
    "sentinel": "redis+sentinel://host:26379,host:26379/service/0",
    "cluster": "redis+cluster://host:6379,host:6379",
}


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A server and how Toril uses it. `timeout` is in seconds, for one call. With Sentinels or a cluster, `hosts` are
    those that know where the server is. `replicas` must confirm what callers are told, within `replicas_timeout`
    seconds; 0 for none."""

    shown: str
    arguments: dict[str, Any] = field(repr=False)
    prefix: str = "bull"
    timeout: float = 5.0
    node_visibility: bool = True
    allow_eviction: bool = False
    kind: Kind = "one"
    hosts: tuple[Place, ...] = ()
    service: str = ""
    sentinel: dict[str, Any] = field(default_factory=dict, repr=False)
    replicas: int = 0
    replicas_timeout: float = 1.0
    dead_letters: str = DEAD_LETTERS  # the queue of the dead letters
    names_dead_letters: bool = False  # the user named it, so it applies even if others have opened that queue

    @property
    def asking(self) -> dict[str, Any]:
        """How to connect to the hosts that know where the server is."""
        if self.kind == "cluster":
            return self.arguments
        plain = {name: value for name, value in self.arguments.items() if name not in {"username", "password", "db"}}
        return plain | self.sentinel


def parse(
    url: str, *, prefix: str = "bull", durability: str | None = None, dead_letter_queue: str | None = None
) -> RedisAddress:
    """Parse a URL; `InvalidOption` names what is wrong with it. `durability` and `dead_letter_queue` come from
    elsewhere, and take precedence over the URL."""
    kind = _kind(url)
    try:
        said = _read(url, kind)
    except InvalidOption:
        raise
    except ValueError as error:
        raise InvalidOption(
            f"invalid Redis URL: {_without_port(error)}; it must look like {_LOOKS_LIKE[kind]}"
        ) from None
    own = said.own
    letters = own.get("dead_letter_queue") if dead_letter_queue is None else dead_letter_queue
    return RedisAddress(
        shown=said.shown,
        arguments=said.arguments,
        prefix=check_prefix(prefix),
        timeout=_seconds("timeout", own.get("timeout", "5")),
        node_visibility=_switch("node_visibility", own.get("node_visibility", "1")),
        allow_eviction=_switch("allow_eviction", own.get("allow_eviction", "0")),
        kind=kind,
        hosts=said.hosts,
        service=said.service,
        sentinel={name.removeprefix("sentinel_"): own[name] for name in _OF_SENTINELS & own.keys()},
        replicas=_replicas(own.get("durability") if durability is None else durability, own),
        replicas_timeout=_seconds("replicas_timeout", own.get("replicas_timeout", "1")),
        dead_letters=DEAD_LETTERS if letters is None else _queue("dead_letter_queue", letters),
        names_dead_letters=letters is not None,
    )


def reached(address: RedisAddress, place: Place) -> dict[str, Any]:
    """How to connect to the server at this place."""
    return address.arguments | {"host": place[0], "port": place[1]}


def in_cluster(address: RedisAddress) -> RedisAddress:
    """The address of one node as that of its cluster."""
    if address.kind != "one" or "path" in address.arguments:
        return address
    place = (str(address.arguments.get("host", "localhost")), int(address.arguments.get("port", 6379)))
    return replace(address, kind="cluster", hosts=(place,))


@dataclass(frozen=True, slots=True)
class _Said:
    """A URL in parts."""

    shown: str
    arguments: dict[str, Any]
    own: dict[str, str]
    hosts: tuple[Place, ...]
    service: str


def _kind(url: str) -> Kind:
    match url.partition("://")[0].partition("+")[2]:
        case "sentinel":
            return "sentinel"
        case "cluster":
            return "cluster"
        case _:
            return "one"


def _read(url: str, kind: Kind) -> _Said:
    scheme, _, rest = url.partition("://")
    hosts: tuple[Place, ...] = ()
    if kind != "one":
        rest, hosts = _first_alone(rest, kind)
    parts = urlsplit(f"{scheme.partition('+')[0]}://{rest}")
    query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    known = _OF_SERVERS | _OF_TLS | _OWN | (_OF_SENTINELS if kind == "sentinel" else frozenset())
    if unknown := query.keys() - known:
        raise InvalidOption(f"unknown option {preview(min(unknown))} in the Redis URL")
    own = {name: query.pop(name) for name in (_OWN | _OF_SENTINELS) & query.keys()}
    parts, service = _served(parts) if kind == "sentinel" else (parts, "")
    if parts.scheme != "unix" and not _DATABASE.match(parts.path):
        raise ValueError("the database must be a number")
    arguments = _arguments(parts, query)
    if kind == "cluster" and arguments.get("db", 0) != 0:
        raise ValueError("a cluster has database 0 only")
    place = ",".join(f"{host}:{port}" for host, port in hosts or [(parts.hostname or "localhost", parts.port or 6379)])
    place += "" if kind == "cluster" else f"/{service}/{arguments.get('db', 0)}".replace("//", "/")
    return _Said(f"{scheme}://{arguments.get('path') or place}", arguments, own, hosts, service)


def _arguments(parts: SplitResult, query: dict[str, str]) -> dict[str, Any]:
    """How to connect to one server."""
    found: dict[str, Any] = {name: query[name] for name in ("username", "password") if query.get(name)}
    found |= {name: unquote(text) for name in ("username", "password") if (text := getattr(parts, name))}
    database = query.get("db") or ("" if parts.scheme == "unix" else parts.path.replace("/", ""))
    if database:
        found["db"] = _number("db", database)
    if parts.scheme == "unix":
        found["path"] = unquote(parts.path)
        if not found["path"]:
            raise ValueError("the path of the socket is missing")
    if parts.scheme != "unix" and parts.hostname:
        found["host"] = unquote(parts.hostname)
    if parts.scheme != "unix" and parts.port:
        found["port"] = parts.port
    if parts.scheme == "rediss":
        found["tls"] = _trust(query)
    elif unused := query.keys() & _OF_TLS:
        raise InvalidOption(f"{min(unused)} requires TLS; use rediss:// in place of redis://")
    return found


def _trust(query: dict[str, str]) -> Trust:
    demand, least = query.get("ssl_cert_reqs") or "required", query.get("ssl_min_version")
    if demand not in DEMANDS:
        raise InvalidOption(f"ssl_cert_reqs must be one of {', '.join(DEMANDS)}, not {preview(demand)}")
    return Trust(
        cert_reqs=demand,
        check_hostname=_switch("ssl_check_hostname", query.get("ssl_check_hostname") or "1"),
        min_version=_number("ssl_min_version", least) if least else None,
        **{name: query.get(f"ssl_{name}") or None for name in ("ca_certs", "ca_path", "certfile", "keyfile")},
    )


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidOption(f"{name} must be a whole number, not {preview(text)}")
    return int(text)


def _first_alone(rest: str, kind: Kind) -> tuple[str, tuple[Place, ...]]:
    """The URL with only the first host of its list, and all the hosts: `urlsplit` does not know lists, and from Python
    3.14 on it refuses those in which an IPv6 address is not the first."""
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, at, listed = authority.rpartition("@")
    hosts = tuple(_place(each, _USUAL_PORT[kind]) for each in listed.split(",") if each)
    if not hosts:
        raise ValueError("the host is missing")
    host, port = hosts[0]
    first = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{user}{at}{first}{rest[len(authority) :]}", hosts


def _served(parts: SplitResult) -> tuple[SplitResult, str]:
    """The URL without the name of the Sentinels' service, and that name."""
    service, _, database = parts.path.lstrip("/").partition("/")
    if not service:
        raise ValueError("the service name is missing")
    return parts._replace(path=f"/{database}"), unquote(service)


def _place(written: str, usual: int) -> Place:
    parts = urlsplit(f"redis://{written}")
    if not parts.hostname:
        raise ValueError("one of the hosts is empty")
    return parts.hostname, parts.port or usual


def _without_port(error: ValueError) -> str:
    """The host without its port. What looks like a port may be a part of a password."""
    return "the port must be a number from 0 to 65535" if "ort" in str(error).partition(" ")[0] else str(error)


def _queue(name: str, text: object) -> str:
    try:
        return check_queue_name(text)
    except InvalidName as error:
        raise InvalidOption(f"{name}: {error}") from None


def _replicas(durability: str | None, own: dict[str, str]) -> int:
    if durability is None:
        if unused := own.keys() & {"replicas", "replicas_timeout"}:
            raise InvalidOption(f"{min(unused)} requires durability=replicated; add it, or remove {min(unused)}")
        return 0
    if durability != "replicated":
        raise InvalidOption(f"durability must be 'replicated' or None, not {preview(durability)}")
    text = own.get("replicas", "1")
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= 100):
        raise InvalidOption(f"replicas must be a whole number from 1 to 100, not {preview(text)}")
    return int(text)


def _seconds(name: str, text: str) -> float:
    seconds = seconds_written(text)
    if seconds is None or not 0.01 <= seconds <= 3600:
        raise InvalidOption(f"{name} must be between 10ms and 1h, not {preview(text)}")
    return seconds


def _switch(name: str, text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise InvalidOption(f"{name} must be 1 or 0, not {preview(text)}")
    return _SWITCH[text.lower()]
