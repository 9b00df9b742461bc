"""What a job has to wait for. Reads only."""

from toril.engines.sql.flows import family
from toril.engines.sql.groupviews import standing
from toril.engines.sql.options import load_rate
from toril.engines.sql.schema import Place, job_id
from toril.engines.sql.statements import statement
from toril.engines.sql.transaction import QueueRow, Tx, keys_of
from toril.model import Family, JobRef, Limits, Precedence, RateLimit, Standing, per_ms

__all__ = ["explain"]

_SQL = {name: statement("explain", name) for name in ("place", "before", "running", "starts", "runs_alone")}


def explain(tx: Tx, queue: str, identity: str, limits: Limits) -> Standing:
    """What `Inspector.explain` promises."""
    row = tx.find(queue)
    if row is None:
        return Standing(now=tx.now)
    rate = load_rate(row.rate) or limits.rate
    key = keys_of(tx, row, [identity]).get(identity)
    place, rank = (None, 0) if key is None else tx.one(_SQL["place"], (key,)) or (None, 0)
    return Standing(
        now=tx.now,
        ahead=0 if place is None else _ahead(tx, row, place, rank, limits.precedence),
        running=tuple(job_id(key, chosen) for key, chosen in tx.all(_SQL["running"], (row.key,))),
        rate_till=None if rate is None else _till(tx, row, rate),
        family=family(tx, JobRef(queue, identity), "queue", 10) if row.waiting_children else Family(),
        group=standing(tx, row, identity) if row.grouped else None,
        alone=place == Place.SUSPECT or tx.one(_SQL["runs_alone"], (key,)) is not None,
    )


def _ahead(tx: Tx, row: QueueRow, place: int, rank: int, precedence: Precedence) -> int:
    if place not in {Place.SUSPECT, Place.WAITING, Place.PRIORITIZED}:
        return 0
    before = int(tx.one(_SQL["before"], (row.key, place, rank))[0])
    if place == Place.PRIORITIZED and precedence is Precedence.PLAIN_FIRST:
        return before + row.waiting
    if place == Place.WAITING and precedence is Precedence.PRIORITY_FIRST:
        return before + row.prioritized
    return before


def _till(tx: Tx, row: QueueRow, rate: RateLimit) -> int | None:
    """When a used-up rate lets more start; None if it does now."""
    if rate.window == "fixed":
        return row.window_till if row.window_till > tx.now and row.window_starts >= rate.max else None
    count, oldest = tx.one(_SQL["starts"], (row.key, tx.now - per_ms(rate)))
    return oldest + per_ms(rate) if count >= rate.max else None
