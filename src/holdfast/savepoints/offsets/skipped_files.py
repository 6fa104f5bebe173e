"""Files that a source of files is to leave out: they are put into its own log, as if it had read them."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from urllib.parse import urlsplit

from holdfast import layout
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.logs.source_folders import log_files, source_folders
from holdfast.errors import Invalid, NotFound
from holdfast.formats.logs.offset_log import OffsetLog, log_offset
from holdfast.formats.logs.source_log import SeenFile, SourceLog, compact_interval, parse_source
from holdfast.layout import SourceLogFile
from holdfast.savepoints.offsets.position_changes import Offsets
from holdfast.storage.port import Storage


class FilesOfSource:
    """The log of a query's source of files.

    Args:
        checkpoint: The checkpoint.
        source: The source; None for the only one of files.
        where: The checkpoint's address, for messages.

    Raises:
        NotFound: No source is one of files, or it has not read any.
        Invalid: Several are.
    """

    def __init__(self, checkpoint: Storage, source: str | None, where: str) -> None:
        logs = Logs(checkpoint)
        newest = 0 if logs.newest is None else logs.newest
        offsets = logs.offsets(newest) or OffsetLog(1, None, {})
        folders = checkpoint.list(layout.SOURCES).names
        owners = source_folders(folders, offsets, lambda: logs.offsets_up_to(newest), where)
        found = {
            name: folder
            for folder, name in owners.items()
            if source in (None, name) and log_offset(offsets.offsets.get(name)) is not None
        }
        if len(found) != 1:
            kind = Invalid if found else NotFound
            raise kind(
                "the query has several sources of files"
                if found
                else "the query has no such source of files",
                where=where,
                found=", ".join(sorted(found)) or (source or "none"),
                hint="`holdfast offsets show` shows its sources; name one with --source",
            )
        self._checkpoint = checkpoint
        self._where = where
        [(self.source, self._folder)] = found.items()
        self._end = offsets.offsets[self.source]
        self._places = log_files(self._folder, checkpoint.list(f"{layout.SOURCES}/{self._folder}").names)

    def read_files(self) -> tuple[SeenFile, ...]:
        """Every file that it has read, as far as its log has them; those of a planned batch are not read."""
        found: dict[str, SeenFile] = {}
        end = log_offset(self._end) or 0
        for place in self._places:
            path = place.render()
            for file in parse_source(self._checkpoint.read(path), path).seen(path):
                if file.entry <= end:
                    found[file.path] = file
        return tuple(found.values())

    def unread(self, paths: Sequence[str]) -> tuple[str, ...]:
        """These files as Spark notes them; a path without a scheme is one of the directory that it reads.

        Raises:
            Invalid: It has read one of them, or nobody knows how it notes one.
        """
        seen = {file.path for file in self.read_files()}
        # Spark notes all files of a source in the same way: by the address of the directory it reads.
        parents = {posixpath.dirname(path) for path in seen}
        whole = []
        for path in paths:
            address = path if urlsplit(path).scheme else self._in_directory(path, parents)
            if address in seen:
                raise Invalid(
                    "the source has read this file already",
                    where=f"{self._where}, source {self.source}",
                    found=address,
                    hint="its rows are in the state; `holdfast state edit` changes that",
                )
            whole.append(address)
        return tuple(whole)

    def _in_directory(self, path: str, parents: set[str]) -> str:
        fits = [
            parent
            for parent in parents
            if urlsplit(parent).path == posixpath.dirname(posixpath.abspath(path))
        ]
        if len(fits) != 1:
            raise Invalid(
                "the file is in no directory that the source has read from",
                where=f"{self._where}, source {self.source}",
                found=path,
                expected=", ".join(sorted(parents)) or "a file that the source has read before",
                hint="give its whole address, as Spark would note it",
            )
        return f"{fits[0]}/{posixpath.basename(path)}"

    def leave_out(self, paths: Sequence[str], changed_ms: Sequence[int], offsets: Offsets) -> None:
        """Note files as read, in an entry of the log of their own.

        Args:
            paths: The files, as Spark notes them.
            changed_ms: When each was last changed.
            offsets: The offsets of all sources, in which this one goes on behind the entry.
        """
        entry = (log_offset(self._end) or 0) + 1
        lines = tuple(
            json.dumps({"path": path, "timestamp": at, "batchId": entry}, separators=(",", ":"))
            for path, at in zip(paths, changed_ms, strict=True)
        )
        interval = compact_interval(place.entry for place in self._places if place.compact)
        compact = (entry + 1) % interval == 0
        if compact:
            # In its place Spark expects all that came before.
            lines = tuple(_line(file) for file in self.read_files()) + lines
        place = SourceLogFile(self._folder, entry, compact)
        self._checkpoint.write(place.render(), SourceLog(1, lines).render())
        value = json.loads(self._end or "{}")
        for name, offset in offsets.items():
            if offset == self._end:
                offsets[name] = json.dumps({**value, "logOffset": entry}, separators=(",", ":"))


def _line(file: SeenFile) -> str:
    return json.dumps(
        {"path": file.path, "timestamp": file.timestamp_ms, "batchId": file.entry}, separators=(",", ":")
    )
