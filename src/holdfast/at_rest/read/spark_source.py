"""The states of Spark's operators, out of the rows of their stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.at_rest.read.model import PROCESSING, Entry, KeySize, NamedState, StateForm, by_key
from holdfast.checkpoints.state.families import Pairs
from holdfast.checkpoints.state.key_partition import partition_of_key, placing_fields
from holdfast.checkpoints.state.lookup import Sought, find, sought
from holdfast.checkpoints.state.rows import state_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.checkpoints.values import ProgressCallback
from holdfast.errors import Internal, Unsupported
from holdfast.formats.rows.row_forms import KeyKind
from holdfast.savepoints.view import SavepointView
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.at_rest.read.model import StateAges

# Each of these holds a key as one field of the stored key.
_NESTED_KEY = (StateForm.MAP, StateForm.TIMERS)


@dataclass(frozen=True, slots=True)
class SparkSource:
    """Reads the states of one of Spark's operators.

    Attributes:
        storage: The checkpoint, or a savepoint's view.
        files: What reads the operator's files.
    """

    storage: Storage
    files: OperatorStates

    @property
    def notes_writes(self) -> bool:
        """Each change of a row is a record."""
        return True

    def get(self, state: NamedState, key: Mapping[str, Any]) -> Iterable[Entry]:
        """The rows of a key. Cost: the files of one partition that can hold it."""
        codec = self._codec(state)
        return _in_order(
            state,
            [
                entry
                for stored in self._stored_keys(state, codec, key)
                for stored_rows in find(self.storage, self.files, codec, stored)
                for entry in _entries_of(state, codec, stored_rows.partition, stored_rows.pairs)
            ],
        )

    def scan(self, state: NamedState, tell: ProgressCallback | None = None) -> Iterator[Entry]:
        """Every row. Cost: some microseconds a row."""
        for codec, partition, pairs in self.chunks(state, tell):
            yield from _entries_of(state, codec, partition, pairs)

    def tables(
        self, state: NamedState, schema: pa.Schema, tell: ProgressCallback | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Every row, column by column. Cost: about 2 microseconds a row."""
        from holdfast.at_rest.read.tables import gathered, row_batch

        for codec, partition, pairs in gathered(self.chunks(state, tell)):
            yield row_batch(state, codec, partition, pairs, schema)

    def key_sizes(self, state: NamedState, tell: ProgressCallback | None = None) -> Iterator[KeySize]:
        """What each key has; all keys are held in memory where a key has several rows."""
        if state.form not in (StateForm.VALUE, StateForm.LIST):
            yield from by_key(self._row_sizes(state, tell))
            return
        for codec, partition, pairs in self.chunks(state, tell):
            read = partial(_key_of, state, codec)
            for key, value in pairs:
                yield KeySize(1, len(key) + len(value), partition, read, key)

    def has_ages(self, state: NamedState) -> bool:  # noqa: ARG002 - any state of Spark's may have times
        """Any state may have times."""
        return True

    def ages(
        self,
        state: NamedState,
        by: str | None = None,
        current_ttl_ms: int | None = None,
        tell: ProgressCallback | None = None,
    ) -> StateAges:
        """The times of a state's rows. Cost: about 2 microseconds a row, and 16 bytes of memory."""
        from holdfast.at_rest.read.spark_ages import spark_ages

        return spark_ages(self.files, state, self.chunks(state, tell), by, current_ttl_ms)

    def locate(
        self, state: NamedState, key: Mapping[str, Any], files: OperatorStates
    ) -> tuple[list[Sought], int | None]:
        """The stored key, or the bytes that its rows begin with."""
        codec = files.codec_of(*state.stored)
        values = {codec.key_type.names[0]: key} if state.form in _NESTED_KEY else dict(key)
        placing = dict(list(values.items())[: placing_fields(codec)])
        return [sought(codec, values)], partition_of_key(files, codec, placing)

    def decode(
        self,
        state: NamedState,
        key: Mapping[str, Any],  # noqa: ARG002 - each row says its key
        stored: Iterable[tuple[StateCodec, int, Pairs]],
    ) -> Iterable[Entry]:
        """Rows as they are stored, taken apart."""
        return _in_order(state, [entry for rows in stored for entry in _entries_of(state, *rows)])

    def ttl_clock(self, state: NamedState) -> str:  # noqa: ARG002 - the same for all states of Spark's
        """Spark's time to live goes by processing time."""
        return PROCESSING

    def key_group(self, state: NamedState, key: Mapping[str, Any]) -> int | None:  # noqa: ARG002 - as said
        """Spark knows no key groups."""
        return None

    def plain_value(self, state: NamedState, entry: Entry) -> Any:  # noqa: ARG002 - all states have columns
        """The columns of the value."""
        return dict(entry.value)

    def spark_reads(self, state: NamedState) -> bool:
        """Spark's reader knows no savepoints, and gives collections in another shape."""
        collection = state.form in (StateForm.LIST, *_NESTED_KEY)
        return not collection and not isinstance(self.storage, SavepointView)

    def chunks(
        self, state: NamedState, tell: ProgressCallback | None = None
    ) -> Iterator[tuple[StateCodec, int, Pairs]]:
        """The rows of a state as they are stored, some thousand at a time, with their partition."""
        name = self._codec(state).name
        for codec, partition, pairs in state_chunks(
            self.storage, self.files.batch_id, operator_id=state.operator_id, tell=tell
        ):
            if codec.name == name:
                yield codec, partition, pairs

    def _codec(self, state: NamedState) -> StateCodec:
        codec = state.codec
        if codec is None:
            raise Internal("a state of Spark's has no codec", where=state.full_name)
        if codec.values.avro:
            raise Unsupported(
                "state that is encoded as Avro is not read from its files",
                where=state.full_name,
                hint="hf.state(…).frame(…) has Spark read it",
            )
        return codec

    def _stored_keys(
        self, state: NamedState, codec: StateCodec, key: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        """The stored keys of a key, or what they begin with."""
        counts = state.counts
        if state.form is StateForm.ROWS and counts is not None:
            index = state.sub.names[0]
            counted = dict(zip(counts.key_type.names, key.values(), strict=True))
            for counted_rows in find(self.storage, self.files, counts, counted):
                for _, value in counted_rows.pairs:
                    rows, _ = counts.values.rows(value, counts.where)
                    (count,) = counts.value_values(rows[0]).values()
                    for place in range(count):
                        yield {**key, index: place}
        elif state.form in _NESTED_KEY:
            yield {codec.key_type.names[0]: key}
        else:
            yield key

    def _row_sizes(self, state: NamedState, tell: ProgressCallback | None) -> Iterator[tuple[Any, KeySize]]:
        """Rows of keys that have several, with something that is one for each key."""
        for codec, partition, pairs in self.chunks(state, tell):
            prefixed = codec.values.rocksdb and codec.key_form.kind is KeyKind.PREFIX
            read = partial(_key_of, state, codec)
            for key, value in pairs:
                row = KeySize(1, len(key) + len(value), partition, read, key)
                if prefixed:
                    yield key[: 4 + int.from_bytes(key[:4], "little")], row
                else:
                    yield repr(list(row.key().values())), row


def _entries_of(state: NamedState, codec: StateCodec, partition: int, pairs: Pairs) -> Iterator[Entry]:
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
            fields_of_value, expires = _value_parts(state, codec.value_values(row))
            yield Entry(key, sub, fields_of_value, expires, partition, size + len(row))
            size = 0


def _key_of(state: NamedState, codec: StateCodec, stored: bytes) -> Mapping[str, Any]:
    """The key's columns of a row as it is stored.

    Raises:
        Corrupt: It is damaged.
        Unsupported: Its schema has a type that is not known here.
    """
    return _key_parts(state, codec.key_values(codec.key_row(stored)))[0]


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


def _in_order(state: NamedState, entries: list[Entry]) -> list[Entry]:
    """A key's rows in the order of what tells them apart."""
    if state.form in (StateForm.ROWS, StateForm.SESSIONS, StateForm.TIMERS):
        return sorted(entries, key=lambda entry: next(iter(entry.sub.values())))
    if state.form is StateForm.MAP:
        return sorted(entries, key=lambda entry: repr(list(entry.sub.values())))
    return entries
