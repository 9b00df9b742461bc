"""Looking a store over, and mending it."""

from typing import Annotated, Any, Final

from pydantic import Field

from toril.documents import of_finding
from toril.web.access import Role
from toril.web.endpoint import Asking, Endpoint, Form

__all__ = ["DOCTOR"]


async def look_over(asking: Asking) -> dict[str, Any]:
    return {"items": [of_finding(finding) for finding in await asking.app.doctor()]}


class Repairing(Form):
    """Only findings of these queues; of all if none is named."""

    queues: Annotated[list[Annotated[str, Field(min_length=1, max_length=512)]], Field(max_length=100)] | None = None


async def repair_store(asking: Asking) -> dict[str, Any]:
    findings = await asking.app.doctor(asking.body.queues)
    repaired = await asking.app.repair(findings)
    return {"items": [of_finding(each.finding) | {"outcome": each.outcome.value} for each in repaired]}


DOCTOR: Final = (
    Endpoint(method="GET", path="/doctor", role=Role.READ, run=look_over, does="What is wrong with the store."),
    Endpoint(
        method="POST", path="/doctor/repair", role=Role.ADMIN, run=repair_store, body=Repairing,
        does="Mend what can be mended.",
    ),
)  # fmt: skip
