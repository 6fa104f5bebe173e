"""Count and hash the rows of a savepoint, at once or later.

A take reads rows only if the state is small, to stay short. Otherwise the digests are `pending` until a
separate pass has read the rows at a limited pace. The pass reads the catalog, never the checkpoint, and uses
a file only if it has the hash in the manifest. The result is written last and once: a killed pass leaves the
savepoint pending, and the next pass starts over.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Final
from urllib.parse import urlsplit

from holdfast import layout
from holdfast._version import __version__
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.state.contents import ContentSum, StateContent, state_contents, store_sums
from holdfast.checkpoints.state.states import OperatorStates, StateName, operator_states
from holdfast.clock import now_ms
from holdfast.config.checks import place_word
from holdfast.errors import Conflict, Corrupt, HoldfastError, NotFound, Unsupported
from holdfast.formats.manifest import (
    FamilySum,
    Manifest,
    RecordedState,
    SavedFile,
    SavepointContent,
    StoreSums,
    parse_savepoint_content,
)
from holdfast.json_shapes import JsonShape, in_json, json_as
from holdfast.layout import OperatorMetadataFile, SchemaFile, SharedSstFile, StoreFile, StoreId
from holdfast.savepoints.catalog import (
    CONTENT,
    PENDING,
    RECORDED,
    SAVEPOINTS,
    content_path,
    ids,
    ids_of_query,
    load,
    manifest_path,
    object_path,
    savepoint_uri,
)
from holdfast.savepoints.copying import Pace, seems_to_run
from holdfast.savepoints.leases import Clock
from holdfast.savepoints.spread import SharedSavepoint, Tasks, open_shared
from holdfast.savepoints.view import SavepointView
from holdfast.storage import open_storage
from holdfast.storage.hashing import hash_file, hash_of
from holdfast.storage.port import Storage, full

# Records of earlier savepoints that are looked through for stores with the same files.
_LOOKED_THROUGH: Final = 3
Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Digested(JsonShape):
    """The row counts and digests of a savepoint.

    Attributes:
        uri: The savepoint.
        content: `recorded`, or `pending` before the first pass.
        made: True if this pass recorded them, False if they existed before.
        states: Every state; None while pending.
        stores: The stores of all partitions.
        read: Stores whose rows were read; the others have the files of an earlier savepoint.
        size_bytes: The bytes of the files that were read.

    Example:
        saved = hf.savepoints.take("checkpoints/visits", "savepoints", digest=False)
        digested = hf.savepoints.digest(saved.uri)
        assert (digested.content, digested.rows) == ("recorded", 10)
    """

    uri: str = field(metadata=json_as("savepoint"))
    content: str
    made: bool
    states: tuple[RecordedState, ...] | None
    stores: int
    read: int = field(metadata=json_as("stores_read"))
    size_bytes: int = field(metadata=json_as("bytes_read"))

    @property
    @in_json
    def rows(self) -> int | None:
        """The number of rows of all states."""
        return None if self.states is None else sum(state.rows for state in self.states)


def recorded(catalog: Storage, savepoint_id: str) -> SavepointContent | None:
    """Return the recorded content of a savepoint; None while it is pending.

    The caller must compare the manifest hash in it.

    Raises:
        Corrupt: The digests are damaged, or belong to a different savepoint.
        Unsupported: A newer Holdfast wrote it.
    """
    path = content_path(savepoint_id)
    where = full(catalog.uri, path)
    try:
        data = catalog.read(path)
    except NotFound:
        return None
    content = parse_savepoint_content(data, where)
    if content.savepoint_id != savepoint_id:
        raise Corrupt(
            "the digests belong to a different savepoint",
            code="HF-E6041",
            where=where,
            found=content.savepoint_id,
            expected=savepoint_id,
            hint="delete this file, then run `holdfast savepoint digest SP`",
        )
    return content


def recorded_states(catalog: Storage, manifest: Manifest) -> tuple[RecordedState, ...] | None:
    """Return the recorded counts and digests of a savepoint's states; None while pending.

    Raises:
        Corrupt: The record is damaged.
        Unsupported: A newer Holdfast wrote it.
    """
    if manifest.has_content:
        return manifest_states(manifest)
    content = recorded(catalog, manifest.savepoint_id)
    return None if content is None else content.states


def manifest_states(manifest: Manifest) -> tuple[RecordedState, ...]:
    """Return the states whose row counts and digests a manifest contains."""
    return tuple(
        RecordedState(
            operator["operator_id"],
            store["name"],
            told["family"],
            told["rows"],
            told["digest"],
            told["size_bytes"],
        )
        for operator in manifest.fields.get("operators") or ()
        for store in operator["stores"]
        for told in store.get("content") or ()
    )


def pending(catalog: Storage, query_ids: Iterable[str] | None = None) -> list[str]:
    """Return the savepoints of a catalog with pending digests, newest first.

    Cost: one listing per savepoint; manifests of savepoints without digests are read.

    Args:
        catalog: The catalog.
        query_ids: Return only savepoints of these queries.
    """
    wanted = None if query_ids is None else set(query_ids)
    waiting = []
    for savepoint_id in reversed(ids(catalog)):
        if CONTENT in catalog.list(f"{SAVEPOINTS}/{savepoint_id}").names:
            continue
        with suppress(HoldfastError):  # not complete, damaged or deleted meanwhile: nothing to read
            manifest = load(catalog, savepoint_id)
            if not manifest.has_content and (wanted is None or manifest.query_id in wanted):
                waiting.append(savepoint_id)
    return waiting


def digest(
    catalog: Storage,
    savepoint_id: str,
    *,
    clock: Clock = now_ms,
    known: SavepointContent | None = None,
    step: Step = lambda: None,
    tasks: Tasks | None = None,
    tell: ProgressCallback | None = None,
) -> Digested:
    """Count and hash the rows of a savepoint and record the result, unless it is recorded already.

    Stores with the same files as in one of the newest savepoints of the query are not read again.

    Cost: about two seconds per million rows on one core; every state file is read for its hash.

    Args:
        catalog: The catalog.
        savepoint_id: The savepoint.
        clock: The time in epoch milliseconds.
        known: Digests from which counts are reused before any others.
        step: Called after every few thousand rows; it may pause, or raise to end the pass.
            Tasks do not call it.
        tasks: Where the rows of stores are read; by default in this process.
        tell: Called with the number of finished stores, the number of all stores, and the current step.

    Raises:
        NotFound: The savepoint does not exist or was deleted during the call.
        Corrupt: The savepoint is damaged; nothing is recorded.
        Unsupported: The state cannot be read.
        Conflict: The manifest changed during the call, for example by an erasure.
        Unavailable: An executor does not see the catalog.
    """
    manifest = load(catalog, savepoint_id)
    uri = savepoint_uri(catalog, savepoint_id)
    states = recorded_states(catalog, manifest)
    if states is not None:
        return Digested(uri, RECORDED, made=False, states=states, stores=0, read=0, size_bytes=0)
    one = _Pass(catalog, manifest, step, tell, tasks)
    content = one.content([*([] if known is None else [known]), *_earlier(catalog, manifest)], clock)
    made = _write(catalog, manifest, content)
    return Digested(
        uri,
        RECORDED,
        made=made,
        states=content.states,
        stores=len(content.stores),
        read=one.stores_read,
        size_bytes=one.bytes_read,
    )


def not_digested(catalog: Storage, savepoint_id: str) -> Digested:
    """Return the content recorded so far; reads no row.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: The manifest or the record is damaged.
    """
    manifest = load(catalog, savepoint_id)
    states = recorded_states(catalog, manifest)
    content = PENDING if states is None else RECORDED
    stores = len(_stores(manifest))
    size = sum(file.size_bytes for files in _stores(manifest).values() for file in files)
    return Digested(
        savepoint_uri(catalog, savepoint_id),
        content,
        made=False,
        states=states,
        stores=stores,
        read=stores if states is None else 0,
        size_bytes=size if states is None else 0,
    )


class _Pass:
    """Reads the rows of one savepoint.

    Attributes:
        stores_read: The stores whose rows were read.
        bytes_read: The bytes of the files that were read.
    """

    def __init__(
        self,
        catalog: Storage,
        manifest: Manifest,
        step: Step,
        tell: ProgressCallback | None = None,
        tasks: Tasks | None = None,
    ) -> None:
        self._catalog = catalog
        self._manifest = manifest
        self._step = step
        self._tell = tell
        self._tasks = tasks
        self._view = SavepointView(catalog, manifest.files, savepoint_uri(catalog, manifest.savepoint_id))
        self._files = _stores(manifest)
        self.stores_read = 0
        self.bytes_read = 0

    def content(self, earlier: Iterable[SavepointContent], clock: Clock) -> SavepointContent:
        """The record: sums of earlier ones where a store has the same files, else those of its rows."""
        in_stores = {file.path for files in self._files.values() for file in files}
        for file in self._manifest.files:
            if file.path not in in_stores and not _is_checksum(file.path):
                self._require(file)
        operators = list(self.operators.values())
        wanted = [(operator, store) for operator in operators for store in operator.stores()]
        prints = _fingerprints(self._manifest, [store for _, store in wanted])
        sums = _sums_by_files(earlier, set(prints.values()))
        if self._tasks is not None:
            sums |= self._read_in(
                self._tasks, {store: prints[store] for _, store in wanted if prints[store] not in sums}
            )
        stores = []
        for done, (operator, store) in enumerate(wanted):
            if self._tell is not None:
                self._tell(done, len(wanted), "reading rows")
            families = sums.get(prints[store])
            stores.append(
                StoreSums(
                    store.operator_id,
                    store.partition,
                    store.name,
                    prints[store],
                    self.read(operator, store) if families is None else families,
                )
            )
        if self._tell is not None:
            self._tell(len(wanted), len(wanted), "reading rows")
        return SavepointContent(
            savepoint_id=self._manifest.savepoint_id,
            manifest_sha256=hash_of(self._manifest.render()),
            made_ms=clock(),
            holdfast=__version__,
            states=tuple(_recorded(state) for state in _states_of(operators, stores)),
            stores=tuple(stores),
        )

    @cached_property
    def operators(self) -> dict[int, OperatorStates]:
        """The operators of the savepoint by number."""
        operators = operator_states(self._view, self._manifest.batch_id)
        return {operator.operator_id: operator for operator in operators}

    def _read_in(self, tasks: Tasks, prints: Mapping[StoreId, str]) -> dict[str, tuple[FamilySum, ...]]:
        """Read stores in tasks, and return the sums by the fingerprint of the store."""
        savepoint = SharedSavepoint.of(self._catalog, self._manifest)
        parts = tasks.run(partial(sums_in_task, savepoint), prints, self._tell, "reading rows")
        self.stores_read += len(parts)
        self.bytes_read += sum(size for _, size in parts)
        return {prints[store]: sums for store, (sums, _) in zip(prints, parts, strict=True)}

    def read(self, operator: OperatorStates, store: StoreId) -> tuple[FamilySum, ...]:
        """Return the sums of the rows of a store, after a check of the hashes of its files."""
        for file in self._files.get(store, ()):
            self._require(file)
        self.stores_read += 1
        sums = store_sums(self._view, operator, store, self._step)
        return tuple(
            FamilySum(name.family, content.rows, content.total, content.size_bytes)
            for name, content in sorted(sums.items())
        )

    def _require(self, file: SavedFile) -> None:
        """Make sure that a file has the bytes that were taken: a digest of others would prove those."""
        path = object_path(file.sha256)
        sha256, size = hash_file(self._catalog, path, file.size_bytes, lambda _: self._step())
        self.bytes_read += size
        if sha256 != file.sha256:
            uri = savepoint_uri(self._catalog, self._manifest.savepoint_id)
            raise Corrupt(
                "the savepoint is damaged, so the digests were not recorded",
                code="HF-E6042",
                where=full(self._catalog.uri, path),
                found=f"SHA-256 {sha256[:16]}…",
                expected=f"SHA-256 {file.sha256[:16]}…, as in the manifest",
                hint=f"list all damage with `holdfast savepoint verify {place_word(uri)}`;"
                " use a different savepoint",
            )


def sums_in_task(savepoint: SharedSavepoint, store: StoreId) -> tuple[tuple[FamilySum, ...], int]:
    """Return the sums of the rows of a store, and the bytes of the files that were read, on any machine."""
    one = _pass_over(savepoint)
    before = one.bytes_read
    return one.read(one.operators[store.operator_id], store), one.bytes_read - before


@lru_cache(maxsize=1)
def _pass_over(savepoint: SharedSavepoint) -> _Pass:
    """Return a pass that a worker uses for several stores."""
    return _Pass(*open_shared(savepoint), lambda: None)


def _write(catalog: Storage, manifest: Manifest, content: SavepointContent) -> bool:
    """Record the digests if the savepoint is unchanged; return False if another pass recorded them first."""
    _require_same(catalog, manifest)
    path = content_path(manifest.savepoint_id)
    try:
        catalog.write(path, content.render())
    except Conflict:
        other = recorded(catalog, manifest.savepoint_id)
        if other is not None and other.states == content.states:
            return False
        raise
    try:
        _require_same(catalog, manifest)
    except HoldfastError:
        catalog.delete(path)
        raise
    return True


def _require_same(catalog: Storage, manifest: Manifest) -> None:
    if catalog.read(manifest_path(manifest.savepoint_id)) != manifest.render():
        uri = savepoint_uri(catalog, manifest.savepoint_id)
        raise Conflict(
            "the savepoint changed while its rows were read, so the digests were not recorded",
            code="HF-E4050",
            where=uri,
            hint=f"run `holdfast savepoint digest {place_word(uri)}` again",
        )


def _earlier(catalog: Storage, manifest: Manifest) -> Iterator[SavepointContent]:
    """The records of the newest other savepoints of the query; one that cannot be read is passed over."""
    looked = 0
    for savepoint_id in reversed(ids_of_query(catalog, manifest.query_id)):
        if savepoint_id == manifest.savepoint_id:
            continue
        if looked == _LOOKED_THROUGH:
            return
        with suppress(HoldfastError):
            content = recorded(catalog, savepoint_id)
            if content is not None:
                looked += 1
                yield content


def _sums_by_files(earlier: Iterable[SavepointContent], wanted: set[str]) -> dict[str, tuple[FamilySum, ...]]:
    sums: dict[str, tuple[FamilySum, ...]] = {}
    for content in earlier:
        for store in content.stores:
            if store.files in wanted:
                sums.setdefault(store.files, store.families)
        if len(sums) == len(wanted):
            break
    return sums


def _states_of(operators: Sequence[OperatorStates], stores: Iterable[StoreSums]) -> tuple[StateContent, ...]:
    names = {operator.operator_id: operator for operator in operators}
    sums: dict[StateName, ContentSum] = {}
    for store in stores:
        for family in store.families:
            name = names[store.operator_id].codec_of(store.store, family.family).name
            part = ContentSum.restored(family.rows, family.total, family.size_bytes)
            sums.setdefault(name, ContentSum()).merge(part)
    return state_contents(operators, sums)


def _recorded(content: StateContent) -> RecordedState:
    name = content.state
    return RecordedState(
        name.operator_id, name.store, name.family, content.rows, content.digest, content.size_bytes
    )


def _stores(manifest: Manifest) -> dict[StoreId, list[SavedFile]]:
    """Return the files of each store, without their checksum files."""
    stores: dict[StoreId, list[SavedFile]] = {}
    for file in manifest.files:
        place = layout.parse(file.path)
        if isinstance(place, (StoreFile, SharedSstFile)):
            stores.setdefault(place.store, []).append(file)
    return stores


def _fingerprints(manifest: Manifest, stores: Iterable[StoreId]) -> Mapping[StoreId, str]:
    """A hash for each store of all that its rows depend on: its files, its schema, and the settings."""
    files = _stores(manifest)
    about: dict[int, list[str]] = {}
    for file in manifest.files:
        place = layout.parse(file.path)
        if isinstance(place, (SchemaFile, OperatorMetadataFile)):
            about.setdefault(place.operator_id, []).append(f"{file.path} {file.sha256}")
    settings = json.dumps(manifest.fields.get("confs"), sort_keys=True)

    def fingerprint(store: StoreId) -> str:
        own = [f"{file.path} {file.sha256}" for file in files.get(store, ())]
        # Which files make up the state depends on the batch too.
        lines = [store.folder, str(manifest.batch_id), settings, *about.get(store.operator_id, ()), *own]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    return {store: fingerprint(store) for store in stores}


def _is_checksum(path: str) -> bool:
    return isinstance(layout.parse(path), (layout.SparkChecksumFile, layout.HadoopChecksumFile))


class PendingDigests:
    """A background worker for pending digests; a stopped pass stays pending and starts over later.

    Args:
        clock: The time in epoch milliseconds.
        go_on: Polled regularly; the work ends when it returns False.
        pause: Waits for a number of seconds or less.
        longest_s: Limit of all pauses for one savepoint; after it the work runs at full speed, so that
            digests are ready before a periodic savepoint is deleted.
    """

    def __init__(
        self,
        clock: Clock,
        go_on: Callable[[], bool],
        *,
        pause: Callable[[float], object] = time.sleep,
        longest_s: float = math.inf,
    ) -> None:
        self._clock = clock
        self._go_on = go_on
        self._pause = pause
        self._longest_s = longest_s
        self._hopeless: set[str] = set()

    def newest(self, catalog: Storage, query_ids: Iterable[str]) -> Digested | None:
        """Make the digests of the newest pending savepoint of these queries.

        Returns:
            None where there is nothing to do, or it was stopped.

        Raises:
            Corrupt: The savepoint is damaged; it is passed over from now on.
            Unsupported: Its state cannot be read; likewise.
            Unavailable: The catalog does not answer.
        """
        for savepoint_id in pending(catalog, query_ids):
            if savepoint_id not in self._hopeless and self._go_on():
                try:
                    return self._digest(catalog, savepoint_id, gentle=True)
                except (NotFound, Conflict):
                    continue  # it was deleted meanwhile, or erased from
        return None

    def one(self, catalog: Storage, savepoint_id: str) -> Digested | None:
        """Compute the digests of one savepoint, at a limited pace if its query seems to run.

        Returns:
            None if the pass was stopped or the savepoint was skipped.

        Raises:
            As `newest`; and
            NotFound: The savepoint does not exist.
            Conflict: The savepoint changed during the call.
        """
        if savepoint_id in self._hopeless or not self._go_on():
            return None
        gentle = True
        with suppress(HoldfastError):
            checkpoint = load(catalog, savepoint_id).checkpoint
            if _is_near(checkpoint, catalog.uri):
                gentle = seems_to_run(open_storage(checkpoint), self._clock())
        return self._digest(catalog, savepoint_id, gentle=gentle)

    def _digest(self, catalog: Storage, savepoint_id: str, *, gentle: bool) -> Digested | None:
        pace = Pace(longest_s=self._longest_s, pause=self._pause) if gentle else None

        def step() -> None:
            if not self._go_on():
                raise _Stopped
            if pace is not None:
                pace.step()

        try:
            return digest(catalog, savepoint_id, clock=self._clock, step=step)
        except _Stopped:
            return None
        except (Corrupt, Unsupported):
            self._hopeless.add(savepoint_id)
            raise


def _is_near(checkpoint: str, catalog: str) -> bool:
    """Return True if a checkpoint that a manifest names is on this machine, or on the host of the catalog.

    A manifest must not choose the hosts that Holdfast connects to.
    """
    return checkpoint.startswith("file://") or urlsplit(checkpoint)[:2] == urlsplit(catalog)[:2]


class _Stopped(Exception):
    """The pass is to end."""
