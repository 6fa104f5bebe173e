"""The step that fits the offset log of a checkpoint to a query with different sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.changes.engine import ChangePlan, require_same_rows
from holdfast.changes.offsets.positions import SourceKind, kind_of, newest_offsets
from holdfast.changes.working_copy import WorkingCopy
from holdfast.checkpoints.checkpoint import ProgressCallback, read
from holdfast.checkpoints.logs import Logs, source_readings
from holdfast.checkpoints.state.contents import contents
from holdfast.errors import Internal, Invalid, NotFound, Unsupported
from holdfast.formats.logs.batch_logs import OffsetLog, parse_offsets
from holdfast.json_shapes import NOT_IN_JSON, JsonShape
from holdfast.layout import HadoopChecksumFile, Log, LogFile, SourceLogFile
from holdfast.savepoints.access import ChangeSource
from holdfast.savepoints.restoring import RestoreKind, free
from holdfast.storage.port import Storage

# The sources of the new code: by position, or by name; each with the source that it continues, or None.
NewSources = Sequence[str | None] | Mapping[str, str | None]

# The characters of a name that Spark accepts in `DataStreamReader.name`.
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
_EVOLUTION: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_OFFSET_FORMAT: Final = "spark.sql.streaming.offsetLog.formatVersion"
_BY_POSITION, _BY_NAME = 1, 2
_SHOW: Final = "list the sources with `holdfast offsets show CHECKPOINT`"


@dataclass(frozen=True, slots=True)
class SourceFate(JsonShape):
    """A source of the old code, of the new code, or of both.

    Attributes:
        before: The number or name in the checkpoint; null for a source that the new code adds.
        after: The number or name in the new code; null for a source that the new code lacks.
        kind: `kafka`, `delta`, `files` or `other`, inferred from the form of its offset.
        offset: The offset from which the source continues; null for a source that starts as the code says.
    """

    before: str | None
    after: str | None
    kind: SourceKind | None
    offset: str | None


@dataclass(frozen=True, slots=True)
class SourcesPlan(ChangePlan, JsonShape):
    """The plan of a change of a query's sources.

    Attributes:
        sources: Every source of the new code in order, then the removed ones.
        named: Whether the new code names its sources.
        folders: The new name of each folder in `sources/`; None for the folder of a removed source.
    """

    sources: tuple[SourceFate, ...]
    named: bool
    folders: Mapping[str, str | None] = field(metadata=NOT_IN_JSON)


def plan_sources(
    source: ChangeSource, target: Storage, new: NewSources, drop: Sequence[str] = ()
) -> SourcesPlan:
    """Plan a change of sources; changes nothing.

    Args:
        source: A checkpoint, or a savepoint.
        target: The checkpoint to create.
        new: The sources of the new code.
        drop: The sources that the new code lacks.

    Raises:
        NotFound: The checkpoint or savepoint does not exist, or it has no such source.
        Invalid: A source is missing or used twice, a name is not valid, or nothing changes.
        Unsupported: The logs in `sources/` cannot be assigned to the new sources.
    """
    view, original = source.view()
    free(target, source.uri, RestoreKind.CHANGE)
    found = read(view)
    batch_id, offsets = newest_offsets(view)
    named = isinstance(new, Mapping)
    pairs = _pairs(new, named=named)
    _check_sources(pairs, drop, offsets, source.uri)
    before = {after: old for after, old in pairs if old is not None}
    same = [*before] == [*before.values()] == [*offsets.offsets] and len(pairs) == len(before)
    if same and offsets.version == (_BY_NAME if named else _BY_POSITION):
        raise Invalid(
            "the change leaves every source as it is",
            code="HF-E2554",
            where=source.uri,
            found=", ".join(offsets.offsets),
            hint=_SHOW,
        )
    fates = [
        SourceFate(
            old,
            after,
            kind_of(offsets.offsets[old]) if old is not None else None,
            offsets.offsets[old] if old is not None else None,
        )
        for after, old in pairs
    ]
    fates += [SourceFate(old, None, kind_of(offsets.offsets[old]), offsets.offsets[old]) for old in drop]
    return SourcesPlan(
        source.uri,
        original,
        target.uri,
        batch_id,
        found.query_id,
        tuple(fates),
        named,
        _new_folders(view, offsets, pairs, source.uri, named=named),
    )


def _pairs(new: NewSources, *, named: bool) -> list[tuple[str, str | None]]:
    """Return the sources of the new code by name or number, each with the source that it continues."""
    if isinstance(new, Mapping):
        pairs = list(new.items())
    else:
        pairs = [(str(number), old) for number, old in enumerate(new)]
    for name, _ in pairs if named else ():
        if not _NAME.fullmatch(name):
            raise Invalid(
                "invalid name of a source",
                code="HF-E2555",
                found=repr(name),
                expected="ASCII letters, digits and underscores, as in DataStreamReader.name",
                hint="rename the source in the code and in the change",
            )
    if not pairs:
        raise Invalid(
            "the new code has no source",
            code="HF-E2556",
            expected="at least one source, such as ['0', None]",
            hint="give every source of the new code, in the order of its query",
        )
    return pairs


def _check_sources(
    pairs: Sequence[tuple[str, str | None]], drop: Sequence[str], offsets: OffsetLog, where: str
) -> None:
    """Check that each source of the checkpoint occurs once, in the new code or among the removed sources."""
    continued = [old for _, old in pairs if old is not None]
    for old in [*continued, *drop]:
        if old not in offsets.offsets:
            raise NotFound(
                f"the query has no source {old!r}",
                code="HF-E3077",
                where=where,
                expected=", ".join(offsets.offsets),
                hint=_SHOW,
            )
    twice = next((old for old in continued if continued.count(old) + (old in drop) > 1), None)
    if twice is not None:
        raise Invalid(
            "a source of the checkpoint occurs twice in the change",
            code="HF-E2557",
            where=where,
            found=f"source {twice}",
            expected="one source of the new code for it, or its removal",
            hint="give None for a source that the new code adds",
        )
    lost = [old for old in offsets.offsets if old not in continued and old not in drop]
    if lost:
        raise Invalid(
            "the change does not mention a source of the checkpoint",
            code="HF-E2558",
            where=where,
            found=f"source {lost[0]}",
            expected="each source in the new code, or in drop",
            hint=f"remove it with drop=[{lost[0]!r}]; its offset is then lost",
        )


def _new_folders(
    view: Storage,
    offsets: OffsetLog,
    pairs: Sequence[tuple[str, str | None]],
    where: str,
    *,
    named: bool,
) -> dict[str, str | None]:
    """Return the new name of each folder in `sources/`, as Spark will look for it.

    Spark numbers folders by distinct source, so the position of a source and the number of its folder differ
    behind a stream that is read twice.

    Raises:
        Unsupported: The files of the checkpoint do not show which folder belongs to which source.
    """
    folders = sorted(view.list(layout.SOURCES).names)
    if offsets.version == _BY_POSITION and not all(folder.isdecimal() for folder in folders):
        return _named_folders(folders, offsets, pairs, where, named=named)
    if offsets.version == _BY_NAME:
        owners: list[dict[str, tuple[str, ...]]] = [{name: (name,) for name in offsets.offsets}]
    else:
        logs = Logs(view)
        readings = source_readings(folders, logs.offsets_up_to(logs.newest or 0))
        owners = [_by_source(reading, list(offsets.offsets)) for reading in readings]
    choices = []
    for sources in owners:
        shared = [names for names in sources.values() if len(names) > 1]
        if shared and named:
            continue
        choice = _renamed(folders, sources, pairs, named=named)
        if choice not in choices:
            choices.append(choice)
    if len(choices) != 1:
        raise Unsupported(
            "the logs in `sources/` cannot be assigned to the sources of the new code",
            code="HF-E7138",
            where=where,
            found=f"{len(offsets.offsets)} sources, {len(folders)} folders with logs",
            expected="sources with different offsets, each read once",
            hint="load the stream once for each use in the query, run a batch with new rows, then try again",
        )
    return choices[0]


def _named_folders(
    folders: Sequence[str],
    offsets: OffsetLog,
    pairs: Sequence[tuple[str, str | None]],
    where: str,
    *,
    named: bool,
) -> dict[str, str | None]:
    """Return the folders of named sources in an offset log by position, which does not contain their names.

    Spark 4.2 and 4.3 write such a log unless the session sets its format. Each folder keeps its name, so the
    change states the name of each position.

    Raises:
        Unsupported: A continued source has a different name than its folder, or none.
    """
    kept = [after for after, old in pairs if old is not None]
    removed = [folder for folder in folders if folder not in kept]
    if not named or len(removed) > len(offsets.offsets) - len(kept):
        raise Unsupported(
            "the folders in `sources/` have names, but the offset log has only the positions of the sources",
            code="HF-E7139",
            where=where,
            found=", ".join(folders),
            expected="the same names in the change, such as {'orders': '0'}",
            hint="give each source the name that it has in the code now; rename sources in a second change",
        )
    return {folder: folder if folder in kept else None for folder in folders}


def _by_source(reading: Sequence[int], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the positions of each source, by the number of its folder."""
    return {
        str(number): tuple(name for name, of in zip(names, reading, strict=True) if of == number)
        for number in dict.fromkeys(reading)
    }


