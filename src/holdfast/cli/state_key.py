"""`holdfast state history` and `holdfast state explain`: what has become of a key, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import Key, Place, State, catalog_of
from holdfast.cli.examples import examples
from holdfast.cli.progress import progress
from holdfast.cli.state import key_words, missing, opened, picked_key
from holdfast.clock import now_ms
from holdfast.config.units import counted
from holdfast.formats.rows.plain import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.at_rest.insight.explaining import Explanation
    from holdfast.at_rest.insight.history import KeyHistory
    from holdfast.checkpoints.logs.batch_input import InputRange, TablePosition, TopicRange

# So many files or partitions of topics are named in text.
_FIRST = 10


@examples("checkpoints/visits ann", "checkpoints/visits ann --savepoints savepoints")
def history(
    place: Place,
    state: State = None,
    key: Key = None,
    savepoints: Annotated[
        str | None,
        typer.Option(
            "--savepoints", metavar="DIR|JOB", help="Also search this directory of savepoints, or a job's."
        ),
    ] = None,
    operator: options.Operator = None,
    batch: options.Batch = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show each value that a key has had over the batches that are kept, and over savepoints."""
    from holdfast.at_rest.insight.history import key_history
    from holdfast.savepoints.catalog.catalog import require_catalog
    from holdfast.storage import open_storage

    reader = opened(place, home, batch)
    chosen = picked_key(reader, state, key, operator)
    catalog = None if savepoints is None else open_storage(catalog_of(savepoints, home), "catalog")
    if catalog is not None:
        require_catalog(catalog)
    found = key_history(reader, *chosen, catalog=catalog)
    output.show(found, json, _show_history)
    next_step.say(json, *_after_history(place, found, home))


