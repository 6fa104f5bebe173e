"""Write the state of a savepoint to new stores in a database."""

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

    Cost: one request to check that the database answers.

    Args:
        external: The original database; None for state in files.
        database: The address of a different database.
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
            "--database does not apply to a savepoint with state in files",
            code="HF-E2248",
            where=where,
            found=f"--database {database}",
            hint="omit --database; `holdfast state migrate SAVEPOINT --backend …` moves state into a"
            " database",
        )
    wanted = external
    if database is not None:
        wanted = replace(external, database=address_of(external.provider, database))
        name_database(wanted.database)
    require_named(wanted.database, where)
    database_at(wanted.database).ping()
    return wanted


def refuse_unfit(operator: OperatorStates, external: ExternalState) -> None:
    """Raise an error if Spark's provider for the database cannot keep an operator's state.

    Args:
        operator: The operator.
        external: The database.

    Raises:
        Unsupported: The provider cannot keep it.
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
                f"{external.kind} cannot hold the state of this operator, because the Spark provider supports"
                " no column families, ordered keys or Avro",
                code="HF-E7095",
                where=codec.where,
                found=f"operator {operator.named.label}",
                expected="an aggregate, a deduplication, session windows, or a join of format 2",
                hint="keep the state of the operator in RocksDB",
            )


def offsets_outside(data: bytes, path: str, external: ExternalState) -> bytes:
    """Return a batch of the offset log for state in the database."""
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
    """Write all state at a batch to new stores, read it back, and name the stores in a new checkpoint.

    Stores that a query uses and other data in the database are not changed. After a kill, a new call with
    the same token writes the same stores again.

    Cost: all state is read, written and read back; the state of one partition is held in memory.

    Args:
        view: The savepoint as a checkpoint.
        target: The new checkpoint.
        batch_id: The batch.
        query_id: The query that is to continue.
        external: The database.
        token: A part of the stores' names, unique per checkpoint.
        tell: Called with the number of finished stores, the number of all stores, and the current step.

    Raises:
        Corrupt: The state is damaged, or the state read back differs from what was written.
        Conflict: A query uses a store of this name.
        Unsupported: Spark cannot keep the state of an operator in this database.
        Unavailable: The database does not answer, or is full.
    """
    databases = Databases()
    operators = operator_states(view, batch_id)
    for operator in operators:
        refuse_unfit(operator, external)
    stores = [(operator, store) for operator in operators for store in operator.stores()]
    for done, (operator, store) in enumerate(stores):
        if tell is not None:
            tell(done, len(stores), _WRITING)
        place = f"{query_id}/{store.operator_id}/{store.partition}/{store.name}/{token}"
        one = databases.store(external.database, f"{external.prefix}:{{{place}}}", view.uri)
        _write(view, operator, store, one, batch_id + 1, index_of(external.prefix, query_id))
        target.write(description_path(store), render_description(external.database, one.name))


def clear_stores(target: Storage) -> None:
    """Delete the unused stores that a checkpoint names; stores that cannot be deleted are skipped."""
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
            "the rows read back from the database differ from those written",
            code="HF-E6044",
            where=one.where,
            found=f"{len(found):,} fields",
            expected=f"{len(fields):,} fields",
            hint="restore again; if it happens again, check which other programs write to this database",
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
