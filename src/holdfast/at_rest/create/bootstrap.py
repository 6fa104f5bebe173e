"""Start a query warm: a savepoint of what it would know if it had read a history, or of what it is to know.

The query itself is run over the history, in a directory that nobody sees, with its sink left out. So what
it keeps is what it would keep; nothing here knows how an operator does that. Then its sources are set to
where it is to begin, and a savepoint is taken of it.

Where a table for each state is given in place of a history, the query runs over nothing, which makes its
operators and their schemas, and the tables are put into the stores that it has made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.create.source_positions import (
    Beginning,
    after_kafka,
    begin_at,
    begin_under,
    files_read,
    offset_of,
)
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.state.contents import StateContent, contents
from holdfast.clock import now_ms
from holdfast.engine.plans.plan_sources import FILES, SourceRead
from holdfast.errors import Failed, Invalid
from holdfast.json_shapes import JsonShape, in_json, in_json_as, json_as, json_spread
from holdfast.savepoints.taking.planning import plan_take
from holdfast.savepoints.taking.taking import take
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from holdfast.checkpoints.values import ProgressCallback

KAFKA: Final = "kafka"
# For a source: begin where its own options say, as if nothing had been read.
AT_FIRST: Final = "first"


@dataclass(frozen=True, slots=True)
class SourceBeginning(JsonShape):
    """A source of the query.

    Attributes:
        kind: `files`, or the name of the source.
        history: Whether it has a history.
        beginning: Where it begins.
    """

    kind: str
    history: bool
    beginning: Beginning = field(metadata=json_spread())


@dataclass(frozen=True, slots=True)
class BootstrapPlan(JsonShape):
    """What a bootstrap would do.

    Attributes:
        catalog: Where the savepoint is to be.
        name: The query's name.
        sources: Its sources, in the order of its offset log.
        states: The states that are given, by the name that was given; none where there is a history.
        watermark_ms: The watermark that it is to begin under, where it was given.
    """

    catalog: str
    name: str = field(metadata=json_as("query"))
    sources: tuple[SourceBeginning, ...]
    states: tuple[str, ...] = field(default=(), metadata=json_as("given_states"))
    watermark_ms: int | None = field(default=None, metadata=json_as("given_watermark_ms"))

    @property
    @in_json
    def operation(self) -> str:
        """`bootstrap`."""
        return "bootstrap"


@dataclass(frozen=True, slots=True)
class Bootstrapped(JsonShape):
    """A savepoint that a query can be started from.

    Attributes:
        plan: What was done.
        savepoint_id: The savepoint.
        query_id: The query's id, a new one.
        batch_id: The newest batch in it.
        input_rows: The rows of history that the query has read.
        watermark_ms: The watermark that it begins under; None without one.
        states: What it knows.
        size_bytes: The bytes of the savepoint.
    """

    plan: BootstrapPlan = field(metadata=json_spread())
    savepoint_id: str = field(metadata=json_as(formerly="id"))
    query_id: str
    batch_id: int = field(metadata=json_as(formerly="batch"))
    input_rows: int
    watermark_ms: int | None
    states: tuple[StateContent, ...]
    size_bytes: int = field(metadata=json_as(formerly="bytes"))

    @property
    @in_json_as("savepoint")
    def uri(self) -> str:
        """The savepoint's address."""
        return f"{self.plan.catalog.rstrip('/')}/savepoints/{self.savepoint_id}"

    @property
    @in_json
    def rows(self) -> int:
        """The rows of all states."""
        return sum(state.rows for state in self.states)


@dataclass(frozen=True, slots=True)
class WarmQuery:
    """A query that is to be started warm, with what it is to have read.

    Attributes:
        frame: Its frame.
        mode: Its output mode.
        name: Its name; the savepoint's checkpoint is called so.
        histories: For each of its sources a batch frame with the columns of that source, or None.
        states: Tables, by the names of states.
        plan: Where each source begins.
    """

    frame: DataFrame
    mode: str
    name: str
    histories: tuple[DataFrame | None, ...]
    states: Mapping[str, Any]
    plan: BootstrapPlan


