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
from holdfast.savepoints.access import Address
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
    """Make a savepoint of what a query would know after a history, so that it starts warm.

    With a history, the query itself is run over it, in one batch, in a directory that is gone afterwards:
    it knows what it would know if that had been the first that it read. Any query can be, with Spark's
    operators, Holdfast's, or your own processors. Its sink is left out: what the query would have put out
    over the history is not written, such as windows that it has closed. No row of the history is late.

    With states in place of a history, each is given the rows of a table, in the columns that `holdfast state
    list` shows: for what other programs have computed. Holdfast's keyed state can be given, with timers and
    times to live, and of Spark's operators aggregates, deduplication, sessions, and values of
    transformWithState; what others keep beside their rows only the query itself can make.

    Start it with `holdfast run FILE.py -s SAVEPOINT`, or `savepoints.restore` it.

    Classic mistake: a history that the live source will bring again. Files that the history was read of count
    as read, and Kafka begins behind its last rows; where neither can be told, `start` has to.

    Cost: the history is read and written once, and the query runs over it as one batch. With a session that
    Spark starts, if none runs.

    Args:
        target: The query: `FILE.py[:JOB]`, a job, a sink, or a `DataStreamWriter`.
        to: The catalog of savepoints; made if need be.
        history: A batch DataFrame with the columns of the query's source. With several sources a dictionary,
            by the source's number in the query or its kind (`files`, `kafka`, …); those left out have none.
            For a job it may be a function that is given the session and returns that.
        start: Where the live query begins, by source likewise: for files the paths that count as read; for
            Kafka and others the source's offset, as JSON or values. `first` is where the source's own options
            say. By default behind the history: the files that it was read of, or Kafka's last offsets in it.
        states: For each state a batch DataFrame, an Arrow table or a pandas frame, by the state's name, or by
            its operator's and its own with a dot between.
        watermark: The watermark that the query begins under, with states: epoch milliseconds, or a time.
        query: Which sink, where the job has several.
        label: A name for people.
        overrides: Settings and parameters of the job, as in `holdfast run --set`.
        master: Where Spark runs, if a session has to be started.
        home: The state home.
        spark: The session to use; a sink or writer has its own.
        tell: Called with what is done, what there is in all, and what is being done.

    Raises:
        Invalid: History or start do not fit the query's sources, or it keeps no state.
        Failed: The query failed over the history.
        NotFound: The file or job does not exist.
        Unsupported: A source cannot be put aside.
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
    """Return the query that `bootstrap` would run, with its plan; nothing runs or is written yet.

    Raises:
        As `bootstrap`.
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
        Invalid: It cannot be loaded, or has no such function.
    """
    function: Callable[[SparkSession], Any] | None = getattr(load_module(path), FUNCTION, None)
    if not callable(function):
        raise Invalid(
            "the file does not say what the query is to have read",
            code="HF-E2239",
            where=str(path),
            expected=f"def {FUNCTION}(spark): return spark.read…",
            hint="it returns the history, or a dictionary of `history`, `start`, `states` and `watermark`",
        )
    return function


@dataclass(frozen=True, slots=True)
class _Given:
    """The history or the tables that a query is to start with."""

    history: Any = None
    start: Any = None
    states: Mapping[str, Any] | None = None
    watermark: datetime | int | None = None

    def call_history(self, spark: SparkSession) -> _Given:
        """Call the function that gives the history, or a dictionary of any of these."""
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
