"""The implementation of `hf.state`, which reads state from files, even while the query runs."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.at_rest.model import KeyState, NamedOperator, NamedState, StateEntry
from holdfast.at_rest.state_reader import StateReader, key_of
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.config.checks import whole
from holdfast.config.units import Duration, parse_duration
from holdfast.extras import require_package
from holdfast.savepoints.address import Address, StateAddress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.at_rest.insight import HeavyKeys, KeyExplanation, KeyHistory, WhatIf


def state(address: Address, batch: int | None = None) -> StatesAtRest:
    """Open the state of a checkpoint or a savepoint at one batch, for reading.

    Nothing is changed, Spark is not started, and a running query is not disturbed. The opened state stays at
    its batch. A running query eventually deletes the files of old batches; reading state from them then
    raises `NotFound`. After a rescale, an upgrade or a fallback has replaced the checkpoint, it raises
    `Conflict`.

    Args:
        address: A savepoint's address (`DIR/ID`, `DIR@LABEL`), or a checkpoint's path or URI, with the suffix
            `@BATCH` for a batch other than the newest.
        batch: The batch; None for the one in the address, or the newest.

    Raises:
        NotFound: The checkpoint or savepoint does not exist, or the batch is not committed or no longer kept.
        Corrupt: A file that was read is damaged.
        Unsupported: The state's provider is not supported.
        Invalid: The address is not valid.

    Example:
        visits = hf.state("checkpoints/visits")
        assert visits.get("aggregate", "c1").value == {"count": 12, "sum": 706}
        before = hf.state("checkpoints/visits@10")
        assert before.get("aggregate", "c1").value == {"count": 11, "sum": 596}
    """
    if batch is not None:
        whole(batch, "batch", least=0)
    place = StateAddress.resolve(address).open_state(batch)
    return StatesAtRest(StateReader(place.storage, place.batch_id), place.name)


class StatesAtRest:
    """The states of a checkpoint or savepoint at one batch.

    A state is selected by its name, by its operator if the operator has one state, or by `OPERATOR.STATE`. An
    operator is selected by the name that the user gave to it (keyed operators), by its type (`aggregate`,
    `dedupe`, `join`, `sessions`, `groups`, `processor`), by Spark's name for the type, or by its number. A
    join has the states `left` and `right`.

    Args:
        reader: The reader of the states.
        name: The address of the state, for messages.

    Example:
        visits = hf.state("savepoints@daily")
        best = visits.sql("select customer, sum from aggregate order by sum desc limit 1")
        assert best.to_pylist() == [{"customer": "c9", "sum": 722}]
        versions = hf.state("checkpoints/visits").history("aggregate", "c1").versions
        assert [version.batch_id for version in versions] == [5, 6, 7, 8, 9, 10, 11]
    """

    def __init__(self, reader: StateReader, name: str) -> None:
        self._reader = reader
        self.name = name

    @property
    def batch(self) -> int:
        """The batch of the state."""
        return self._reader.batch_id

    def operators(self) -> tuple[NamedOperator, ...]:
        """Return the stateful operators with their states and columns."""
        return self._reader.operators

    def state(self, state: str, *, operator: str | int | None = None) -> StateRows:
        """Return the rows of one state, for Arrow, pandas, Polars and notebooks.

        Args:
            state: The name of the state.
            operator: The operator, if several operators have a state with this name.

        Raises:
            NotFound: The state does not exist.
            Invalid: Several states have this name.
        """
        self.pick(state, operator)
        return StateRows(self, state, operator)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the states with their columns."""
        from holdfast.notebook import page, table

        rows = [
            {**state.as_dict(), "partitions": operator.partitions}
            for operator in self.operators()
            for state in operator.states
        ]
        return page(f"{self.name}, batch {self.batch}", table(rows))

    def get(self, state: str, key: Any, *, operator: str | int | None = None) -> KeyState:
        """Return the state of one key: whether it exists, its value and rows, its partition and size.

        Cost: reads only the files that can contain the key, which takes milliseconds for a million keys.

        Args:
            state: The name of the state.
            key: A dictionary by column, a list in the order of the columns, or the value of the only column.
            operator: The operator, if several operators have a state with this name.

        Raises:
            NotFound: The state does not exist, or a file that the batch needs is missing.
            Invalid: Several states have this name, or the key does not match its columns.
            Corrupt: A file is damaged.
            Conflict: The checkpoint was replaced since it was opened, by a rescale, an upgrade or a fallback.
            Unsupported: The state's format cannot be read.
        """
        return self._reader.get(state, key, operator)

    def scan(
        self, state: str, *, operator: str | int | None = None, tell: ProgressCallback | None = None
    ) -> Iterator[StateEntry]:
        """Yield every row of a state, in no particular order; `arrow` is many times faster.

        Raises:
            As for `get`.
        """
        return self._reader.scan(state, operator, tell=tell)

    def arrow(
        self, state: str, *, operator: str | int | None = None, tell: ProgressCallback | None = None
    ) -> pa.RecordBatchReader:
        """Return the rows of a state as an Arrow stream; `.read_all()` reads it into a table.

        The columns are those of the key, those that distinguish rows of one key (a map's key, a session's
        start), those of the value, `expires_ms` if values have a TTL, and `partition_id`. A value column with
        the name of a key column gets the prefix `value_`.

        Raises:
            As for `get`.
        """
        require_package("pyarrow")
        from holdfast.at_rest.tables import state_table

        return state_table(self.pick(state, operator), tell=tell)

    def sql(self, query: str, *, most_rows: int | None = None, timeout_s: float | None = None) -> pa.Table:
        """Run a `SELECT` over states; the name of a state is the name of a table.

        The dialect is DuckDB's. The query cannot read files or change anything. The states that it names are
        read completely into memory.

        Args:
            query: A query such as `select customer, visits from regulars order by visits desc limit 10`.
            most_rows: The maximum number of result rows.
            timeout_s: The maximum duration in seconds, after the states have been read.

        Raises:
            NotFound: The state does not exist.
            Invalid: The query is invalid, or several states have the same name.
            Unavailable: The query exceeded the maximum duration, or needs too much memory.
        """
        require_package("duckdb")
        return self._reader.ask(query, most_rows=most_rows, timeout_s=timeout_s)

    def frame(
        self, operator: str, state: str | None = None, *, spark: SparkSession | None = None
    ) -> DataFrame:
        """Return the rows of a state as a Spark DataFrame, with the columns of `arrow`.

        Args:
            operator: The operator, or the name of a state.
            state: The state of the operator, if it has several.
            spark: The session; by default the running one, or else a new one.

        Raises:
            As for `get`.
        """
        require_package("pyspark")
        from holdfast.at_rest.export import frame

        name = operator if state is None else state
        _, named = self._reader.pick(name, None if state is None else operator)
        return frame(self._reader, named, spark)

    def history(
        self,
        state: str,
        key: Any,
        *,
        operator: str | int | None = None,
        savepoints: Address | None = None,
    ) -> KeyHistory:
        """Return each value of a key in a state, over the kept batches up to this one.

        Cost: reads the files of the key's partition once, only for this key.

        Args:
            state: The name of the state.
            key: The key, as for `get`.
            operator: The operator, if several operators have a state with this name.
            savepoints: A catalog of savepoints, for batches that the checkpoint no longer keeps.

        Raises:
            As for `get`.
        """
        from holdfast.at_rest.insight import key_history
        from holdfast.storage import open_storage

        chosen, named = self._reader.pick(state, operator)
        values = key_of(named, key)
        catalog = None if savepoints is None else open_storage(savepoints, "catalog")
        return key_history(self._reader, chosen, named, values, catalog=catalog)

    def explain(
        self,
        state: str,
        key: Any,
        *,
        operator: str | int | None = None,
        rank: bool = True,
        tell: ProgressCallback | None = None,
    ) -> KeyExplanation:
        """Explain why a key has its value.

        The result has the batch that last wrote the key, the input and the watermark of that batch, the time
        left until expiry, the partition and key group, and the size. With `rank`, it also has the key's rank
        by size, for which every row of the state is read.

        Raises:
            As for `get`.
        """
        from holdfast.at_rest.insight import explain
        from holdfast.clock import now_ms

        chosen, named = self._reader.pick(state, operator)
        values = key_of(named, key)
        return explain(self._reader, chosen, named, values, now_ms(), rank=rank, tell=tell)

    def heaviest(
        self,
        state: str = "",
        *,
        operator: str | int | None = None,
        most: int = 10,
        tell: ProgressCallback | None = None,
    ) -> HeavyKeys:
        """Return the keys with the most bytes in a state, with the number of their rows.

        Cost: reads every row of the state, which takes one or two microseconds per row.

        Raises:
            As for `get`.
        """
        from holdfast.at_rest.insight import heaviest

        whole(most, "most", least=1)
        return heaviest(self._reader.pick(state, operator)[1], most=most, tell=tell)

    def what_if(
        self,
        *,
        ttl: Duration | None = None,
        watermark: Duration | None = None,
        state: str | None = None,
        operator: str | int | None = None,
        by: str | None = None,
        current_ttl: Duration | None = None,
        tell: ProgressCallback | None = None,
    ) -> tuple[WhatIf, ...]:
        """Estimate the state that a TTL or a different watermark delay would free; nothing is changed.

        Ages are computed from the times that the states record, relative to the batch and not to the current
        time.

        Args:
            ttl: The TTL to apply, such as `"24h"`.
            watermark: The watermark delay to apply.
            state: The state to examine; all states by default.
            operator: The operator to examine; all operators by default.
            by: A column of the state with the time, if the state records none.
            current_ttl: The current TTL of a state of Spark, for use if it cannot be computed from the files.
            tell: The progress callback, called with stores done, total stores, and the current step.

        Raises:
            Invalid: Neither or both rules were given, or the column of times does not exist.
            NotFound: The state or operator does not exist, or a file that the batch needs is missing.
            Corrupt: A file or a row is damaged.
        """
        require_package("pyarrow")
        from holdfast.at_rest.insight import what_if

        return what_if(
            self._reader,
            ttl_ms=_duration(ttl, "ttl"),
            watermark_ms=_duration(watermark, "watermark"),
            state=state,
            operator=operator,
            by=by,
            current_ttl_ms=_duration(current_ttl, "current_ttl"),
            tell=tell,
        )

    def pick(self, state: str, operator: str | int | None = None) -> NamedState:
        """Return the state with a name, with its columns.

        Raises:
            NotFound: The state does not exist.
            Invalid: Several states have this name.
        """
        return self._reader.pick(state, operator)[1]


