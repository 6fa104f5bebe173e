"""The states of a checkpoint at a batch, with their stores and schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import NAMES, codec_of, read_query_id
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.problems import batch_not_kept, file_gone
from holdfast.checkpoints.stores import NotedOperator, Partitions, StoreFolder, noted_operators, partitions_of
from holdfast.config.spark_defaults import ROCKSDB_PROVIDER
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.files.compression import decompressed
from holdfast.formats.files.snapshot import parse_snapshot
from holdfast.formats.logs.batch_logs import ENCODING, MERGE_OPERATOR, ROW_CHECKSUM, OffsetLog
from holdfast.formats.logs.operator_metadata import ColumnFamily, parse_schema, schema_place
from holdfast.formats.operators import OperatorName, is_internal, session_columns, state_name
from holdfast.formats.providers import known_provider
from holdfast.formats.rows.row_forms import (
    PREFIX_COLUMNS,
    KeyCodec,
    KeyForm,
    KeyKind,
    ValueForm,
    parse_encoder,
    prefix_form,
)
from holdfast.formats.rows.spark_types import Struct, parse_struct
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.formats.text import whole_number
from holdfast.json_shapes import in_json, in_json_as, json_spread
from holdfast.layout import DEFAULT_STORE, FileKind, SchemaFile, StoreFile, StoreId
from holdfast.storage.port import Storage, full


@dataclass(frozen=True, slots=True)
class StoreShape:
    """A store by name, with its column families; empty if its schema is missing."""

    name: str
    families: tuple[ColumnFamily, ...]


@dataclass(frozen=True, slots=True)
class OperatorShape:
    """The stores and schemas of an operator, without its rows.

    Attributes:
        operator_id: The number of the operator in the plan.
        kind: Spark's name for the operator's type, such as `dedupe`; empty if unknown.
        stores: The stores of the operator.
        variables: The state variables of transformWithState by name, from Spark's metadata.
        properties: The operator's other metadata.
    """

    operator_id: int
    kind: str
    stores: tuple[StoreShape, ...]
    variables: Mapping[str, Mapping[str, Any]]
    properties: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The number and name of the operator, for display."""
        return f"{self.operator_id} {self.kind}"


def shapes(storage: Storage, batch_id: int) -> tuple[OperatorShape, ...]:
    """Return the shape of each operator at a batch, by number. Cost: reads a few small files.

    Args:
        storage: The checkpoint.
        batch_id: The batch, which need not be committed.

    Raises:
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
    """
    return tuple(_shape(storage, operator) for operator in noted_operators(storage, batch_id))


def _shape(storage: Storage, noted: NotedOperator) -> OperatorShape:
    number, metadata = noted.folder.operator_id, noted.metadata
    properties = {} if metadata is None else dict(metadata.properties)
    listed = properties.pop("stateVariables", [])
    places = {} if metadata is None else {store.name: store.schema_paths for store in metadata.stores}
    return OperatorShape(
        operator_id=number,
        kind=noted.named.spark_name,
        stores=tuple(_store(storage, number, name, places.get(name, ())) for name in noted.store_names),
        variables={
            variable["stateName"]: variable
            for variable in listed
            if isinstance(variable, dict) and not is_internal(str(variable.get("stateName", "$")))
        },
        properties=properties,
    )


def _store(storage: Storage, operator_id: int, name: str, schema_paths: Sequence[str]) -> StoreShape:
    noted = schema_place(schema_paths[-1]) if schema_paths else None
    path = noted or layout.SchemaFile(operator_id, name).render()
    try:
        return StoreShape(name, parse_schema(storage.read(path), path).families)
    except NotFound:
        return StoreShape(name, ())


_AVRO: Final = "avro"
# Merge operators: the first puts a comma between values, the second puts nothing.
_DELIMITERS: Final = {"1": b",", "2": b""}
# The version of RocksDB's snapshots that only Spark 4.0 writes, under state format 2.
_OF_SPARK_4_0: Final = 2


