"""Files that a source of files is to leave out: they are put into its own log, as if it had read them."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from holdfast import layout
from holdfast.checkpoints.logs.logs import Logs
from holdfast.checkpoints.logs.source_folders import log_files, read_again, source_folders
from holdfast.errors import Invalid, NotFound
from holdfast.formats.logs.offset_log import OffsetLog, log_offset
from holdfast.formats.logs.source_log import SeenFile, SourceLog, compact_interval, parse_source
from holdfast.layout import SourceLogFile
from holdfast.savepoints.offsets.position_changes import Offsets
from holdfast.storage.port import Storage

_LOCAL: Final = "file://"
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)", re.DOTALL)
# What Java escapes in the path of a URI: of the characters beyond ASCII only blanks and control characters.
_ESCAPED: Final = re.compile(
    r"""[\x00-\x20"#%<>?\[\\\]^`{|}\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"""
)


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
        kept = partial(logs.offsets_up_to, newest)
        owners = source_folders(folders, offsets, kept, where)
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
        self._same = (self.source, *read_again(self.source, owners.values(), offsets, kept, where))
        self._places = log_files(self._folder, checkpoint.list(f"{layout.SOURCES}/{self._folder}").names)

    def read_files(self) -> tuple[SeenFile, ...]:
        """Every file that it has read, as far as its log has them; those of a planned batch are not read."""
        end = log_offset(self._end) or 0
        return tuple(file for file in self._noted_files() if file.entry <= end)

    def _noted_files(self) -> list[SeenFile]:
        found: dict[str, SeenFile] = {}
        for place in self._places:
            path = place.render()
            found |= {file.path: file for file in parse_source(self._checkpoint.read(path), path).seen(path)}
        return sorted(found.values(), key=lambda file: file.entry)

    def unread(self, paths: Sequence[str]) -> tuple[str, ...]:
        """These files as Spark notes them, each once.

        Args:
            paths: Paths, or addresses, with or without the escapes of a URI.

        Raises:
            Invalid: It has read one of them, or none from the directory that one is in.
            NotFound: One would be on this machine and is not, and no batch is planned with it.
        """
        read = {file.path for file in self.read_files()}
        noted = {_parts_of_uri(file.path): file.path for file in self._noted_files()}
        whole = [self._as_noted(path, noted) for path in paths]
        for address in whole:
            if address in read:
                raise Invalid(
                    "the source has read this file already",
                    where=f"{self._where}, source {self.source}",
                    found=address,
                    hint="its rows are in the state; `holdfast state edit` changes that",
                )
        return tuple(dict.fromkeys(whole))

    def _as_noted(self, given: str, noted: Mapping[tuple[str, str], str]) -> str:
        root, path = _parts(given)
        paths = [posixpath.normpath(each) for each in ((unquote(path), path) if root else (path,))]
        for each in paths:
            if len(known := _at(noted, root, each)) == 1:
                return known[0]
        # Spark notes all files of a source in the same way: by the address of the directory it reads.
        folders = {
            (of, posixpath.dirname(at)): posixpath.dirname(address) for (of, at), address in noted.items()
        }
        fits = [(folder, each) for each in paths for folder in _at(folders, root, posixpath.dirname(each))]
        if len({folder for folder, _ in fits}) != 1:
            raise Invalid(
                "the file is in no directory that the source has read from",
                where=f"{self._where}, source {self.source}",
                found=given,
                expected=", ".join(sorted(folders.values())) or "a file that the source has read before",
                hint="start the query until it has planned a batch with the file, or give its whole address",
            )
        # Where the directory is not on this machine, nobody can look.
        if _parts(fits[0][0])[0] == _LOCAL and Path(posixpath.dirname(paths[0])).is_dir():
            fits = [(folder, each) for folder, each in fits if Path(each).exists()]
        if not fits:
            raise NotFound(
                "there is no such file, and no batch is planned with it",
                where=f"{self._where}, source {self.source}",
                found=paths[0],
                hint="see that the path is right",
            )
        folder, found = fits[0]
        return f"{folder}/{_quoted(posixpath.basename(found))}"

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
        for name in self._same:
            offsets[name] = json.dumps({**value, "logOffset": entry}, separators=(",", ":"))


def _parts(address: str) -> tuple[str, str]:
    """The scheme and host, which a plain path has not, and the path as it is spelled."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        return "", posixpath.abspath(address)
    return f"{parts[1]}://{parts[2] or ''}", parts[3]


def _parts_of_uri(address: str) -> tuple[str, str]:
    root, path = _parts(address)
    return root, unquote(path)


def _at(places: Mapping[tuple[str, str], str], root: str, path: str) -> list[str]:
    return [address for (of, at), address in places.items() if at == path and root in ("", of)]


def _quoted(path: str) -> str:
    return _ESCAPED.sub(lambda found: quote(found[0], safe=""), path)


def _line(file: SeenFile) -> str:
    return json.dumps(
        {"path": file.path, "timestamp": file.timestamp_ms, "batchId": file.entry}, separators=(",", ":")
    )
