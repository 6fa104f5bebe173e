"""Creation of a savepoint with initial state, from a history or from tables.

A file source has a list of the files that it has read; every other source has its offset in the offset log.
Both are written into the checkpoint as if the query had read the data up to there.

The query itself runs over the history, in a hidden directory and without its sink, so that its operators
build their own state. Then its sources are set to their starting points, and a savepoint of it is taken.

If a table for each state is given instead of a history, the query runs over empty input, which creates its
operators and their schemas, and the tables are written into the created stores.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast import layout
from holdfast.at_rest.model import NamedOperator, NamedState, StateForm
from holdfast.at_rest.state_reader import named_operators, pick
from holdfast.at_rest.tables import PARTITION, column_names, schema_of
from holdfast.changes.working_copy import no_batch
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.state.contents import StateContent, contents
from holdfast.checkpoints.state.key_partition import KeyPartitions
from holdfast.checkpoints.state.states import StateCodec
from holdfast.clock import now_ms
from holdfast.engine.described import FILES, SourceRead
from holdfast.errors import Failed, Invalid, Unsupported
from holdfast.formats.logs.batch_logs import OffsetLog
from holdfast.formats.logs.table_logs import SourceLog
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.json_shapes import JsonShape, in_json, in_json_as, json_as, json_spread
from holdfast.layout import HadoopChecksumFile, Log, LogFile, SourceLogFile, StoreId
from holdfast.savepoints.planning import plan_take
from holdfast.savepoints.store_edits import RowChange
from holdfast.savepoints.taking import take
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage, full

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from holdfast.checkpoints.checkpoint import ProgressCallback


def _parsed(offset: str | None) -> Any:
    return None if offset is None else json.loads(offset)


def _count(files: tuple[tuple[str, int], ...] | None) -> int | None:
    return None if files is None else len(files)


@dataclass(frozen=True, slots=True)
class Beginning(JsonShape):
    """The starting point of one source.

    Attributes:
        offset: The offset in the source's own JSON; None to start as the options of the query specify.
        seen: For a file source, the files that count as read, each with its modification time.
    """

    offset: str | None = field(default=None, metadata=json_as(convert=_parsed))
    seen: tuple[tuple[str, int], ...] | None = field(
        default=None,
        metadata=json_as("files_read", _count, "The number of files that a file source counts as read."),
    )


def files_read(seen: Iterable[tuple[str, int]]) -> Beginning:
    """Return a file source's starting point after these files."""
    return Beginning(seen=tuple(sorted(set(seen))))


def offset_of(given: Any) -> Beginning:
    """Return a starting point at an offset, given as JSON or as values that can be written as JSON.

    Raises:
        Invalid: The offset is not JSON and cannot be written as JSON.
    """
    if isinstance(given, str):
        try:
            json.loads(given)
        except ValueError as error:
            raise _no_offset(given) from error
        return Beginning(given)
    try:
        return Beginning(json.dumps(given, separators=(",", ":")))
    except TypeError as error:
        raise _no_offset(repr(given)[:200]) from error


def _no_offset(given: str) -> Invalid:
    return Invalid(
        "the starting offset of a source is not valid JSON",
        code="HF-E2031",
        found=given,
        expected='an offset, such as {"orders":{"0":1234}} for Kafka',
        hint="copy the format from an existing checkpoint, as shown by `holdfast checkpoint show CHECKPOINT`",
    )


def after_kafka(last: Iterable[tuple[str, int, int]]) -> Beginning:
    """Return a starting point of Kafka after the last record that was read from each partition.

    Args:
        last: The topic, the partition, and the largest offset read, for each partition.
    """
    topics: dict[str, dict[str, int]] = {}
    for topic, partition, offset in sorted(last):
        topics.setdefault(topic, {})[str(partition)] = offset + 1
    return offset_of(topics)


