"""The same for what operators do: each control must do what the ledger says it can, and nothing else."""

from collections.abc import Callable, Sequence

from tests.sim.ledger import Entry, Stage
from tests.sim.witness import Witness
from toril.model import (
    Call,
    ControlResult,
    Refused,
    Replay,
    SetData,
    SetDelay,
    SetPriority,
    Settings,
    Swept,
    Update,
    letter_parts,
)
from toril.model.states import State

__all__ = ["Controls"]

_STANDING = frozenset({Stage.READY, Stage.DELAYED})


class Controls:
    """Judges the answers to controls."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._ledger = witness.ledger

    def retried(self, node: str, ids: Sequence[str], call: Call | None, answer: ControlResult) -> None:
        self._each(node, "retry", ids, call, answer, frozenset({Stage.ENDED}), self._ledger.rerun)

    def replayed(self, node: str, replays: Sequence[Replay], call: Call | None, answer: ControlResult) -> None:
        if self._witness.is_new(call, answer):
            done, refused = [], []
            for each in replays:
                if self._ledger.replay(letter_parts(each.id)[1], each.attempts):
                    done.append(each.id)
                else:
                    taken = self._ledger.find(letter_parts(each.id)[1])
                    known = letter_parts(each.id)[1] in self._ledger.letters
                    refused.append(Refused(each.id, taken.state if taken is not None and known else None))
            self._compare("replay", ControlResult(tuple(done), (), tuple(refused)), answer)
        self._witness.saw(node, "replay", f"{call} {answer}")

    def discarded(self, node: str, ids: Sequence[str], call: Call | None, answer: ControlResult) -> None:
        if self._witness.is_new(call, answer):
            done = [each for each in ids if self._ledger.letters.pop(letter_parts(each)[1], None) is not None]
            refused = [Refused(each, None) for each in ids if each not in done]
            self._compare("discard", ControlResult(tuple(done), (), tuple(refused)), answer)
        self._witness.saw(node, "discard", f"{call} {answer}")

    def promoted(self, node: str, ids: Sequence[str], call: Call | None, answer: ControlResult) -> None:
        self._each(node, "promote", ids, call, answer, frozenset({Stage.DELAYED}), self._ledger.ready)

    def removed(self, node: str, ids: Sequence[str], call: Call | None, answer: ControlResult) -> None:
        def act(entry: Entry) -> None:
            self._ledger.remove(entry, "remove")

        self._each(node, "remove", ids, call, answer, _STANDING | {Stage.ENDED}, act)

    def cancelled(self, node: str, ids: Sequence[str], reason: str, call: Call | None, answer: ControlResult) -> None:
        def act(entry: Entry) -> None:
            if entry.stage is Stage.ACTIVE:
                entry.cancelling = reason
                self._witness.conduct.wished(entry)
                self._witness.journal.tally["running job asked to stop"] += 1
            else:
                self._ledger.end(entry, State.FAILED)

        self._each(node, "cancel", ids, call, answer, _STANDING | {Stage.ACTIVE}, act)

    def _each(
        self,
        node: str,
        what: str,
        ids: Sequence[str],
        call: Call | None,
        answer: ControlResult,
        allowed: frozenset[Stage],
        act: Callable[[Entry], None],
    ) -> None:
        if self._witness.is_new(call, answer):
            done: list[str] = []
            asked: list[str] = []
            refused: list[Refused] = []
            for job_id in dict.fromkeys(ids):
                entry = self._ledger.find(job_id)
                if entry is None or entry.stage not in allowed:
                    refused.append(Refused(job_id, None if entry is None else entry.state))
                    continue
                (asked if entry.stage is Stage.ACTIVE else done).append(job_id)
                act(entry)
            self._compare(what, ControlResult(tuple(done), tuple(asked), tuple(refused)), answer)
        self._witness.saw(node, what, f"{call} {answer}")

    def updated(self, node: str, updates: Sequence[Update], call: Call | None, answer: ControlResult) -> None:
        if self._witness.is_new(call, answer):
            done, refused = [], []
            for each in updates:
                entry = self._ledger.find(each.id)
                if entry is None or not self._update(entry, each):
                    refused.append(Refused(each.id, None if entry is None else entry.state))
                else:
                    done.append(each.id)
            self._compare("update", ControlResult(tuple(done), (), tuple(refused)), answer)
        self._witness.saw(node, "update", f"{call} {answer}")

    def _update(self, entry: Entry, each: Update) -> bool:
        match each:
            case SetData(_, data):
                entry.data = data
                return True
            case SetPriority(_, priority, _) if entry.stage in _STANDING:
                entry.priority = priority
                return True
            case SetDelay(_, delay) if entry.stage is Stage.DELAYED:
                entry.due = self._witness.now() + delay
                return True
            case _:
                return False

    def drained(self, node: str, states: frozenset[State], limit: int, call: Call | None, answer: Swept) -> None:
        if self._witness.is_new(call, answer):
            self._sweep(
                "drain", [entry for entry in self._ledger.by_id.values() if entry.state in states], limit, answer
            )
        self._witness.saw(node, "drain", f"{call} {answer}")

    def cleaned(self, node: str, state: State, limit: int, call: Call | None, answer: Swept) -> None:
        """The age is not followed: of the right state, at most so many, and gone afterwards."""
        if self._witness.is_new(call, answer):
            found = [entry for entry in self._ledger.by_id.values() if entry.state is state and entry.id in answer.ids]
            self._sweep("clean", found, limit, answer)
        self._witness.saw(node, "clean", f"{call} {answer}")

    def obliterated(self, node: str, limit: int, answer: Swept) -> None:
        self._ledger.paused = True
        self._sweep("obliterate", [entry for entry in self._ledger.by_id.values() if entry.state], limit, answer)
        if not answer.more:
            self._ledger.paused, self._ledger.concurrency = False, None
            for entry in self._ledger.entries:
                entry.recorded = False
        self._witness.saw(node, "obliterate", f"{answer}")

    def _sweep(self, what: str, found: list[Entry], limit: int, answer: Swept) -> None:
        swept = [entry for entry in found if entry.id in answer.ids]
        self._compare(f"{what}: ids", sorted(entry.id for entry in swept), sorted(answer.ids))
        self._compare(f"{what}: how many", min(limit, len(found)), len(answer.ids))
        for entry in swept:
            self._ledger.remove(entry, what)

    def configured(self, node: str, call: Call | None, answer: Settings) -> None:
        """Who asks again changes nothing, and hears how it is by now."""
        if self._witness.is_new(call, "settings"):
            self._ledger.paused, self._ledger.concurrency = answer.paused, answer.concurrency
        else:
            known = (self._ledger.paused, self._ledger.concurrency)
            self._compare("settings, asked for again", known, (answer.paused, answer.concurrency))
        self._witness.saw(node, "configure", f"{answer}")

    def _compare(self, what: str, right: object, seen: object) -> None:
        if right != seen:
            self._witness.journal.violated("I1", f"{what}: expected {right}, saw {seen}")
