"""What has expired in Holdfast's keyed state at a batch, and key groups without it.

A value has expired when the clock of its state, as the batch itself had it, has reached its stamp plus the
time to live: the time at which the batch was planned, or its watermark. No other clock is read, so that the
same batch always gives the same answer. Timers do not expire, and a key that still has one stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.at_rest.keyed.changes import GroupChange
from holdfast.at_rest.keyed.group_blobs import brought, joined, living_parts, written
from holdfast.at_rest.keyed.keyed_reader import KeyedState
from holdfast.checkpoints.keyed.key_groups import KeyGroup, Part
from holdfast.checkpoints.keyed.key_rows import KeyRow, key_rows
from holdfast.errors import Internal
from holdfast.json_shapes import JsonShape
from holdfast.worker.declarations.state_descriptors import Kind, State, Ttl
from holdfast.worker.interface import Moment
from holdfast.worker.runtime.ttl import expired
from holdfast.worker.state.blob_schema import ROWS, BlobSchema, stored_types
from holdfast.worker.state.expiry import Cleaner
from holdfast.worker.state.tables.runs import Run, empty_run

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Dropped(JsonShape):
    """What had expired in one state.

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
        groups: Those that are written anew; all others have nothing that has expired.
        dropped: What had expired, by state with a time to live.
        keys: How many keys have nothing left and go.
    """

    groups: tuple[GroupChange, ...]
    dropped: tuple[Dropped, ...]
    keys: int


def without_expired(state: KeyedState) -> WithoutExpired:
    """Work out the key groups of an operator without what has expired at its batch; nothing is written.

    A group that is made anew is compared with what it was, key by key: what is not in it any more had expired
    by the rule of a single value, and all else is the same.

    Cost: all state of the operator is read; groups in which something has expired are made anew and compared,
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
        if declared.get("ttl_ms") is not None and declared["kind"] != Kind.BROADCAST.value
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
        State(Kind(declared["kind"]), *_types(part.form, name), ttl=times.get(name))
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
    """What a key holds, as text in which a number that is none equals itself."""
    return repr((row.key, sorted(values.items()), row.timers))


def _alive(row: KeyRow, times: Mapping[str, Ttl], moment: Moment, gone: Counter[str]) -> dict[str, Any]:
    """What a key holds that has not expired."""
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
        where=where,
        hint="take a savepoint without `--drop-expired`, and please report this",
    )
