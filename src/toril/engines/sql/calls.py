"""Recognizes repeated calls: the store keeps the last answer to each sender, committed together with its effect."""

import json
from typing import Any, Final

from toril.engines.shared import too_late
from toril.engines.sql.statements import statements
from toril.engines.sql.transaction import Transaction
from toril.model import Call, ControlResult, Refused, Swept
from toril.model.states import State

__all__ = ["recall", "recall_changed", "recall_swept", "remember", "remember_changed", "remember_swept"]

_SQL: Final = statements("calls")
_MINUTE: Final = 60_000


def recall(tx: Transaction, call: Call | None) -> Any:
    """The answer that this call got before, or None if it is new."""
    if call is None:
        return None
    seq, answer = tx.one(_SQL["last"], (call.sender,)) or (-1, "")
    if seq < call.seq:
        return None
    if seq > call.seq:
        raise too_late(seq)
    return json.loads(answer)


def remember(tx: Transaction, call: Call | None, answer: Any) -> None:
    """Keep the answer until this sender's next call."""
    if call is None:
        return
    text = json.dumps(answer)
    # The end of the minute, so that most calls do not change the index of times, a page more to write per commit.
    time = (tx.now // _MINUTE + 1) * _MINUTE
    if not tx.run(_SQL["remember_again"], (call.seq, text, call.sender, time)):
        tx.run(_SQL["remember"], (call.sender, call.seq, time, text))


def remember_changed(tx: Transaction, call: Call | None, changed: ControlResult) -> ControlResult:
    remember(tx, call, [changed.done, changed.asked, [(refused.id, refused.state) for refused in changed.refused]])
    return changed


def recall_changed(before: Any) -> ControlResult:
    done, asked, refused = before
    return ControlResult(
        tuple(done),
        tuple(asked),
        tuple(Refused(job, None if state is None else State(state)) for job, state in refused),
    )


def remember_swept(tx: Transaction, call: Call | None, swept: Swept) -> Swept:
    remember(tx, call, [swept.ids, swept.more])
    return swept


def recall_swept(before: Any) -> Swept:
    ids, more = before
    return Swept(tuple(ids), more)
