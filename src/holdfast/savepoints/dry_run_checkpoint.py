"""The saved state that a check compares with, and small local checkpoints in which Spark plans a query.

Spark plans a batch from a query's logs and its metadata of each operator, and reads state files only when the
batch runs. These checkpoints are therefore a few small files, regardless of the size of the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import CheckpointReport, Tree, read
from holdfast.checkpoints.copy import CutFile, How
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.problems import file_gone
from holdfast.config.checks import place_word
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.external.view import open_checkpoint
from holdfast.formats.logs.batch_logs import OffsetLog, QueryMetadata, log_offset
from holdfast.formats.logs.notes import PLAN_NOTE, PlanNote, parse_note
from holdfast.formats.logs.operator_metadata import parse_operator
from holdfast.formats.logs.table_logs import parse_source
from holdfast.formats.manifest import Manifest, RecordedState
from holdfast.layout import Log, LogFile, OperatorMetadataFile, OwnFile, SchemaFile, SourceLogFile
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.catalog import load, savepoint_uri
from holdfast.savepoints.digests import recorded_states
from holdfast.savepoints.view import SavepointView
from holdfast.storage.hashing import hash_of
from holdfast.storage.port import Storage, full
from holdfast.storage.remote import hadoop_address

_FIRST: Final = 0


@dataclass(frozen=True, slots=True)
class DryRunCheckpoint:
    """A savepoint, or a checkpoint at its newest committed batch.

    Attributes:
        uri: Its address.
        storage: Its files, under their paths in the checkpoint.
        batch_id: The batch.
        found: What the files say.
        manifest: That of a savepoint.
        recorded: The rows of a savepoint's states as they were counted; None where they were not.
    """

    uri: str
    storage: Storage
    batch_id: int
    found: CheckpointReport
    manifest: Manifest | None
    recorded: tuple[RecordedState, ...] | None = None

    @property
    def offsets(self) -> OffsetLog:
        """Return the offsets of the batch and its pinned settings."""
        offsets = Logs(self.storage).offsets(self.batch_id)
        if offsets is None:
            raise file_gone(self.storage, LogFile(Log.OFFSETS, self.batch_id).render(), self.batch_id)
        return offsets

    @property
    def note(self) -> PlanNote | None:
        """Return the recorded plans of the query."""
        path = OwnFile(PLAN_NOTE).render()
        try:
            return parse_note(self.read(path), full(self.uri, path))
        except NotFound:
            return None

    @property
    def state_format(self) -> int | None:
        """Return the state-checkpoint format; None without state."""
        return max((operator.format_version for operator in self.found.operators), default=None)

    def last_files(self, source: str) -> tuple[str, ...]:
        """Return the files that the batch read from a file source; empty for other sources."""
        end = log_offset(self.offsets.offsets.get(source))
        if end is None:
            return ()
        earlier = Logs(self.storage).offsets(self.batch_id - 1) if self.batch_id else None
        start = None if earlier is None else log_offset(earlier.offsets.get(source))
        found: list[str] = []
        for entry in range(0 if start is None else start + 1, end + 1):
            for compact in (False, True):
                path = SourceLogFile(source, entry, compact).render()
                if self.storage.size(path) is not None:
                    seen = parse_source(self.read(path), path).list_files(path)
                    found += [file.path for file in seen if file.entry == entry]
        return tuple(found)

    def read(self, path: str) -> bytes:
        """Read a file, and compare it with the manifest if there is one."""
        data = self.storage.read(path)
        listed = (
            next((file for file in self.manifest.files if file.path == path), None) if self.manifest else None
        )
        if listed is not None and hash_of(data) != listed.sha256:
            raise Corrupt(
                "the savepoint is damaged",
                code="HF-E6043",
                where=full(self.uri, path),
                found=f"SHA-256 {hash_of(data)}",
                expected=f"SHA-256 {listed.sha256}",
                hint=f"list all damage with `holdfast savepoint verify {place_word(self.uri)}`",
            )
        return data


def open_saved(address: str, query: str | None = None) -> DryRunCheckpoint:
    """Open the savepoint or checkpoint to check a query against.

    Args:
        address: A savepoint, a checkpoint, or the folder of a job's checkpoints.
        query: The query, for a folder with several checkpoints.

    Raises:
        NotFound: The savepoint or checkpoint does not exist, or has no committed batch.
        Corrupt: A file that was read is damaged.
        Invalid: The address names several savepoints.
    """
    saved = StateAddress.resolve(address)
    if not saved.is_savepoint:
        return _checkpoint(saved.text, query)
    catalog, savepoint_id = saved.open_savepoint()
    manifest = load(catalog, savepoint_id)
    uri = savepoint_uri(catalog, savepoint_id)
    view = SavepointView(catalog, manifest.files, uri)
    recorded = None
    with suppress(Corrupt, Unsupported):  # it tells how many rows there are, and nothing that matters here
        recorded = recorded_states(catalog, manifest)
    return DryRunCheckpoint(uri, view, manifest.batch_id, read(view), manifest, recorded)


def _checkpoint(address: str, query: str | None) -> DryRunCheckpoint:
    storage = open_checkpoint(address)
    if query is not None and layout.METADATA not in storage.list().names:
        storage = open_checkpoint(f"{address.rstrip('/')}/{query}")
    found = read(storage)
    if found.batch_id is None:
        raise NotFound(
            "the checkpoint has no committed batch",
            code="HF-E3053",
            where=storage.uri,
            hint="start the query with the new code, or wait for its first batch",
        )
    return DryRunCheckpoint(storage.uri, storage, found.batch_id, found, None)


def lay_out(saved: DryRunCheckpoint, sandbox: Storage) -> None:
    """Write a checkpoint that is before the batch after the saved one, with empty sources.

    The batch is in the offset log and not in the commit log, so Spark plans it at once; each source has no
    position, as before its first row, and so has nothing to read.
    """
    offsets = saved.offsets
    nothing = OffsetLog(offsets.version, offsets.fields, dict.fromkeys(offsets.offsets))
    commit = LogFile(Log.COMMITS, saved.batch_id).render()
    sandbox.write(commit, saved.read(commit))
    for path, place in Tree(saved.storage).places():
        if isinstance(place, (SchemaFile, OperatorMetadataFile)) and (place.batch_id or 0) <= saved.batch_id:
            sandbox.write(path, _moved(path, place, saved.read(path), sandbox))
    for batch_id in (saved.batch_id, saved.batch_id + 1):
        sandbox.write(LogFile(Log.OFFSETS, batch_id).render(), nothing.render())
    sandbox.write(layout.METADATA, QueryMetadata(saved.found.query_id).render())


def lay_out_first(
    saved: DryRunCheckpoint,
    sandbox: Storage,
    sources: Sequence[str],
    confs: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a checkpoint before its first batch, with the pinned settings of the saved one.

    Args:
        saved: The savepoint.
        sandbox: An empty directory.
        sources: The names of the new query's sources.
        confs: The settings that replace pinned ones.
    """
    fixed = saved.offsets
    fields = {**(fixed.fields or {}), "conf": {**fixed.confs, **confs}} if confs else fixed.fields
    names = sources if fixed.version > 1 else [str(number) for number in range(len(sources))]
    nothing = OffsetLog(fixed.version, fields, dict.fromkeys(names))
    sandbox.write(LogFile(Log.OFFSETS, _FIRST).render(), nothing.render())
    sandbox.write(layout.METADATA, QueryMetadata(saved.found.query_id).render())


def _moved(path: str, place: layout.Place, data: bytes, sandbox: Storage) -> bytes:
    """Schema paths are absolute, and led into the sandbox: what Spark writes must not land elsewhere."""
    if isinstance(place, OperatorMetadataFile) and parse_operator(data, path).version > 1:
        return CutFile(path, How.SCHEMA_PATHS, path).content(data, hadoop_address(sandbox.uri))
    return data
