"""The layout of an operator's state: key groups, tables, columns and blobs.

A blob is a change or a base of one key group: a serialized Arrow batch for each table, without its schema.
The group stores each schema once under its fingerprint, so an old blob is always read with the columns with
which it was written, and then converted to the current ones.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.errors import Corrupt
from holdfast.worker.declarations.state_descriptors import State, StateKind
from holdfast.worker.interface import (
    DUE_EVENT,
    DUE_PROCESSING,
    SLOT_PREFIX,
    STAMP_PREFIX,
    TIMERS,
    VALUE_PREFIX,
)
from holdfast.worker.state.group_numbers import EVEN, Numbering

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes
    from holdfast.worker.interface import Placing


def group_of(h: Hashes, key_groups: int) -> NDArray[np.int64]:
    """Return the key group of each hash; a group is a range of the 2**64 hashes."""
    places = (h >> np.uint64(32)) * np.uint64(key_groups) >> np.uint64(32)
    return np.asarray(places, np.int64)


def range_of(group: int, key_groups: int) -> tuple[int, int | None]:
    """Return the range of a group's hashes: the first, and the first after the group, None for the last
    group.
    """
    low = -(-(group << 32) // key_groups) << 32
    return low, None if group + 1 == key_groups else -(-((group + 1) << 32) // key_groups) << 32


@lru_cache(maxsize=4)
def numbers_of(key_groups: int, numbering: Numbering) -> NDArray[np.int64 | np.int32]:
    """Return the numbers under which groups are stored, in the order of the groups."""
    numbers = [numbering.number_of(group) for group in range(key_groups)]
    return np.array(numbers, np.int64 if numbering.even else np.int32)


KEY_PREFIX = "key:"
OPERATOR = "operator"  # the field of a stored schema with the operator's name
ROWS = ""  # the name of the table with one row per key; each other table has the name of its state

_BLOB = struct.Struct("<8sB")
_PART = struct.Struct("<BI")
_IDENTITY = (pa.field("h", pa.uint64()), pa.field("ord", pa.int32()))


@dataclass(frozen=True, slots=True)
class BlobSchema:
    """The schema of one operator's blobs: the tables of its state.

    Attributes:
        tables: The schema of each table by name, the table of keys first.
        states: The declaration of each state in plain values: kind, type and TTL.
        fingerprint: Eight bytes that identify the schema.
    """

    tables: Mapping[str, pa.Schema]
    states: Mapping[str, Mapping[str, Any]]
    fingerprint: bytes = field(default=b"")

    def as_json(self) -> dict[str, Any]:
        """Return the schema as plain values for JSON; `form_from_json` reads them back."""
        tables = {
            name: base64.b64encode(schema.serialize().to_pybytes()).decode()
            for name, schema in self.tables.items()
        }
        return {"tables": tables, "states": {name: dict(declared) for name, declared in self.states.items()}}

    @property
    def slots(self) -> frozenset[str]:
        """Return the names of the states that have several elements per key."""
        names = self.tables[ROWS].names
        return frozenset(name.removeprefix(SLOT_PREFIX) for name in names if name.startswith(SLOT_PREFIX))

    @property
    def content(self) -> tuple[str, ...]:
        """Return the columns of the table of keys that are non-null only if a key has state."""
        prefixes = (VALUE_PREFIX, SLOT_PREFIX)
        return tuple(name for name in self.tables[ROWS].names if name.startswith(prefixes) or name == TIMERS)


def stored_types(form: BlobSchema, name: str) -> tuple[pa.DataType, pa.DataType | None]:
    """Return the stored types of a state's values and of a map's keys."""
    if form.states[name]["kind"] in (StateKind.LIST.value, StateKind.MAP.value, StateKind.BROADCAST.value):
        table = form.tables[name]
        return table.field("v").type, table.field("k").type if "k" in table.names else None
    return form.tables[ROWS].field(f"{VALUE_PREFIX}{name}").type, None


def form_of(states: Sequence[State], keys: pa.Schema, *, timers: bool) -> BlobSchema:
    """Return the blob schema of a processor's state, for keys of these columns."""
    rows = [*_IDENTITY, pa.field("dead", pa.bool_())]
    rows += [pa.field(f"{KEY_PREFIX}{at}", key.type) for at, key in enumerate(keys)]
    tables: dict[str, pa.Schema] = {}
    for state in states:
        stamp = pa.field(f"{STAMP_PREFIX}{state.name}", pa.int64())
        if state.has_elements:
            if state.of_keys:
                rows.append(pa.field(f"{SLOT_PREFIX}{state.name}", pa.int64()))
            tables[state.name] = _elements(state)
        else:
            rows.append(pa.field(f"{VALUE_PREFIX}{state.name}", state.type))
            rows += [stamp] if state.ttl else []
    if timers:
        rows += [pa.field(TIMERS, pa.string()), pa.field(DUE_EVENT, pa.int64())]
        rows.append(pa.field(DUE_PROCESSING, pa.int64()))
    form = BlobSchema({ROWS: pa.schema(rows), **tables}, {state.name: _declared(state) for state in states})
    return _stamped(form)