def begin_at(checkpoint: Storage, beginnings: Sequence[Beginning]) -> None:
    """Set the starting points of a checkpoint's sources.

    Args:
        checkpoint: The checkpoint to modify; no query may use it.
        beginnings: The starting point of each source, in the order of the offset log.

    Raises:
        NotFound: No batch is committed.
        Invalid: The number of sources differs.
    """
    logs = Logs(checkpoint)
    newest = logs.newest
    if newest is None:
        raise no_batch(checkpoint)
    for batch_id in (newest, newest - 1):
        offsets = logs.offsets(batch_id) if batch_id >= 0 else None
        if offsets is not None:
            _write(checkpoint, LogFile(Log.OFFSETS, batch_id).render(), _moved(offsets, beginnings).render())
    for source in checkpoint.list(layout.SOURCES).names:
        for name in checkpoint.list(f"{layout.SOURCES}/{source}").names:
            checkpoint.delete(f"{layout.SOURCES}/{source}/{name}")
    for number, beginning in enumerate(beginnings):
        if beginning.seen:
            lines = tuple(_source_log_line(path, changed) for path, changed in beginning.seen)
            checkpoint.write(SourceLogFile(str(number), 0).render(), SourceLog(1, lines).render())


def begin_under(checkpoint: Storage, watermark_ms: int) -> None:
    """Set the watermark of a checkpoint's next batch.

    Args:
        checkpoint: The checkpoint to modify; no query may use it.
        watermark_ms: The watermark in epoch milliseconds.

    Raises:
        NotFound: No batch is committed.
    """
    logs = Logs(checkpoint)
    newest = logs.newest
    offsets = None if newest is None else logs.offsets(newest)
    commit = None if newest is None else logs.commit(newest)
    if newest is None or offsets is None or commit is None:
        raise no_batch(checkpoint)
    fields = {**(offsets.fields or {}), "batchWatermarkMs": watermark_ms}
    planned = OffsetLog(offsets.version, fields, offsets.offsets)
    _write(checkpoint, LogFile(Log.OFFSETS, newest).render(), planned.render())
    noted = replace(commit, fields={**commit.fields, "nextBatchWatermarkMs": watermark_ms})
    _write(checkpoint, LogFile(Log.COMMITS, newest).render(), noted.render())


def _moved(offsets: OffsetLog, beginnings: Sequence[Beginning]) -> OffsetLog:
    if len(offsets.offsets) != len(beginnings):
        raise Invalid(
            "the number of starting offsets differs from the number of sources",
            code="HF-E2032",
            found=str(len(beginnings)),
            expected=f"{len(offsets.offsets)}, one for each source",
            hint="give a starting offset for each source",
        )
    moved: Mapping[str, str | None] = {
        name: _offset(beginning) for name, beginning in zip(offsets.offsets, beginnings, strict=True)
    }
    return OffsetLog(offsets.version, offsets.fields, moved)


def _offset(beginning: Beginning) -> str | None:
    if beginning.seen is None:
        return beginning.offset
    # The list is the first entry of the source's log. Without it, the source starts from the beginning.
    return json.dumps({"logOffset": 0}, separators=(",", ":")) if beginning.seen else None


def _source_log_line(path: str, changed_ms: int) -> str:
    return json.dumps({"path": path, "timestamp": changed_ms, "batchId": 0}, separators=(",", ":"))


def _write(checkpoint: Storage, path: str, data: bytes) -> None:
    checkpoint.delete(HadoopChecksumFile(path).render())
    checkpoint.write(path, data, replace=True)


TIMERS: Final = "timers"
# What holds rows of one key that have to agree with others, or times that only the query knows.
_WHOLE: Final = (StateForm.VALUE, StateForm.SESSIONS)


