"""State by key and row by row, from files alone: what people see of it, whatever Spark keeps it in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from holdfast.at_rest.read.model import Entry, KeyState, NamedOperator, NamedState
from holdfast.at_rest.read.state_catalog import named_operators, pick, table_names
from holdfast.at_rest.read.written_keys import key_in, key_of
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.values import ProgressCallback
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    import pyarrow as pa


class StateReader:
    """The states of a checkpoint or savepoint at one batch.

    Args:
        storage: The checkpoint, or a savepoint's view.
        batch_id: A committed batch that is still kept; the newest by default.

    Raises:
        NotFound: There is no checkpoint, or the batch is not committed or no longer kept.
        Corrupt: A file that had to be read is damaged.
        Unsupported: The state is of a provider that is not known here.
    """

    def __init__(self, storage: Storage, batch_id: int | None = None) -> None:
        self.storage = storage
        self.operators: tuple[NamedOperator, ...] = named_operators(storage, batch_id)
        if self.operators:
            batch_id = self.operators[0].files.batch_id
        elif batch_id is None:
            batch_id = Logs(storage).newest
        self.batch_id: int = batch_id or 0

    def pick(self, name: str, operator: str | int | None = None) -> tuple[NamedOperator, NamedState]:
        """The state that a person means; see `state_catalog.pick`."""
        return pick(self.operators, name, operator)

    def ask(self, query: str, *, tell: ProgressCallback | None = None, **bounds: Any) -> pa.Table:
        """What a query in SQL says of the states that it names; see `sql.answer`."""
        from holdfast.at_rest.read.sql import answer

        return answer(query, self._named_in(query, tell), **bounds)

    def asked(self, query: str, **bounds: Any) -> AbstractContextManager[pa.RecordBatchReader]:
        """The same as a stream; see `sql.streamed`."""
        from holdfast.at_rest.read.sql import streamed

        return streamed(query, self._named_in(query, None), **bounds)

    def _named_in(self, query: str, tell: ProgressCallback | None) -> dict[str, pa.Table]:
        """The states that a query names, read whole: it may read each of them several times."""
        from holdfast.at_rest.read.sql import tables_in
        from holdfast.at_rest.read.tables import schema_of, state_table

        known = table_names(self.operators)
        named = tables_in(query, {name: schema_of(state) for name, (_, state) in known.items()})
        return {name: state_table(known[name][1], tell=tell).read_all() for name in named}

    def get(self, name: str, key: Any, operator: str | int | None = None) -> KeyState:
        """What a state holds for a key.

        Cost: the files of one partition that can hold it; no Spark.

        Args:
            name: The state.
            key: A dictionary by column, a list in the order of the columns, or the value of the only one.
            operator: The operator, where the state's name alone would not do.

        Raises:
            NotFound: There is no such state, or a file that the batch needs is gone.
            Invalid: Several states have this name, or the key does not fit.
            Corrupt: A file is damaged.
            Unsupported: The state is of a kind that cannot be read.
        """
        _, state = self.pick(name, operator)
        return self.found(state, key_of(state, key))

    def get_written(self, name: str, words: Sequence[str], operator: str | int | None = None) -> KeyState:
        """The same with the key as it is written on a command line; see `parse_key`."""
        _, state = self.pick(name, operator)
        return self.found(state, key_in(state, words))

    def found(self, state: NamedState, key: Mapping[str, Any]) -> KeyState:
        """What a state holds for a key whose values have their types."""
        return KeyState(state, self.batch_id, dict(key), tuple(state.source.get(state, key)))

    def scan(
        self, name: str, operator: str | int | None = None, *, tell: ProgressCallback | None = None
    ) -> Iterator[Entry]:
        """Every row of a state, partition by partition, in no order that means anything.

        Cost: some microseconds a row; `tables.state_table` is many times faster.

        Raises:
            As `get`.
        """
        _, state = self.pick(name, operator)
        yield from state.source.scan(state, tell)
