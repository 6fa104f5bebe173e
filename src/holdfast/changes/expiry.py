"""Savepoints without expired values of keyed state.

A value has expired if the clock of its state, at the batch, has reached its stamp plus the TTL. The clock is
the time at which the batch was planned, or its watermark; no other clock is read, so the same batch always
gives the same result. Timers do not expire, and a key with a timer is kept.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from holdfast.at_rest.keyed_reader import KeyedStateReader
from holdfast.at_rest.model import NamedOperator
from holdfast.at_rest.state_reader import StateReader
from holdfast.at_rest.tables import EXPIRES
from holdfast.changes.edit.changed_savepoint import derive_changed
from holdfast.changes.keyed.group_blobs import brought, joined, living_parts, written
from holdfast.changes.keyed.store_rows import GroupChange, group_rows
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.keyed import KeyGroup, KeyRow, Part, key_rows
from holdfast.clock import now_ms
from holdfast.errors import Internal, Unsupported
from holdfast.formats.manifest import ERASURES, EXPIRED, Manifest
from holdfast.json_shapes import JsonShape
from holdfast.layout import StoreId
from holdfast.quantities import counted
from holdfast.savepoints import leases
from holdfast.savepoints.address import Address, StateAddress
from holdfast.savepoints.catalog import savepoint_uri
from holdfast.savepoints.proof import prove
from holdfast.savepoints.store_edits import RowChange
from holdfast.savepoints.taking import Taken
from holdfast.savepoints.view import SavepointView, workplace
from holdfast.storage import open_storage
from holdfast.storage.port import Storage
from holdfast.worker.declarations.handler_arguments import Clock
from holdfast.worker.declarations.state_descriptors import State, StateKind, Ttl
from holdfast.worker.interface import Moment
from holdfast.worker.runtime.ttl import expired
from holdfast.worker.state.layout import ROWS, BlobSchema, stored_types
from holdfast.worker.state.tables import Run, empty_run
from holdfast.worker.state.upkeep import Cleaner

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Dropped(JsonShape):
    """The expired values of one state.

    Attributes:
        operator: The name of the operator.
        state: The name of the state.
        clock: The clock for expiry: `processing` or `event`.
        as_of_ms: The time of this clock at the batch, in epoch milliseconds; None without a watermark.
        values: The number of values, elements of lists and entries of maps that had expired.
    """

    operator: str
    state: str
    clock: str
    as_of_ms: int | None
    values: int


@dataclass(frozen=True, slots=True)
class WithoutExpired:
    """The key groups of an operator without expired values.

    Attributes:
        groups: The rewritten groups; all others have no expired values.
        dropped: The expired values of each state with a TTL.
        keys: The number of keys without any state left, which are deleted.
    """

    groups: tuple[GroupChange, ...]
    dropped: tuple[Dropped, ...]
    keys: int


def without_expired(state: KeyedStateReader) -> WithoutExpired:
    """Return the key groups of an operator without the values expired at its batch; nothing is written.

    A rewritten group is compared with the original, key by key: every missing value must have expired, and
    all other values must be unchanged.

    Cost: reads all state of the operator; groups with expired values are rewritten and compared, which takes
    about 20 microseconds per key.

    Raises:
        Unsupported: A group has rows of an earlier schema, which only the program can convert.
        Corrupt: A blob cannot be read.
        Internal: The comparison failed.
    """
    operator = state.operator
    times = _times(operator.form)
    moment = Moment(operator.planned_ms, operator.watermark_ms, None)
    counts: Counter[str] = Counter()
    made = []
    keys = 0
    for group in state.source.groups() if times else ():
        where = f"{state.where}, key group {group.group}"
        part = _in_one_form(group, operator.form, where)
        cleaned = _cleaned(part, times, moment)
        if cleaned is None:
            continue
        after = written(group.group, operator.key_groups, cleaned.form, [cleaned])
        gone, lost = _compared(group, after, times, moment, where)
        if gone:
            counts += gone
            keys += lost
            made.append(GroupChange(group, after))
    dropped = tuple(
        Dropped(operator.name, name, ttl.clock, _now(ttl, moment), counts[name])
        for name, ttl in times.items()
    )
    return WithoutExpired(tuple(made), dropped, keys)


def _times(form: BlobSchema) -> dict[str, Ttl]:
    """Return the TTL of each keyed state that has one."""
    return {
        name: Ttl(int(declared["ttl_ms"]), clock=cast("Clock", declared["clock"]))
        for name, declared in form.states.items()
        if declared.get("ttl_ms") is not None and declared["kind"] != StateKind.BROADCAST.value
    }


def _now(ttl: Ttl, moment: Moment) -> int | None:
    return moment.now_ms if ttl.clock == "processing" else moment.watermark_ms


def _in_one_form(group: KeyGroup, form: BlobSchema, where: str) -> Part:
    parts = joined(living_parts(group, where))
    if [part.form.fingerprint for part in parts] == [form.fingerprint]:
        return parts[0]
    return brought(parts, form, where)


def _cleaned(part: Part, times: Mapping[str, Ttl], moment: Moment) -> Part | None:
    """Return the rows of a part that have not expired; None if no row has expired."""
    states = [
        State(StateKind(declared["kind"]), *_types(part.form, name), ttl=times.get(name))
        for name, declared in part.form.states.items()
    ]
    cleaner = Cleaner(states)
    tables = dict(part.tables)
    for state in states:
        if state.of_keys and state.has_elements:
            run = tables.get(state.name) or empty_run(part.form.tables[state.name])
            tables[state.name] = Run(cleaner.elements(state.name, run.batch, moment))
    rows = tables.get(ROWS)
    if rows is None:
        return None
    tables[ROWS] = Run(cleaner.rows(rows.batch, moment, tables))
    before, after = ({name: run for name, run in some.items() if len(run)} for some in (part.tables, tables))
    if before.keys() == after.keys() and all(run.batch is before[name].batch for name, run in after.items()):
        return None
    return Part(part.form, after)


def _types(form: BlobSchema, name: str) -> tuple[pa.DataType, str, pa.DataType | None]:
    type_, key_type = stored_types(form, name)
    return type_, name, key_type


def _compared(
    before: KeyGroup, after: KeyGroup, times: Mapping[str, Ttl], moment: Moment, where: str
) -> tuple[Counter[str], int]:
    """Check that a group has exactly the unexpired values; return the counts of expired values and keys.

    Raises:
        Internal: The group has other values.
    """
    has = {(row.h, row.ordinal): _content(row.values, row) for row in key_rows(after, where)}
    gone: Counter[str] = Counter()
    lost = 0
    for row in key_rows(before, where):
        values = _alive(row, times, moment, gone)
        found = has.pop((row.h, row.ordinal), None)
        if not values and not row.timers:
            lost += bool(row.values)
            same = found is None
        else:
            same = found == _content(values, row)
        if not same:
            raise _differs(where)
    if has:
        raise _differs(where)
    return gone, lost


def _content(values: Mapping[str, Any], row: KeyRow) -> str:
    """Return the content of a key as text in which NaN equals itself."""
    return repr((row.key, sorted(values.items()), row.timers))


def _alive(row: KeyRow, times: Mapping[str, Ttl], moment: Moment, gone: Counter[str]) -> dict[str, Any]:
    """Return the values of a key that have not expired."""
    kept: dict[str, Any] = {}
    for name, value in row.values.items():
        ttl = times.get(name)
        now = None if ttl is None else _now(ttl, moment)
        if ttl is None or now is None or name not in row.stamps:
            kept[name] = value
            continue
        held = list(_places(value, row.stamps[name]))
        left = [place for place, stamp in held if stamp is None or not expired(stamp, ttl.duration_ms, now)]
        gone[name] += len(held) - len(left)
        if left:
            kept[name] = _shaped(value, left, row.stamps[name])
    return kept


def _places(value: Any, stamps: Any) -> Iterator[tuple[Any, int | None]]:
    """Yield each part of a state with its stamp: a single value, elements of a list, or entries of a map."""
    if isinstance(stamps, Mapping):
        yield from ((key, stamps[key]) for key in value)
    elif not isinstance(stamps, list):
        yield value, stamps
    elif stamps and isinstance(stamps[0], tuple):  # a map with unhashable keys
        yield from ((pair, stamp) for pair, (_, stamp) in zip(value, stamps, strict=True))
    else:
        yield from zip(value, stamps, strict=True)


def _shaped(value: Any, left: list[Any], stamps: Any) -> Any:
    if isinstance(stamps, Mapping):
        return {key: value[key] for key in left}
    return left if isinstance(stamps, list) else value


def _differs(where: str) -> Internal:
    return Internal(
        "verification failed, so no savepoint was created: a key group is wrong after "
        "expired values were dropped",
        code="HF-E9010",
        where=where,
        hint="take a savepoint without `--drop-expired`, and please report this",
    )


def drop_expired(
    savepoint: Address,
    *,
    to: Address | None = None,
    label: str | None = None,
    deep: bool = False,
    tell: ProgressCallback | None = None,
) -> Taken:
    """Create a savepoint without the expired values of an existing savepoint, which stays unchanged.

    Expiry is determined by the batch of the savepoint (the time at which it was planned, and its watermark)
    and by the TTL with which the state was last written. Expired values, elements of lists and entries of
    maps are deleted, as are keys without any state left. Timers are kept, as are keys with a timer. The
    manifest of the new savepoint records the counts. Spark removes expired values of its own states at the
    end of each batch; this is checked.

    Setting a longer TTL later does not restore deleted values.

    Args:
        savepoint: The address of the savepoint.
        to: The catalog for the new savepoint; by default that of the original.
        label: A label for the new savepoint; none by default, so that the label of the original stays unique.
        deep: Whether to read all rows of the state for exact counts and digests.
        tell: The progress callback, called with the work done, the total, and the current step.

    Returns:
        The new savepoint, whose address is `uri`.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: The savepoint is damaged.
        Conflict: Savepoints are being deleted from the catalog.
        Unsupported: A key group has rows of an earlier schema, which only the program can convert; or a state
            of Spark has expired values.
        Internal: The result is wrong; no savepoint was created.

    Example:
        smaller = hf.drop_expired("savepoints@daily", label="daily, without expired rows")
        assert hf.savepoints.verify(smaller.uri).ok
    """
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
    target = catalog if to is None else open_storage(os.fspath(to), "to")
    return copy_without_expired(catalog, savepoint_id, target, label=label, deep=deep, tell=tell)


def copy_without_expired(
    catalog: Storage,
    savepoint_id: str,
    to: Storage,
    *,
    label: str | None = None,
    deep: bool = False,
    operation: str | None = None,
    clock: leases.Clock = now_ms,
    chance: leases.Chance = os.urandom,
    tell: ProgressCallback | None = None,
) -> Taken:
    """Create a savepoint in the catalog `to` without the expired values of an existing one.

    Raises:
        As `drop_expired`.
    """
    manifest = prove(catalog, savepoint_id, tell=tell).require()
    view = SavepointView(catalog, manifest.files, savepoint_uri(catalog, savepoint_id))
    reader = StateReader(view, manifest.batch_id)
    dropped: list[Dropped] = []
    changes: dict[StoreId, tuple[RowChange, ...]] = {}
    keys = 0
    for named in reader.operators:
        if named.keyed is None:
            dropped += _spark_has_removed(named)
            continue
        without = without_expired(named.keyed)
        dropped += without.dropped
        keys += without.keys
        changes.update(group_rows(named.files, without.groups))
    with workplace(to, "expire") as folder:
        return derive_changed(
            catalog,
            to,
            manifest,
            changes,
            folder,
            manifest.change,
            noted={
                **_valid_notes(manifest),
                EXPIRED: _record(dropped, keys),
                **({} if operation is None else {"operation": operation}),
            },
            label=label,
            deep=deep,
            clock=clock,
            chance=chance,
            tell=tell,
        )


def _spark_has_removed(operator: NamedOperator) -> Iterator[Dropped]:
    """Check that Spark's own states with a TTL have no expired values.

    Raises:
        Unsupported: A state of Spark has expired values.
    """
    for state in operator.states:
        if not state.ttl:
            continue
        ages = state.source.ages(state, by=EXPIRES)
        now = operator.files.times()[0]
        left = int((ages.times <= now).sum())
        if left:
            raise Unsupported(
                "expired rows cannot be dropped from a state that Spark manages",
                code="HF-E7023",
                where=f"state {state.full_name}",
                found=counted(left, "expired row"),
                expected="0 expired rows, because Spark removes them at the end of each batch",
                hint=f"delete the rows with `holdfast state edit SP {state.full_name} --where '{EXPIRES} "
                f"<= {now}' --delete`",
            )
        yield Dropped(operator.name, state.name, "processing", now, 0)


def _valid_notes(manifest: Manifest) -> dict[str, Any]:
    """Return the fields of the manifest that also apply to the new savepoint."""
    return {name: manifest.fields[name] for name in ("operation", ERASURES) if name in manifest.fields}


def _record(dropped: list[Dropped], keys: int) -> dict[str, Any]:
    return {
        "values": sum(dropped_state.values for dropped_state in dropped),
        "keys": keys,
        "states": [dropped_state.as_dict() for dropped_state in dropped],
    }