def _renamed(
    folders: Sequence[str],
    sources: Mapping[str, tuple[str, ...]],
    pairs: Sequence[tuple[str, str | None]],
    *,
    named: bool,
) -> dict[str, str | None]:
    """Return the new name of each folder, given the positions that read the source of a folder."""
    folder_of = {name: folder for folder, names in sources.items() for name in names}
    renamed: dict[str, str | None] = dict.fromkeys(folders)
    given: dict[str, str] = {}
    fresh = 0
    for after, old in pairs:
        folder = None if old is None else folder_of.get(old)
        if folder is not None and folder in given:
            continue
        name = after if named else str(fresh)
        fresh += 1
        if folder is not None:
            given[folder] = name
            if folder in renamed:
                renamed[folder] = name
    return renamed


@dataclass(frozen=True, slots=True)
class SetSources:
    """The step that gives a checkpoint the sources of the new code.

    Attributes:
        plan: The plan of the change.
    """

    plan: SourcesPlan
    name: str = "sources"

    def apply(
        self,
        work: WorkingCopy,
        folder: Path,
        tell: ProgressCallback | None,
    ) -> tuple[SourceFate, ...]:
        """See `Step`; the rows of every state and the log of every source are compared before and after."""
        before = contents(work.checkpoint, tell=tell)
        logs = _source_logs(work.checkpoint)
        ends = newest_offsets(work.checkpoint)[1].offsets
        _write_offsets(work.checkpoint, self.plan)
        _move_folders(work.place, self.plan.folders, folder / layout.SOURCES)
        require_same_rows(before, contents(work.checkpoint, tell=tell), self.plan.source)
        self._require_sources(work.checkpoint, logs, ends)
        return self.plan.sources

    def _require_sources(
        self, checkpoint: Storage, logs: Mapping[tuple[str, str], bytes], ends: Mapping[str, str | None]
    ) -> None:
        """Check that the offset and the log of every continued source are those of before.

        Raises:
            Internal: An offset or a log differs.
        """
        wanted = {
            (new, file): data
            for (old, file), data in logs.items()
            if (new := self.plan.folders.get(old)) is not None
        }
        offsets = newest_offsets(checkpoint)[1].offsets
        kept = {
            fate.after: None if fate.before is None else ends[fate.before]
            for fate in self.plan.sources
            if fate.after is not None
        }
        if _source_logs(checkpoint) != wanted or dict(offsets) != kept:
            raise Internal(
                "verification failed, so nothing was written: the offset or the log of a source has changed",
                code="HF-E9040",
                where=self.plan.source,
                found=f"sources {', '.join(offsets)}",
                expected=f"the offsets and logs of {', '.join(kept)}",
                hint="please report this with the query's sources; the source checkpoint is unchanged",
            )


