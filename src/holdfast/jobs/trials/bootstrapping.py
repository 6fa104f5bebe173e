"""`hf.bootstrap`: a savepoint from which a query starts warm."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.changes.bootstrap import Bootstrapped, WarmQuery, bootstrap_query, plan_bootstrap
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.config.checks import whole
from holdfast.errors import Invalid
from holdfast.jobs.definition import Job
from holdfast.jobs.loader import load_module
from holdfast.jobs.processes.user_query import built, loaded, session_for
from holdfast.savepoints.address import Address
from holdfast.savepoints.view import workplace
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.jobs.processes.user_query import Target

ALL_CORES: Final = "local[*]"
_LATEST_MS: Final = 1 << 52
# The function of a plan's file.
FUNCTION: Final = "warm"


def bootstrap(
    target: Target,
    to: Address,
    *,
    history: Any = None,
    start: Any = None,
    states: Mapping[str, Any] | None = None,
    watermark: datetime | int | None = None,
    query: str | None = None,
    label: str | None = None,
    overrides: Mapping[str, str] | None = None,
    master: str | None = None,
    home: str | Path | None = None,
    spark: SparkSession | None = None,
    tell: ProgressCallback | None = None,
) -> Bootstrapped:
    """Create a savepoint with the state that a query would have after a history, so that it starts warm.

    With a history, the query itself processes it, in one batch, in a temporary directory: its state is as if
    the history had been its first input. Any query can be used, with Spark's operators, Holdfast's, or custom
    processors. A keyed processor handles the events of a key in the order of event time, and fires before
    each event the timers that were due. The query's output for the history, such as closed windows, is not
    written. No row of the history is late.

    With states instead of a history, each state is filled from a table with the columns that `holdfast state
    list` shows, for example one computed by a different program. This works for Holdfast's keyed state, with
    timers and TTL, and for Spark's aggregates, deduplication, sessions and values of transformWithState;
    other operators need a history.

    Start the query with `holdfast run FILE.py -s SAVEPOINT`, or on a checkpoint that `hf.savepoints.restore`
    creates from the savepoint.

    The live source must not deliver the history again. Files of the history count as read, and Kafka starts
    after the last records of the history; if neither can be determined, `start` is required.

    Cost: the history is read and written once, and the query processes it in one batch. A Spark session is
    started if none runs.

    Args:
        target: The query: `FILE.py[:JOB]`, a job, a sink, or a `DataStreamWriter`.
        to: The savepoint catalog; created if needed.
        history: A batch DataFrame with the columns of the query's source. With several sources a dictionary,
            by the source's number in the query or its kind (`files`, `kafka`, …); missing ones have no
            history. For a job it may be a function that takes the session and returns it.
        start: The start of the live query, by source likewise: for files the paths that count as read; for
            Kafka and others the source's offset, as JSON or values. `first` uses the source's own options. By
            default after the history: the files that it was read from, or Kafka's last offsets in it.
        states: A batch DataFrame, Arrow table or pandas frame for each state, by the state's name, or by
            operator and state as `OPERATOR.STATE`.
        watermark: The initial watermark, with states: epoch milliseconds, or a time.
        query: The sink's name, for a job with several.
        label: The savepoint's label.
        overrides: Settings and parameters of the job, as in `holdfast run --set`.
        master: The Spark master, if a session has to be started.
        home: The state home.
        spark: The session to use; a sink or writer has its own.
        tell: Called with the number of finished steps, the number of all steps, and the current step.

    Raises:
        Invalid: History or start do not fit the query's sources, or the query has no state.
        Failed: The query failed on the history.
        NotFound: The file or job does not exist.
        Unsupported: A source cannot be replaced with a history.

    Example:
        orders = hf.sink(events.groupBy("drink").count(), mode="update").console()
        last_year = spark.createDataFrame([("tea", 700), ("latte", 950)], "drink string, count long")
        warm = hf.bootstrap(orders, "savepoints", states={"aggregate": last_year}, start="first")
        assert hf.state(warm.uri).get("aggregate", "tea").value == {"count": 700}
    """
    catalog = open_storage(os.fspath(to), "savepoint")
    if tell is not None:
        tell(0, 0, "starting Spark")
    with (
        warm_query(
            target,
            to,
            history=history,
            start=start,
            states=states,
            watermark=watermark,
            query=query,
            overrides=overrides,
            master=master,
            home=home,
            spark=spark,
        ) as warm,
        workplace(catalog, "bootstrap") as work,
    ):
        return bootstrap_query(warm, catalog, work, label=label, tell=tell)


@contextmanager
def warm_query(
    target: Target,
    to: Address,
    *,
    history: Any = None,
    start: Any = None,
    states: Mapping[str, Any] | None = None,
    watermark: datetime | int | None = None,
    query: str | None = None,
    overrides: Mapping[str, str] | None = None,
    master: str | None = None,
    home: str | Path | None = None,
    spark: SparkSession | None = None,
) -> Iterator[WarmQuery]:
    """Return the query that `bootstrap` would run, with its plan; nothing is run or written.

    Raises:
        As in `bootstrap`.
    """
    code = loaded(target, overrides)
    job = code if isinstance(code, Job) else None
    conf = {} if job is None else job.spark_conf()
    where = master or (None if job is None else job.master) or ALL_CORES
    with session_for(code, conf, where, home, spark, "bootstrap") as running:
        made = built(code, running, query)
        given = _Given(history, start, states, watermark)
        if callable(history):
            given = given.call_history(running)
        yield plan_bootstrap(
            made.frame,
            made.mode,
            made.name or (job.name if job is not None else "query"),
            open_storage(os.fspath(to), "savepoint"),
            given.history,
            given.start,
            given.states,
            given.watermark_ms(),
        )


def plan_of(path: Path) -> Callable[[SparkSession], Any]:
    """The function `warm(spark)` of a plan's file, which returns the history, or a dictionary of `history`,
    `start`, `states` and `watermark`.

    Raises:
        NotFound: The file does not exist.
        Invalid: The file cannot be loaded, or lacks the function.
    """
    function: Callable[[SparkSession], Any] | None = getattr(load_module(path), FUNCTION, None)
    if not callable(function):
        raise Invalid(
            f"the file does not define `{FUNCTION}`, the function that returns the history",
            code="HF-E2239",
            where=str(path),
            expected=f"def {FUNCTION}(spark): return spark.read…",
            hint="return the history as a DataFrame, or a dictionary of `history`, `start`, `states` and"
            " `watermark`",
        )
    return function


@dataclass(frozen=True, slots=True)
class _Given:
    """The history or the tables for a query's initial state."""

    history: Any = None
    start: Any = None
    states: Mapping[str, Any] | None = None
    watermark: datetime | int | None = None

    def call_history(self, spark: SparkSession) -> _Given:
        """Call the user's function for the history."""
        given = self.history(spark)
        names = {item.name for item in fields(self)}
        if isinstance(given, Mapping) and given and set(given) <= names:
            return replace(self, **{"history": None, **given})
        return replace(self, history=given)

    def watermark_ms(self) -> int | None:
        if isinstance(self.watermark, datetime):
            return round(self.watermark.timestamp() * 1000)
        return (
            None if self.watermark is None else whole(self.watermark, "watermark", least=0, most=_LATEST_MS)
        )