@dataclass(frozen=True, slots=True, order=True)
class StateName:
    """The identity and the names of a state of an operator.

    Attributes:
        operator_id: The operator's number in the plan.
        store: The store that contains the state.
        family: The column family of the state; `default` if the store has only one.
        operator: Spark's name for the operator's type.
        named: The operator's names.
    """

    operator_id: int
    store: str
    family: str
    operator: str = field(default="", compare=False)
    named: OperatorName | None = field(default=None, compare=False, metadata=json_spread(*NAMES))

    @property
    @in_json_as("state")
    def label(self) -> str:
        """The display name: the column family's name, or the store's if it has only one."""
        return self.store if self.family == DEFAULT_STORE else self.family

    @property
    @in_json
    def internal(self) -> bool:
        """Return whether the state is internal to Spark: counters, timers, indexes of expiry."""
        return is_internal(self.family)

    @property
    @in_json
    def state_name(self) -> str:
        """The name of the state, or the operator's name if the operator has only one state."""
        return self.label if self.named is None else state_name(self.named, self.label)

    @property
    def shown_operator(self) -> str:
        """The number and name of the operator."""
        return str(self.operator_id) if self.named is None else self.named.label

    @property
    def shown(self) -> str:
        """The display names of the operator and the state."""
        alone = self.named is not None and self.state_name == self.named.display_name
        return f"operator {self.shown_operator}" + ("" if alone else f", state {self.state_name}")


@dataclass(eq=False)
class StateCodec:
    """A decoder of the rows of one state.

    Attributes:
        name: The identity of the state.
        values: The encoding of values.
        schema: The schema of the state as Spark wrote it; None if missing.
        key_form: The encoding of keys.
        where: The address of the state, for messages.
    """

    name: StateName
    values: ValueForm
    schema: ColumnFamily | None
    key_form: KeyForm
    where: str

    def require_schema(self) -> ColumnFamily:
        """Return the schema.

        Raises:
            Corrupt: The schema is missing.
        """
        if self.schema is None:
            raise Corrupt(
                f"the schema of state {self.name.label!r} is missing",
                code="HF-E6014",
                where=self.where,
                expected=f"a schema in {layout.STATE_SCHEMA}",
                hint="list all damage with `holdfast checkpoint verify CHECKPOINT`",
            )
        return self.schema

    def single_row(self, stored_value: bytes) -> bytes:
        """Return the row of a stored value that is not a list.

        Raises:
            Corrupt: The value is a list.
        """
        rows, is_list = self.values.rows(stored_value, self.where)
        if is_list:
            raise Corrupt(
                "a row of state cannot be decoded",
                code="HF-E6001",
                where=self.where,
                found="a list of values",
                expected="one value for each key",
                hint="list replaced and damaged files with `holdfast checkpoint verify CHECKPOINT`",
            )
        return rows[0]

    @cached_property
    def key_type(self) -> Struct:
        """The fields of a key.

        Raises:
            Corrupt: The schema is missing.
            Unsupported: A type is not supported.
        """
        return parse_struct(self.require_schema().key_schema, self.where)

    @cached_property
    def value_type(self) -> Struct:
        """The fields of a value, or of an element of a list.

        Raises:
            Corrupt: The schema is missing.
            Unsupported: A type is not supported.
        """
        return parse_struct(self.require_schema().value_schema, self.where)

    def first_fields(self, count: int) -> Struct:
        """Return the first fields of a key."""
        return Struct(self.key_type.names[:count], self.key_type.types[:count])

    @cached_property
    def key_codec(self) -> KeyCodec:
        """Return the codec of keys as RocksDB's provider stores them, with their prefix."""
        return KeyCodec(self.key_form, self.key_type, self.where)

    @cached_property
    def _key_row(self) -> RowCodec:
        return RowCodec(self.key_type)

    @cached_property
    def _value_row(self) -> RowCodec:
        return RowCodec(self.value_type)

    @property
    def plain_keys(self) -> int | None:
        """The number of bytes before a key's UnsafeRow; None if the key has more parts.

        A key in Avro has no other parts.
        """
        if not self.values.rocksdb or self.values.avro:
            return 0
        return 1 if self.key_form.kind is KeyKind.ROW else None

    def key_row(self, key: bytes) -> bytes:
        """Return the UnsafeRow of a stored key.

        Raises:
            Corrupt: The bytes cannot be a key.
        """
        skip = self.plain_keys
        return self.key_codec.row(key) if skip is None else key[skip:]

    def stored_key(self, row: bytes) -> bytes:
        """Return the stored key of a row from `key_row`, without the number of its column family.

        Raises:
            Corrupt: The bytes cannot be a key.
        """
        skip = self.plain_keys
        return self.key_codec.stored(row) if skip is None else b"\0" * skip + row

    def key_values(self, row: bytes) -> Any:
        """Return the fields of a key's row; Avro keys stay bytes."""
        return row if self.values.avro else self._key_row.decode(row, self.where)

    def value_values(self, row: bytes) -> Any:
        """Return the fields of a value's row; Avro values stay bytes."""
        return row if self.values.avro else self._value_row.decode(row, self.where)