def put_states(checkpoint: Storage, tables: Mapping[str, pa.Table], folder: Path) -> None:
    """Fill states with the rows of tables, in separate batches.

    Cost: about 20 microseconds per row for Spark's operators, and one microsecond for keyed state; all rows
    are held in memory.

    Args:
        checkpoint: The checkpoint to modify; no query may use it, and its operators must be empty.
        tables: The table of each state, by `STATE` or `OPERATOR.STATE` as listed by `holdfast state list`,
            with the columns that `hf.state(…).scan` returns.
        folder: A working directory that does not exist yet.

    Raises:
        NotFound: The state does not exist; the message lists the existing ones.
        Invalid: A table has the wrong columns or types, or a duplicate key.
        Unsupported: The state cannot be filled from a table.
    """
    folder.mkdir()
    # A table is for one state, never for the combined state of a keyed operator.
    operators = [
        replace(
            operator, states=tuple(state for state in operator.states if state.form is not StateForm.KEYED)
        )
        for operator in named_operators(checkpoint)
    ]
    own: dict[int, dict[str, pa.Table]] = {}
    rows: dict[StoreId, list[RowChange]] = {}
    for name, table in tables.items():
        operator, state = pick(operators, name)
        if operator.keyed is not None:
            own.setdefault(operator.operator_id, {})[state.name] = table
            continue
        codec = _writable(operator, state)
        for store, row in _rows(checkpoint, operator, state, codec, fitted(state, table)):
            rows.setdefault(store, []).append(row)
    if own:
        _put_keyed(checkpoint, operators, own, folder / "keyed")
    if rows:
        from holdfast.changes.keyed.group_writer import write_rows

        write_rows(checkpoint, rows, folder / "rows")


def fitted(state: NamedState, table: pa.Table) -> pa.Table:
    """Return a table with the columns and types of a state.

    Raises:
        Invalid: A column is missing or unknown, or a value does not match its type.
    """
    import pyarrow as pa

    schema = schema_of(state)
    schema = schema.remove(schema.get_field_index(PARTITION))
    # Spark's placeholder in a column without content is not required.
    wanted = [column for column in schema if not pa.types.is_null(column.type)]
    has, expected = set(table.column_names), {column.name for column in wanted}
    if has != expected:
        raise Invalid(
            "the columns of the table differ from the columns of the state",
            code="HF-E2033",
            where=f"state {state.full_name}",
            found=", ".join(table.column_names) or "no columns",
            expected=", ".join(f"{column.name} {column.type}" for column in wanted),
            hint="add, drop and rename columns of the table until it has exactly these columns",
        )
    try:
        return table.select([column.name for column in wanted]).cast(pa.schema(wanted))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        column = next(
            (column for column in wanted if not _can_cast(table.column(column.name), column.type)), None
        )
        name = "" if column is None else f", column {column.name}"
        raise Invalid(
            "a value in the table does not fit the type of the column",
            code="HF-E2034",
            where=f"state {state.full_name}{name}",
            found=str(error).splitlines()[0],
            expected=f"values of type {column.type}" if column is not None else None,
            hint="cast the column of the table, or drop the rows with such values",
        ) from error


def _can_cast(column: pa.ChunkedArray, type_: pa.DataType) -> bool:
    import pyarrow as pa

    try:
        column.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _writable(operator: NamedOperator, state: NamedState) -> StateCodec:
    """Return the codec for writing the rows of a Spark state that has no companion data."""
    codec = state.codec
    if codec is None or state.form not in _WHOLE or state.ttl or codec.values.avro:
        raise Unsupported(
            "the state cannot be filled from a table, because Spark stores more than the rows of this state",
            code="HF-E7005",
            where=f"state {state.full_name}",
            found=f"{operator.named.operator_kind}, {state.form.value}"
            + (", with a TTL" if state.ttl else ""),
            expected="an aggregate, a deduplication, sessions, or a value of transformWithState",
            hint="give history= instead of states=: the query builds its state from the history",
        )
    return codec