def _duration(given: Duration | None, name: str) -> int | None:
    return None if given is None else parse_duration(given, name, allow_zero=True)


class StateRows:
    """The rows of one state at rest.

    A notebook shows the first ten rows.

    Args:
        states: The states of the checkpoint or savepoint.
        name: The name of the state.
        operator: The operator, if several operators have a state with this name.

    Example:
        rows = hf.state("checkpoints/visits").state("aggregate")
        assert rows.head(3).num_rows == 3
        frame = rows.to_pandas()
        assert list(frame.columns) == ["customer", "count", "sum", "partition_id"]
    """

    def __init__(self, states: StatesAtRest, name: str, operator: str | int | None) -> None:
        self._states = states
        self._name = name
        self._operator = operator

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table, with the columns of `StatesAtRest.arrow`."""
        return self._states.arrow(self._name, operator=self._operator).read_all()

    def to_pandas(self) -> Any:
        """Return all rows as a `pandas.DataFrame`."""
        require_package("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return all rows as a `polars.DataFrame`.

        Raises:
            Unsupported: Polars is not installed.
        """
        require_package("polars")
        return import_module("polars").DataFrame(self.to_arrow())

    def head(self, rows: int = 10) -> pa.Table:
        """Return the first rows as an Arrow table; not all other rows are read.

        Args:
            rows: The number of rows.
        """
        import pyarrow as pa

        reader = self._states.arrow(self._name, operator=self._operator)
        batches, count = [], 0
        with reader:
            for batch in reader:
                batches.append(batch)
                count += batch.num_rows
                if count >= rows:
                    break
        return pa.Table.from_batches(batches, reader.schema).slice(0, rows)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows: the first rows."""
        from holdfast.notebook import page, table

        title = f"{self._name} of {self._states.name}, batch {self._states.batch}: first rows"
        return page(title, table(self.head().to_pylist(), columns=True))
