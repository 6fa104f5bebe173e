"""`holdfast offsets`: show the source offsets of a query, or create a checkpoint with different ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import AtRest, checkpoint_of, whole_address
from holdfast.cli.flows import each_flow
from holdfast.cli.fork import show_usage
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.errors import Invalid, NotFound

if TYPE_CHECKING:
    from holdfast.changes.offsets.moving import OffsetPlan, OffsetRequest, OffsetsMoved
    from holdfast.changes.offsets.position_changes import OffsetChange, PositionChange
    from holdfast.changes.offsets.positions import SourcePositions

app = typer.Typer(
    no_args_is_help=True, help="Show or change the source offsets of a query; its state is kept."
)

Shown = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT|JOB|SP",
        help="A checkpoint (its query may run), a job, or a savepoint.",
        callback=whole_address,
    ),
]
New = Annotated[
    str | None,
    typer.Argument(
        metavar="[CHECKPOINT]", help="The new directory, a path or URI. [the checkpoint's name with -moved]"
    ),
]
To = Annotated[
    str | None, typer.Option("--to", metavar="CHECKPOINT", help="The new directory, as an option.")
]
Source = Annotated[
    str | None, typer.Option("--source", metavar="SOURCE", help="The source's number or name. [the only one]")
]
_STDIN = "-"
_LARGEST_FILE = 1 << 26
_PIPED = "give a text file; to read the output of a program, give `-` and pipe it in"
_SHOWS = "list the current offsets with `holdfast offsets show CHECKPOINT`"


@app.command("show")
@examples("checkpoints/visits", "savepoints/20260305T080000")
@each_flow("source")
def show(source: Shown, *, home: options.Home = None, json: options.Json = False) -> None:
    """Show the position of each source: next record per partition, table version, or file log entry."""
    output.show(hf.offsets(checkpoint_of(source, home)), json, _show_positions)


@app.command("set")
@examples(
    "checkpoints/orders new --at orders:0:12 --confirm-stopped",
    "checkpoints/orders new --from offsets.txt --dry-run",
)
def set_(
    source: AtRest,
    checkpoint: New = None,
    *,
    to: To = None,
    name: Source = None,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", metavar="T:P:N", help="A topic, a partition and its next record. Repeatable."),
    ] = None,
    given: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="FILE|-", help="A file of T:P:N lines, as kafka-get-offsets prints them."
        ),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", min=0, metavar="N", help="A version of the Delta table.")
    ] = None,
    offset: Annotated[
        str | None, typer.Option("--offset", metavar="JSON", help="An offset in the source's own format.")
    ] = None,
    stopped: options.Stopped = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Create a checkpoint with the same state and the source offsets you give.

    To start at the first or last record or at a time, pass the output of `kafka-get-offsets --time` to
    --from. Rows that are read again are counted again in the state. A checkpoint needs --confirm-stopped, a
    savepoint does not.
    """
    from holdfast.changes.offsets.moving import OffsetRequest
    from holdfast.changes.offsets.position_changes import listed_offsets

    ways = [way for way in (at or None, given, version, offset) if way is not None]
    if len(ways) != 1:
        raise Invalid(
            "no new offsets given" if not ways else "the new offsets are given in more than one way",
            code="HF-E2131",
            expected="one of --at T:P:N, --from FILE, --version V, --offset JSON",
            hint=_SHOWS,
        )
    changes: list[OffsetChange]
    if at or given is not None:
        text, place = ("\n".join(at), "--at") if at else (_text(given or ""), given or "")
        changes = [
            hf.ToRecord(record.topic, record.partition, record.at, name)
            for record in listed_offsets(text, place)
        ]
    else:
        changes = [hf.ToVersion(version, name)] if version is not None else [hf.ToOffset(offset or "", name)]
    _make(source, checkpoint or to, OffsetRequest(changes), home, stopped=stopped, dry_run=dry_run, json=json)


