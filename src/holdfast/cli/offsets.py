"""`holdfast offsets`: where each source of a query goes on, and a new checkpoint that goes on elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import AtRest, checkpoint_of, whole_address
from holdfast.cli.fork import show_usage
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.config.units import counted
from holdfast.errors import Invalid, NotFound

if TYPE_CHECKING:
    from holdfast.changes.offsets.moving import OffsetPlan, OffsetRequest, OffsetsMoved
    from holdfast.changes.offsets.position_changes import OffsetChange, PositionChange
    from holdfast.changes.offsets.positions import Positions

app = typer.Typer(
    no_args_is_help=True, help="Show or change the source offsets of a query; its state is kept."
)

Shown = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT|JOB|SP",
        help="A checkpoint, also of a query that runs, a job, or a savepoint.",
        callback=whole_address,
    ),
]
New = Annotated[
    str | None,
    typer.Argument(
        metavar="[CHECKPOINT]", help="A new directory, as path or URI. [the checkpoint's name with -moved]"
    ),
]
To = Annotated[str | None, typer.Option("--to", metavar="CHECKPOINT", help="The same, as an option.")]
Source = Annotated[
    str | None, typer.Option("--source", metavar="SOURCE", help="The source's number or name. [the only one]")
]
_STDIN = "-"
_LARGEST_FILE = 1 << 26
_PIPED = "what another program prints is read from standard input: give `-`"
_SHOWS = "`holdfast offsets show` shows where each source goes on"


@app.command("show")
@examples("checkpoints/visits", "savepoints/20260305T080000")
def show(source: Shown, *, home: options.Home = None, json: options.Json = False) -> None:
    """Show where each source goes on: by topic and partition, table version, or entry of its log of files."""
    output.show(hf.offsets(checkpoint_of(source, home)), json, _show_positions)


@app.command("set")
@examples(
    "checkpoints/orders new --at orders:0:12 --stopped",
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
        typer.Option(
            "--at", metavar="T:P:N", help="Topic, partition and record that comes next; repeatable."
        ),
    ] = None,
    given: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE|-", help="Lines T:P:N, as kafka-get-offsets prints them."),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", min=0, metavar="N", help="The version of a Delta table.")
    ] = None,
    offset: Annotated[
        str | None, typer.Option("--offset", metavar="JSON", help="A source's own offset, whatever it is.")
    ] = None,
    stopped: options.Stopped = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a new checkpoint with the same state, whose sources continue where you say.

    For the first or last record, or those of a time, ask the broker: `kafka-get-offsets --time` prints what
    --from reads. Rows that are read again count again in the state. A checkpoint needs --stopped, a savepoint
    does not.
    """
    from holdfast.changes.offsets.moving import OffsetRequest
    from holdfast.changes.offsets.position_changes import listed_offsets

    ways = [way for way in (at or None, given, version, offset) if way is not None]
    if len(ways) != 1:
        raise Invalid(
            "it is not said where a source is to go on" if not ways else "it is said twice where to go on",
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
    "checkpoints/orders new --rows orders:1:1 --stopped",
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
        typer.Option("--rows", metavar="T:P:N", help="Topic, partition and how many records; repeatable."),
    ] = None,
    files: Annotated[
        list[str] | None, typer.Option("--file", metavar="FILE", help="A file; repeatable.")
    ] = None,
    stopped: options.Stopped = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a new checkpoint with the same state, whose source leaves out records or files that come next.

    For what a query fails at each time, such as a damaged record. It is in no state then, and in no output. A
    checkpoint needs --stopped, a savepoint does not.
    """
    from holdfast.changes.offsets.moving import OffsetRequest
    from holdfast.changes.offsets.position_changes import listed_offsets

    if bool(rows) == bool(files):
        raise Invalid(
            "it is not said what is to be left out",
            code="HF-E2132",
            found="both" if rows else "neither",
            expected="--rows T:P:N, or --file FILE",
            hint=_SHOWS,
        )
    counts = listed_offsets("\n".join(rows), "--rows") if rows else ()
    wanted = OffsetRequest(
        [hf.SkipRecords(count.topic, count.partition, count.at, name) for count in counts], files or (), name
    )
    _make(source, checkpoint or to, wanted, home, stopped=stopped, dry_run=dry_run, json=json)


@app.command("translate")
@examples(
    "checkpoints/orders new --topic orders=o2 --stopped",
    "checkpoints/orders new --map offsets.csv --dry-run",
)
def translate(
    source: AtRest,
    checkpoint: New = None,
    *,
    to: To = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="OLD=NEW", help="A topic's new name; may be given several times."),
    ] = None,
    mapping: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="FILE|-",
            help="Lines topic,partition,offset,new topic,new partition,new offset: records of both clusters.",
        ),
    ] = None,
    stopped: options.Stopped = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a new checkpoint with the same state, whose offsets are those of another topic or cluster.

    With --map a partition continues at the newest record of the file that is not behind it: some records may
    be read again, and none is left out. A checkpoint needs --stopped, a savepoint does not.
    """
    from holdfast.changes.offsets.moving import OffsetRequest
    from holdfast.changes.offsets.position_changes import sync_points

    if bool(topics) == (mapping is not None):
        raise Invalid(
            "it is not said what the offsets are to be translated by",
            code="HF-E2133",
            found="both" if topics else "neither",
            expected="--topic OLD=NEW, or --map FILE",
            hint="give one of the two",
        )
    changes: list[OffsetChange] = []
    for pair in topics or ():
        old, equals, new = pair.partition("=")
        if not (equals and old and new):
            raise Invalid(
                "this is no pair of topics",
                code="HF-E2134",
                found=pair,
                expected="OLD=NEW",
                hint="name both topics",
            )
        changes.append(hf.RenameTopic(old, new))
    if mapping is not None:
        changes.append(hf.Translate(sync_points(_text(mapping), mapping)))
    _make(source, checkpoint or to, OffsetRequest(changes), home, stopped=stopped, dry_run=dry_run, json=json)