def _source_logs(checkpoint: Storage) -> dict[tuple[str, str], bytes]:
    """Return the content of all files in `sources/`, by folder and name."""
    return {
        (folder, name): checkpoint.read(f"{layout.SOURCES}/{folder}/{name}")
        for folder in checkpoint.list(layout.SOURCES).names
        for name in checkpoint.list(f"{layout.SOURCES}/{folder}").names
        if isinstance(layout.parse(f"{layout.SOURCES}/{folder}/{name}"), SourceLogFile)
    }


def _write_offsets(checkpoint: Storage, plan: SourcesPlan) -> None:
    pairs = [(fate.after, fate.before) for fate in plan.sources if fate.after is not None]
    for batch_id in Logs(checkpoint).offered:
        path = LogFile(Log.OFFSETS, batch_id).render()
        log = parse_offsets(checkpoint.read(path), path)
        fields = dict(log.fields or {})
        confs = dict(log.confs)
        if plan.named:
            confs |= {_EVOLUTION: "true", _OFFSET_FORMAT: str(_BY_NAME)}
        else:
            confs.pop(_EVOLUTION, None)
            confs.pop(_OFFSET_FORMAT, None)
        moved = {after: None if old is None else log.offsets.get(old) for after, old in pairs}
        version = _BY_NAME if plan.named else _BY_POSITION
        checkpoint.delete(HadoopChecksumFile(path).render())
        checkpoint.write(path, OffsetLog(version, fields | {"conf": confs}, moved).render(), replace=True)


def _move_folders(checkpoint: Path, folders: Mapping[str, str | None], before: Path) -> None:
    """Rename the folders of source logs, through a directory of the step, because names may be exchanged."""
    if not folders:
        return
    (checkpoint / layout.SOURCES).rename(before)
    (checkpoint / layout.SOURCES).mkdir()
    for folder, new in folders.items():
        if new is not None:
            (before / folder).rename(checkpoint / layout.SOURCES / new)
