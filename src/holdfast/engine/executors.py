"""The work of a verb on the executors of a Spark session, item by item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from holdfast.engine.cluster import send_package
from holdfast.engine.session.session import session
from holdfast.errors import HoldfastError, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
F = TypeVar("F")
_QUIET: Final = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
# More tasks than slots, because items differ in size; executors may also register after the start.
_TASKS_PER_SLOT: Final = 4
_FEWEST_TASKS: Final = 16


class Executors(AbstractContextManager["Executors"]):
    """Executors of the active session, or of a new one that ends with the block.

    Args:
        name: The name of the application.
        master: The master of a new session; by default that of the user's settings.
    """

    def __init__(self, name: str, master: str | None) -> None:
        self._name = name
        self._master = master
        self._spark: SparkSession | None = None
        self._is_own = False

    def __enter__(self) -> Executors:
        from pyspark.sql import SparkSession

        # A builder would set Holdfast's defaults on a session of the user.
        running = SparkSession.getActiveSession()
        self._is_own = running is None
        self._spark = self._started() if running is None else running
        send_package(self._spark)
        return self

    def _started(self) -> SparkSession:
        try:
            return session(self._name, master=self._master, conf=_QUIET)
        except HoldfastError:
            raise
        except Exception as error:
            master = self._master or "the master of the settings"
            raise Unavailable(
                "a Spark session cannot be started",
                code="HF-E5080",
                where=f"--master {master}",
                found=_said(error),
                expected="a master of Spark that answers, such as spark://HOST:7077, yarn or local[4]",
                hint="check it with `holdfast doctor --master URL`, or run the command without --master",
            ) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_own and self._spark is not None:
            self._spark.stop()

    @property
    def slots(self) -> int:
        """The number of tasks that run at once, as far as executors have registered."""
        return int(self._context.defaultParallelism)

    @property
    def _context(self) -> Any:
        return None if self._spark is None else self._spark.sparkContext

    def run(
        self,
        work: Callable[[T], R],
        items: Iterable[T],
        tell: Callable[[int, int, str], None] | None,
        note: str,
    ) -> list[R]:
        """Apply a function to each item in tasks, and return the results in order.

        Args:
            work: The function, which executors import by its name; its arguments and results are pickled.
            items: The items.
            tell: Called with the number of finished items, the number of all items, and the note.
            note: The current step.

        Raises:
            HoldfastError: The error of the first item, in the order of the items, whose function raised one.
            Unavailable: The job failed, for example because an executor lacks a package.
        """
        given = list(items)
        if not given:
            return []
        if tell is not None:
            tell(0, len(given), note)
        outcomes = _collected(self._spread(given).mapPartitions(partial(_outcomes, work)))
        if tell is not None:
            tell(len(given), len(given), note)
        return _require_results(outcomes)

    def exchange(
        self,
        work: Callable[[T], tuple[R, Mapping[int, V]]],
        fold: Callable[[Iterable[V]], F],
        items: Iterable[T],
        groups: int,
        tell: Callable[[int, int, str], None] | None,
        note: str,
    ) -> tuple[list[R], list[F]]:
        """Apply a function to each item in tasks, and fold what the items have for each group in other tasks.

        Args:
            work: The function, as for `run`. It returns the result of the item, and a part for some groups.
            fold: A function of all parts of one group, in any order, which executors import as well.
            items: The items.
            groups: The number of groups, which are numbered from zero.
            tell: As for `run`.
            note: The current step.

        Returns:
            The results in the order of the items, and what `fold` returns for each group.

        Raises:
            As `run`.
        """
        given = list(items)
        if not given:
            return [], [fold(()) for _ in range(groups)]
        if tell is not None:
            tell(0, len(given), note)
        parts = self._spread(list(enumerate(given))).mapPartitions(partial(_parts, work, groups))
        folded = parts.partitionBy(groups + 1, _same).mapPartitionsWithIndex(partial(_folded, fold, groups))
        *found, outcomes = _collected(folded)
        if tell is not None:
            tell(len(given), len(given), note)
        return _require_results(outcomes), found

    def _spread(self, items: Sequence[Any]) -> Any:
        """Return an RDD of the items."""
        tasks = min(len(items), max(_FEWEST_TASKS, _TASKS_PER_SLOT * self.slots))
        return self._context.parallelize(items, tasks)


def _collected(rdd: Any) -> list[Any]:
    """Run the job."""
    try:
        return list(rdd.collect())
    except Exception as error:
        raise _failed(error) from error


def _require_results(outcomes: Iterable[Any]) -> list[Any]:
    """Return results, or raise the first error among them."""
    results = list(outcomes)
    for outcome in results:
        if isinstance(outcome, HoldfastError):
            raise outcome
    return results


def _parts(
    work: Callable[[T], tuple[R, Mapping[int, V]]], groups: int, items: Iterable[tuple[int, T]]
) -> Iterator[tuple[int, Any]]:
    """Yield the parts of each item by group, and its result or error in one more group."""
    for number, item in items:
        for outcome in _outcomes(work, [item]):
            if isinstance(outcome, HoldfastError):
                yield groups, (number, outcome)
            else:
                result, parts = outcome
                yield groups, (number, result)
                yield from parts.items()


def _folded(
    fold: Callable[[Iterable[V]], F], groups: int, group: int, parts: Iterable[tuple[int, Any]]
) -> Iterator[Any]:
    """Yield the fold of a group; of the last group the results in the order of the items."""
    values = (value for _, value in parts)
    if group < groups:
        yield fold(values)
    else:
        yield [outcome for _, outcome in sorted(values, key=_first)]


def _first(numbered: tuple[int, Any]) -> int:
    return numbered[0]


def _same(group: int) -> int:
    return group


def _outcomes(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R | HoldfastError]:
    """Yield the result of each item, or its error."""
    for item in items:
        try:
            yield work(item)
        except HoldfastError as error:  # noqa: PERF203 - one item's error does not end the task
            yield error


def _failed(error: Exception) -> HoldfastError:
    """Return the error of a job."""
    return Unavailable(
        "a Spark job on the executors failed",
        code="HF-E5077",
        found=_said(error),
        hint="make sure that the executors have the same packages as this machine and reach the storage; or"
        " run the command without --master",
    )


def _said(error: Exception) -> str:
    """Return the last line of the Python error in an error of Spark, or else the first line."""
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line for line in lines if "Error: " in line and not line.startswith(("at ", "py4j."))]
    return named[-1] if named else next((line for line in lines if line), type(error).__name__)