def plan_bootstrap(
    frame: DataFrame,
    mode: str,
    name: str,
    catalog: Storage,
    history: Any,
    start: Any,
    states: Mapping[str, Any] | None = None,
    watermark_ms: int | None = None,
) -> WarmQuery:
    """Look at a query, its history, and where it is to begin; nothing is read but lists of files.

    Args:
        frame: The query's frame.
        mode: Its output mode.
        name: Its name.
        catalog: Where the savepoint is to be.
        history: See `holdfast.bootstrap`.
        start: See `holdfast.bootstrap`.
        states: See `holdfast.bootstrap`.
        watermark_ms: The watermark that the query is to begin under, where states are given.

    Raises:
        Invalid: They do not fit the query's sources, or where a source begins is not known.
    """
    from holdfast.engine.plans.histories import like_source, sources_once

    sources = sources_once(frame)
    given = _by_source(history, sources, "history")
    starts = _by_source(start, sources, "start")
    told = any(past is not None for past in given)
    if told is bool(states):
        raise Invalid(
            "there are both a history and states" if told else "there is no history",
            where="history=…, states=…",
            expected="a batch DataFrame with the columns of a source, or a table for each state",
            hint="give one of the two",
        )
    if watermark_ms is not None and told:
        raise Invalid("a history has its own watermark", where="watermark=…", hint="leave it out")
    histories = tuple(
        None if past is None else like_source(past, schema, _called(number, read_))
        for number, (past, (read_, schema)) in enumerate(zip(given, sources, strict=True))
    )
    beginnings = tuple(
        SourceBeginning(read_.kind, past is not None, _beginning(frame, number, read_, past, wanted))
        for number, ((read_, _), past, wanted) in enumerate(zip(sources, given, starts, strict=True))
    )
    plan = BootstrapPlan(catalog.uri, name, beginnings, tuple(states or ()), watermark_ms)
    return WarmQuery(frame, mode, name, histories, dict(states or {}), plan)


def bootstrap_query(
    query: WarmQuery,
    catalog: Storage,
    folder: Path,
    *,
    label: str | None = None,
    tell: ProgressCallback | None = None,
) -> Bootstrapped:
    """Make the savepoint that was planned.

    Args:
        query: What `plan_bootstrap` gave.
        catalog: The catalog.
        folder: A local directory to work in, which is the caller's to remove.
        label: A name for people.
        tell: Called with what is done, what there is in all, and what is being done.

    Raises:
        Failed: The query failed over the history.
        Invalid: The query has no state.
    """
    place = folder / query.name
    if tell is not None:
        tell(0, 0, "running the job over its history")
    rows = _run(query, folder / "history", place)
    checkpoint = LocalStorage(place)
    if not read(checkpoint).operators:
        raise Invalid(
            "the query keeps no state, so there is nothing to be warm with",
            where=query.name,
            hint="start it as it is; where its sources begin is for their own options",
        )
    if query.plan.watermark_ms is not None:
        begin_under(checkpoint, query.plan.watermark_ms)
    if query.states:
        from holdfast.at_rest.create.states_from_tables import put_states

        tables = {name: _table(given, name) for name, given in query.states.items()}
        put_states(checkpoint, tables, folder / "states")
    begin_at(checkpoint, [source.beginning for source in query.plan.sources])
    found = contents(checkpoint, tell=tell)
    planned = plan_take(checkpoint, catalog)
    manifest = take(checkpoint, catalog, planned, label=label, deep=True, tell=tell).manifest
    return Bootstrapped(
        plan=query.plan,
        savepoint_id=manifest.savepoint_id,
        query_id=manifest.query_id,
        batch_id=manifest.batch_id,
        input_rows=rows,
        watermark_ms=read(checkpoint).watermark_ms,
        states=found,
        size_bytes=manifest.size_bytes,
    )


def _run(query: WarmQuery, histories: Path, place: Path) -> int:
    """Run the query over its history, and once more without input, so that what has ended by then is gone."""
    from holdfast.engine.queries.dry_run import with_files
    from holdfast.stream.trials import QueryFailed, Trial

    folders = _written(query, histories)
    trial = Trial(with_files(query.frame, folders), query.mode, place.as_uri(), None)
    try:
        rows = trial.run_once().input_rows
        if (read(LocalStorage(place)).watermark_ms or 0) > 0:
            # What closes a window feeds the operator behind it, which closes its own a batch later.
            for _ in read(LocalStorage(place)).operators:
                trial.run_empty(now_ms())
    except QueryFailed as error:
        lines = [line for line in error.text.splitlines() if line.strip()]
        raise Failed(
            "the query failed over its history",
            where=query.name,
            found=next((line for line in reversed(lines) if line.startswith("Caused by: ")), lines[0])[:300],
            hint="run it over a few rows of the history by hand to see where",
        ) from error
    return rows


