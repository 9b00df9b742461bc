"""The dashboard and the HTTP API, mountable in any ASGI application. It needs `pip install 'toril[web]'`."""

from toril.web.access import Access, Basic, CustomAccess, Open, Role, Tokens, Who
from toril.web.site import site

__all__ = ["Access", "Basic", "CustomAccess", "Open", "Role", "Tokens", "Who", "site"]
