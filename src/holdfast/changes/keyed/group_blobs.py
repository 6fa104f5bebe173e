"""The rewriting of key groups: a base with the new rows, and a record with a new token."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.checkpoints.keyed import KeyGroup, Part, parts_of
from holdfast.errors import Unsupported
from holdfast.formats.key_groups import NEVER, Meta
from holdfast.worker.interface import DUE_EVENT, DUE_PROCESSING, STAMP_PREFIX, VALUE_PREFIX
from holdfast.worker.state.group_writes import PAGE_ROWS
from holdfast.worker.state.layout import ROWS, BlobSchema, encode, range_of
from holdfast.worker.state.tables import Run, concatenated, pages, sorted_run
from holdfast.worker.state.upkeep import Census


def written(number: int, key_groups: int, form: BlobSchema, parts: Sequence[Part]) -> KeyGroup:
    """Return a key group with these rows, all in its base.

    Args:
        number: The number of the group.
        key_groups: The operator's number of groups.
        form: The schema to name in the record: that of the last part, if there are parts.
        parts: The rows of the group, those of earlier schemas first.
    """
    blobs = [blob for part in parts for blob in _pages(part)]
    forms = {part_form.fingerprint: part_form for part_form in (*(part.form for part in filled(parts)), form)}
    meta = Meta(
        key_groups,
        os.urandom(8),
        form.fingerprint,
        sum(map(len, blobs)),
        wake_event=_least(parts, DUE_EVENT),
        wake_processing=_least(parts, DUE_PROCESSING),
        mixed=len(forms) > 1,
        counts=_counts(key_groups, form, parts) if len(forms) == 1 else None,
    )
    known = json.dumps({mark.hex(): part_form.as_json() for mark, part_form in forms.items()})
    return KeyGroup(number, meta.encode(), known.encode(), tuple(blobs), ())


def _counts(key_groups: int, form: BlobSchema, parts: Sequence[Part]) -> tuple[int, ...]:
    """Return the counts for a group's record, computed with one schema."""
    census = Census(form, key_groups)
    counts = (census.count({name: run.alive() for name, run in part.tables.items()}) for part in parts)
    return tuple(sum(counts, census.none()).tolist())


def _pages(part: Part) -> Iterator[bytes]:
    for name in part.form.tables:
        run = part.tables.get(name)
        if run is None:
            continue
        for page in pages(run, PAGE_ROWS):
            # Without a copy, a blob would contain the bytes of rows that were sliced off.
            yield encode(part.form, {name: page.take(pa.array(np.arange(page.num_rows)))})


def _least(parts: Iterable[Part], column: str) -> int:
    """Return the time of the earliest timer of all keys."""
    firsts = []
    for part in parts:
        run = part.tables.get(ROWS)
        if run is not None and column in part.form.tables[ROWS].names:
            firsts.append(pc.min(run.alive().column(column)).as_py())
    return min((due for due in firsts if due is not None), default=NEVER)


def joined(parts: Sequence[Part]) -> list[Part]:
    """Merge consecutive parts of the same schema; no identity may be in two of them."""
    together: list[Part] = []
    for part in parts:
        if together and together[-1].form.fingerprint == part.form.fingerprint:
            together[-1] = Part(part.form, _together(together[-1], part))
        else:
            together.append(part)
    return together


def _together(one: Part, other: Part) -> dict[str, Run]:
    made = dict(one.tables)
    for name, run in other.tables.items():
        both = [made[name].batch, run.batch] if name in made else [run.batch]
        made[name] = sorted_run(concatenated(both))
    return made


def brought(parts: Sequence[Part], form: BlobSchema, where: str) -> Part:
    """Convert all rows to one schema, which must have at least their columns in the same types.

    Raises:
        Unsupported: A state of an earlier schema has a different type or TTL, or no longer exists, so only
            the program can convert it.
    """
    moved = [
        part if part.form.fingerprint == form.fingerprint else _moved(part, form, where)
        for part in filled(joined(parts))
    ]
    return alive(joined(moved)[0]) if moved else Part(form, {})


def alive(part: Part) -> Part:
    """Return the part without rows that are marked as deleted."""
    return Part(part.form, {name: run.alive() for name, run in part.tables.items()})


def living_parts(group: KeyGroup, where: str) -> list[Part]:
    """Return the rows of a group, with deleted rows only if rows of other schemas may need them.

    Raises:
        Corrupt: A blob cannot be read.
    """
    parts = parts_of(group, where, dead=True)
    return parts if len({part.form.fingerprint for part in parts}) > 1 else [alive(part) for part in parts]


def within(part: Part, number: int, key_groups: int) -> Part:
    """Return the rows of a part that belong to one group."""
    low, high = range_of(number, key_groups)
    return Part(part.form, {name: run.slice(*run.between(low, high)) for name, run in part.tables.items()})


def filled(parts: Iterable[Part]) -> list[Part]:
    """Return the parts that have rows."""
    return [part for part in parts if any(len(run) for run in part.tables.values())]


def _moved(part: Part, form: BlobSchema, where: str) -> Part:
    tables: dict[str, Run] = {}
    for name, run in part.tables.items():
        old, new = part.form.tables[name], form.tables.get(name)
        if new is None or any(new.get_field_index(field.name) < 0 for field in old) or _more_times(old, new):
            raise former(where, name or "the table of keys")
        columns = []
        for field in new:
            at = old.get_field_index(field.name)
            if at >= 0 and old.field(at).type != field.type:
                raise former(where, field.name)
            columns.append(run.column(field.name) if at >= 0 else pa.nulls(len(run), field.type))
        tables[name] = Run(pa.RecordBatch.from_arrays(columns, schema=new))
    return Part(form, tables)


def _more_times(old: pa.Schema, new: pa.Schema) -> bool:
    """Return whether stored values have gained a TTL, whose start only the program can determine."""
    added = set(new.names) - set(old.names)
    states = (name.removeprefix(STAMP_PREFIX) for name in added if name.startswith(STAMP_PREFIX))
    return "t" in added or any(f"{VALUE_PREFIX}{state}" in old.names for state in states)


def former(where: str, name: str) -> Unsupported:
    """Return the error for rows of an earlier schema that only the program can convert."""
    return Unsupported(
        f"some key groups have rows of an earlier schema of {name}, which only the job can convert",
        code="HF-E7024",
        where=where,
        hint=(
            "run the job with the new code until events have reached every key group, then repeat"
            " the command on the newer state"
        ),
    )