def form_from_json(fields: Mapping[str, Any]) -> BlobSchema:
    """Return the blob schema that `BlobSchema.as_json` wrote."""
    tables = {
        name: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
        for name, text in fields["tables"].items()
    }
    return _stamped(BlobSchema(tables, fields["states"]))


def forms_text(forms: Mapping[str, Any], operator: str) -> bytes:
    """Return the schemas of a group's blobs as JSON, each with the name of the operator.

    Args:
        forms: The schemas as plain values, by fingerprint.
        operator: The user's name of the operator.
    """
    return json.dumps({mark: {**fields, OPERATOR: operator} for mark, fields in forms.items()}).encode()


def operator_in(forms: bytes | None) -> str | None:
    """Return the operator that wrote a group, or None if the group was written without a name.

    Args:
        forms: The schemas of the group's blobs, as `forms_text` wrote them.
    """
    known: dict[str, Any] = json.loads(forms or b"{}")
    return next((fields[OPERATOR] for fields in known.values() if OPERATOR in fields), None)


def encode(form: BlobSchema, batches: Mapping[str, pa.RecordBatch]) -> bytes:
    """Encode rows of some tables as one blob."""
    names = list(form.tables)
    parts = [_BLOB.pack(form.fingerprint, len(batches))]
    for name, batch in batches.items():
        data = batch.serialize()
        parts += [_PART.pack(names.index(name), data.size), data]
    return b"".join(parts)


def fingerprint_of(blob: bytes) -> bytes:
    """Return the fingerprint of a blob's schema."""
    return bytes(blob[:8])


def decode(form: BlobSchema, blob: bytes) -> dict[str, pa.RecordBatch]:
    """Decode the rows of a blob that was written with this schema.

    Raises:
        Corrupt: The bytes are not a valid blob.
    """
    names = list(form.tables)
    batches: dict[str, pa.RecordBatch] = {}
    try:
        for index, message in messages(blob):
            name = names[index]
            batches[name] = pa.ipc.read_record_batch(message, form.tables[name])
    except (struct.error, IndexError, pa.ArrowInvalid, OSError) as error:
        raise Corrupt(
            "a blob of keyed state cannot be read",
            code="HF-E6059",
            found=str(error),
            hint="restore a savepoint, or an undamaged batch, as listed by"
            " `holdfast checkpoint verify CHECKPOINT`",
        ) from error
    return batches


def messages(blob: bytes) -> Iterator[tuple[int, pa.Buffer]]:
    """Yield the Arrow messages in a blob, each with the number of its table.

    Raises:
        struct.error: The bytes are not a valid blob.
    """
    buffer = pa.py_buffer(blob)
    _, count = _BLOB.unpack_from(blob)
    at = _BLOB.size
    for _ in range(count):
        index, size = _PART.unpack_from(blob, at)
        at += _PART.size
        yield index, buffer.slice(at, size)
        at += size