def _rows(
    checkpoint: Storage, operator: NamedOperator, state: NamedState, codec: StateCodec, table: pa.Table
) -> Iterator[tuple[StoreId, RowChange]]:
    names = column_names(state)
    keys, values = codec.key_type, codec.value_type
    fields = len(keys.names)
    key_codec, value_codec = RowCodec(keys), RowCodec(values)
    key_rows, value_rows = [], []
    for row in table.to_pylist():
        told = [row.get(name) for name in names]
        key_rows.append(key_codec.encode(dict(zip(keys.names, told[:fields], strict=True))))
        value_rows.append(
            value_codec.encode(
                dict(zip(values.names, told[fields : fields + len(values.names)], strict=True))
            )
        )
    _check_once(state, table, key_rows)
    found = next(other for other in read(checkpoint).operators if other.operator_id == operator.operator_id)
    place = KeyPartitions(found, codec, full(checkpoint.uri, f"state/{operator.operator_id}"))
    hashes = place.hashes([codec.stored_key(row) for row in key_rows])
    for key, value, number in zip(key_rows, value_rows, hashes, strict=True):
        store = StoreId(operator.operator_id, number % found.partitions, codec.name.store)
        yield store, RowChange(codec, key, (value,))


def _check_once(state: NamedState, table: pa.Table, keys: Sequence[bytes]) -> None:
    if len(set(keys)) == len(keys):
        return
    again, _ = Counter(keys).most_common(1)[0]
    row = table.slice(keys.index(again), 1).to_pylist()[0]
    raise Invalid(
        "the table has a duplicate key",
        code="HF-E2035",
        where=f"state {state.full_name}",
        found=", ".join(f"{name}={row.get(name)!r}" for name in state.key.names),
        hint="group the table by its key columns",
    )


def _put_keyed(
    checkpoint: Storage,
    operators: Sequence[NamedOperator],
    tables: Mapping[int, Mapping[str, pa.Table]],
    folder: Path,
) -> None:
    from holdfast.changes.keyed.group_builder import build_groups
    from holdfast.changes.keyed.group_writer import replacing, write_groups

    changes = {}
    for operator in operators:
        given = dict(tables.get(operator.operator_id, {}))
        if operator.keyed is None or not given:
            continue
        keyed = operator.keyed
        if keyed.operator.placed:
            raise Unsupported(
                "the operator uses placement=, so key groups cannot be computed outside the job",
                code="HF-E7006",
                where=f"operator {operator.name}",
                hint="give history= instead of states=: the query builds its state from the history",
            )
        timers = given.pop(TIMERS, None)
        groups = build_groups(keyed.operator, given, timers)
        changes[operator.operator_id] = replacing(keyed.source.groups(), groups)
    write_groups(checkpoint, changes, folder)


KAFKA: Final = "kafka"
# The marker for a source that starts as its own options specify, as if nothing had been read.
AT_FIRST: Final = "first"


@dataclass(frozen=True, slots=True)
class SourceBeginning(JsonShape):
    """A source of the query.

    Attributes:
        kind: `files`, or the name of the source.
        history: Whether the source has a history.
        beginning: The starting point of the source.
    """

    kind: str
    history: bool
    beginning: Beginning = field(metadata=json_spread())


@dataclass(frozen=True, slots=True)
class BootstrapPlan(JsonShape):
    """The plan of a bootstrap.

    Attributes:
        catalog: The catalog for the savepoint.
        name: The name of the query.
        sources: The sources of the query, in the order of its offset log.
        states: The names of the given states, as given; empty if there is a history.
        watermark_ms: The given initial watermark; None if not given.
    """

    catalog: str
    name: str = field(metadata=json_as("query"))
    sources: tuple[SourceBeginning, ...]
    states: tuple[str, ...] = field(default=(), metadata=json_as("given_states"))
    watermark_ms: int | None = field(default=None, metadata=json_as("given_watermark_ms"))

    @property
    @in_json
    def operation(self) -> str:
        """The operation: `bootstrap`."""
        return "bootstrap"


