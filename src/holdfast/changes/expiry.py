"""Savepoints without expired values of keyed state.

A value has expired when the clock of its state, as the batch itself had it, has reached its stamp plus the
time to live: the time at which the batch was planned, or its watermark. No other clock is read, so that the
same batch always gives the same answer. Timers do not expire, and a key that still has one stays.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
from holdfast.config.units import counted
from holdfast.errors import Internal, Unsupported
from holdfast.formats.manifest import ERASURES, EXPIRED, Manifest
from holdfast.json_shapes import JsonShape
from holdfast.layout import StoreId
from holdfast.savepoints.access import open_savepoint
from holdfast.savepoints.catalog import savepoint_uri
from holdfast.savepoints.proof import prove
from holdfast.savepoints.store_edits import RowChange
from holdfast.savepoints.taking import Taken
from holdfast.savepoints.view import SavepointView, workplace
from holdfast.storage import open_storage
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
        operator: The operator.
        state: The state.
        clock: By which clock its values expire, `processing` or `event`.
        as_of_ms: What that clock showed in the batch; None where there was no watermark.
        values: How many values, elements of lists and entries of maps had expired.
    """

    operator: str
    state: str
    clock: str
    as_of_ms: int | None
    values: int


@dataclass(frozen=True, slots=True)
class WithoutExpired:
    """An operator's key groups without what has expired.

    Attributes:
        groups: Those that are rewritten; all others have nothing that has expired.
        dropped: What had expired, by state with a time to live.
        keys: How many keys have nothing left and go.
    """

    groups: tuple[GroupChange, ...]
    dropped: tuple[Dropped, ...]
    keys: int


def without_expired(state: KeyedStateReader) -> WithoutExpired:
    """Compute the key groups of an operator without what has expired at its batch; nothing is written.

    A group that is recreated is compared with what it was, key by key: what is not in it any more had expired
    by the rule of a single value, and all else is the same.

    Cost: all state of the operator is read; groups in which something has expired are recreated and compared,
    at some 20 microseconds a key.

    Raises:
        Unsupported: A group has rows of a former version, which only the program brings into today's.
        Corrupt: A blob cannot be read.
        Internal: A group is not what it should be.
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
    """The time to live of each state of keys that has one."""
    return {
        name: Ttl(int(declared["ttl_ms"]), clock=str(declared["clock"]))
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
    """The rows that have not expired; None where nothing has."""
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
    """See that a group holds what has not expired, and only that; what had expired, and how many keys went.

    Raises:
        Internal: It does not.
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
    """Each place of a state with its stamp: the value itself, elements of a list, entries of a map."""
    if isinstance(stamps, Mapping):
        yield from ((key, stamps[key]) for key in value)
    elif not isinstance(stamps, list):
        yield value, stamps
    elif stamps and isinstance(stamps[0], tuple):  # a map whose keys have no hash
        yield from ((pair, stamp) for pair, (_, stamp) in zip(value, stamps, strict=True))
    else:
        yield from zip(value, stamps, strict=True)


def _shaped(value: Any, left: list[Any], stamps: Any) -> Any:
    if isinstance(stamps, Mapping):
        return {key: value[key] for key in left}
    return left if isinstance(stamps, list) else value


def _differs(where: str) -> Internal:
    return Internal(
        "a key group without what has expired is not what it should be, and no savepoint was made",
        code="HF-E9010",
        where=where,
        hint="take a savepoint without `--drop-expired`, and please report this",
    )


def drop_expired(
    savepoint: str | os.PathLike[str],
    *,
    to: str | os.PathLike[str] | None = None,
    label: str | None = None,
    deep: bool = False,
    tell: ProgressCallback | None = None,
) -> Taken:
    """Make a savepoint of another one, without what has expired in it; that one stays as it is.

    The batch of the savepoint says what has expired: the time at which it was planned, and its watermark,
    with the time to live that the state was last written with. Values, elements of lists and entries of maps
    go, and keys that have nothing left. Timers stay, and so does a key that has one. The manifest of the new
    savepoint counts what went. Spark removes by itself what has expired in its own states, at the end of
    each batch; that nothing is left there is made sure of.

    The classic mistake is to lengthen a time to live afterwards, and to wait for values to come back.

    Args:
        savepoint: The savepoint.
        to: The catalog that the new one goes to; by default the one that it is in.
        label: A name for the new savepoint; none by default, so that the label of the old one stays unique.
        deep: Read the rows of the state however many there are, for exact counts and digests.
        tell: Called with what is done, what there is in all, and what is being done.

    Returns:
        The new savepoint: its address is `uri`.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: It is damaged.
        Conflict: Savepoints are being removed from the catalog.
        Unsupported: A key group has rows of a former version, which only the program brings into today's; or
            Spark has left something that has expired.
        Internal: What was made is not what it should be; there is no new savepoint.
    """
    catalog, savepoint_id = open_savepoint(savepoint)
    target = catalog if to is None else open_storage(os.fspath(to), "to")
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
    with workplace(target, "expire") as folder:
        return derive_changed(
            catalog,
            target,
            manifest,
            changes,
            folder,
            manifest.change,
            noted={**_valid_notes(manifest), EXPIRED: _record(dropped, keys)},
            label=label,
            deep=deep,
            tell=tell,
        )


def _spark_has_removed(operator: NamedOperator) -> Iterator[Dropped]:
    """See that nothing has expired in states of Spark's own with a time to live.

    Raises:
        Unsupported: Something has.
    """
    for state in operator.states:
        if not state.ttl:
            continue
        ages = state.source.ages(state, by=EXPIRES)
        now = operator.files.times()[0]
        left = int((ages.times <= now).sum())
        if left:
            raise Unsupported(
                "Spark has left something in its own state that has expired, which is not dropped here",
                code="HF-E7023",
                where=f"state {state.full_name}",
                found=counted(left, "row"),
                expected="none: Spark removes them at the end of each batch",
                hint=f"delete them: `holdfast state edit SP {state.full_name} --where"
                f" '{EXPIRES} <= {now}' --delete`",
            )
        yield Dropped(operator.name, state.name, "processing", now, 0)


def _valid_notes(manifest: Manifest) -> dict[str, Any]:
    """Return the notes of the savepoint that are true of the new one too."""
    return {name: manifest.fields[name] for name in ("operation", ERASURES) if name in manifest.fields}


def _record(dropped: list[Dropped], keys: int) -> dict[str, Any]:
    return {
        "values": sum(dropped_state.values for dropped_state in dropped),
        "keys": keys,
        "states": [dropped_state.as_dict() for dropped_state in dropped],
    }
