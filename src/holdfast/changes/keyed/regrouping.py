"""The conversion of keyed state to a different number of key groups."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from holdfast.at_rest.keyed_operators import KeyedOperator
from holdfast.at_rest.keyed_reader import KeyedStateReader, owners_of
from holdfast.changes.keyed.group_blobs import filled, joined, living_parts, within, written
from holdfast.checkpoints.keyed import SHARED, KeyGroup, Part, parts_of
from holdfast.errors import Corrupt, Internal, Invalid, Unsupported
from holdfast.formats.text import foreign_json
from holdfast.quantities import counted
from holdfast.worker.state.group_numbers import MOST_GROUPS
from holdfast.worker.state.layout import ROWS, BlobSchema, range_of
from holdfast.worker.state.tables import Run, concatenated, sorted_run


@dataclass(frozen=True, slots=True)
class Regrouped:
    """The state of an operator with a different number of key groups.

    Attributes:
        operator: The operator with the new number.
        groups: All key groups in ascending order, with or without keys, which replace all earlier ones.
        keys: The number of keys in all groups.
    """

    operator: KeyedOperator
    groups: tuple[KeyGroup, ...]
    keys: int


def regrouped(state: KeyedStateReader, key_groups: int) -> Regrouped:
    """Return the key groups of an operator under a new number of groups.

    Nothing is written. The group of a key is determined by its hash, so a query that is started with this
    number of key groups finds every key. Each group has its own copy of the rows of a broadcast stream.

    Cost: reads all state of the operator and holds it in memory.

    Args:
        state: The state of the operator.
        key_groups: The new number of groups.

    Raises:
        Invalid: The number of groups is not allowed.
        Unsupported: The operator uses `placement=`, or its keys are instances, which have a group each.
        Corrupt: A blob cannot be read.
    """
    operator = state.operator
    _check(state, key_groups)
    every: list[Part] = []
    shared: list[Part] = []
    forms: dict[bytes, BlobSchema] = {}
    for group in state.source.groups():
        parts = living_parts(group, state.where)
        mark = group.record(state.where).form
        forms[mark] = group.read_forms(state.where).get(mark, operator.form)
        _check_places(state, parts)
        shared = shared or filled([_split(part, shared=True) for part in parts])
        every += filled([_split(part, shared=False) for part in parts])
    keys = sum(len(run.alive()) for part in every if (run := part.tables.get(ROWS)) is not None)
    form = next(iter(forms.values())) if len(forms) == 1 else operator.form
    every = _ordered(every)
    made = []
    for number in range(key_groups):
        parts = filled([within(part, number, key_groups) for part in every])
        parts = joined([*(_copy(part, number, key_groups) for part in shared), *parts])
        # Also groups without keys, because a worker's cached copy of an old group must find a different
        # version.
        if forms:
            made.append(written(number, key_groups, form, parts))
    now = Regrouped(replace(operator, key_groups=key_groups), tuple(made), keys)
    _check_keys(now, state.where)
    return now


def renumbered(note: bytes, key_groups: int, where: str) -> bytes:
    """Return the file that describes an operator with a new number of key groups.

    Raises:
        Corrupt: The file cannot be parsed.
    """
    try:
        fields = foreign_json(note)
        return json.dumps({**fields, "key_groups": key_groups}).encode()
    except (ValueError, TypeError) as error:
        raise Corrupt(
            "the description of an operator cannot be read",
            code="HF-E6003",
            where=where,
            found=str(error),
            hint="list all damage with `holdfast checkpoint verify CHECKPOINT`",
        ) from error


def _check(state: KeyedStateReader, key_groups: int) -> None:
    if not 1 <= key_groups <= MOST_GROUPS:
        raise Invalid(
            "invalid number of key groups",
            code="HF-E2086",
            where=state.where,
            found=str(key_groups),
            expected=f"1 to {MOST_GROUPS}",
            hint="choose a number in this range; four key groups per core of the cluster are enough",
        )
    if state.operator.instances:
        raise Unsupported(
            "the number of key groups cannot be changed, because each instance has one key group",
            code="HF-E7028",
            where=state.where,
            hint="start the operator with a different number of instances, which redistributes the lists",
        )
    if state.operator.placed:
        raise _unknown_places(state)


def _check_places(state: KeyedStateReader, parts: Sequence[Part]) -> None:
    """Check that keys are in the groups of their hashes, if it is unknown whether keys are placed by hash."""
    if state.operator.placed is None:
        owners = owners_of(parts)
        if owners is not None and not state.is_by_hash(owners):
            raise _unknown_places(state)


def _unknown_places(state: KeyedStateReader) -> Unsupported:
    return Unsupported(
        "the operator uses placement=, so key groups cannot be computed outside the job",
        code="HF-E7006",
        where=state.where,
        hint="keep the number of key groups, or use a new operator without placement=",
    )


def _split(part: Part, *, shared: bool) -> Part:
    """Return either the rows of a broadcast stream, or all other rows."""
    return Part(
        part.form, {name: run.take((run.ord == SHARED) == shared) for name, run in part.tables.items()}
    )


def _copy(part: Part, number: int, key_groups: int) -> Part:
    """Return a group's copy of the rows of a broadcast stream, under the first hash of its range."""
    low, _ = range_of(number, key_groups)
    tables = {}
    for name, run in part.tables.items():
        h = pa.array(np.full(len(run), low, np.uint64))
        tables[name] = Run(run.batch.set_column(0, run.batch.schema.field(0), h))
    return Part(part.form, tables)


def _ordered(parts: Iterable[Part]) -> list[Part]:
    """Return the rows of all groups, merged if they have one schema.

    If a group has rows of two schemas, their order is kept, because the later row of an identity is valid.
    """
    ordered = list(parts)
    if len({part.form.fingerprint for part in ordered}) == 1:
        tables: dict[str, list[pa.RecordBatch]] = {}
        for part in ordered:
            for name, run in part.tables.items():
                tables.setdefault(name, []).append(run.batch)
        form = ordered[0].form
        return [Part(form, {name: sorted_run(concatenated(batches)) for name, batches in tables.items()})]
    return ordered


def _check_keys(now: Regrouped, where: str) -> None:
    """Read the groups back, and check that each key is in its group and that no key is missing.

    Raises:
        Internal: The check failed.
    """
    keys = astray = 0
    for group in now.groups:
        low, high = range_of(group.group, now.operator.key_groups)
        for part in parts_of(group, where):
            for name, run in part.tables.items():
                start, stop = run.between(low, high)
                astray += len(run) - (stop - start)
                keys += len(run) if name == ROWS else 0
    if astray or keys != now.keys:
        raise Internal(
            "verification failed, so nothing was written: keys are missing or in wrong key groups",
            code="HF-E9012",
            where=where,
            found=f"{counted(keys, 'key')}, and {counted(astray, 'row')} in wrong groups",
            expected=f"{counted(now.keys, 'key')}, and no row in a wrong group",
            hint="please report this",
        )
