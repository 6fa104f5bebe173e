"""Savepoints without what has expired: made of others, and proved row by row."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from holdfast.at_rest.edit.changed_savepoint import derive_changed
from holdfast.at_rest.expiry.expired_rows import Dropped, without_expired
from holdfast.at_rest.keyed.store_rows import group_rows
from holdfast.at_rest.read.model import NamedOperator
from holdfast.at_rest.read.state_reader import StateReader
from holdfast.at_rest.read.tables import EXPIRES
from holdfast.checkpoints.values import ProgressCallback
from holdfast.config.units import counted
from holdfast.errors import Unsupported
from holdfast.formats.savepoint.manifest import ERASURES, EXPIRED, Manifest
from holdfast.layout import StoreId
from holdfast.savepoints.access import opened
from holdfast.savepoints.catalog.catalog import savepoint_uri
from holdfast.savepoints.places import workplace
from holdfast.savepoints.proof.proof import prove
from holdfast.savepoints.rewrite.store_changes import RowChange
from holdfast.savepoints.taking.taking import Taken
from holdfast.savepoints.view import SavepointView
from holdfast.storage import open_storage


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
        NotFound: There is no such savepoint.
        Corrupt: It is damaged.
        Conflict: Savepoints are being removed from the catalog.
        Unsupported: A key group has rows of a former version, which only the program brings into today's; or
            Spark has left something that has expired.
        Internal: What was made is not what it should be; there is no new savepoint.
    """
    catalog, savepoint_id = opened(savepoint)
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
            noted={**_noted(manifest), EXPIRED: _record(dropped, keys)},
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
                where=f"state {state.full_name}",
                found=counted(left, "row"),
                expected="none: Spark removes them at the end of each batch",
                hint=f"delete them: `holdfast state edit SP {state.full_name} --where"
                f" '{EXPIRES} <= {now}' --delete`",
            )
        yield Dropped(operator.name, state.name, "processing", now, 0)


def _noted(manifest: Manifest) -> dict[str, Any]:
    """What the savepoint says that holds of the new one too."""
    return {name: manifest.fields[name] for name in ("operation", ERASURES) if name in manifest.fields}


def _record(dropped: list[Dropped], keys: int) -> dict[str, Any]:
    return {
        "values": sum(dropped_state.values for dropped_state in dropped),
        "keys": keys,
        "states": [dropped_state.as_dict() for dropped_state in dropped],
    }