@app.command("skip")
@examples(
    "checkpoints/orders new --rows orders:1:1 --dry-run",
    "checkpoints/visits new --file /in/bad.json --dry-run",
)
def skip(
    source: AtRest,
    checkpoint: New = None,
    *,
    to: To = None,
    name: Source = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--rows",
            metavar="T:P:N",
            help="A topic, a partition and the number of records to skip. Repeatable.",
        ),
    ] = None,
    files: Annotated[
        list[str] | None, typer.Option("--file", metavar="FILE", help="A file to skip. Repeatable.")
    ] = None,
    stopped: options.Stopped = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Create a checkpoint with the same state that skips the next records or files of a source.

    Use it for a record or file that makes every batch fail. Skipped data is neither in the state nor in the
    output. A checkpoint needs --confirm-stopped, a savepoint does not.
    """
    from holdfast.changes.offsets.moving import OffsetRequest
    from holdfast.changes.offsets.position_changes import listed_offsets

    if bool(rows) == bool(files):
        raise Invalid(
            "`offsets skip` needs either records or files",
            code="HF-E2132",
            found="both" if rows else "neither",
            expected="--rows T:P:N or --file FILE",
            hint=_SHOWS,
        )
    counts = listed_offsets("\n".join(rows), "--rows") if rows else ()
    wanted = OffsetRequest(
        [hf.SkipRecords(count.topic, count.partition, count.at, name) for count in counts], files or (), name
    )
    _make(source, checkpoint or to, wanted, home, stopped=stopped, dry_run=dry_run, json=json)


@app.command("translate")
@examples(
    "checkpoints/orders new --topic orders=o2 --dry-run",
    "checkpoints/orders new --map offsets.csv --dry-run",
)
def translate(
    source: AtRest,
    checkpoint: New = None,
    *,
    to: To = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="OLD=NEW", help="A topic's new name. Repeatable."),
    ] = None,
    mapping: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="FILE|-",
            help="A file of lines topic,partition,offset,new topic,new partition,new offset.",
        ),
    ] = None,
    stopped: options.Stopped = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Create a checkpoint with the same state and offsets for renamed topics or a different cluster.

    With --map, a partition continues from the newest line of the file that is not after its offset: some
    records may be read again, none is skipped. A checkpoint needs --confirm-stopped, a savepoint does not.
    """
    from holdfast.changes.offsets.moving import OffsetRequest
    from holdfast.changes.offsets.position_changes import sync_points

    if bool(topics) == (mapping is not None):
        raise Invalid(
            "`offsets translate` needs either topic names or a mapping file",
            code="HF-E2133",
            found="both" if topics else "neither",
            expected="--topic OLD=NEW or --map FILE",
            hint="give either --topic or --map",
        )
    changes: list[OffsetChange] = []
    for pair in topics or ():
        old, equals, new = pair.partition("=")
        if not (equals and old and new):
            raise Invalid(
                "invalid pair of topic names",
                code="HF-E2134",
                found=pair,
                expected="OLD=NEW",
                hint="write --topic OLD=NEW",
            )
        changes.append(hf.RenameTopic(old, new))
    if mapping is not None:
        changes.append(hf.Translate(sync_points(_text(mapping), mapping)))
    _make(source, checkpoint or to, OffsetRequest(changes), home, stopped=stopped, dry_run=dry_run, json=json)


def _text(file: str) -> str:
    """Return the text of a file or of standard input."""
    if file == _STDIN:
        text = sys.stdin.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise _too_large("standard input")
        return text
    path = Path(file)
    try:
        if not path.exists():
            raise NotFound(
                "the input file does not exist",
                code="HF-E3003",
                where=file,
                hint="give the path of an existing file, or `-` to read standard input",
            )
        if not path.is_file():
            raise Invalid("the input is not a regular file", code="HF-E2137", where=file, hint=_PIPED)
        if path.stat().st_size > _LARGEST_FILE:
            raise _too_large(file)
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(
            "the input file is not UTF-8 text",
            code="HF-E2135",
            where=file,
            hint="convert the file to UTF-8",
        ) from error
    except (OSError, ValueError) as error:  # an impossible file name raises a ValueError
        found = error.strerror if isinstance(error, OSError) else str(error)
        raise Invalid(
            "the input file cannot be read",
            code="HF-E2136",
            where=file,
            found=found,
            hint="make the file readable for this user, or give `-` and pipe it in",
        ) from error


