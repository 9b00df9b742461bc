"""Checks each request before anything is looked up: its host, its sender and its origin."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Scope

from toril.runtime.clock import Clock
from toril.web.access import Access, Basic, Named, Tokens, Who
from toril.web.messages import MAX_BODY, Problem
from toril.web.routing import canonical

__all__ = ["Guard", "GuardOptions"]

_SAFE: Final = frozenset({"GET", "HEAD"})
_LONGEST_URL: Final = 8 * 1024
_TRIES: Final = 20  # wrong credentials for one name from one address in a minute
_MINUTE: Final = 60.0
_REMEMBERED: Final = 10_000  # addresses and names with wrong tries
_NAME: Final = 64  # characters of a name by which tries are counted
_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """Who is let in. `hosts` are the names under which we are reached, beside those of loopback: a request for another
    name is a page of someone else's that had its name point here. `proxies` are the addresses whose word on the real
    client is taken."""

    access: Access
    hosts: Sequence[str] = ()
    proxies: Sequence[str] = ()


@dataclass(slots=True)
class Guard:
    """Refuses requests by raising a `Problem`."""

    terms: GuardOptions
    clock: Clock
    _failed: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def check_path(self, scope: Scope) -> None:
        """The path is brought into its one form."""
        if scope["method"] == "CONNECT":  # it does not name a path
            raise Problem(
                405,
                "method",
                "this is not a proxy",
                headers={"allow": "GET, HEAD, POST, PUT, PATCH, DELETE"},
            )
        raw = bytes(scope.get("raw_path") or scope["path"].encode())
        if len(raw) + len(scope["query_string"]) > _LONGEST_URL:
            raise Problem(414, "url_too_long", f"the URL is longer than {_LONGEST_URL} bytes")
        scope["path"] = canonical(raw.partition(b"?")[0])

    async def check_host(self, connection: HTTPConnection, address: str) -> Who | None:
        """Check that the request is meant for this server. A request with a valid token or password is meant for it
        under any name: a page whose name was pointed here cannot know them. Prometheus and autoscalers use addresses,
        or names that clusters make up."""
        hosts = connection.headers.getlist("host")
        if len(hosts) != 1 or not hosts[0]:
            raise Problem(400, "bad_host", "the request needs exactly one Host header")
        name = host_name(hosts[0])
        if name in _HOSTS or name in {given.lower() for given in self.terms.hosts}:
            return None
        if "authorization" in connection.headers and isinstance(self.terms.access, Tokens | Basic):
            return await self.admit(connection, address)
        raise Problem(421, "wrong_host", "unknown host; add its name to the allowed hosts")

    async def admit(self, connection: HTTPConnection, address: str) -> Who:
        """Identify the sender. Strangers are told what to send, and an address that guesses is told to wait. Only
        credentials that could be guessed count: whoever has a session is admitted, whatever others at the same address
        try."""
        access = self.terms.access
        tries = "authorization" in connection.headers
        name = access.named(connection) if tries and isinstance(access, Named) else ""
        if tries:
            self.check_tries(address, name)
        who = await access.who(connection)
        if who is not None:
            return who  # failed tries are kept, or anyone with an account could guess all others' passwords
        if tries:
            self.refuse_secret(address, name)
        if access.challenge is None:
            raise Problem(403, "forbidden", "no access is configured for this address; use a token")
        raise Problem(401, "who_are_you", "authentication required", headers={"www-authenticate": access.challenge})

    def refuse_secret(self, address: str, name: str = "") -> None:
        """Count a wrong secret, whether sent with a request or typed into a form."""
        key, now = _counted(address, name), self.clock.monotonic()
        tries = [*self._tries(key, now), now]
        self._failed.pop(key, None)
        if len(self._failed) >= _REMEMBERED:
            self._failed.pop(self._least(now))
        self._failed[key] = tries

    def check_tries(self, address: str, name: str = "") -> None:
        """Whether an address may try to sign in with this name at all."""
        now = self.clock.monotonic()
        tries = self._tries(_counted(address, name), now)
        if len(tries) >= _TRIES:
            wait = max(1, round(_MINUTE - (now - tries[0])))
            raise Problem(
                429,
                "too_many_tries",
                "too many failed sign-in attempts",
                headers={"retry-after": str(wait)},
            )

    def _least(self, now: float) -> tuple[str, str]:
        """The entry to forget first: an expired one, else one with the fewest tries. If it were the oldest, whoever
        invents names could have tries for another name forgotten, and continue guessing."""
        oldest = next(iter(self._failed))
        if now - self._failed[oldest][-1] >= _MINUTE:
            return oldest
        return min(self._failed, key=lambda key: len(self._failed[key]))

    def _tries(self, key: tuple[str, str], now: float) -> list[float]:
        return [at for at in self._failed.get(key, ()) if now - at < _MINUTE]

    def address(self, scope: Scope, headers: Headers) -> str:
        """The sender's address; what a proxy says about it counts only if the proxy is known."""
        peer = (scope.get("client") or ("unknown", 0))[0]
        forwarded = ",".join(headers.getlist("x-forwarded-for"))  # a proxy appends its value, or adds a line
        if forwarded and peer in self.terms.proxies:
            return forwarded.rpartition(",")[2].strip()[:64]
        return str(peer)

    def is_secure(self, scope: Scope, headers: Headers) -> bool:
        """Whether the browser used TLS; behind a known proxy, the proxy says so."""
        peer = (scope.get("client") or ("unknown", 0))[0]
        forwarded = headers.get("x-forwarded-proto", "") if peer in self.terms.proxies else ""
        return bool(scope.get("scheme") == "https" or forwarded == "https")


def _counted(address: str, name: str) -> tuple[str, str]:
    """The key by which failed tries are counted. A client with IPv6 has a whole network of addresses."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address, name[:_NAME]
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False)), name[:_NAME]
    return address, name[:_NAME]


def check_own(headers: Headers) -> None:
    """Check that the request was sent by our own page or by a program, and not by another site's page."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        raise Problem(403, "cross_site", "cross-site request: it was sent by a page of another site")
    if origin == "null" and site == "same-origin":
        return  # a form on a page without referrers, as ours are
    if origin is not None and _netloc(origin) != headers.get("host", "").lower():
        raise Problem(403, "cross_site", "cross-site request: it was sent by a page of another site")
    if site is None and origin is None and "cookie" in headers:
        raise Problem(403, "cross_site", "the request has cookies but no Origin or Sec-Fetch-Site header")


def _netloc(origin: str) -> str | None:
    """The host and port of an origin; None if it is not a URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def check_meant(method: str, headers: Headers) -> None:
    """Check that a change was intended by the browser's user, and is sent as JSON, which no form can send."""
    if method in _SAFE:
        return
    check_own(headers)
    length = headers.get("content-length", "0")
    if length == "0" and "transfer-encoding" not in headers:
        return
    if not (length.isascii() and length.isdecimal()):
        raise Problem(400, "bad_length", "Content-Length must be a number", headers={"connection": "close"})
    if len(length) > 9 or int(length) > MAX_BODY:
        raise Problem(413, "too_large", f"the body is larger than {MAX_BODY} bytes", headers={"connection": "close"})
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, "not_json", "send JSON with Content-Type: application/json")


def host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
}
