"""Jobs to add together."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import TypeAlias, overload

from toril.model.options import NewJob

Run: TypeAlias = tuple[NewJob, Sequence[str]]


class NewJobs(Sequence[NewJob]):
    """Jobs to add, in order. Those behind one another that differ in their data alone are one run: a job like all of
    them, and the data of each. A thousand of a kind are checked and described once."""

    __slots__ = ("_size", "runs")

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self._size = sum(len(texts) for _, texts in runs)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[NewJob]:
        for job, texts in self.runs:
            for text in texts:
                yield job if text is job.data else replace(job, data=text)

    @overload
    def __getitem__(self, place: int) -> NewJob: ...

    @overload
    def __getitem__(self, place: slice) -> list[NewJob]: ...

    def __getitem__(self, place: int | slice) -> NewJob | list[NewJob]:
        return list(self)[place]

    def names(self) -> Iterator[str]:
        """What each of them is called."""
        return chain.from_iterable(repeat(job.name, len(texts)) for job, texts in self.runs)


def runs_of(jobs: Sequence[NewJob]) -> Sequence[Run]:
    """Jobs by their runs; where nobody has found any, each is one."""
    return jobs.runs if isinstance(jobs, NewJobs) else [(job, (job.data,)) for job in jobs]
