"""Who may do what: by token, by name and password, as the host application decides, or, on loopback, read only."""

import base64
import binascii
import hashlib
import hmac
import inspect
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol, TypeAlias, runtime_checkable

from starlette.requests import HTTPConnection

from toril.errors import InvalidOption, preview
from toril.runtime.clock import SYSTEM, Clock

__all__ = [
    "COOKIE",
    "Access",
    "Basic",
    "CustomAccess",
    "Named",
    "Nobody",
    "Open",
    "Role",
    "SignsIn",
    "Ticket",
    "Tokens",
    "Who",
    "holds",
    "is_loopback",
    "ticket_for",
]  # fmt: skip

COOKIE: Final = "toril"
_SHORTEST: Final = 16  # characters of a token, so that it cannot be guessed
_SHORTEST_PASSWORD: Final = 12  # characters; at 20 tries a minute, nobody guesses one that is not in a dictionary
_SIGNED_IN: Final = 7 * 86_400  # seconds that a browser stays signed in
_PROXY_HEADERS: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")

Ticket: TypeAlias = tuple[str, int]  # what a browser keeps in place of a secret, and for how many seconds


class Role(IntEnum):
    """What someone may do. Each role includes those before it."""

    READ = 1  # view
    OPERATE = 2  # retry, cancel, pause, replay: everyday work
    ADMIN = 3  # what cannot be undone, and settings that apply to all workers


@dataclass(frozen=True, slots=True)
class Who:
    """Someone who sends a request, by the name that appears in the audit log."""

    name: str
    role: Role


class Access(Protocol):
    """Identifies who sends a request; None if unknown."""

    @property
    def challenge(self) -> str | None:
        """The `WWW-Authenticate` header of a 401 response."""

    async def who(self, connection: HTTPConnection) -> Who | None: ...


@runtime_checkable
class SignsIn(Protocol):
    """An access whose secret a person can type on the sign-in page."""

    def ticket(self, secret: str) -> Ticket | None:
        """What a browser keeps in place of the secret; None if the secret is wrong."""


@runtime_checkable
class Named(Protocol):
    """An access whose credentials include a user name, by which failed attempts are counted."""

    def named(self, connection: HTTPConnection) -> str:
        """Whom the credentials claim to be; empty if they do not say."""


@dataclass(frozen=True, slots=True)
class Open:
    """Read-only access for anyone on this machine. Requests from other machines are refused, and so are requests that
    a proxy marks as forwarded; a local proxy that does not mark them looks like a local client."""

    challenge: str | None = None

    async def who(self, connection: HTTPConnection) -> Who | None:
        peer = connection.client.host if connection.client is not None else ""
        if not is_loopback(peer) or any(name in connection.headers for name in _PROXY_HEADERS):
            return None
        return Who("local", Role.READ)


@dataclass(frozen=True, slots=True)
class Nobody:
    """No access, because none is configured and other machines can reach the address. Only the probes answer."""

    challenge: str | None = None

    async def who(self, _: HTTPConnection) -> Who | None:
        return None


