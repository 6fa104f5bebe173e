"""Plan a savepoint: its files, its facts, and the objects that the catalog already holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import CheckpointReport, ProgressCallback, StatefulOperator, Store, read
from holdfast.checkpoints.copy import CutFile, FileSet, How, cut
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.problems import file_gone
from holdfast.checkpoints.record import Record, at_least
from holdfast.checkpoints.state.contents import StateContent, contents
from holdfast.checkpoints.stores import NO_DAMAGE, DamagedFiles
from holdfast.config.checks import place_word
from holdfast.errors import Corrupt, HoldfastError, NotFound, Unavailable, Unsupported
from holdfast.external.view import is_external
from holdfast.formats.logs.operator_metadata import parse_schema
from holdfast.formats.manifest import FORMAT, SavedFile
from holdfast.formats.text import foreign_json
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_as
from holdfast.layout import OwnFile, SchemaFile
from holdfast.savepoints.catalog import ids_of_query, load, modified_ns, object_path, same_file
from holdfast.savepoints.nesting import check_apart, check_catalog
from holdfast.storage.port import Storage, full

# State files of this size hold about a hundred thousand rows, which are read in a fraction of a second.
SMALL_BYTES: Final = 2 << 20


def facts(
    view: Storage, paths: Sequence[str], *, deep: bool = False, tell: ProgressCallback | None = None
) -> dict[str, Any]:
    """Return the manifest fields that are derived from the saved files.

    With `deep`, or if the state is small, its rows are read: then `rows` of a store is exact, and `content`
    has the row count and digest of each of its states. Otherwise `content` is None and `rows` is RocksDB's
    count, or None if changes follow the snapshot, since a change may overwrite an existing key, or if nothing
    is counted. Spark's internal data, such as counters and timers, is in `content` and not in `rows`.

    Args:
        view: The savepoint as a checkpoint.
        paths: The files of the savepoint.
        deep: Read the rows regardless of their number; by default only of state up to `SMALL_BYTES`.
        tell: Called with the number of finished stores, the number of all stores, and the current step.

    Raises:
        Corrupt: A required file is damaged.
        NotFound: A required file is missing.
        Unsupported: The rows were requested but cannot be read.
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
    found: CheckpointReport,
    operator: StatefulOperator,
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
    view: Storage, found: CheckpointReport, *, deep: bool, tell: ProgressCallback | None
) -> tuple[StateContent, ...] | None:
    if not deep and found.size_bytes > SMALL_BYTES:
        return None
    try:
        return contents(view, found.batch_id, check_partitions=True, tell=tell)
    except Unsupported:
        if deep:
            raise
        return None  # a savepoint of state that nobody here can read is one all the same


def _counted(
    operator: StatefulOperator, store: str, content: Sequence[StateContent] | None
) -> dict[str, Any]:
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
    """Return RocksDB's key count of stores; None if changes follow the snapshot or nothing is counted."""
    counts = [store.base_keys if store.base_version == store.version else None for store in stores]
    return sum(count for count in counts if count is not None) if counts and None not in counts else None


def _schema(
    view: Storage, paths: Sequence[str], operator_id: int, store: str, batch_id: int
) -> list[dict[str, str]]:
    """Return the newest schema of a store: its column families with Spark's JSON of keys and values."""
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


# A running query deletes what old batches needed; the next cut is of a newer batch.
LOOKS: Final = 5


@dataclass(frozen=True, slots=True)
class Purpose:
    """The purpose of a savepoint, as used in error messages.

    Attributes:
        refused: The outcome of a failure, such as `no savepoint was taken`.
        older_batch: The hint for an older batch.
    """

    refused: str
    older_batch: str


SAVEPOINT: Final = Purpose("no savepoint was taken", "take one of them with --batch")