@examples("checkpoints/visits ann", "checkpoints/visits@1 ann --no-rank")
def explain(
    place: Place,
    state: State = None,
    key: Key = None,
    rank: Annotated[
        bool, typer.Option("--rank/--no-rank", help="Show its rank among the largest keys; reads all rows.")
    ] = True,
    operator: options.Operator = None,
    batch: options.Batch = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show why a key has its value: which batch wrote it, from which input, and when it expires."""
    from holdfast.at_rest.insight.explaining import explain as explained

    reader = opened(place, home, batch)
    chosen = picked_key(reader, state, key, operator)
    with progress("explain", "stores") as tell:
        found = explained(reader, *chosen, now_ms(), rank=rank, tell=tell)
    if not found.found.exists:
        raise missing(found.found)
    output.show(found, json, _show_explanation)
    next_step.say_looked_up(json, lambda: key_words("history", place, state, key, operator, batch, home))


def _after_history(place: str, found: KeyHistory, home: str | None) -> tuple[str, ...]:
    """What else the batch has changed that changed the key last, where the batch before it is kept."""
    checkpoint, at, number = place.rpartition("@")
    checkpoint = checkpoint if at and number.isdecimal() else place
    changed = [version.batch_id for version in found.versions if version.savepoint is None]
    if not changed or changed[-1] - 1 not in found.batches:
        return ()
    sides = (f"{checkpoint}@{changed[-1] - 1}", f"{checkpoint}@{changed[-1]}")
    return ("state", "diff", *sides, *next_step.home_words(home))


def _show_history(found: KeyHistory) -> None:
    kept = f"{found.batches[0]} to {found.batches[-1]}" if found.batches else "none"
    output.fields(
        [
            ("state", found.state.full_name),
            ("key", output.compact(plain(found.key))),
            ("looked at", f"{counted(len(found.batches), 'batch')}: {kept}"),
        ]
    )
    from_savepoints = any(version.savepoint for version in found.versions)
    output.line()
    output.table(
        ["BATCH", "PLANNED", "CHANGE", "FROM", "VALUE"],
        [
            (
                str(version.batch_id),
                output.moment(version.planned_ms),
                version.change,
                version.savepoint or ("the checkpoint" if from_savepoints else None),
                output.compact(plain(version.found.value), None) if version.found.exists else "–",
            )
            for version in found.versions
        ],
        below=["VALUE"],
    )


def _show_explanation(found: Explanation) -> None:
    output.fields(
        [
            ("state", found.found.state.full_name),
            ("key", output.compact(plain(found.found.key))),
            ("value", output.compact(plain(found.found.value), 500)),
            ("batch", str(found.found.batch_id)),
            ("written", _written(found)),
            ("planned", output.moment(found.written_ms, in_utc=True)),
            ("watermark", f"{_moment(found.watermark_ms)} then, {_moment(found.watermark_now_ms)} now"),
            ("expires", _expiry(found)),
            ("partition", f"{found.partition} of {found.partitions}"),
            *([] if found.key_group is None else [("key group", str(found.key_group))]),
            (
                "size",
                f"{found.found.size_bytes:,} bytes in {counted(len(found.found.entries), 'row')}",
            ),
            *([] if found.rank is None else [("rank", _rank(found))]),
        ]
    )
    if found.inputs:
        output.line()
        output.table(
            ["SOURCE", "AFTER", "UP TO"],
            [(read.source, _offset(read.after), _offset(read.upto)) for read in found.inputs],
        )
    for read in found.inputs:
        _show_input(read)


def _show_input(read: InputRange) -> None:
    """Name the files or records that a batch has read: the first of them, all are in JSON."""
    if read.files is not None:
        output.line(f"source {read.source}: {counted(len(read.files), 'file')}")
        _first(read.files)
    if read.topics is not None:
        partitions = f"{counted(len(read.topics), 'partition')} of topics"
        output.line(f"source {read.source}: records of {partitions}")
        _first([_records(part) for part in read.topics])
    if read.table_upto is not None:
        after = "its beginning" if read.table_after is None else _position(read.table_after)
        output.line(f"source {read.source}: Delta table, after {after} up to {_position(read.table_upto)}")
    if read.why_unknown is not None:
        output.line(f"source {read.source}: {read.why_unknown}")


def _first(lines: Sequence[str]) -> None:
    for line in lines[:_FIRST]:
        output.line(f"  {line}")
    if len(lines) > _FIRST:
        output.line(f"  and {len(lines) - _FIRST:,} more; --json has all")


def _records(part: TopicRange) -> str:
    first = "its first record" if part.first is None else f"offset {part.first}"
    return f"{part.topic} partition {part.partition}: {first} to {part.last}"


def _position(position: TablePosition) -> str:
    return f"version {position.version} index {position.index}"


def _moment(ms: int | None) -> str:
    return "none" if ms is None else output.moment(ms)


def _written(found: Explanation) -> str:
    if found.written_batch is None:
        return f"before batch {found.first_kept}, the oldest that is kept"
    return f"by batch {found.written_batch}" + (
        "" if found.exact else ", or later with the same value: the files tell of other values only"
    )


def _expiry(found: Explanation) -> str:
    if found.expires_ms is None:
        return "never" if found.clock is None else "with the watermark, at a time that the files do not tell"
    first, last = found.expires_ms
    when = output.moment(first) if first == last else f"{output.moment(first)} to {output.moment(last)}"
    if found.left_ms is None:
        return f"{when} in {found.clock} time"
    left = output.duration(abs(found.left_ms))
    return f"{when} in {found.clock} time, {f'in {left}' if found.left_ms >= 0 else f'{left} ago'}"


def _rank(found: Explanation) -> str:
    rank = found.rank
    return (
        "" if rank is None else f"{rank.rank:,} of {counted(rank.keys, 'key')}, {rank.share:.2%} of the bytes"
    )


def _offset(offset: object) -> str:
    if offset is None:
        return "–"
    # Spark has most offsets as JSON already.
    return offset if isinstance(offset, str) else output.compact(offset, 80)
