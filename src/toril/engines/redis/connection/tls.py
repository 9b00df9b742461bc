"""Whom to trust, over TLS."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

__all__ = ["DEMANDS", "Trust"]

DEMANDS: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class Trust:
    """What a URL says about certificates."""

    cert_reqs: str = "required"
    check_hostname: bool = True
    ca_certs: str | None = None
    ca_path: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    min_version: int | None = None

    @contextmanager
    def context(self) -> Iterator[ssl.SSLContext]:
        """For one connection. To read certificates takes longer than to connect, so they are kept; not after a failure,
        as there may be new ones by the next time."""
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
