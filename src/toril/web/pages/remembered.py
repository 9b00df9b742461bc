"""Flows that have ended and are gone from their queues: what run records tell of them.

The records of a queue are read as lists of a bounded length, and those of flows are kept for a while, for all pages of
the process. A look reads as many lists as it has time for, first those that were read longest ago: so it may not know
all queues yet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from toril.flow import Tree
from toril.model import Ending, Family, JobRef, Run
from toril.model.states import State
from toril.policy.retention import RUNS
from toril.runtime.clock import SYSTEM
from toril.store.engine import Store
from toril.web.pages.page import Looking

__all__ = ["Remembered", "remembered"]

_SOON: Final = 0.1  # seconds of reading in one look
_FRESH: Final = 5.0  # seconds that a list may be old
_FOREVER: Final = 1e9
_HIGHEST: Final = 100  # jobs above a job


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """Jobs of flows that have ended, by what is remembered of the last run of each. `looked` of the `of` queues are
    known."""

    runs: Mapping[JobRef, Run]
    children: Mapping[JobRef, Sequence[JobRef]]
    looked: int
    of: int

    def tops(self) -> list[JobRef]:
        """The jobs at the tops of flows that have ended, the last first."""
        found = [
            ref for ref, run in self.runs.items()
            if run.parent is None or (run.parent not in self.runs and ref in self.children)
        ]  # fmt: skip
        return sorted(found, key=lambda ref: -self.runs[ref].finished_at)

    def top(self, ref: JobRef) -> JobRef:
        """The highest job above this one that is known."""
        for _ in range(_HIGHEST):
            above = self.runs[ref].parent if ref in self.runs else None
            if above is None or above not in self.runs:
                break
            ref = above
        return ref

    def tree(self, ref: JobRef, *, depth: int, width: int, there: Mapping[JobRef, Tree] | None = None) -> Tree | None:
        """The flow that a job belongs to, from the highest job that is known; None if nothing is. What is still
        `there` is shown as it stands."""
        if ref not in self.runs and ref not in self.children:
            return None
        return self._tree(self.top(ref), depth, width, there or {})

    def filled(self, tree: Tree, parent: JobRef | None, *, depth: int, width: int) -> Tree:
        """A flow as it stands, with the names and ends of its jobs that are gone; from a `parent` on that is gone."""
        mended = self._mended(tree, depth, width)
        if parent is None or parent not in self.runs:
            return mended
        return self._tree(self.top(parent), depth, width, {JobRef(tree.queue, tree.id): mended})

    def _mended(self, tree: Tree, depth: int, width: int) -> Tree:
        ref = JobRef(tree.queue, tree.id)
        if tree.state is None and ref in self.runs:
            return self._tree(ref, depth, width, {})
        return replace(tree, children=tuple(self._mended(each, depth - 1, width) for each in tree.children))

    def _tree(self, ref: JobRef, depth: int, width: int, there: Mapping[JobRef, Tree]) -> Tree:
        if ref in there:
            return there[ref]
        run, below = self.runs.get(ref), self.children.get(ref, ())
        endings = [self.runs[each].ending for each in below]
        done = endings.count(Ending.COMPLETED)
        children = [self._tree(each, depth - 1, width, there) for each in below[:width]] if depth > 0 else []
        return Tree(
            queue=ref.queue, id=ref.id, name=None if run is None else run.name, state=_state(run),
            ending=None if run is None else run.ending, family=Family(completed=done, failed=len(endings) - done),
            children=tuple(children),
        )  # fmt: skip


def _state(run: Run | None) -> State | None:
    if run is None:
        return None
    return State.COMPLETED if run.ending is Ending.COMPLETED else State.FAILED


@dataclass(slots=True)
class _Lists:
    """The run records of jobs of flows, by queue and ending, and when they were read."""

    read: dict[tuple[str, Ending], tuple[float, Sequence[Run]]] = field(default_factory=dict)

    async def renew(self, store: Store, queues: Sequence[str], first: str | None) -> None:
        """Read those that are old, as far as there is time; of the `first` queue in any case."""
        wanted = {(queue, ending) for queue in queues for ending in Ending}
        self.read = {key: found for key, found in self.read.items() if key in wanted}
        now = SYSTEM.monotonic()
        old = [key for key in wanted if key not in self.read or now - self.read[key][0] >= _FRESH]
        old.sort(key=lambda key: (key[0] != first, self.read[key][0] if key in self.read else -1.0, key))
        for key in old:
            if key[0] != first and SYSTEM.monotonic() - now > _SOON:
                break
            runs = (await store.runs(*key, limit=RUNS)).items
            self.read[key] = SYSTEM.monotonic(), tuple(run for run in runs if run.flow)


async def remembered(asking: Looking, first: str | None = None) -> Remembered:
    """What is known by now. The records of the `first` queue are sure to be."""

    async def new() -> _Lists:
        return _Lists()

    lists = await asking.recall("run records of flows", _FOREVER, new)
    queues = [each.queue for each in asking.around.overview.queues]
    await lists.renew(asking.app.store, queues, first if first in queues else None)
    runs: dict[JobRef, Run] = {}
    for (queue, _), (_, found) in list(lists.read.items()):
        for run in found:
            ref = JobRef(queue, run.id)
            if ref not in runs or runs[ref].finished_at < run.finished_at:
                runs[ref] = run
    children: dict[JobRef, list[JobRef]] = {}
    for ref, run in sorted(runs.items(), key=lambda item: (item[1].added_at, item[0])):
        if run.parent is not None:
            children.setdefault(run.parent, []).append(ref)
    known = {queue for queue, _ in lists.read}
    return Remembered(runs=runs, children=children, looked=len(known), of=len(queues))