def changing(refused: str, verb: str) -> Purpose:
    """Return the purpose of a command that creates a checkpoint from an existing one.

    Args:
        refused: The outcome of a failure, such as `nothing was rescaled`.
        verb: The command, as typed after `holdfast`.
    """
    return Purpose(
        refused,
        "take a savepoint of one of them with `holdfast savepoint take … --batch N`,"
        f" then run `holdfast {verb}` on it",
    )


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file of a planned savepoint.

    Attributes:
        file: The file in the checkpoint, and how it is copied.
        size_bytes: The size, before a source's log is cut.
        held: The same, unchanged file in an earlier savepoint; None otherwise.
    """

    file: CutFile
    size_bytes: int
    held: SavedFile | None


@dataclass(frozen=True, slots=True)
class TakePlan(JsonShape):
    """The plan of a take.

    Attributes:
        checkpoint: The checkpoint.
        catalog: The catalog.
        asked: The requested batch; None for the newest.
        batch_id: The batch of the savepoint.
        query_id: The query.
        files: The files.
        untold: The note for a query that has no state or has lost it; None if the two can be distinguished.
        record: The integrity record of the checkpoint; None without one.
        purpose: The purpose of the savepoint, for error messages.

    Example:
        plan: hf.savepoints.TakePlan = hf.savepoints.plan_take("checkpoints/visits", "savepoints")
        assert (plan.batch_id, len(plan.files)) == (11, 68)
        print(plan.new_files, plan.new_bytes)  # those that the catalog does not have yet
    """

    checkpoint: str
    catalog: str
    asked: int | None = field(metadata=NOT_IN_JSON)
    batch_id: int
    query_id: str
    files: tuple[PlannedFile, ...] = field(metadata=json_as(convert=len, says="Number of files."))
    untold: str | None = None
    record: Record | None = field(default=None, repr=False, compare=False, metadata=NOT_IN_JSON)
    purpose: Purpose = field(default=SAVEPOINT, repr=False, compare=False, metadata=NOT_IN_JSON)

    @property
    @in_json
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    @in_json
    def new_files(self) -> int:
        """The number of files that the catalog is not known to hold."""
        return sum(file.held is None for file in self.files)

    @property
    @in_json
    def new_bytes(self) -> int:
        """The bytes of the new files; the catalog may hold some of them under a different name."""
        return sum(file.size_bytes for file in self.files if file.held is None)


def plan_take(
    checkpoint: Storage,
    catalog: Storage,
    batch_id: int | None = None,
    record: Record | None = None,
    *,
    purpose: Purpose = SAVEPOINT,
    damage: DamagedFiles = NO_DAMAGE,
) -> TakePlan:
    """Plan the files of a savepoint, without changing anything.

    Cost: that of a cut, the newest manifest of the same query, and a request for each file's size.

    Args:
        checkpoint: The checkpoint.
        catalog: The catalog.
        batch_id: A committed batch whose files still exist; the newest by default.
        record: The integrity record of the checkpoint. State that it names must exist, and `take` compares
            each file with it.
        purpose: The purpose of the savepoint, for error messages.
        damage: Damaged files that the savepoint must not use.

    Raises:
        NotFound: The checkpoint does not exist, or the batch is not committed or no longer kept.
        Corrupt: The checkpoint is damaged, or has lost its state.
        Unsupported: The state provider is unknown.
        Invalid: One of the two directories is inside the other, or the catalog is inside a checkpoint.
        Conflict: The catalog's path is a file.
        Unavailable: A storage does not answer, or the query deletes files faster than they can be listed.
    """
    check_apart(checkpoint, catalog)
    check_catalog(catalog)
    places: set[str | None] = set()
    for _ in range(LOOKS):
        try:
            return _plan(checkpoint, catalog, batch_id, record, purpose, damage)
        except NotFound as error:  # noqa: PERF203 - a few looks, not a loop over data
            if is_about_a_file(error, checkpoint) and _is_old(checkpoint, batch_id):
                cut(checkpoint, batch_id, damage=damage)  # it says so if the whole batch is gone
                raise
            if not is_about_a_file(error, checkpoint):
                raise
            places.add(error.where)
            missing = error
        except Corrupt as error:
            raise _with_address(error, checkpoint, purpose) from error
    if len(places) == 1 and is_external(checkpoint):
        raise missing
    if len(places) == 1:
        raise Corrupt(
            f"a file of the checkpoint is missing, so {purpose.refused}",
            code="HF-E6045",
            where=missing.where,
            hint=see_damage(checkpoint, purpose),
        ) from missing
    raise too_fast(missing) from missing


def _plan(
    checkpoint: Storage,
    catalog: Storage,
    batch_id: int | None,
    record: Record | None,
    purpose: Purpose,
    damage: DamagedFiles,
) -> TakePlan:
    found = cut(checkpoint, batch_id, record, damage)
    earlier = _Earlier(checkpoint, catalog, found)
    listings = {
        folder: checkpoint.list(folder) for folder in {layout.split(file.origin)[0] for file in found.files}
    }
    files = []
    for file in found.files:
        folder, name = layout.split(file.origin)
        size = listings[folder].size(name)
        if size is None:
            raise file_gone(checkpoint, file.origin, found.batch_id)
        files.append(PlannedFile(file, size, earlier.same(file, size)))
    return TakePlan(
        checkpoint.uri,
        catalog.uri,
        batch_id,
        found.batch_id,
        found.query_id,
        tuple(files),
        found.untold,
        record,
        purpose,
    )


class _Earlier:
    """The newest savepoint of the same checkpoint, for files that are unchanged."""

    def __init__(self, checkpoint: Storage, catalog: Storage, found: FileSet) -> None:
        self._checkpoint = checkpoint
        self._catalog = catalog
        self._files: dict[str, SavedFile] = {}
        for savepoint_id in reversed(ids_of_query(catalog, found.query_id)):
            with suppress(HoldfastError):  # one that cannot be read tells nothing
                manifest = load(catalog, savepoint_id)
                if manifest.changed:  # its files may have the names of others that were written by Spark
                    continue
                if (manifest.query_id, manifest.checkpoint) == (found.query_id, found.uri):
                    self._files = {file.path: file for file in manifest.files}
                    return

    def same(self, file: CutFile, size_bytes: int) -> SavedFile | None:
        """The saved file, if this one has not changed: it is the same, or of a name that is given once."""
        before = self._files.get(file.path)
        if before is None or file.how is not How.WHOLE or before.size_bytes != size_bytes:
            return None
        path = object_path(before.sha256)
        linked = same_file(self._checkpoint, file.origin, self._catalog, path)
        if not linked and not named_for_life(file.path):
            return None
        if before.modified_ns is not None and modified_ns(self._catalog, path) != before.modified_ns:
            return None  # somebody wrote into it, and into the savepoint with it
        return before if self._catalog.size(path) == size_bytes else None


def named_for_life(path: str) -> bool:
    """Return whether Spark put a unique id into the name, so that no different file ever has it."""
    place = layout.parse(path)
    return isinstance(place, layout.SharedSstFile) or (
        isinstance(place, layout.StoreFile) and place.unique_id is not None
    )


def is_about_a_file(error: NotFound, checkpoint: Storage) -> bool:
    """Return whether a file of a checkpoint is missing, rather than the checkpoint or the batch."""
    return error.where is not None and error.where.startswith(f"{checkpoint.uri.rstrip('/')}/")


def _is_old(checkpoint: Storage, batch_id: int | None) -> bool:
    newest = Logs(checkpoint).newest
    return batch_id is not None and newest is not None and batch_id < newest


def too_fast(error: NotFound) -> Unavailable:
    """Return the error for a query that deletes files faster than they can be copied."""
    return Unavailable(
        f"the query deleted files before they could be copied, in each of {LOOKS} attempts",
        code="HF-E5038",
        where=error.where,
        hint="keep more batches (spark.sql.streaming.minBatchesToRetain), "
        "or use a catalog on the checkpoint's own disk",
    )


def see_damage(checkpoint: Storage, purpose: Purpose) -> str:
    """Return what to do about a damaged checkpoint."""
    return (
        f"`holdfast checkpoint verify {place_word(checkpoint.uri)}` lists all damage and the batches that can"
        f" still be restored; {purpose.older_batch}"
    )


def _with_address(error: Corrupt, checkpoint: Storage, purpose: Purpose) -> Corrupt:
    where = error.where or ""
    known = {
        "where": where if where.startswith(checkpoint.uri) else full(checkpoint.uri, where),
        "hint": error.hint or see_damage(checkpoint, purpose),
    }
    return Corrupt(error.fact, **(error.facts() | known))
