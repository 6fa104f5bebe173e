"""What a manifest says of a savepoint besides its files: read from the files that were saved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.state.contents import StateContent, contents
from holdfast.checkpoints.values import Checkpoint, Operator, ProgressCallback, Store
from holdfast.checkpoints.written_by import at_least
from holdfast.errors import Unsupported
from holdfast.formats.logs.state_schema import parse_schema
from holdfast.formats.savepoint.manifest import FORMAT
from holdfast.formats.text import foreign_json
from holdfast.layout import OwnFile, SchemaFile
from holdfast.storage.port import Storage

# State files of so many bytes hold some hundred thousand rows, which are read in a fraction of a second.
SMALL_BYTES: Final = 2 << 20


def facts(
    view: Storage, paths: Sequence[str], *, deep: bool = False, tell: ProgressCallback | None = None
) -> dict[str, Any]:
    """The fields of a manifest that the saved files tell.

    With `deep`, and where the state is small, its rows are read: then `rows` of a store is exact, and
    `content` has the rows and the digest of each of its states. Else `content` is None, and `rows` is what
    RocksDB has counted; or None where changes follow the snapshot, since a change may write a key that is
    there already, and where nothing is counted. What Spark keeps for itself, such as counters and timers, is
    in `content` and not in `rows`.

    Args:
        view: The savepoint as a checkpoint.
        paths: Its files.
        deep: Read the rows however many there are; else only of state up to `SMALL_BYTES`.
        tell: Called with stores done, stores in all, and what is being done.

    Raises:
        Corrupt: A file that had to be read is damaged.
        NotFound: A file that had to be read is not there.
        Unsupported: The rows were asked for, and cannot be read.
    """
    found = read(view)
    content = _content(view, found, deep=deep, tell=tell)
    return {
        "format": FORMAT,
        "query_id": found.query_id,
        "batch": found.batch_id,
        "planned_ms": found.planned_ms,
        "spark_at_least": at_least(found.confs),
        "watermark_ms": found.watermark_ms,
        "provider": found.provider,
        "sources": [{"name": source.name, "offset": source.offset} for source in found.sources],
        "operators": [_operator(view, paths, found, operator, content) for operator in found.operators],
        "keyed": list(_own_operators(view, paths)),
        "confs": dict(found.confs),
    }


def _operator(
    view: Storage,
    paths: Sequence[str],
    found: Checkpoint,
    operator: Operator,
    content: Sequence[StateContent] | None,
) -> dict[str, Any]:
    return {
        "operator_id": operator.operator_id,
        "name": operator.name,
        "holdfast_name": operator.named.user_name,
        "partitions": operator.partitions,
        "format_version": operator.format_version,
        "variables": list(operator.variables),
        "size_bytes": operator.size_bytes,
        "stores": [
            {
                "name": name,
                **_counted(operator, name, content),
                "schema": _schema(view, paths, operator.operator_id, name, found.batch_id or 0),
            }
            for name in operator.store_names
        ],
    }


def _content(
    view: Storage, found: Checkpoint, *, deep: bool, tell: ProgressCallback | None
) -> tuple[StateContent, ...] | None:
    if not deep and found.size_bytes > SMALL_BYTES:
        return None
    try:
        return contents(view, found.batch_id, check_partitions=True, tell=tell)
    except Unsupported:
        if deep:
            raise
        return None  # a savepoint of state that nobody here can read is one all the same


def _counted(operator: Operator, store: str, content: Sequence[StateContent] | None) -> dict[str, Any]:
    if content is None:
        return {
            "rows": counted_keys([one for one in operator.stores if one.id.name == store]),
            "content": None,
        }
    states = [
        state
        for state in content
        if (state.state.operator_id, state.state.store) == (operator.operator_id, store)
    ]
    return {
        "rows": sum(state.rows for state in states if not state.state.internal),
        "content": [
            {
                "family": state.state.family,
                "rows": state.rows,
                "digest": state.digest,
                "size_bytes": state.size_bytes,
            }
            for state in states
        ],
    }


def counted_keys(stores: Sequence[Store]) -> int | None:
    """The keys that RocksDB has counted in stores; None where changes follow, or nothing is counted."""
    counts = [store.base_keys if store.base_version == store.version else None for store in stores]
    return sum(count for count in counts if count is not None) if counts and None not in counts else None


def _schema(
    view: Storage, paths: Sequence[str], operator_id: int, store: str, batch_id: int
) -> list[dict[str, str]]:
    """The newest schema of a store: its column families with Spark's JSON of keys and values."""
    places = [
        place
        for path in paths
        if isinstance(place := layout.parse(path), SchemaFile)
        and (place.operator_id, place.store) == (operator_id, store)
        and (place.batch_id or 0) <= batch_id
    ]
    if not places:
        return []
    newest = max(places, key=lambda place: -1 if place.batch_id is None else place.batch_id).render()
    families = parse_schema(view.read(newest), newest).families
    return [
        {"family": family.name, "key": family.key_schema, "value": family.value_schema} for family in families
    ]


def _own_operators(view: Storage, paths: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Operators that Holdfast has noted in the checkpoint: their names and the forms of their state."""
    for path in paths:
        place = layout.parse(path)
        operator = layout.noted_operator(place.name) if isinstance(place, OwnFile) else None
        if operator is None:
            continue
        try:
            note = foreign_json(view.read(path))
            groups, form = int(note["key_groups"]), str(note["current"])
        except (ValueError, TypeError, KeyError):
            continue  # a note that cannot be read is kept as it is; what it says is not repeated
        yield {"name": operator, "key_groups": groups, "form": form}
