"""The probes of a site without workers: it is alive while it answers, and ready while its store does."""

import asyncio
from typing import Final

from starlette.responses import PlainTextResponse, Response

from toril.app import App
from toril.errors import TorilError
from toril.runtime.clock import Clock

__all__ = ["StoreWatch"]

_BETWEEN: Final = 2.0  # seconds between two looks at the store
_PATIENCE: Final = 5.0


class StoreWatch:
    """`watch` looks at the store until it is cancelled; `probe` answers by what it last saw."""

    def __init__(self, app: App, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._answers = False

    def probe(self, path: str) -> Response | None:
        match path:
            case "/livez":
                return PlainTextResponse("alive\n")
            case "/readyz":
                return PlainTextResponse("ready\n") if self._answers else PlainTextResponse("not ready\n", 503)
            case _:
                return None

    async def watch(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(_BETWEEN)

    async def look(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                self._answers = (await self._app.store.health()).ok
        except (TorilError, TimeoutError):
            self._answers = False