class Tokens:
    """Access by `Authorization: Bearer …`, with a role for each token: `Tokens({"…": Role.READ})`. A browser signs in
    with a token and keeps a signed ticket for a week; the token cannot be derived from it."""

    challenge: str | None = 'Bearer realm="toril"'

    def __init__(self, tokens: Mapping[str, Role], *, clock: Clock = SYSTEM) -> None:
        if not tokens:
            raise InvalidOption(
                "Tokens needs at least one token; Open() gives read-only access to anyone on this machine"
            )
        for token in tokens:
            if not isinstance(token, str) or len(token) < _SHORTEST:
                raise InvalidOption(
                    f"a token needs at least {_SHORTEST} characters; make one with `openssl rand -hex 32`"
                )
        self._clock = clock
        self._known = [
            (_digest(token.encode()), Who(f"token {_digest(token.encode())[:8]}", role))
            for token, role in tokens.items()
        ]

    async def who(self, connection: HTTPConnection) -> Who | None:
        if "authorization" not in connection.headers:
            return self._signed_in(connection.cookies.get(COOKIE, ""))
        kind, _, token = connection.headers["authorization"].partition(" ")
        digest = _digest(token.encode("latin-1", "replace"))
        # Compare all of them, as digests of equal length, so that timing reveals nothing.
        found = [who for known, who in self._known if hmac.compare_digest(known, digest)]
        return found[0] if found and kind.lower() == "bearer" else None

    def ticket(self, secret: str) -> Ticket | None:
        digest = _digest(secret.encode())
        found = [known for known, _ in self._known if hmac.compare_digest(known, digest)]
        return ticket_for(found[0], self._clock.now()) if found else None

    def _signed_in(self, ticket: str) -> Who | None:
        found = [who for known, who in self._known if holds(ticket, known, self._clock.now())]
        return found[0] if found else None


class Basic:
    """Access by user name and password, which the browser asks for: `Basic({"ops": ("…", Role.OPERATE)})`. A password
    needs at least 12 characters."""

    challenge: str | None = 'Basic realm="toril", charset="UTF-8"'

    def __init__(self, people: Mapping[str, tuple[str, Role]]) -> None:
        if not people:
            raise InvalidOption("Basic needs at least one user name with a password and a role")
        for name, (password, _) in people.items():
            if not name or ":" in name:
                raise InvalidOption(f"a user name must not be empty or contain a colon; got {preview(name)}")
            if not isinstance(password, str) or len(password) < _SHORTEST_PASSWORD:
                raise InvalidOption(
                    f"the password of {preview(name)} needs at least {_SHORTEST_PASSWORD} characters; "
                    "make one with `openssl rand -base64 18`"
                )
        self._known = [
            (_digest(f"{name}:{password}".encode()), Who(name, role)) for name, (password, role) in people.items()
        ]

    async def who(self, connection: HTTPConnection) -> Who | None:
        digest = _digest(_credentials(connection.headers.get("authorization", "")))
        found = [who for known, who in self._known if hmac.compare_digest(known, digest)]
        return found[0] if found else None

    def named(self, connection: HTTPConnection) -> str:
        name, _, _ = _credentials(connection.headers.get("authorization", "")).partition(b":")
        return name.decode("utf-8", "replace")


Answer: TypeAlias = Who | Role | None


class CustomAccess:
    """Access that the host application decides: a function, sync or async, that takes the connection and returns a
    `Who`, a `Role`, or None if it does not know the sender."""

    challenge: str | None = None

    def __init__(self, ask: Callable[[HTTPConnection], Answer | Awaitable[Answer]]) -> None:
        self._ask = ask

    async def who(self, connection: HTTPConnection) -> Who | None:
        found = self._ask(connection)
        if inspect.isawaitable(found):
            found = await found
        return Who("host application", found) if isinstance(found, Role) else found


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def ticket_for(key: str, now: int) -> Ticket:
    """A ticket signed with a key, at a time in ms. The key cannot be derived from it."""
    end = str(now // 1000 + _SIGNED_IN)
    return f"{end}.{_seal(key, end)}", _SIGNED_IN


def holds(ticket: str, key: str, now: int) -> bool:
    """Whether the ticket was signed with the key and has not expired."""
    end, _, seal = ticket.partition(".")
    if not (end.isascii() and end.isdecimal() and len(end) < 12 and int(end) > now // 1000):
        return False
    return hmac.compare_digest(_digest(_seal(key, end).encode()), _digest(seal.encode("latin-1", "replace")))


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _seal(key: str, end: str) -> str:
    return hmac.new(key.encode(), f"toril ticket {end}".encode(), hashlib.sha256).hexdigest()


def _credentials(header: str) -> bytes:
    """The `name:password` that a browser sends; empty if it sent something else."""
    kind, _, text = header.partition(" ")
    if kind.lower() != "basic":
        return b""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
