"""Endpoints for circuit breakers: list circuits, open and close them."""

from typing import Any, Final

from toril.errors import NotFound, preview
from toril.model import CircuitState
from toril.operate.documents import of_circuit
from toril.web.access import Role
from toril.web.api.common import PositiveDuration
from toril.web.routing import Endpoint, Form, Request

__all__ = ["BREAKERS"]


async def list_breakers(asking: Request) -> dict[str, Any]:
    items = [of_circuit(circuit) for circuit in await asking.app.breakers.list()]
    return {"items": items, "states": {state.value: _count(items, state) for state in CircuitState}}


def _count(items: list[dict[str, Any]], state: CircuitState) -> int:
    return sum(item["state"] == state for item in items)


class TripForm(Form):
    """How long to keep it open, in seconds or as text like `"10m"`; by default as long as the breaker declares."""

    seconds: PositiveDuration | None = None


async def trip_breaker(asking: Request) -> dict[str, Any]:
    return of_circuit(await asking.app.breakers.trip(asking.path["key"], asking.body.seconds))


async def reset_breaker(asking: Request) -> dict[str, Any]:
    key = asking.path["key"]
    if not await asking.app.breakers.reset(key):
        raise NotFound(f"there is no circuit {preview(key)}")
    return {"key": key, "reset": True}


BREAKERS: Final = (
    Endpoint(
        method="GET",
        path="/breakers",
        role=Role.READ,
        run=list_breakers,
        does="List circuits and their states.",
    ),
    Endpoint(
        method="POST",
        path="/breakers/{key}/trip",
        role=Role.OPERATE,
        run=trip_breaker,
        body=TripForm,
        does="Open a circuit manually.",
    ),
    Endpoint(
        method="POST",
        path="/breakers/{key}/reset",
        role=Role.OPERATE,
        run=reset_breaker,
        does="Close a circuit manually.",
    ),
)