class OperatorStates:
    """The states of one operator at one batch."""

    def __init__(
        self,
        logs: Logs,
        batch_id: int,
        noted: NotedOperator,
        schemas: Mapping[str, Mapping[str, ColumnFamily]],
        partitions: Partitions,
        uri: str,
    ) -> None:
        offsets = logs.offsets(batch_id)
        self.logs = logs
        self.batch_id = batch_id
        self.operator_id = noted.folder.operator_id
        self.named = noted.named
        self.name = noted.named.spark_name
        self.store_names = noted.store_names
        self.partitions = partitions.count
        self.gathered = partitions.gathered
        self.codec = codec_of(offsets)
        self._metadata = noted.metadata
        self._schemas = schemas
        self._codecs: dict[tuple[str, str], StateCodec] = {}
        self._folder = full(uri, f"{layout.STATE}/{self.operator_id}")
        self.values = _value_form(offsets, self._folder)
        self._is_fixed_by_later_sparks = offsets is not None and ROW_CHECKSUM in offsets.confs

    def codec_of(self, store: str, family: str) -> StateCodec:
        """Return the codec of a state's rows, which is created once."""
        found = self._codecs.get((store, family))
        if found is None:
            name = StateName(self.operator_id, store, family, self.name, self.named)
            schema = self._schemas.get(store, {}).get(family)
            where = f"{self._folder}, state {name.label}"
            found = StateCodec(name, self.values, schema, self._key_form(store, schema, where), where)
            self._codecs[store, family] = found
        return found

    def has_families(self, store: str) -> bool:
        """Return whether a store's schema has named column families."""
        return any(name != DEFAULT_STORE for name in self._schemas.get(store, {}))

    def declared_codecs(self) -> Iterator[StateCodec]:
        """Yield a codec of each state that the schemas declare, with or without rows."""
        for store in self.store_names:
            for family in self._schemas.get(store) or (DEFAULT_STORE,):
                yield self.codec_of(store, family)

    def times(self) -> tuple[int, int | None]:
        """Return the time when the batch was planned, and its watermark or None, in milliseconds."""
        offsets = self.logs.offsets(self.batch_id)
        return (0, None) if offsets is None else (offsets.timestamp_ms, offsets.watermark_ms or None)

    def stores(self, partition: int | None = None) -> list[StoreId]:
        """Return the stores partition by partition, or those of one partition."""
        partitions = range(self.partitions) if partition is None else (partition,)
        return [StoreId(self.operator_id, number, name) for number in partitions for name in self.store_names]

    def folder(self, storage: Storage, store: StoreId) -> StoreFolder:
        """Return the folder of a store, with a new listing."""
        unique_id = partial(self.logs.unique_id, store, self.store_names.index(store.name))
        return StoreFolder(storage, store, storage.list(store.folder), self.codec, unique_id)

    def chain(self, storage: Storage, store: StoreId) -> tuple[StoreFile, ...]:
        """Return the files of a store at the batch.

        Raises:
            NotFound: A file is missing.
        """
        chain = self.folder(storage, store).chain(self.batch_id + 1)
        if chain.missing is not None:
            raise file_gone(storage, chain.missing, self.batch_id)
        return chain.files

    def snapshot_version(self, storage: Storage) -> int:
        """Return the version of snapshot metadata that can be read by the Spark that wrote this state.

        Spark 4.0 reads only the version that it writes, and under state format 2 writes its own version. If
        no snapshot exists, the version is inferred: Spark 4.1 and later write a checksum next to each
        changelog, unless that is turned off, and Spark 4.2 pins the setting of row checksums.
        """
        return self.written_snapshot_version(storage) or self._first_snapshot_version(storage)

    def written_snapshot_version(self, storage: Storage) -> int | None:
        """Return the version of the existing snapshots; None if there is none yet."""
        for chain in self._unique_chains(storage):
            if chain[0].kind is FileKind.ZIP:
                path = chain[0].render()
                return parse_snapshot(storage.read(path), path, whole=False).version
        return None

    def _first_snapshot_version(self, storage: Storage) -> int:
        if self._is_fixed_by_later_sparks:
            return 1
        for chain in self._unique_chains(storage):
            has_checksum = storage.size(layout.SparkChecksumFile(chain[-1].render()).render()) is not None
            return 1 if has_checksum else _OF_SPARK_4_0
        return 1

    def _unique_chains(self, storage: Storage) -> Iterator[tuple[StoreFile, ...]]:
        """Yield the files of each store whose files are named as in state format 2."""
        for partition in range(self.partitions):
            for name in self.store_names:
                chain = self.chain(storage, StoreId(self.operator_id, partition, name))
                if chain and chain[0].unique_id is not None:
                    yield tuple(chain)

    def stream(self, storage: Storage, file: StoreFile) -> bytes:
        """Return the decompressed records of a change file, or of a file of the memory provider.

        Raises:
            NotFound: The file is missing.
            Corrupt: The file is damaged.
        """
        path = file.render()
        return decompressed(storage.read(path), self.codec, path)

    def _key_form(self, store: str, schema: ColumnFamily | None, where: str) -> KeyForm:
        if schema is not None and schema.encoder.strip():
            return parse_encoder(schema.encoder, where)
        columns = self._prefix_columns(store, schema, where)
        return prefix_form(columns, where) if columns else KeyForm()

    def _prefix_columns(self, store: str, schema: ColumnFamily | None, where: str) -> int:
        if self._metadata is None:
            return 0 if schema is None else session_columns(schema, where)
        infos = self._metadata.fields.get("stateStoreInfo", ())
        return next(
            (
                whole_number(info, PREFIX_COLUMNS, "the metadata of an operator", where, 0)
                for info in infos
                if info.get("storeName") == store
            ),
            0,
        )


