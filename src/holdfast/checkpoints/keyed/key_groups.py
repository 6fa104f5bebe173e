"""The key groups of Holdfast's own keyed operators, out of the rows that Spark keeps for them.

Spark's store has four entries for a key group: its record, the forms of its tables, and the rows as blobs, a
base and the changes since. Here a group's rows are put together again as they stand, without the program that
wrote them: each in the form that it was written in.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from holdfast.checkpoints.keyed.kept_blobs import KeptBlobs
from holdfast.checkpoints.problems import SEE_DAMAGE
from holdfast.checkpoints.state.families import Pairs
from holdfast.checkpoints.state.rows import state_chunks, stored_values
from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.checkpoints.values import ProgressCallback
from holdfast.errors import Corrupt
from holdfast.formats.files.arrow import is_packed
from holdfast.formats.operators import KEYED_VARIABLES
from holdfast.formats.rows.spark_types import Atom, Struct
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.layout import StoreId
from holdfast.storage.port import Storage
from holdfast.worker.state.group_numbers import MOST_GROUPS, Numbering, numbering_by
from holdfast.worker.state.store import BASE, FORMS, LOG, META, Meta, Stored

if TYPE_CHECKING:
    from holdfast.worker.state.blob_schema import BlobSchema
    from holdfast.worker.state.tables.runs import Run

KEY_GROUP: Final = "key_group"
# The value of an entry that is of bytes, as an UnsafeRow.
BLOB: Final = RowCodec(Struct(("b",), (Atom("binary"),)))
# What stands before the rows in a message of Arrow's: some hundred bytes for each column.
_LONGEST_HEAD: Final = 1 << 20
_UNREADABLE: Final = (
    *(ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError),
    *(OSError, MemoryError, RuntimeError, struct.error, Corrupt),
)


def is_keyed(operator: OperatorStates) -> bool:
    """Whether an operator is one of Holdfast's own."""
    return {codec.name.family for codec in operator.known() if not codec.name.internal} == KEYED_VARIABLES


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """What is stored for one key group.

    Attributes:
        group: Its number.
        meta: Its record, as bytes; None where there is none.
        forms: The forms of its tables, as JSON.
        base: Its base.
        log: The changes since, in order.
    """

    group: int
    meta: bytes | None
    forms: bytes
    base: tuple[bytes, ...]
    log: tuple[bytes, ...]

    def record(self, where: str) -> Meta:
        """Its record.

        Raises:
            Corrupt: There is none, or it cannot be read.
        """
        if self.meta is None:
            raise Corrupt(
                "a key group has no record", where=where, found=f"key group {self.group}", hint=SEE_DAMAGE
            )
        return Meta.decode(self.meta)

    def known(self, where: str) -> Mapping[bytes, BlobSchema]:
        """The forms by their fingerprints.

        Raises:
            Corrupt: They cannot be read.
        """
        try:
            return _forms_of(self.forms)
        except _UNREADABLE as error:
            raise self.unreadable(where, error) from error

    def unreadable(self, where: str, error: Exception) -> Corrupt:
        """The error for what is no key group."""
        return Corrupt(
            "a key group cannot be read", where=where, found=f"{self.group}: {error}", hint=SEE_DAMAGE
        )


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a group that were written in one form.

    Attributes:
        form: The form.
        tables: Rows by table, in the order of their identities.
    """

    form: BlobSchema
    tables: Mapping[str, Run]


def parts_of(group: KeyGroup, where: str, *, dead: bool = False) -> list[Part]:
    """A group's rows as they stand, by the forms they were written in, the earliest form first.

    Of each identity the last row counts, and one that is marked as gone is left out. Nearly always all is of
    one form; of several after an upgrade, until the group has got a new base.

    Args:
        group: The group.
        where: The operator, for messages.
        dead: Keep the last rows that are marked as gone. Who writes rows of several forms needs them: a state
            that was renamed has rows in tables of both names.

    Raises:
        Corrupt: A blob cannot be read.
    """
    known = group.known(where)
    try:
        parts = _parts(group, known)
        if dead:
            return parts
        return [Part(part.form, {name: run.alive() for name, run in part.tables.items()}) for part in parts]
    except _UNREADABLE as error:
        raise group.unreadable(where, error) from error


def _parts(group: KeyGroup, known: Mapping[bytes, BlobSchema]) -> list[Part]:
    import pyarrow as pa

    from holdfast.worker.state.blob_schema import decode, fingerprint_of
    from holdfast.worker.state.tables.runs import concatenated, sorted_run

    stretches: list[tuple[BlobSchema, dict[str, list[pa.RecordBatch]]]] = []
    for blob in (*group.base, *group.log):
        form = known[fingerprint_of(blob)]
        if not stretches or stretches[-1][0] is not form:
            stretches.append((form, {}))
        _require_plain(blob)
        for name, batch in decode(form, blob).items():
            batch.validate(full=True)
            stretches[-1][1].setdefault(name, []).append(batch)
    parts = [
        Part(form, {name: sorted_run(concatenated(found)) for name, found in tables.items()})
        for form, tables in stretches
    ]
    return _latest(parts) if len(parts) > 1 else parts


def _require_plain(blob: bytes) -> None:
    """Refuse what Arrow would unpack to as much as it says.

    Raises:
        ValueError: A batch in it is packed, which none of ours is.
    """
    from holdfast.worker.state.blob_schema import messages

    for _, message in messages(blob):
        if is_packed(bytes(message[:_LONGEST_HEAD])):
            raise ValueError("a packed batch of rows, and Holdfast packs none")


def _latest(parts: list[Part]) -> list[Part]:
    """Each part without the rows that a later one replaces."""
    import numpy as np

    made: list[dict[str, Run]] = [{} for _ in parts]
    for name in {name: None for part in parts for name in part.tables}:
        runs = [(at, part.tables[name]) for at, part in enumerate(parts) if name in part.tables]
        order: list[Any] = [np.concatenate([np.full(len(run), at) for at, run in runs])]
        if runs[0][1].slot is not None:
            order.append(np.concatenate([run.slot for _, run in runs if run.slot is not None]))
        order += [np.concatenate([run.ord for _, run in runs]), np.concatenate([run.h for _, run in runs])]
        places = np.lexsort(order)
        last = np.ones(len(places), np.bool_)
        if len(places):
            last[:-1] = np.logical_or.reduce([keys[places][1:] != keys[places][:-1] for keys in order[1:]])
        keep = np.zeros(len(places), np.bool_)
        keep[places[last]] = True
        start = 0
        for at, run in runs:
            made[at][name] = run.take(keep[start : start + len(run)])
            start += len(run)
    return [Part(part.form, tables) for part, tables in zip(parts, made, strict=True)]


@lru_cache(maxsize=64)
def _forms_of(text: bytes) -> dict[bytes, BlobSchema]:
    from holdfast.worker.state.blob_schema import form_from_json

    return {bytes.fromhex(mark): form_from_json(form) for mark, form in json.loads(text or b"{}").items()}


@dataclass(slots=True)
class KeyGroups:
    """The key groups of one partition, gathered as their rows are read.

    Attributes:
        storage: The checkpoint, which says where blobs are that it has only the names of.
        blobs: What each group has, by the variable that it is in: its record and the forms of its tables,
            a blob each, its base, and its changes since in their order.
    """

    storage: Storage
    blobs: dict[str, dict[int, tuple[bytes, ...]]] = field(
        default_factory=lambda: {name: {} for name in KEYED_VARIABLES}
    )

    def add(self, codec: StateCodec, pairs: Pairs) -> None:
        """Take in rows of Spark's store; those that are not ours are left out."""
        blobs = self.blobs.get(codec.name.family)
        if blobs is None:
            return
        for key, value in pairs:
            blobs[group_of_key(codec, key)] = blobs_in(codec, value)

    def groups(self) -> Iterator[KeyGroup]:
        """What was gathered, ascending, with the blobs that are in a database.

        Raises:
            Corrupt: A blob is gone or damaged.
            Unavailable: The database does not answer.
        """
        kept = KeptBlobs(self.storage)
        metas, forms, bases, logs = (self.blobs[name] for name in (META, FORMS, BASE, LOG))
        for group in sorted(metas.keys() | bases.keys() | logs.keys()):
            meta = metas[group][0] if group in metas else None
            form = forms[group][0] if group in forms else b"{}"
            stored = Stored(form, bases.get(group, ()), logs.get(group, ()))
            whole = kept.of_group(group, stored)
            yield KeyGroup(group, meta, form, tuple(whole.base), tuple(whole.log))


