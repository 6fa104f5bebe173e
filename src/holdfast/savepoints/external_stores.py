"""The state of a savepoint, brought into a database: new stores, beside those that exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import ProgressCallback, Tree
from holdfast.checkpoints.state.rows import store_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, operator_states
from holdfast.errors import Corrupt, HoldfastError, Invalid, Unsupported
from holdfast.external.databases import Databases, address_of, database_at, require_named
from holdfast.external.named_addresses import name_database
from holdfast.external.store_port import PLAIN, ExternalStore, index_of, packed, prefixed
from holdfast.external.view import (
    DESCRIPTION,
    description_path,
    parse_description,
    render_description,
    with_confs,
)
from holdfast.formats.logs.batch_logs import ROW_CHECKSUM, parse_offsets
from holdfast.formats.providers import ExternalState, external_state
from holdfast.formats.rows.row_forms import KeyKind
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.layout import DEFAULT_STORE, StoreId
from holdfast.storage.port import Storage, full

_WRITING: Final = "writing state to the database"


def outside(external: ExternalState | None, database: str | None, where: str) -> ExternalState | None:
    """Return the database for a savepoint's state: its own, or a different one of the same kind.

    Cost: the database is asked whether it answers.

    Args:
        external: Where it was; None for files.
        database: The address of another database.
        where: The savepoint, for messages.

    Raises:
        Invalid: The state was in files, the address is not valid, or only the savepoint names it.
        Unavailable: The database does not answer.
        Unsupported: Its library is not installed.
    """
    if external is None:
        if database is None:
            return None
        raise Invalid(
            "the state of this savepoint was in files, and a restore leaves it where it was",
            code="HF-E2248",
            where=where,
            found=f"--database {database}",
            hint="leave it out, or move the state with `holdfast state migrate SAVEPOINT --backend …`",
        )
    wanted = external
    if database is not None:
        wanted = replace(external, database=address_of(external.provider, database))
        name_database(wanted.database)
    require_named(wanted.database, where)
    database_at(wanted.database).ping()
    return wanted


def refuse_unfit(operator: OperatorStates, external: ExternalState) -> None:
    """See that Spark's provider for the database can keep an operator's state.

    Args:
        operator: The operator.
        external: The database.

    Raises:
        Unsupported: It cannot.
    """
    for codec in operator.declared_codecs():
        if (
            codec.name.family != DEFAULT_STORE
            or codec.values.avro
            or codec.key_form.kind
            not in (
                KeyKind.ROW,
                KeyKind.PREFIX,
            )
        ):
            raise Unsupported(
                f"{external.kind} cannot hold this operator: it has no column families, no keys in order and"
                " no Avro",
                code="HF-E7095",
                where=codec.where,
                found=f"operator {operator.named.label}",
                expected="an aggregate, a deduplication, session windows, or a join of format 2",
                hint="leave its state on RocksDB",
            )


def offsets_outside(data: bytes, path: str, external: ExternalState) -> bytes:
    """A batch of the offset log as it is with its state in the database."""
    offsets = parse_offsets(data, path)
    if external_state(offsets.confs) is None:
        return data
    return with_confs(offsets, {**external.pinned(offsets.confs), ROW_CHECKSUM: "false"}).render()


def write_stores(
    view: Storage,
    target: Storage,
    batch_id: int,
    query_id: str,
    external: ExternalState,
    token: str,
    tell: ProgressCallback | None = None,
) -> None:
    """Bring all state at a batch into new stores, read it back, and name them in a checkpoint that is made.

    The stores that a query uses, and whatever else is in the database, are not touched. Killed, it is begun
    again with the same token, and writes the same stores anew.

    Cost: all state is read, written, and read once more; a partition's is held in memory.

    Args:
        view: The savepoint as a checkpoint.
        target: The checkpoint that is to be made.
        batch_id: The batch.
        query_id: The query that is to continue.
        external: The database.
        token: What no other checkpoint's stores have in their names.
        tell: Called with stores done, stores in all, and what is being done.

    Raises:
        Corrupt: The state is damaged, or does not read as it was written.
        Conflict: A query uses a store of that name.
        Unsupported: An operator that Spark cannot keep there.
        Unavailable: The database does not answer, or is full.
    """
    databases = Databases()
    operators = operator_states(view, batch_id)
    for operator in operators:
        refuse_unfit(operator, external)
    stores = [
        (operator, StoreId(operator.operator_id, partition, name))
        for operator in operators
        for partition in range(operator.partitions)
        for name in operator.store_names
    ]
    for done, (operator, store) in enumerate(stores):
        if tell is not None:
            tell(done, len(stores), _WRITING)
        place = f"{query_id}/{store.operator_id}/{store.partition}/{store.name}/{token}"
        one = databases.store(external.database, f"{external.prefix}:{{{place}}}", view.uri)
        _write(view, operator, store, one, batch_id + 1, index_of(external.prefix, query_id))
        target.write(description_path(store), render_description(external.database, one.name))


def clear_stores(target: Storage) -> None:
    """Delete the stores that a checkpoint names, which nobody has used; what cannot be deleted stays."""
    databases = Databases()
    for path, _ in Tree(target).places():
        if layout.split(path)[1] == DESCRIPTION:
            with suppress(HoldfastError):
                where = full(target.uri, path)
                databases.store(*parse_description(target.read(path), where), where).clear()


def _write(
    view: Storage, operator: OperatorStates, store: StoreId, one: ExternalStore, version: int, index: str
) -> None:
    codec = operator.codec_of(store.name, DEFAULT_STORE)
    schema = codec.require_schema()
    columns = len(codec.key_form.first) if codec.key_form.kind is KeyKind.PREFIX else 0
    rows = _rows(view, operator, store)
    fields = _by_prefix(codec, columns, rows) if columns else dict(rows)
    facts = {
        "keySchema": schema.key_schema,
        "valueSchema": schema.value_schema,
        "encoder": prefixed(columns) if columns else PLAIN,
    }
    one.write(version, fields.items(), facts, index)
    _, found = one.scan(version)
    if found != fields:
        raise Corrupt(
            "a store does not read as it was written",
            code="HF-E6044",
            where=one.where,
            found=f"{len(found):,} fields",
            expected=f"{len(fields):,} fields",
            hint="restore once more; if it happens again, look at what else writes to this database",
        )


def _rows(view: Storage, operator: OperatorStates, store: StoreId) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values as UnsafeRows, with nothing around them."""
    chunks = store_chunks(view, operator, store)
    return chain.from_iterable(
        ((codec.key_row(key), codec.values.rows(value, codec.where)[0][0]) for key, value in pairs)
        for codec, pairs in chunks
    )


def _by_prefix(codec: StateCodec, columns: int, rows: Iterator[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    first = codec.first_fields(columns)
    prefix = RowCodec(first)
    together: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for key, value in rows:
        values = codec.key_values(key)
        field = prefix.encode({name: values[name] for name in first.names})
        together.setdefault(field, []).append((key, value))
    return {field: packed(some) for field, some in together.items()}