@dataclass(frozen=True, slots=True)
class Bootstrapped(JsonShape):
    """A savepoint with initial state, from which a query can be started.

    Attributes:
        plan: The executed plan.
        savepoint_id: The id of the savepoint.
        query_id: The new id of the query.
        batch_id: The newest batch in the savepoint.
        input_rows: The number of rows of history that the query read.
        watermark_ms: The initial watermark; None without one.
        states: The content of each state.
        size_bytes: The size of the savepoint in bytes.

    Example:
        orders = hf.sink(events.groupBy("drink").count(), mode="update").console()
        row = ("ann", "tea", 2.6, "2025-12-31 09:00:00")
        history = spark.createDataFrame([row], "customer string, drink string, amount double, ts string")
        history = history.withColumn("ts", history.ts.cast("timestamp"))
        warm = hf.bootstrap(orders, "savepoints", history=history, start="first")
        assert (warm.input_rows, warm.rows) == (1, 1)
        hf.savepoints.restore(warm.uri, "checkpoints/warm")
    """

    plan: BootstrapPlan = field(metadata=json_spread())
    savepoint_id: str
    query_id: str
    batch_id: int
    input_rows: int
    watermark_ms: int | None
    states: tuple[StateContent, ...]
    size_bytes: int

    @property
    @in_json_as("savepoint")
    def uri(self) -> str:
        """The address of the savepoint."""
        return f"{self.plan.catalog.rstrip('/')}/savepoints/{self.savepoint_id}"

    @property
    @in_json
    def rows(self) -> int:
        """The number of rows of all states."""
        return sum(state.rows for state in self.states)