def _text(file: str) -> str:
    """The lines of a file, or those on standard input."""
    if file == _STDIN:
        text = sys.stdin.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise _no_lines("standard input")
        return text
    path = Path(file)
    try:
        if not path.exists():
            raise NotFound(
                "there is no such file", code="HF-E3003", where=file, hint="see that the path is right"
            )
        if not path.is_file() or path.stat().st_size > _LARGEST_FILE:
            raise _no_lines(file)
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(
            "a file is no text in UTF-8", code="HF-E2135", where=file, hint="see that the path is right"
        ) from error
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        found = error.strerror if isinstance(error, OSError) else str(error)
        raise Invalid(
            "a file cannot be read", code="HF-E2136", where=file, found=found, hint=_PIPED
        ) from error


def _no_lines(where: str) -> Invalid:
    return Invalid(
        "this is no file of offsets",
        code="HF-E2137",
        where=where,
        expected="a file of lines, at most 64 MiB",
        hint=_PIPED,
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


def _show_positions(found: Positions) -> None:
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
    output.line(f"would make {plan.checkpoint} of batch {plan.batch_id}:")
    for line in _lines(plan):
        output.line(f"  {line}")
    show_usage(plan.usage, output.line)


def _show_made(made: OffsetsMoved) -> None:
    output.whole(made.checkpoint)
    for line in _lines(made.plan):
        output.say(line)
    output.say(
        f"query {made.plan.query_id} goes on with batch {made.plan.batch_id + 1}; its old checkpoint is as it"
        " was"
    )


def _lines(plan: OffsetPlan) -> list[str]:
    lines = [_change(change) for change in plan.positions]
    lines += [f"{file} is left out" for file in plan.skipped_files]
    if any(change.topic is not None and change.after is None for change in plan.positions):
        lines.append(
            "a partition without an offset is read from the first record that the broker has; where that is"
            " not record 0, the query stops unless failOnDataLoss is false"
        )
    if plan.repeated:
        lines.append(
            f"at most {counted(plan.repeated, 'record')} read again: they count again in the state"
            + (
                ""
                if plan.watermark_ms is None
                else ", and what is older than the watermark is dropped as late"
            )
        )
    if plan.skipped:
        lines.append(
            f"at most {counted(plan.skipped, 'record')} left out: they are in no state and no output"
        )
    if plan.uncommitted is not None:
        lines.append(
            f"batch {plan.uncommitted} is planned and not committed: it is planned anew; a sink that skips"
            " the batches it has, skips it if it has written it already"
        )
    return lines


def _change(change: PositionChange) -> str:
    if change.topic is None:
        if change.before is change.after is None:
            return f"source {change.source}: to the offset that is given"
        return f"source {change.source}: {_at(change.before)} to {_at(change.after)}"
    before = f"{change.topic} {change.partition}"
    if change.new_topic is not None or change.new_partition is not None:
        after = f"{change.new_topic or change.topic} "
        after += str(change.partition if change.new_partition is None else change.new_partition)
        return f"{before} at {change.before} is {after} at {change.after}"
    return f"{before}: {_at(change.before)} to {_at(change.after)}"


def _at(offset: int | None) -> str:
    return "no offset" if offset is None else str(offset)
