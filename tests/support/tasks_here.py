"""Tasks that run in this process, in place of executors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark import cloudpickle

from holdfast.changes import working_copy
from holdfast.errors import HoldfastError


class TasksHere:
    """Tasks that run last item first, each twice, as if its executor was lost before it told the result.

    What goes in and comes out is pickled as for Spark.

    Attributes:
        notes: The note of each job.
    """

    slots = 3

    def __init__(self) -> None:
        self.notes: list[str] = []

    def run(self, work: Callable[[Any], Any], items: Iterable[Any], tell: object, note: str) -> list[Any]:
        return self.exchange(_WithoutParts(work), list, items, 0, tell, note)[0]

    def exchange(
        self,
        work: Callable[[Any], tuple[Any, Mapping[int, Any]]],
        fold: Callable[[Iterable[Any]], Any],
        items: Iterable[Any],
        groups: int,
        tell: object,
        note: str,
    ) -> tuple[list[Any], list[Any]]:
        self.notes.append(note)
        errors: list[HoldfastError] = []
        results, parts = [], defaultdict(list)
        for item in reversed(list(items)):
            try:
                for _ in range(2):
                    there, given = _sent((work, item))
                    result, of_item = _sent(there(given))
            except HoldfastError as error:
                errors.append(error)
                continue
            results.append(result)
            for group, part in of_item.items():
                assert group in range(groups)
                parts[group].append(part)
        if errors:
            raise errors[-1]  # of the first item
        return results[::-1], [fold(parts[group]) for group in range(groups)]


def _sent(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call] # pyspark's copy has none


class _WithoutParts:
    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work

    def __call__(self, item: Any) -> tuple[Any, Mapping[int, Any]]:
        return self.work(item), {}


@contextmanager
def as_executors(monkeypatch: pytest.MonkeyPatch) -> Iterator[TasksHere]:
    """Let changes of state with `master=` run in such tasks."""
    tasks = TasksHere()

    @contextmanager
    def started(_name: str, _master: str) -> Iterator[TasksHere]:
        yield tasks

    with monkeypatch.context() as patched:
        patched.setattr(working_copy, "executors", started)
        yield tasks