def _written(query: WarmQuery, folder: Path) -> list[str]:
    from holdfast.engine.plans.histories import sources_once

    spark = query.frame.sparkSession
    folders = []
    sources = sources_once(query.frame)
    for number, (past, (_, schema)) in enumerate(zip(query.histories, sources, strict=True)):
        place = (folder / str(number)).as_uri()
        # Without a file there would be no batch; one without rows will do.
        frame = spark.createDataFrame([], schema).coalesce(1) if past is None else past
        frame.write.parquet(place)
        folders.append(place)
    return folders


def _table(given: Any, name: str) -> pa.Table:
    """A table, out of what people have: Arrow's, or a frame of Spark's or of pandas'."""
    import pyarrow as pa

    if isinstance(given, pa.Table):
        return given
    if hasattr(given, "toArrow") and not getattr(given, "isStreaming", False):
        return given.toArrow()
    if hasattr(given, "iloc"):
        return pa.Table.from_pandas(given, preserve_index=False)
    raise Invalid(
        "this is no table",
        where=f"states={{{name!r}: …}}",
        found=type(given).__name__,
        expected="a batch DataFrame of Spark's, an Arrow table, or a pandas frame",
        hint="read it with `spark.read`, `pyarrow` or pandas first",
    )


def _by_source(given: Any, sources: Sequence[tuple[SourceRead, StructType]], what: str) -> list[Any]:
    """What is given for each source: alone for the only one, or by its number or kind."""
    where = f"{what}=…"
    if given is None:
        return [None] * len(sources)
    if not isinstance(given, Mapping) or (what == "start" and not _names_sources(given, sources)):
        if len(sources) != 1:
            raise Invalid(
                "the query has several sources, and it is not said which is meant",
                where=where,
                expected=f"a dictionary by {_choices(sources)}",
                hint=f"write {what}={{0: …, 1: …}}",
            )
        return [given]
    found: list[Any] = [None] * len(sources)
    for name, value in given.items():
        found[_index(name, sources, where)] = value
    return found


def _names_sources(given: Mapping[Any, Any], sources: Sequence[tuple[SourceRead, StructType]]) -> bool:
    kinds = {source.kind for source, _ in sources}
    return bool(given) and all(isinstance(name, int) or name in kinds for name in given)


def _index(name: Any, sources: Sequence[tuple[SourceRead, StructType]], where: str) -> int:
    kinds = [source.kind for source, _ in sources]
    if isinstance(name, int) and 0 <= name < len(sources):
        return name
    if kinds.count(name) == 1:
        return kinds.index(name)
    raise Invalid(
        "the query has no such source",
        where=where,
        found=str(name),
        expected=_choices(sources),
        hint="name a source by its number in the query; `--dry-run` lists them",
    )


def _choices(sources: Sequence[tuple[SourceRead, StructType]]) -> str:
    return ", ".join(f"{number} ({source.kind})" for number, (source, _) in enumerate(sources))


def _called(number: int, read_: SourceRead) -> str:
    return f"source {number}, {read_.kind}"


def _beginning(
    frame: DataFrame, number: int, read_: SourceRead, past: DataFrame | None, wanted: Any
) -> Beginning:
    """Where a source begins: where it is told to, or behind its history."""
    from holdfast.engine.plans.histories import changed_ms, last_of_kafka

    if wanted == AT_FIRST:
        return files_read(()) if read_.kind == FILES else Beginning()
    if read_.kind == FILES:
        if wanted is None and past is None:
            return files_read(())
        paths = _paths(number, read_, past) if wanted is None else [os.fspath(path) for path in wanted]
        return files_read(changed_ms(frame, paths))
    if wanted is not None:
        return offset_of(wanted)
    last = last_of_kafka(past) if past is not None and read_.kind == KAFKA else None
    if last:
        return after_kafka(last)
    raise Invalid(
        "it is not known where this source begins",
        where=_called(number, read_),
        expected=f"its offset in `start`, or {AT_FIRST!r} for where its own options say",
        hint=f"give start={{{number}: …}}",
    )


def _paths(number: int, read_: SourceRead, past: DataFrame | None) -> list[str]:
    paths = [] if past is None else list(past.inputFiles())
    if not paths:
        raise Invalid(
            "it is not known which files count as read: the history is not of files",
            where=_called(number, read_),
            expected=f"their paths in `start`, or {AT_FIRST!r} if none does",
            hint=f'give start={{{number}: ["PATH", …]}}',
        )
    return paths
