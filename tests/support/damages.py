"""What can happen to files: seeded damage to one; exchanges, stale copies and edits among many."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from holdfast import layout
from holdfast.checkpoints.copy import cut
from holdfast.layout import StoreFile
from holdfast.storage.memory import MemoryStorage

Files = dict[str, bytes]
Damage = Callable[[bytes, random.Random], bytes]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def zero(data: bytes, rng: random.Random) -> bytes:
    return bytes(len(data))


def empty(data: bytes, rng: random.Random) -> bytes:
    return b""


def double(data: bytes, rng: random.Random) -> bytes:
    return data + data


def one_more(data: bytes, rng: random.Random) -> bytes:
    return data + b"\0"


DAMAGES: dict[str, Damage] = {
    "truncate": truncate,
    "flip": flip,
    "zero": zero,
    "empty": empty,
    "double": double,
    "one byte more": one_more,
}


@dataclass(frozen=True)
class Fault:
    """A checkpoint after something has happened to it.

    Attributes:
        name: What has happened.
        files: What is there now.
        touched: The files that are lost or have other bytes.
    """

    name: str
    files: Files
    touched: frozenset[str]


def faults(files: Files) -> Iterator[Fault]:
    """Everything that leaves each file readable, and yet is not what the query has written."""
    for name, changed in _changes(files):
        touched = frozenset(path for path in files if not hidden(path) and changed.get(path) != files[path])
        if touched:
            yield Fault(name, changed, touched)


def hidden(path: str) -> bool:
    return isinstance(layout.parse(path), (layout.HadoopChecksumFile, layout.SparkChecksumFile))


def _changes(files: Files) -> Iterator[tuple[str, Files]]:
    newest = cut(MemoryStorage(files)).batch_id
    yield from _state_files(files, newest)
    yield from _folders(files)
    yield from _logs(files, newest)


def _state_files(files: Files, newest: int) -> Iterator[tuple[str, Files]]:
    stores: dict[tuple[int, int, str], list[StoreFile]] = {}
    for path in _whole_paths(files, newest):
        place = layout.parse(path)
        if isinstance(place, StoreFile):
            key = (place.store.operator_id, place.store.partition, place.store.name)
            stores.setdefault(key, []).append(place)
    for (operator, partition, name), own in sorted(stores.items()):
        where = f"{operator}/{partition}/{name}"
        changes = sorted((each for each in own if not each.kind.whole), key=lambda each: each.version)
        bases = sorted((each for each in own if each.kind.whole), key=lambda each: each.version)
        other = stores.get((operator, 1 - partition, name), [])
        for each in changes[-2:] + bases[-1:]:
            for theirs in other:
                if (theirs.version, theirs.kind) == (each.version, each.kind):
                    yield (
                        f"{where}: {each.name} exchanged with another partition's",
                        _swapped(files, each, theirs),
                    )
                    yield f"{where}: {each.name} copied from another partition", _over(files, theirs, each)
        for kind, alike in (("change", changes), ("base", bases)):
            if len(alike) > 1:
                yield f"{where}: the two newest {kind}s exchanged", _swapped(files, alike[-1], alike[-2])
                yield f"{where}: a stale {kind} over the newest", _over(files, alike[-2], alike[-1])
                yield f"{where}: the oldest {kind} over the newest", _over(files, alike[0], alike[-1])
        for key, theirs_of in stores.items():
            if key[:2] == (operator, partition) and key[2] > name:
                mine, theirs = own[-1], theirs_of[-1]
                yield f"{where}: exchanged with store {key[2]}", _swapped(files, mine, theirs)


def _whole_paths(files: Files, newest: int) -> list[str]:
    """State that the newest batch and the two before it need, with every base that is left."""
    wanted: set[str] = set()
    for batch_id in range(newest - 2, newest + 1):
        wanted.update(file.origin for file in cut(MemoryStorage(files), batch_id).files)
    return sorted(
        path
        for path in files
        if isinstance(place := layout.parse(path), StoreFile)
        and (path in wanted or (place.kind.whole and place.version <= newest + 1))
    )


def _beside(path: str) -> Iterator[str]:
    yield path
    spark = layout.SparkChecksumFile(path).render()
    yield from (layout.HadoopChecksumFile(path).render(), spark, layout.HadoopChecksumFile(spark).render())


def _over(files: Files, source: StoreFile, target: StoreFile) -> Files:
    """A file with its checksums in the place of another."""
    changed = dict(files)
    for given, taken in zip(_beside(source.render()), _beside(target.render()), strict=True):
        changed.pop(taken, None)
        if given in files:
            changed[taken] = files[given]
    return changed


def _swapped(files: Files, one: StoreFile, other: StoreFile) -> Files:
    return {
        **_over(files, one, other),
        **{
            taken: files[given]
            for given, taken in zip(_beside(other.render()), _beside(one.render()), strict=True)
            if given in files
        },
    }


def _folders(files: Files) -> Iterator[tuple[str, Files]]:
    for operator in sorted({path.split("/")[1] for path in files if path.startswith("state/")}):
        one, other = f"state/{operator}/0/", f"state/{operator}/1/"
        if not any(path.startswith(other) for path in files):
            continue
        rest = {path: data for path, data in files.items() if not path.startswith((one, other))}
        ones = {path[len(one) :]: data for path, data in files.items() if path.startswith(one)}
        others = {path[len(other) :]: data for path, data in files.items() if path.startswith(other)}
        yield (
            f"the partitions of operator {operator} exchanged",
            {**rest, **{one + k: v for k, v in others.items()}, **{other + k: v for k, v in ones.items()}},
        )
        yield (
            f"partition 0 of operator {operator} in the place of 1",
            {**rest, **{one + k: v for k, v in ones.items()}, **{other + k: v for k, v in ones.items()}},
        )
        yield (
            f"partition 1 of operator {operator} over 0",
            {**files, **{one + k: v for k, v in others.items()}},
        )
        yield (
            f"partition 1 of operator {operator} lost",
            {k: v for k, v in files.items() if not k.startswith(other)},
        )


def _logs(files: Files, newest: int) -> Iterator[tuple[str, Files]]:
    """Edits by somebody who has taken the checksums away, without which Hadoop goes on."""
    bare = {
        path: data
        for path, data in files.items()
        if not (hidden(path) and path.startswith(("offsets/", "commits/", "sources/", ".metadata")))
    }

    def edited(path: str, old: bytes, new: bytes) -> Files:
        return {**bare, path: re.sub(old, new, bare[path])}

    offsets, commit = f"offsets/{newest}", f"commits/{newest}"
    for count in (1, 3, 7):
        pattern, new = rb'(shuffle\.partitions":)"\d+"', b'\\1"%d"' % count
        yield f"{count} partitions in the offset log", edited(offsets, pattern, new)
        before = edited(f"offsets/{newest - 1}", pattern, new)
        yield (
            f"{count} partitions in both offset logs",
            {**before, offsets: re.sub(pattern, new, bare[offsets])},
        )
    for moved in (b"1", b"4102444800000"):
        pattern, new = rb'(nextBatchWatermarkMs":)\d+', b"\\g<1>" + moved
        yield f"watermark {int(moved)} in the commit log", edited(commit, pattern, new)
        yield (
            f"watermark {int(moved)} in the offset log",
            edited(offsets, rb'(batchWatermarkMs":)\d+', new[:6] + moved),
        )
    yield "another watermark policy", edited(offsets, rb'(multipleWatermarkPolicy":)"\w+"', b'\\1"max"')
    yield (
        "another provider",
        edited(offsets, rb"HDFSBackedStateStoreProvider|RocksDBStateStoreProvider", b"Other"),
    )
    for entry in (newest, newest - 1, 0):
        path = next(
            (each for each in (f"sources/0/{entry}", f"sources/0/{entry}.compact") if each in bare), None
        )
        if path is not None:
            yield f"a path in {path}", edited(path, rb"/[^/\"]+\.json", b"/another.json")
            yield f"a time in {path}", edited(path, rb'("timestamp":)\d+', b"\\g<1>1")
    yield "an earlier end of the source", edited(offsets, rb'(logOffset":)\d+', b"\\g<1>%d" % (newest - 1))
    yield "stale offsets", {**bare, offsets: bare[f"offsets/{newest - 1}"]}
    yield (
        "offsets exchanged",
        {**bare, offsets: bare[f"offsets/{newest - 1}"], f"offsets/{newest - 1}": bare[offsets]},
    )
    yield "a stale commit", {**bare, commit: bare[f"commits/{newest - 2}"]}
    yield "the newest commit lost", {path: data for path, data in bare.items() if path != commit}
    yield "two commits lost", {p: d for p, d in bare.items() if p not in (commit, f"commits/{newest - 1}")}
    yield (
        "the newest batch lost",
        {path: data for path, data in bare.items() if path not in (commit, offsets)},
    )
    yield "the newest offsets lost", {path: data for path, data in bare.items() if path != offsets}
    yield (
        "the id of another query",
        {**bare, "metadata": b'{"id":"11111111-2222-4333-8444-555555555555"}'},
    )