def operator_states(storage: Storage, batch_id: int | None = None) -> list[OperatorStates]:
    """Return the stateful operators at a committed batch.

    Args:
        storage: The checkpoint, or a savepoint's view.
        batch_id: The batch; the newest by default.

    Returns:
        The operators; empty if no batch was given and none is committed.

    Raises:
        NotFound: The checkpoint does not exist, or the batch is not committed.
        Corrupt: A file that was read is damaged.
        Unsupported: The state's provider is not supported.
    """
    logs = Logs(storage)
    read_query_id(storage, logs)
    wanted = logs.newest if batch_id is None else batch_id
    if wanted is None:
        return []
    if wanted not in logs.committed:
        raise batch_not_kept(storage, logs.committed, wanted)
    offsets = logs.offsets(wanted)
    operators = []
    for noted in noted_operators(storage, wanted):
        folder = noted.folder
        schemas = {name: _schema(storage, folder.operator_id, name, wanted) for name in noted.store_names}
        partitions = partitions_of(storage, folder, noted.metadata, offsets, wanted)
        operators.append(OperatorStates(logs, wanted, noted, schemas, partitions, storage.uri))
    return operators


def _value_form(offsets: OffsetLog | None, where: str) -> ValueForm:
    confs = {} if offsets is None else offsets.confs
    provider = known_provider(confs, where)
    version = confs.get(MERGE_OPERATOR, "1")
    if version not in _DELIMITERS:
        raise Unsupported(
            "unsupported version of the RocksDB merge operator",
            code="HF-E7039",
            where=where,
            found=f"{MERGE_OPERATOR} = {version}",
            expected=f"{MERGE_OPERATOR} = {' or '.join(_DELIMITERS)}",
            hint="upgrade Holdfast: a newer Spark wrote this state",
        )
    rocksdb = provider == ROCKSDB_PROVIDER
    return ValueForm(
        rocksdb=rocksdb,
        checksums=confs.get(ROW_CHECKSUM, "false") == "true",
        delimiter=_DELIMITERS[version],
        avro=rocksdb and confs.get(ENCODING, "unsaferow").lower() == _AVRO,
    )


def _schema(storage: Storage, operator_id: int, store: str, batch_id: int) -> dict[str, ColumnFamily]:
    """Return the newest schema of a store, by column family."""
    folder = f"{layout.STATE}/{operator_id}/{layout.STATE_SCHEMA}/{store}"
    places = [
        place
        for name in storage.list(folder).names
        if isinstance(place := layout.parse(f"{folder}/{name}"), SchemaFile)
        and (place.batch_id or 0) <= batch_id
    ]
    newest = max(places, key=lambda place: place.batch_id or 0, default=SchemaFile(operator_id, store))
    path = newest.render()
    try:
        data = storage.read(path)
    except NotFound:
        return {}
    return {family.name: family for family in parse_schema(data, path).families}
