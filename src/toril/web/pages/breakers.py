"""The page of circuit breakers: which circuits are open, until when, and how close the others are to opening."""

from typing import Annotated, Any, Final

from pydantic import Field

from toril.model import CircuitRow, CircuitState
from toril.web.pages.page import PageSpec, View
from toril.web.routing import Request

__all__ = ["BREAKERS"]

_SHOWN: Final = 100  # of each kind
_DOTS: Final = 10  # failures to draw one by one


class BreakersView(View):
    """A text to find in the keys."""

    q: Annotated[str, Field(max_length=200)] = ""


async def breakers(asking: Request) -> dict[str, Any]:
    view: BreakersView = asking.query
    circuits = await asking.app.store.circuits.list()
    meant = [each for each in circuits if view.q.casefold() in each.key.casefold()]
    order = {CircuitState.OPEN: 0, CircuitState.HALF_OPEN: 1}
    troubled = [each for each in meant if each.state is not CircuitState.CLOSED]
    troubled.sort(key=lambda each: (order[each.state], each.since, each.key))
    closed = [each for each in meant if each.state is CircuitState.CLOSED]
    closed.sort(key=lambda each: (-each.failures, each.key))
    return {
        "title": "Breakers", "view": view, "total": len(circuits), "match": len(meant),
        "open": sum(each.state is CircuitState.OPEN for each in circuits),
        "half": sum(each.state is CircuitState.HALF_OPEN for each in circuits),
        "troubled": troubled[:_SHOWN], "troubled_all": len(troubled),
        "closed": [_row(each) for each in closed[:_SHOWN]], "closed_all": len(closed),
    }  # fmt: skip


def _row(circuit: CircuitRow) -> dict[str, Any]:
    """A closed circuit. With a rate, runs count as well as failures; otherwise failures are drawn as dots."""
    terms = circuit.terms
    dots = terms.failures if terms.rate is None and terms.failures <= _DOTS else 0
    of = f"of {terms.failures:,}" if terms.rate is None else f"of {circuit.runs:,} runs; opens at {terms.rate:.0%}"
    return {"circuit": circuit, "dots": dots, "on": min(dots, circuit.failures), "of": of}


BREAKERS: Final = (
    PageSpec(path="/breakers", template="breakers.html", show=breakers, query=BreakersView, nav="breakers"),
)
