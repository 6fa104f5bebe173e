"""State by key and row by row, from files alone: what people see of it, whatever Spark keeps it in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from holdfast.at_rest.read import keyed_source
from holdfast.at_rest.read.keys import parse_key, typed_key
from holdfast.at_rest.read.model import Entry, KeyState, NamedOperator, NamedState, StateForm
from holdfast.at_rest.read.state_catalog import named_operators, pick, table_names
from holdfast.checkpoints.state.families import Pairs
from holdfast.checkpoints.state.lookup import find
from holdfast.checkpoints.state.rows import state_chunks
from holdfast.checkpoints.state.states import StateCodec
from holdfast.checkpoints.values import ProgressCallback
from holdfast.errors import Corrupt, Unsupported
from holdfast.savepoints.view import SavepointView
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
        self.is_savepoint = isinstance(storage, SavepointView)
        self.operators: tuple[NamedOperator, ...] = named_operators(storage, batch_id)
        self.batch_id: int = self.operators[0].files.batch_id if self.operators else batch_id or 0

    def pick(self, name: str, operator: str | int | None = None) -> tuple[NamedOperator, NamedState]:
        """The state that a person means; see `naming.pick`."""
        return pick(self.operators, name, operator)

    def ask(self, query: str, *, tell: ProgressCallback | None = None, **bounds: Any) -> pa.Table:
        """What a query in SQL says of the states that it names; see `query.answer`."""
        from holdfast.at_rest.read.sql import answer  # noqa: PLC0415 - it needs DuckDB

        return answer(query, self._named_in(query, tell), **bounds)

    def asked(self, query: str, **bounds: Any) -> AbstractContextManager[pa.RecordBatchReader]:
        """The same as a stream; see `query.streamed`."""
        from holdfast.at_rest.read.sql import streamed  # noqa: PLC0415 - it needs DuckDB

        return streamed(query, self._named_in(query, None), **bounds)

    def _named_in(self, query: str, tell: ProgressCallback | None) -> dict[str, pa.Table]:
        """The states that a query names, read whole: it may read each of them several times."""
        from holdfast.at_rest.read.sql import tables_in  # noqa: PLC0415 - it needs DuckDB
        from holdfast.at_rest.read.tables import schema_of, state_table  # noqa: PLC0415 - as above

        known = table_names(self.operators)
        named = tables_in(query, {name: schema_of(state) for name, (_, state) in known.items()})
        return {name: state_table(self, *known[name], tell=tell).whole() for name in named}

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
        chosen, state = self.pick(name, operator)
        return self.found(chosen, state, typed_key(key, state.key, state.full_name))

    def get_written(self, name: str, words: Sequence[str], operator: str | int | None = None) -> KeyState:
        """The same with the key as it is written on a command line; see `keys.parse_key`."""
        chosen, state = self.pick(name, operator)
        return self.found(chosen, state, parse_key(words, state.key, state.full_name))

    def found(self, operator: NamedOperator, state: NamedState, key: Mapping[str, Any]) -> KeyState:
        """What a state holds for a key whose values have their types."""
        if state.own is not None:
            return KeyState(state, self.batch_id, dict(key), tuple(keyed_source.found(state, key)))
        _check_encoding(state)
        entries: list[Entry] = []
        for codec, stored in self._stored(operator, state, key):
            for found in find(self.storage, operator.files, codec, stored):
                entries += entries_of(state, codec, found.partition, found.pairs)
        return KeyState(state, self.batch_id, dict(key), tuple(in_order(state, entries)))

    def scan(
        self, name: str, operator: str | int | None = None, *, tell: ProgressCallback | None = None
    ) -> Iterator[Entry]:
        """Every row of a state, partition by partition, in no order that means anything.

        Cost: some microseconds a row; `arrow.batches` is many times faster.

        Raises:
            As `get`.
        """
        chosen, state = self.pick(name, operator)
        if state.own is not None:
            yield from keyed_source.rows(state)
            return
        for codec, partition, pairs in self.chunks(chosen, state, tell=tell):
            yield from entries_of(state, codec, partition, pairs)

    def chunks(
        self, operator: NamedOperator, state: NamedState, *, tell: ProgressCallback | None = None
    ) -> Iterator[tuple[StateCodec, int, Pairs]]:
        """The rows of a state as they are stored, some thousand at a time."""
        _check_encoding(state)
        for codec, partition, pairs in state_chunks(
            self.storage, self.batch_id, operator_id=operator.operator_id, tell=tell
        ):
            if state.codec is not None and codec.name == state.codec.name:
                yield codec, partition, pairs

    def _stored(
        self, operator: NamedOperator, state: NamedState, key: Mapping[str, Any]
    ) -> Iterator[tuple[StateCodec, Mapping[str, Any]]]:
        """The stored keys of a key, or what they begin with."""
        codec = state.codec
        if codec is None:
            raise Corrupt("a state has no schema", where=self.storage.uri, found=state.full_name)
        if state.form is StateForm.ROWS and state.counts is not None:
            index = state.sub.names[0]
            counted = state.counts.key_type.names
            for found in find(
                self.storage, operator.files, state.counts, dict(zip(counted, key.values(), strict=True))
            ):
                for _, value in found.pairs:
                    rows, _ = state.counts.values.rows(value, state.counts.where)
                    (count,) = state.counts.value_values(rows[0]).values()
                    for each in range(count):
                        yield codec, {**key, index: each}
        elif state.form in (StateForm.MAP, StateForm.TIMERS):
            yield codec, {codec.key_type.names[0]: key}
        else:
            yield codec, key


def entries_of(state: NamedState, codec: StateCodec, partition: int, pairs: Pairs) -> Iterator[Entry]:
    """Rows as they are stored, taken apart.

    Raises:
        Corrupt: One is damaged.
        Unsupported: Its schema has a type that is not known here.
    """
    for stored, value in pairs:
        fields = codec.key_values(codec.key_row(stored))
        key, sub = _key_parts(state, fields)
        rows, _ = codec.values.rows(value, codec.where)
        # What is around the elements of a list counts with the first.
        size = len(stored) + len(value) - sum(map(len, rows))
        for row in rows:
            found, expires = _value_parts(state, codec.value_values(row))
            yield Entry(key, sub, found, expires, partition, size + len(row))
            size = 0


def key_of(state: NamedState, codec: StateCodec, stored: bytes) -> Mapping[str, Any]:
    """The key's columns of a row as it is stored.

    Raises:
        Corrupt: It is damaged.
        Unsupported: Its schema has a type that is not known here.
    """
    return _key_parts(state, codec.key_values(codec.key_row(stored)))[0]


def _check_encoding(state: NamedState) -> None:
    """Refuse rows that are encoded as Avro, which only Spark takes apart."""
    if state.codec is not None and state.codec.values.avro:
        raise Unsupported(
            "state that is encoded as Avro is not read from its files",
            where=state.full_name,
            hint="hf.state(…).frame(…) has Spark read it",
        )


def _key_parts(state: NamedState, fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    if state.form in (StateForm.MAP, StateForm.TIMERS):
        key, sub = fields.values()
        if state.form is StateForm.TIMERS:
            sub = {state.sub.names[0]: sub}
        return key, sub
    return {name: fields[name] for name in state.key.names}, {name: fields[name] for name in state.sub.names}


def _value_parts(state: NamedState, fields: Any) -> tuple[dict[str, Any], int | None]:
    expires = None
    if state.ttl:
        fields, expires = fields.values()
    return {name: fields[name] for name in state.value.names}, expires


def in_order(state: NamedState, entries: list[Entry]) -> list[Entry]:
    """A key's rows in the order of what tells them apart."""
    if state.form in (StateForm.ROWS, StateForm.SESSIONS, StateForm.TIMERS):
        return sorted(entries, key=lambda each: next(iter(each.sub.values())))
    if state.form is StateForm.MAP:
        return sorted(entries, key=lambda each: repr(list(each.sub.values())))
    return entries