def stored_groups(
    storage: Storage, operator: OperatorStates, tell: ProgressCallback | None = None
) -> Iterator[KeyGroup]:
    """Every key group of an operator that has state, partition by partition.

    Cost: all state of the operator is read, and one partition's held.

    Args:
        storage: The checkpoint, or a savepoint's view.
        operator: The operator.
        tell: Called with stores done, stores in all, and what is being done.

    Raises:
        NotFound: A file that the batch needs is gone.
        Corrupt: A file or a row is damaged.
    """
    gathered, current = KeyGroups(storage), 0
    for codec, partition, pairs in state_chunks(
        storage, operator.batch_id, operator_id=operator.operator_id, tell=tell
    ):
        if partition != current:
            yield from gathered.groups()
            gathered, current = KeyGroups(storage), partition
        gathered.add(codec, pairs)
    yield from gathered.groups()


def stored_group(storage: Storage, operator: OperatorStates, group: int) -> KeyGroup | None:
    """One key group, looked up in the partition that it is in; None where it has no state.

    Raises:
        NotFound: A file that the batch needs is gone.
        Corrupt: A file or a row is damaged.
    """
    numbering = numbering_of(operator)
    row = group_key(numbering, group)
    name = operator.store_names[0]
    store = StoreId(operator.operator_id, numbering.partition_of(group, operator.partitions), name)
    # Before a row stands a byte that says of which kind it is.
    key = b"\0" + row if operator.values.rocksdb else row
    found = stored_values(storage, operator, store, [(family, key) for family in KEYED_VARIABLES])
    gathered = KeyGroups(storage)
    for (family, _), value in found.items():
        gathered.add(operator.codec_of(name, family), [(key, value)])
    return next(gathered.groups(), None)


