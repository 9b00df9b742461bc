"""Exchanges on Redis: settlements as arguments of a script, and its answer."""

from collections.abc import Sequence
from typing import Any, Final

from toril.engines.redis.options import dump_trace
from toril.engines.redis.records import claimed_of, dump_nodes, dump_rests
from toril.model import (
    CANCELLED_KIND,
    Cancelled,
    Claim,
    Completed,
    Exchange,
    Failed,
    Failure,
    Gate,
    Precedence,
    Released,
    Rested,
    Retried,
    Settlement,
    Snoozed,
    Unstarted,
    Verdict,
    per_ms,
)
from toril.policy.attempts import short_error
from toril.policy.retention import RUN_TEXT_BYTES, shortened

__all__ = ["VERDICTS", "arguments_of", "exchange_of"]

VERDICTS: Final = (Verdict.OK, Verdict.LOST, Verdict.MISSING)
_WHOLE: Final = "="  # run records show this text
_OTHER: Final = "~"  # run records show the text that follows


def arguments_of(batch: Sequence[Settlement], claim: Claim) -> list[Any]:
    """The arguments of `exchange.lua`."""
    rate = claim.limits.rate
    arguments: list[Any] = [
        claim.want, claim.token, claim.lease, claim.worker, _alone(claim), claim.max_stalls,
        "1" if claim.limits.precedence is Precedence.PRIORITY_FIRST else "",
        *(("", "", "") if rate is None else (rate.max, per_ms(rate), rate.window)), len(batch),
    ]  # fmt: skip
    for settlement in batch:
        lease, outcome = settlement.lease, settlement.outcome
        arguments += (lease.id, lease.token)
        if type(outcome) is Completed:
            arguments += ("c", outcome.result, _shown(outcome.result, outcome.summary), "", "")
        else:
            arguments += _settled(settlement)
    return arguments


def _alone(claim: Claim) -> str:
    if not claim.alone:
        return ""
    return "only" if claim.only_suspects else "1"


def _settled(settlement: Settlement) -> tuple[str, str, str, Any, str]:
    """Kind, text, text of the run record, something extra, the stack trace; for a retry also its error in short."""
    match settlement.outcome:
        case Failed(failure):
            return "f", failure.reason, _shown(failure.reason), failure.kind, dump_trace(failure)
        case Cancelled(reason):
            return "x", reason, _shown(reason), CANCELLED_KIND, ""
        case Retried(failure, delay):
            traces = f"{dump_trace(failure)}\n{short_error(failure)}"
            return "r", failure.reason, _OTHER + failure.kind, delay, traces
        case Snoozed(delay):
            return "s", "", _WHOLE, delay, ""
        case Released():
            return "l", "", _WHOLE, "", ""
        case Rested(children, children_round, rests):
            return "w", dump_nodes(children), _WHOLE, children_round, dump_rests(rests)
        case Completed() as unknown:
            raise AssertionError(unknown)  # by far the most: the caller has seen to them


def _shown(text: str, summary: str | None = None) -> str:
    if summary is not None:
        return _OTHER + shortened(summary)[0]
    if len(text) <= RUN_TEXT_BYTES and text.isascii():
        return _WHOLE
    cut, whole = shortened(text)
    return _WHOLE if whole else _OTHER + cut


def exchange_of(queue: str, token: str, answer: Sequence[Any]) -> Exchange:
    """Parse the answer of `exchange.lua`."""
    verdicts, jobs, now, wake_at, gate, suspects, unstarted = answer
    return Exchange(
        tuple([VERDICTS[verdict] for verdict in verdicts]),
        tuple([claimed_of(queue, token, row, now) for row in jobs]),
        now,
        wake_at,
        None if gate is None else Gate(gate),
        suspects,
        tuple([Unstarted(each, name, Failure(reason, kind)) for each, name, reason, kind in unstarted]),
    )
