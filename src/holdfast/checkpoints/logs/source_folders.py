"""Which source a folder of logs belongs to.

The offset log names sources by where they stand in the plan. The folders count sources that are different:
a stream that is read twice, as in a join with itself, stands there twice and has one folder. Which positions
are one source is written nowhere; they have the same offset in every batch, and one folder together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from holdfast import layout
from holdfast.errors import Unsupported
from holdfast.formats.logs.offset_log import OffsetLog, is_tick, log_offset
from holdfast.layout import SourceLogFile


def source_folders(
    folders: Collection[str], newest: OffsetLog, kept: Callable[[], Sequence[OffsetLog]], where: str
) -> Mapping[str, str]:
    """The source of each folder, by its name in the offset log.

    Args:
        folders: The names of the folders.
        newest: The batch in question.
        kept: All batches up to it; asked for only where folders and sources do not go together by number.
        where: The checkpoint, for messages.

    Returns:
        Folder to source. A source whose folder is lost is in none; where no reading of the plan explains what
        is there, each folder goes to the source of its own name.

    Raises:
        Unsupported: Several readings do, and they differ in where a folder's log ends.
    """
    own = {folder: folder for folder in folders if folder in newest.offsets}
    if newest.version != 1 or all(folder in folders for folder in _logged(newest)):
        return own
    names = list(newest.offsets)
    found = [_by_folder(reading, names, folders) for reading in _readings(names, folders, kept())]
    ends = {
        tuple(sorted((folder, newest.offsets[name]) for folder, name in owners.items())) for owners in found
    }
    if len(ends) > 1:
        raise _ambiguous(where, f"{len(names)} sources, {len(folders)} folders with logs")
    return found[0] if found else own


def log_files(source: str, names: Iterable[str]) -> list[SourceLogFile]:
    """The entries of a source's log, of the names in its folder."""
    places = (layout.parse(f"{layout.SOURCES}/{source}/{name}") for name in names)
    return [place for place in places if isinstance(place, SourceLogFile)]


def read_twice(folders: Collection[str], batches: Sequence[OffsetLog]) -> list[str]:
    """The sources that must have a log, have none under their number, and always the offset of one before."""
    newest = batches[-1]
    if newest.version != 1:
        return []
    names = list(newest.offsets)
    return [
        name
        for name in _logged(newest)
        if name not in folders and any(_alike(name, other, batches) for other in names[: names.index(name)])
    ]


def read_again(
    name: str,
    owners: Collection[str],
    newest: OffsetLog,
    kept: Callable[[], Sequence[OffsetLog]],
    where: str,
) -> tuple[str, ...]:
    """The sources without a log of their own that are this one, read again.

    Args:
        name: The source.
        owners: The sources that have a log.
        newest: The batch in question.
        kept: All batches up to it; asked for only where a source has no log of its own.
        where: The checkpoint, for messages.

    Raises:
        Unsupported: One may just as well be another one.
    """
    others = [other for other in _logged(newest) if other not in owners]
    if newest.version != 1 or not others:
        return ()
    batches = kept()
    found = tuple(other for other in others if _alike(name, other, batches))
    like = [owner for owner in owners if _alike(name, owner, batches)]
    if found and len(like) > 1:
        raise _ambiguous(where, f"source {found[0]} is like each of {', '.join(sorted(like))}")
    return found


def _ambiguous(where: str, found: str) -> Unsupported:
    return Unsupported(
        "which log belongs to which source cannot be told",
        where=where,
        found=found,
        expected="a stream that is read twice beside others that have other offsets",
        hint="give each reading of the stream a frame of its own, so that it has a log of its own",
    )


def _logged(offsets: OffsetLog) -> list[str]:
    """The sources that keep a log of their own and have read something."""
    ends = ((name, log_offset(offset)) for name, offset in offsets.offsets.items())
    return [name for name, end in ends if end is not None and end >= 0]


def _alike(one: str, other: str, batches: Sequence[OffsetLog]) -> bool:
    return all(batch.offsets.get(one) == batch.offsets.get(other) for batch in batches)


def _readings(
    names: Sequence[str], folders: Collection[str], batches: Sequence[OffsetLog]
) -> Iterator[tuple[int, ...]]:
    """Every way in which positions may be sources: the number of its source for each of them."""
    logged = set(_logged(batches[-1]))
    ticks = {name for name in names if is_tick(batches[-1].offsets.get(name))}
    numbered = {int(folder) for folder in folders if folder.isascii() and folder.isdigit()}

    def more(reading: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        at = len(reading)
        fresh = max(reading, default=-1) + 1
        if at == len(names):
            if not numbered or max(numbered) < fresh:
                yield reading
            return
        for number in range(fresh):
            if _alike(names[at], names[reading.index(number)], batches):
                yield from more((*reading, number))
        fits = fresh not in numbered if names[at] in ticks else names[at] not in logged or fresh in numbered
        if fits:
            yield from more((*reading, fresh))

    return more(())


def _by_folder(reading: Sequence[int], names: Sequence[str], folders: Collection[str]) -> dict[str, str]:
    """The first position of the source that each folder is of."""
    return {
        folder: names[reading.index(int(folder))]
        for folder in folders
        if folder.isascii() and folder.isdigit() and int(folder) in reading
    }
