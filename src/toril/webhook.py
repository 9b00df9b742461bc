"""A sink that posts alerts to a URL. An address that only this machine can reach is no place for them: only https, only
public addresses, looked up once, no redirects, few seconds, few bytes."""

import asyncio
import http.client
import ipaddress
import json
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from toril.alerts import Alert
from toril.errors import InvalidOption, TorilError, shown
from toril.model import storable

__all__ = ["Webhook"]

_SECONDS: Final = 5.0
_MOST_BYTES: Final = 64 * 1024
_LONGEST_TEXT: Final = 4 * 1024

Resolve: TypeAlias = Callable[[str, int], Sequence[str]]
Post: TypeAlias = Callable[[str, "Webhook", bytes], int]


class Webhook:
    """`app.alert(Webhook("https://…"))`: each alert is posted as one JSON object."""

    def __init__(self, url: str, *, resolve: Resolve | None = None, post: Post | None = None) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port or 443
        except (ValueError, AttributeError, TypeError):
            raise InvalidOption("a webhook's URL cannot be read; it looks like https://example.com/path") from None
        if parts.scheme != "https" or not parts.hostname or parts.username is not None:
            raise InvalidOption(f"a webhook's URL is https://host/path without a user, not {shown(parts.scheme)}://…")
        self.host = parts.hostname
        self.port = port
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._resolve = resolve or _resolve
        self._post = post or _post
        if _is_literal(self.host):
            _public([self.host], self.host)

    async def __call__(self, alert: Alert) -> None:
        told = {
            name: storable(value, _LONGEST_TEXT) if isinstance(value, str) else value
            for name, value in asdict(alert).items()
            if value is not None
        }
        body = json.dumps(told, separators=(",", ":")).encode()
        async with asyncio.timeout(2 * _SECONDS):
            await asyncio.get_running_loop().run_in_executor(None, self._deliver, body)

    def _deliver(self, body: bytes) -> None:
        address = _public(self._resolve(self.host, self.port), self.host)
        status = self._post(address, self, body)
        if not 200 <= status < 300:
            raise TorilError(f"the webhook at {self.host} answered with status {status}")


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _resolve(host: str, port: int) -> Sequence[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _public(addresses: Sequence[str], host: str) -> str:
    """The first address; refused if any of them is not of the public net, whatever the next look-up may say."""
    for address in addresses:
        known = ipaddress.ip_address(address.partition("%")[0])
        inner = getattr(known, "ipv4_mapped", None) or known
        if not inner.is_global or inner.is_multicast:
            raise InvalidOption(f"the webhook's host {shown(host)} is not of the public net ({address})")
    if not addresses:
        raise TorilError(f"the webhook's host {shown(host)} has no address")
    return addresses[0]


def _post(address: str, hook: Webhook, body: bytes) -> int:
    """To the address that was checked, under the name that its certificate must have."""
    connection = http.client.HTTPSConnection(hook.host, hook.port, timeout=_SECONDS)
    plain = socket.create_connection((address, hook.port), _SECONDS)
    try:
        connection.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=hook.host)
        connection.request("POST", hook.target, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read(_MOST_BYTES)
        return response.status
    finally:
        connection.close()
        plain.close()
