"""Endpoints for the doctor: check a store and repair it."""

from typing import Annotated, Any, Final

from pydantic import Field

from toril.operate.documents import of_finding
from toril.web.access import Role
from toril.web.api.common import SOON
from toril.web.routing import Endpoint, Form, Request

__all__ = ["DOCTOR"]

Far = Annotated[str | None, Field(max_length=8192)]  # contains a queue and perhaps a job


class ScanQuery(Form):
    """Where to continue: the cursor of the previous part."""

    cursor: Far = None


async def doctor_page(asking: Request) -> dict[str, Any]:
    part = await asking.app.doctor_page(cursor=asking.query.cursor, patience=SOON)
    return {"items": [of_finding(finding) for finding in part.items], "cursor": part.cursor}


class RepairForm(Form):
    """Which queues to repair; all if none are named. Repeat with the returned cursor until there is none."""

    queues: Annotated[list[Annotated[str, Field(min_length=1, max_length=512)]], Field(max_length=100)] | None = None
    cursor: Far = None


async def repair_store(asking: Request) -> dict[str, Any]:
    part = await asking.app.doctor_page(asking.body.queues, cursor=asking.body.cursor, quick=False)
    repaired = await asking.app.repair(part.items)
    items = [of_finding(each.finding) | {"outcome": each.outcome.value} for each in repaired]
    return {"items": items, "cursor": part.cursor}


DOCTOR: Final = (
    Endpoint(
        method="GET",
        path="/doctor",
        role=Role.READ,
        run=doctor_page,
        query=ScanQuery,
        does="Check part of the store for faults. Repeat with the returned cursor until there is none.",
    ),
    Endpoint(
        method="POST",
        path="/doctor/repair",
        role=Role.ADMIN,
        run=repair_store,
        body=RepairForm,
        does="Repair faults in part of the store. Repeat with the returned cursor until there is none.",
    ),
)