def _too_large(where: str) -> Invalid:
    return Invalid(
        "the input is too large",
        code="HF-E2137",
        where=where,
        expected="at most 64 MiB of text",
        hint="give only the lines of this query's topics",
    )


def _make(
    source: str,
    checkpoint: str | None,
    wanted: OffsetRequest,
    home: str | None,
    *,
    stopped: bool,
    dry_run: bool,
    json: bool,
) -> None:

    address = checkpoint_of(source, home)
    if dry_run:
        plan = hf.plan_offsets(
            address, checkpoint, changes=wanted.changes, skip_files=wanted.files, files_of=wanted.source
        )
        output.show_plan(plan, json, _show_plan)
        next_step.say_for_real(json, ready=stopped or plan.usage is None)
        return
    with progress("offsets", "files") as tell:
        made = hf.move_offsets(
            address,
            checkpoint,
            changes=wanted.changes,
            skip_files=wanted.files,
            files_of=wanted.source,
            stopped=stopped,
            home=home,
            tell=tell,
        )
    output.show(made, json, _show_made)
    next_step.say_start(json, made.checkpoint, made.plan.original)


def _show_positions(found: SourcePositions) -> None:
    output.table(
        ("SOURCE", "KIND", "TOPIC", "PARTITION", "NEXT", "OFFSET"),
        [
            (
                position.source,
                position.kind.value,
                position.topic or "–",
                "–" if position.partition is None else str(position.partition),
                "–" if position.next is None else str(position.next),
                position.offset if position.topic is None and position.offset else "–",
            )
            for position in found.sources
        ],
    )


def _show_plan(plan: OffsetPlan) -> None:
    output.line(f"would create {plan.checkpoint} from batch {plan.batch_id}:")
    for line in _lines(plan):
        output.line(f"  {line}")
    show_usage(plan.usage, output.line)


def _show_made(made: OffsetsMoved) -> None:
    output.whole(made.checkpoint)
    for line in _lines(made.plan):
        output.say(line)
    output.say(
        f"query {made.plan.query_id} continues with batch {made.plan.batch_id + 1}; its old checkpoint is"
        " unchanged"
    )


def _lines(plan: OffsetPlan) -> list[str]:
    lines = [_change(change) for change in plan.positions]
    lines += [f"{file} is skipped" for file in plan.skipped_files]
    if any(change.topic is not None and change.after is None for change in plan.positions):
        lines.append(
            "a partition without an offset is read from the broker's first record; if that is not record 0,"
            " the query fails unless failOnDataLoss is false"
        )
    if plan.repeated:
        lines.append(
            f"records read again: at most {plan.repeated:,}, which are counted again in the state"
            + ("" if plan.watermark_ms is None else " or dropped as late if older than the watermark")
        )
    if plan.skipped:
        lines.append(
            f"records skipped: at most {plan.skipped:,}, which are missing from the state and the output"
        )
    if plan.uncommitted is not None:
        lines.append(
            f"batch {plan.uncommitted} was planned but not committed, so it is planned again; a sink that"
            " skips batches it already has skips it if it was written before"
        )
    return lines


def _change(change: PositionChange) -> str:
    if change.topic is None:
        if change.before is change.after is None:
            return f"source {change.source}: to the given offset"
        return f"source {change.source}: {_offset(change.before)} to {_offset(change.after)}"
    before = f"{change.topic} partition {change.partition}"
    if change.new_topic is not None or change.new_partition is not None:
        partition = change.partition if change.new_partition is None else change.new_partition
        after = f"{change.new_topic or change.topic} partition {partition}"
        return f"{before} at {_offset(change.before)} becomes {after} at {_offset(change.after)}"
    return f"{before}: {_offset(change.before)} to {_offset(change.after)}"


def _offset(offset: int | None) -> str:
    return "no offset" if offset is None else f"offset {offset}"