@dataclass(frozen=True, slots=True)
class WarmQuery:
    """A query to start with initial state.

    Attributes:
        frame: The frame of the query.
        mode: The output mode.
        name: The name of the query, which is also that of the savepoint's checkpoint.
        histories: The history of each source, as a batch frame with the columns of the source, or None.
        states: The tables of states, by name.
        plan: The starting point of each source.
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
    """Plan a bootstrap from a query, its history and its starting points; reads only lists of files.

    Args:
        frame: The frame of the query.
        mode: The output mode.
        name: The name of the query.
        catalog: The catalog for the savepoint.
        history: See `holdfast.bootstrap`.
        start: See `holdfast.bootstrap`.
        states: See `holdfast.bootstrap`.
        watermark_ms: The initial watermark of the query, if states are given.

    Raises:
        Invalid: The arguments do not match the sources of the query, or the starting point of a source is
            unknown.
    """
    from holdfast.engine.described import like_source, sources_once

    sources = sources_once(frame)
    given = _by_source(history, sources, "history")
    starts = _by_source(start, sources, "start")
    told = any(past is not None for past in given)
    if told is bool(states):
        raise Invalid(
            "history and states cannot be combined" if told else "neither history nor states are given",
            code="HF-E2036",
            where="history=…, states=…",
            expected="a batch DataFrame with the columns of a source, or a table for each state",
            hint="give either history= or states=",
        )
    if watermark_ms is not None and told:
        raise Invalid(
            "watermark= cannot be combined with history=, because the history sets the watermark",
            code="HF-E2037",
            where="watermark=…",
            hint="remove watermark=",
        )
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
    """Create the planned savepoint.

    Args:
        query: The query from `plan_bootstrap`.
        catalog: The catalog.
        folder: A local working directory, which the caller deletes.
        label: A display name.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        Failed: The query failed over the history.
        Invalid: The query has no state.
    """
    place = folder / query.name
    if tell is not None:
        tell(0, 0, "running the query over its history")
    rows = _run(query, folder / "history", place)
    checkpoint = LocalStorage(place)
    if not read(checkpoint).operators:
        raise Invalid(
            "the query keeps no state, so it needs no bootstrap",
            code="HF-E2038",
            where=query.name,
            hint="start the query without a bootstrap; the options of its sources set the starting offsets",
        )
    if query.plan.watermark_ms is not None:
        begin_under(checkpoint, query.plan.watermark_ms)
    if query.states:
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
    """Run the query over its history, then once without input to remove expired state."""
    from holdfast.engine.queries.dry_run import with_files
    from holdfast.stream.trials import QueryFailed, Trial

    folders = _written(query, histories)
    left = iter(folders)
    trial = Trial(with_files(query.frame, lambda _: next(left)), query.mode, place.as_uri(), None)
    try:
        rows = trial.run_once(history=True).input_rows
        if (read(LocalStorage(place)).watermark_ms or 0) > 0:
            # Closing a window feeds the next operator, which closes its own window one batch later.
            for _ in read(LocalStorage(place)).operators:
                trial.run_empty(now_ms())
    except QueryFailed as error:
        lines = [line for line in error.text.splitlines() if line.strip()]
        raise Failed(
            "the query failed while it read the history",
            code="HF-E1001",
            where=query.name,
            found=next((line for line in reversed(lines) if line.startswith("Caused by: ")), lines[0])[:300],
            hint="run the query over a few rows of the history to find the error",
        ) from error
    return rows


def _written(query: WarmQuery, folder: Path) -> list[str]:
    from holdfast.engine.described import sources_once

    spark = query.frame.sparkSession
    folders = []
    sources = sources_once(query.frame)
    for number, (past, (_, schema)) in enumerate(zip(query.histories, sources, strict=True)):
        place = (folder / str(number)).as_uri()
        # Without a file there would be no batch, so write one without rows.
        frame = spark.createDataFrame([], schema).coalesce(1) if past is None else past
        frame.write.parquet(place)
        folders.append(place)
    return folders


def _table(given: Any, name: str) -> pa.Table:
    """Return an Arrow table from an Arrow table, a Spark frame or a pandas frame."""
    import pyarrow as pa

    if isinstance(given, pa.Table):
        return given
    if hasattr(given, "toArrow") and not getattr(given, "isStreaming", False):
        return given.toArrow()
    if hasattr(given, "iloc"):
        return pa.Table.from_pandas(given, preserve_index=False)
    raise Invalid(
        "the rows of a state are not a table",
        code="HF-E2039",
        where=f"states={{{name!r}: …}}",
        found=type(given).__name__,
        expected="a batch DataFrame of Spark, an Arrow table, or a pandas DataFrame",
        hint="read the data with `spark.read`, `pyarrow` or pandas first",
    )


def _by_source(given: Any, sources: Sequence[tuple[SourceRead, StructType]], what: str) -> list[Any]:
    """Return the values in the order of sources; they are given as one value, by number or by type."""
    where = f"{what}=…"
    if given is None:
        return [None] * len(sources)
    if not isinstance(given, Mapping) or (what == "start" and not _names_sources(given, sources)):
        if len(sources) != 1:
            raise Invalid(
                "the query has several sources, but one value is given for all of them",
                code="HF-E2040",
                where=where,
                expected=f"a dictionary with the keys {_choices(sources)}",
                hint=f"give a value for each source: {what}={{0: …, 1: …}}",
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
        "the query has no source with this number or type",
        code="HF-E2041",
        where=where,
        found=str(name),
        expected=_choices(sources),
        hint="give the number of a source; `--dry-run` lists the sources",
    )


def _choices(sources: Sequence[tuple[SourceRead, StructType]]) -> str:
    return ", ".join(f"{number} ({source.kind})" for number, (source, _) in enumerate(sources))


def _called(number: int, read_: SourceRead) -> str:
    return f"source {number}, {read_.kind}"


def _beginning(
    frame: DataFrame, number: int, read_: SourceRead, past: DataFrame | None, wanted: Any
) -> Beginning:
    """Return the starting point of a source: the given one, or the end of its history."""
    from holdfast.engine.described import changed_ms, last_of_kafka

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
        "the starting offset of a source is unknown",
        code="HF-E2042",
        where=_called(number, read_),
        expected=f"an offset in `start`, or {AT_FIRST!r} to start as the options of the source say",
        hint=f"give start={{{number}: …}}",
    )


def _paths(number: int, read_: SourceRead, past: DataFrame | None) -> list[str]:
    paths = [] if past is None else list(past.inputFiles())
    if not paths:
        raise Invalid(
            "the files to mark as read are unknown, because the history does not read files",
            code="HF-E2043",
            where=_called(number, read_),
            expected=f"the paths of the files in `start`, or {AT_FIRST!r} if no file was read",
            hint=f'give start={{{number}: ["PATH", …]}}',
        )
    return paths
