"""Signing in: with a token or, if no credentials are configured, by a link that a server on loopback prints."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from urllib.parse import urlencode, urlsplit

from starlette.requests import HTTPConnection

from toril.runtime.clock import SYSTEM, Clock
from toril.web.access import COOKIE, Access, Open, Role, SignsIn, Ticket, Who, holds, ticket_for
from toril.web.messages import Problem

__all__ = ["CODE_MINUTES", "SIGN_IN", "Means", "SignInLink", "check_role", "means_of"]

SIGN_IN: Final = "/sign-in"
CODE_MINUTES: Final = 15  # for which a link is valid
_BETWEEN: Final = 10.0  # seconds between two links, so that nobody can flood the log

# How to get a higher role; None if only the host application knows.
Means: TypeAlias = Literal["link", "token"] | None


def means_of(access: Access) -> Means:
    if isinstance(access, SignInLink):
        return "link"
    return "token" if isinstance(access, SignsIn) else None


def check_role(who: Who, role: Role, means: Means) -> None:
    """Raise if someone's role is not sufficient, and say how to get one that is."""
    if who.role >= role:
        return
    raise Problem(403, "forbidden", f"this requires the {role.name.lower()} role; {_way(who, means)}")


def _way(who: Who, means: Means) -> str:
    if means == "link":
        return (
            "open the sign-in link that Toril printed when it started, or restart it with TORIL_HTTP_TOKEN set and "
            "send that token"
        )
    if means == "token":
        return f"your token has the role {who.role.name.lower()}"
    return f"{who.name} has the role {who.role.name.lower()}, as set by `access`"


@dataclass(slots=True)
class SignInLink:
    """Everyone on this machine has read-only access, and whoever opens a link that the server prints has full access:
    they can read the server's terminal or log, which other local users cannot. The code in a link works once, for a
    quarter of an hour. The browser gets a session in exchange, which ends with the server or after a week. A page can
    request another link; it is printed like the first."""

    clock: Clock = SYSTEM
    challenge: str | None = None
    cookie: str = COOKIE
    _key: str = ""
    _url: str = ""
    _tell: Callable[[str], None] | None = None
    _printed_at: float | None = None
    _codes: dict[str, float] = field(default_factory=dict)  # codes, with the monotonic time at which each expires

    def __post_init__(self) -> None:
        self._key = self.clock.unique() + self.clock.unique()

    def start(self, url: str, tell: Callable[[str], None]) -> None:
        """The server is at this URL, which ends with a slash: print the first link, and later ones in the same way."""
        self._url, self._tell = url, tell
        # A browser sends the cookies of 127.0.0.1 to all ports: two servers must not end each other's sessions.
        self.cookie = f"{COOKIE}-{urlsplit(url).port}"
        self.tell_link()

    def tell_link(self) -> None:
        """Print a new link, unless one was printed a moment ago. Earlier ones remain valid."""
        now = self.clock.monotonic()
        if self._tell is None or (self._printed_at is not None and now - self._printed_at < _BETWEEN):
            return
        self._printed_at = now
        code = self.clock.unique()
        self._codes = {known: end for known, end in self._codes.items() if end > now} | {code: now + CODE_MINUTES * 60}
        self._tell(f"{self._url}{SIGN_IN[1:]}?{urlencode({'code': code})}")

    def redeem(self, code: str) -> Ticket | None:
        """A session in exchange for a code; None if the code was used, has expired or never existed. Codes have 122
        random bits, so guesses need not be counted, and nobody can lock others out by guessing."""
        end = self._codes.pop(code, None)
        if end is None or end <= self.clock.monotonic():
            return None
        return ticket_for(self._key, self.clock.now())

    async def who(self, connection: HTTPConnection) -> Who | None:
        local = await Open().who(connection)
        if local is not None and holds(connection.cookies.get(self.cookie, ""), self._key, self.clock.now()):
            return Who(local.name, Role.ADMIN)
        return local
