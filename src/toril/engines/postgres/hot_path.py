"""What the functions of the hot path are asked, and what they answer."""

import json
from collections.abc import Sequence
from typing import Any, Final

from toril.engines.postgres.dialect import array, value
from toril.engines.postgres.pipeline import Ask
from toril.engines.sql.add import is_usual
from toril.engines.sql.options import load_options, options_of
from toril.engines.sql.schema import job_id, job_key
from toril.model import (
    Added,
    AddOutcome,
    Call,
    Claim,
    Claimed,
    Completed,
    Exchange,
    Gate,
    Lease,
    NewJob,
    Precedence,
    Settlement,
    Verdict,
)
from toril.model.jobs import runs_of
from toril.model.states import State
from toril.policy.retention import shortened

__all__ = [
    "GENERAL",
    "UNKNOWN_QUEUE",
    "added_of",
    "ask_claimed",
    "ask_to_add",
    "ask_to_exchange",
    "exchange_of",
    "is_usual_add",
]

GENERAL: Final = "TL000"  # the SQLSTATE of what is left to the general road
UNKNOWN_QUEUE: Final = "TL003"
_VERDICTS: Final = (Verdict.OK, Verdict.LOST, Verdict.MISSING)


def is_usual_add(jobs: Sequence[NewJob]) -> bool:
    """Whether these simply go to the end of the line."""
    return bool(jobs) and all(is_usual(job) for job, _ in runs_of(jobs))


def ask_to_add(schema: str, queue: int, jobs: Sequence[NewJob], call: Call | None, now: int | None) -> Ask:
    runs = runs_of(jobs)
    each = [runs[0][0]] if len(runs) == 1 else [job for job, texts in runs for _ in texts]
    return _asked(
        f"SELECT base, unflushed FROM {schema}.add_usual($1::int, $2::text[], $3::text[], $4::int[], "
        "$5::bigint[], $6::text[], $7::text[], $8::text, $9::bigint, $10::bigint)",
        queue,
        ("text", [job.name for job in each]),
        ("text", [text for _, texts in runs for text in texts]),
        ("int", [job.attempts for job in each]),
        ("bigint", [job.expires for job in each]),
        ("text", [options_of(job) for job in each]),
        ("text", [job.metadata for job in each]),
        *_of_call(call),
        now,
    )


def added_of(base: int, count: int) -> list[Added]:
    outcome, state = AddOutcome.ADDED, State.WAITING
    return [Added(str(base + number), outcome, state) for number in range(1, count + 1)]


def ask_to_exchange(
    schema: str, queue: int, batch: Sequence[Settlement], claim: Claim, call: Call | None, now: int | None
) -> tuple[Ask, list[int]] | None:
    """What to ask, and the places of the settlements in the order in which it says them. None: not for this road."""
    if claim.only_suspects or claim.limits.rate is not None or claim.limits.precedence is Precedence.PRIORITY_FIRST:
        return None
    tokens: dict[str, int] = {}
    keys, texts, whole = [], [], []
    order = sorted(range(len(batch)), key=lambda place: batch[place].lease.token)
    for place in order:
        lease, outcome = batch[place].lease, batch[place].outcome
        key = job_key(queue, lease.id)
        if key is None or type(outcome) is not Completed or outcome.summary is not None:
            return None
        text, is_whole = shortened(outcome.result)
        tokens[lease.token] = tokens.get(lease.token, 0) + 1
        keys.append(key)
        texts.append(text)
        whole.append(is_whole)
    ask = _asked(
        "SELECT now, wake_at, gate, suspects, refused, arrivals, claimed, freed, unflushed "
        f"FROM {schema}.exchange_usual($1::int, $2::text[], $3::int[], $4::bigint[], $5::text[], $6::bool[], $7::int, "
        "$8::text, $9::bigint, $10::text, $11::bool, $12::int, $13::text, $14::bigint, $15::bigint)",
        queue,
        ("text", list(tokens)),
        ("int", list(tokens.values())),
        ("bigint", keys),
        ("text", texts),
        ("bool", whole),
        claim.want,
        claim.token,
        claim.lease,
        claim.worker,
        claim.alone,
        claim.max_stalls,
        *_of_call(call),
        now,
    )
    return ask, order


def ask_claimed(schema: str, queue: int, token: str, now: int | None) -> Ask:
    return _asked(
        "SELECT key, fence, name, added_at, attempts, data, more "
        f"FROM {schema}.claimed_by($1::int, $2::text, $3::bigint)",
        queue,
        token,
        now,
    )


def exchange_of(queue: str, token: str, order: list[int], answer: Sequence[Any], claimed: Sequence[Any]) -> Exchange:
    now, wake_at, gate, suspects, refused, *_ = answer
    verdicts = [Verdict.OK] * len(order)
    for each in refused.split(",") if refused else ():
        place, _, verdict = each.partition(":")
        verdicts[order[int(place) - 1]] = _VERDICTS[int(verdict)]
    jobs = tuple([_claimed(queue, token, *row) for row in claimed])
    return Exchange(tuple(verdicts), jobs, now, wake_at, None if gate is None else Gate(gate), suspects)


def _claimed(
    queue: str, token: str, key: int, fence: int, name: str, added_at: int, attempts: int, data: str, more: str | None
) -> Claimed:
    if more is None:
        lease = Lease(queue, job_id(key, None), token)
        return Claimed(lease, name, data, 1, fence, attempts, 0, 0, added_at, 0, 0, None, None)
    chosen, starts, made, stalls, delay, priority, alone, options, metadata, checkpoint = json.loads(more)
    stored = load_options(options)
    return Claimed(
        Lease(queue, job_id(key, chosen), token),
        name,
        data,
        starts + 1,
        fence,
        attempts,
        made,
        stalls,
        added_at,
        delay,
        priority,
        metadata,
        checkpoint,
        stored.options,
        bool(alone),
        stored.parked or 0,
        stored.trace,
        stored.fault,
    )


def _of_call(call: Call | None) -> tuple[str | None, int | None]:
    return (None, None) if call is None else (call.sender, call.seq)


def _asked(sql: str, *given: Any) -> Ask:
    values: list[bytes | None] = []
    formats: list[int] = []
    for each in given:
        if isinstance(each, tuple):
            data, form = array(*each)
            values.append(data)
            formats.append(form)
        else:
            values.append(value(each))
            formats.append(0)
    return sql.encode(), values, formats