def _stamped(form: BlobSchema) -> BlobSchema:
    import hashlib

    text = json.dumps(form.as_json(), sort_keys=True).encode()
    return BlobSchema(form.tables, form.states, hashlib.blake2b(text, digest_size=8).digest())


def _elements(state: State) -> pa.Schema:
    fields = [*_IDENTITY, pa.field("slot", pa.int64()), pa.field("dead", pa.bool_())]
    if state.kind is not StateKind.LIST:
        fields.append(pa.field("k", state.key_type))
    fields.append(pa.field("v", state.type))
    if state.ttl:
        fields.append(pa.field("t", pa.int64()))
    return pa.schema(fields)


def _declared(state: State) -> dict[str, Any]:
    declared: dict[str, Any] = {"kind": state.kind.value, "type": str(state.type)}
    if state.key_type is not None:
        declared["key_type"] = str(state.key_type)
    if state.ttl is not None:
        declared["ttl_ms"] = state.ttl.duration_ms
        declared["clock"] = state.ttl.clock
        declared["on_disable"] = state.ttl.on_disable
    return declared


_TTL = ("ttl_ms", "clock", "on_disable")


@dataclass(frozen=True, slots=True)
class Period:
    """A period in which an operator's state had one schema; a schema that is used again starts a new period.

    Attributes:
        mark: The schema's fingerprint in hexadecimal.
        since_ms: The start of the first run with the schema in epoch milliseconds, or None if not recorded.
        states: The declarations of the schema's states.
    """

    mark: str
    since_ms: int | None
    states: Mapping[str, Mapping[str, Any]] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Layout:
    """The constants of an operator's state.

    Attributes:
        operator: The user's name of the operator.
        key_groups: The number of key groups.
        states: The declared states, including that of a broadcast stream.
        form: The blob schema of the states.
        key_names: The user's names of the key columns.
        drop: The former states that may be deleted; "timers" for the timers of a processor that has none.
        started_ms: The start of this run in epoch milliseconds; values without a timestamp count their age
            from it.
        memory_bytes: The approximate memory limit of a worker for one pass.
        placement: The function that places keys into key groups, or None to place them by hash.
        numbering: The numbering of the stored key groups.
        periods: The periods of the state's schemas, the current one last; empty if not recorded.
        compared: Whether the start of the query has compared the names of all operators with the checkpoint.
    """

    operator: str
    key_groups: int
    states: tuple[State, ...]
    form: BlobSchema
    key_names: tuple[str, ...]
    drop: tuple[str, ...] = ()
    started_ms: int = 0
    memory_bytes: int = 256 << 20
    placement: Placing | None = None
    numbering: Numbering = EVEN
    periods: tuple[Period, ...] = ()
    compared: bool = False


def continued(periods: Sequence[Period], layout: Layout) -> tuple[Period, ...]:
    """Return the periods after a start with this layout."""
    mark = layout.form.fingerprint.hex()
    if periods and periods[-1].mark == mark:
        return tuple(periods)
    return (*periods, Period(mark, layout.started_ms, layout.form.states))


def periods_as_text(periods: Sequence[Period]) -> str:
    """Return the periods as JSON, each with the TTLs of its states; `periods_from_text` reads them back."""
    return json.dumps(
        [
            (
                period.mark,
                period.since_ms,
                {
                    name: {word: declared[word] for word in _TTL if word in declared}
                    for name, declared in period.states.items()
                },
            )
            for period in periods
        ]
    )


def periods_from_text(text: str) -> tuple[Period, ...]:
    """Return the periods that `periods_as_text` wrote."""
    return tuple(Period(*fields) for fields in json.loads(text))
