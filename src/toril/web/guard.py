"""Before anything is looked up: is this a request that we answer, from someone we know, meant by them?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import Scope

from toril.clock import Clock
from toril.web.access import Access, Who
from toril.web.bodies import MAX_BODY
from toril.web.paths import canonical
from toril.web.problems import Problem

__all__ = ["Guard", "Terms"]

_SAFE: Final = frozenset({"GET", "HEAD"})
_LONGEST_URL: Final = 8 * 1024
_TRIES: Final = 20  # wrong credentials from one address in a minute
_MINUTE: Final = 60.0
_ADDRESSES: Final = 10_000  # that are remembered
_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Who is let in. `hosts` are the names under which we are reached, beside those of loopback: a request for another
    name is a page of someone else's that had its name point here. `proxies` are the addresses whose word on the real
    client is taken."""

    access: Access
    hosts: Sequence[str] = ()
    proxies: Sequence[str] = ()


@dataclass(slots=True)
class Guard:
    """Refuses by raising a `Problem`."""

    terms: Terms
    clock: Clock
    _failed: dict[str, list[float]] = field(default_factory=dict)

    def check_path(self, scope: Scope) -> None:
        """The path is brought into its one form."""
        if scope["method"] == "CONNECT":  # what it names is no path
            raise Problem(405, "method", "this is no proxy", headers={"allow": "GET, HEAD, POST, PUT, PATCH, DELETE"})
        raw = bytes(scope.get("raw_path") or scope["path"].encode())
        if len(raw) + len(scope["query_string"]) > _LONGEST_URL:
            raise Problem(414, "url_too_long", f"a URL has at most {_LONGEST_URL} bytes")
        scope["path"] = canonical(raw.partition(b"?")[0])

    def check_host(self, headers: Headers) -> None:
        """Whether it is we who are meant."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not hosts[0]:
            raise Problem(400, "bad_host", "a request names one host")
        name = host_name(hosts[0])
        if name not in _HOSTS and name not in {given.lower() for given in self.terms.hosts}:
            raise Problem(421, "wrong_host", "this host is not served here; add its name to the allowed hosts")

    async def admit(self, connection: HTTPConnection, address: str) -> Who:
        """Who asks. Strangers are told what to send; an address that guesses is told to wait."""
        self.check_tries(address)
        access = self.terms.access
        who = await access.who(connection)
        if who is not None:
            self._failed.pop(address, None)
            return who
        if "authorization" in connection.headers:
            self.refuse_secret(address)
        if access.challenge is None:
            raise Problem(403, "forbidden", "access from here was not arranged; give a token, see the manual on HTTP")
        raise Problem(401, "who_are_you", "this needs credentials", headers={"www-authenticate": access.challenge})

    def refuse_secret(self, address: str) -> None:
        """A secret that was typed and is wrong counts like a wrong one that was sent."""
        now = self.clock.monotonic()
        self._remember(address, [*self._tries(address, now), now])

    def check_tries(self, address: str) -> None:
        """Whether an address may try at all."""
        now = self.clock.monotonic()
        tries = self._tries(address, now)
        if len(tries) >= _TRIES:
            wait = max(1, round(_MINUTE - (now - tries[0])))
            raise Problem(429, "too_many_tries", "too many wrong tries", headers={"retry-after": str(wait)})

    def _tries(self, address: str, now: float) -> list[float]:
        return [at for at in self._failed.get(address, ()) if now - at < _MINUTE]

    def address(self, scope: Scope, headers: Headers) -> str:
        """Whence it comes; a proxy's word on that counts only if we know the proxy."""
        peer = (scope.get("client") or ("unknown", 0))[0]
        forwarded = ",".join(headers.getlist("x-forwarded-for"))  # a proxy adds its word as the last, or in a line more
        if forwarded and peer in self.terms.proxies:
            return forwarded.rpartition(",")[2].strip()[:64]
        return str(peer)

    def is_secure(self, scope: Scope, headers: Headers) -> bool:
        """Whether the browser came over TLS; of what came through a proxy, a proxy that we know says so."""
        peer = (scope.get("client") or ("unknown", 0))[0]
        forwarded = headers.get("x-forwarded-proto", "") if peer in self.terms.proxies else ""
        return bool(scope.get("scheme") == "https" or forwarded == "https")

    def _remember(self, address: str, tries: list[float]) -> None:
        if len(self._failed) >= _ADDRESSES:
            self._failed.pop(next(iter(self._failed)))
        self._failed[address] = tries


def check_own(headers: Headers) -> None:
    """What is sent by our own page or by a program, and not by another site's page."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        raise Problem(403, "cross_site", "this was sent by another site's page")
    if origin == "null" and site == "same-origin":
        return  # a form of a page that sends no referrer, which ours do not
    if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        raise Problem(403, "cross_site", "this was sent by another site's page")
    if site is None and origin is None and "cookie" in headers:
        raise Problem(403, "cross_site", "a browser says where a request comes from, and this one does not")


def check_meant(method: str, headers: Headers) -> None:
    """What changes something is meant by whoever's browser sends it, and is JSON, which no form can send."""
    if method in _SAFE:
        return
    check_own(headers)
    length = headers.get("content-length", "0")
    if length == "0" and "transfer-encoding" not in headers:
        return
    if len(length) > 9 or int(length) > MAX_BODY:
        raise Problem(413, "too_large", f"a body has at most {MAX_BODY} bytes", headers={"connection": "close"})
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, "not_json", "a body is JSON, and says so: content-type application/json")


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