@lru_cache(maxsize=2)
def group_row(numbering: Numbering) -> RowCodec:
    """What writes the key of our rows: the number under which a group is stored."""
    return RowCodec(Struct((KEY_GROUP,), (Atom(numbering.key_type),)))


def group_key(numbering: Numbering, group: int) -> bytes:
    """The key of a group's rows."""
    return group_row(numbering).encode({KEY_GROUP: numbering.number_of(group)})


def numbering_of(operator: OperatorStates) -> Numbering:
    """How an operator's groups are stored, as the type of its keys tells."""
    return _numbering(operator.codec_of(operator.store_names[0], META))


def blobs_in(codec: StateCodec, value: bytes) -> tuple[bytes, ...]:
    """What an entry of our store has: one of bytes, or a list of them."""
    rows, _ = codec.values.rows(value, codec.where)
    return tuple(bytes(codec.value_values(row)["b"]) for row in rows)


def group_of_key(codec: StateCodec, key: bytes) -> int:
    """The group that a key of our rows is of, as it is stored.

    Raises:
        Corrupt: It is of none.
    """
    number = int(next(iter(codec.key_values(codec.key_row(key)).values())))
    group = _numbering(codec).group_at(number)
    if not 0 <= group < MOST_GROUPS:
        raise Corrupt(
            "no key group is stored under this number",
            where=codec.where,
            found=str(number),
            hint=SEE_DAMAGE,
        )
    return group


def _numbering(codec: StateCodec) -> Numbering:
    (key_type,) = codec.key_type.types
    return numbering_by(getattr(key_type, "name", ""))
