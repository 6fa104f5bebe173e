"""`holdfast checkpoint`: show a checkpoint, list its batches, check it, delete those it has replaced."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import checkpoint_of
from holdfast.cli.flows import each_flow
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.standard_streams import confirm
from holdfast.errors import Corrupt
from holdfast.formats.operators import state_name
from holdfast.quantities import counted

if TYPE_CHECKING:
    from holdfast.changes.releasing import Release
    from holdfast.checkpoints.checkpoint import CheckpointReport, CommittedBatch
    from holdfast.checkpoints.verification.file_checks import Verification

app = options.group(
    "Inspect the checkpoint of any Structured Streaming query, without Spark; the query may be running."
)

Address = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT|JOB",
        help="A checkpoint's path or URI (file:, hdfs:, s3:, s3a:, abfs:, gs:), the storage of a pipeline, or"
        " a job's name.",
    ),
]


@app.command("show")
@examples("checkpoints/visits", "checkpoints/visits --by-partition --confs")
@each_flow("checkpoint")
def show(
    checkpoint: Address,
    partitions: Annotated[
        bool, typer.Option("--by-partition", help="Also list the stores of each partition.")
    ] = False,
    confs: Annotated[
        bool, typer.Option("--confs", help="Also list the Spark settings recorded in the checkpoint.")
    ] = False,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show a checkpoint at its newest committed batch: query, sources, operators, state.

    BYTES is what a restart reads: one snapshot of each partition and the changes after it. SNAPSHOT KEYS is
    RocksDB's count of keys in the snapshots, without the later changes. OLDEST VERSION is the oldest state
    version with retained files; version V is the state after batch V - 1. FORMAT is the state-checkpoint
    format; in format 2 state files have unique names.
    """
    found = hf.checkpoints.read(checkpoint_of(checkpoint, home))
    if json:
        output.emit_json(found.as_dict())
        return
    _show(found)
    if partitions:
        _show_partitions(found)
    if confs:
        output.line()
        for name, value in sorted(found.confs.items()):
            output.line(f"{name} = {value}")
    next_step.say(json, *(("state", "list") if found.operators else ("checkpoint", "verify")), checkpoint)


@app.command("history")
@examples("checkpoints/visits", "checkpoints/visits --last 20")
@each_flow("checkpoint")
def history(
    checkpoint: Address,
    last: Annotated[
        int | None, typer.Option("--last", min=1, metavar="N", help="Only the newest N batches.")
    ] = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show each retained batch: its duration, failures, state files and offsets.

    Durations and failures come from the supervisor that uses this state home. Without one, the duration is
    derived from the times of the log files and marked with `~`.
    """
    from holdfast.jobs.checkpoint_watch import with_registry

    address = checkpoint_of(checkpoint, home)
    with progress("history", "partitions") as tell:
        batches = hf.checkpoints.history(address, last, tell)
    batches = with_registry(options.state_home(home), address, batches)
    if json:
        output.emit_json({"checkpoint": address, "batches": [batch.as_dict() for batch in batches]})
        return
    _show_history(batches)
    next_step.say(json, *_after_history(checkpoint, batches))


@app.command("verify")
@examples("checkpoints/visits", "checkpoints/visits --json")
@each_flow("checkpoint")
def verify(checkpoint: Address, home: options.Home = None, json: options.Json = False) -> None:
    """Check a checkpoint for damage before a restart. Exit code 0: whole; 6: damaged."""
    address = checkpoint_of(checkpoint, home)
    with progress("verify", "files") as tell:
        found = _with_saved_id(hf.checkpoints.verify(address, tell, home=home), home)
    output.show(found, json, _show_verification)
    next_step.say_looked_up(json, lambda: _after_verification(checkpoint, found, home))
    if not found.ok:
        raise typer.Exit(Corrupt.exit_code)


@app.command("release")
@examples("checkpoints/visits --dry-run", "checkpoints/visits --yes")
def release(
    checkpoint: Address,
    yes: options.Yes = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Delete the files of the checkpoints that rescales, fallbacks and erasures have replaced.

    On S3, HDFS, Google Cloud Storage and Azure such a change puts a new checkpoint next to the old one. The
    checkpoint in use is verified first and not changed; its query must be stopped. On a local disk the
    replaced checkpoints are listed and not deleted.
    """
    address = checkpoint_of(checkpoint, home)
    asked = not yes and not dry_run
    with progress("release", "files") as tell:
        plan = (hf.plan_release if dry_run or asked else hf.release)(address, tell=tell)
    if asked and plan.replaced:
        files = sum(len(replaced.paths) for replaced in plan.replaced)
        confirm(f"Delete {counted(files, 'file')} of replaced checkpoints, {plan.size_bytes:,} bytes?")
        with progress("release", "files") as tell:
            plan = hf.release(address, tell=tell)
    output.show_plan(plan, json, partial(_show_release, dry_run=dry_run), dry_run=dry_run)
    if dry_run:
        next_step.say_for_real(json, ready=bool(plan.replaced))
    else:
        next_step.say(json, "checkpoint", "verify", checkpoint)


def _show_release(plan: Release, *, dry_run: bool) -> None:
    did = "would delete" if dry_run else "deleted"
    for replaced in plan.replaced:
        files = counted(len(replaced.paths), "file")
        output.line(f"{did} {files} of {replaced.address}, {replaced.size_bytes:,} bytes")
    if not plan.replaced:
        output.line("no replaced checkpoint next to it has files to delete")
    for moved in plan.moved:
        output.line(f"replaced checkpoint, not deleted: {moved}")
    batch = "no batch" if plan.batch_id is None else f"batch {plan.batch_id}"
    output.say(f"the checkpoint in use is {plan.checkpoint}, {batch}")


def _with_saved_id(found: Verification, home: str | None) -> Verification:
    """Add a hint with a savepoint that has the query id, if the verification found the id missing."""
    from dataclasses import replace

    from holdfast.external.view import open_checkpoint
    from holdfast.layout import METADATA, SAVEPOINTS_BESIDE, beside
    from holdfast.savepoints.taking import lost_id_hint

    if all(problem.file != METADATA for problem in found.problems):
        return found
    details = next_step.job_at(found.uri, home)
    known = [*(() if details is None else details.catalogs), next_step.catalog_for(found.uri, home)]
    catalogs = dict.fromkeys(place for place in (*known, beside(found.uri, SAVEPOINTS_BESIDE)) if place)
    hint = lost_id_hint(open_checkpoint(found.uri), catalogs)
    problems = tuple(
        replace(problem, hint=hint) if problem.file == METADATA else problem for problem in found.problems
    )
    return replace(found, problems=problems)


def _after_history(checkpoint: str, batches: tuple[CommittedBatch, ...]) -> tuple[str, ...]:
    """Return the next step after a history: show the newest change, or verify a checkpoint without state."""
    if len(batches) < 2 or not batches[-1].operators:
        return ("checkpoint", "verify", checkpoint) if batches else ()
    before, newest = batches[-2:]
    return ("state", "diff", f"{checkpoint}@{before.batch_id}", f"{checkpoint}@{newest.batch_id}")


def _after_verification(checkpoint: str, found: Verification, home: str | None) -> tuple[str, ...]:
    """Return the arguments that take a savepoint of the newest batch that can be restored."""
    catalog = next_step.catalog_for(found.uri, home)
    if catalog is None or not found.restorable:
        return ()
    words = ("savepoint", "take", checkpoint, catalog)
    return words if found.ok else (*words, "--batch", str(found.restorable[-1]))


def _state(found: CheckpointReport) -> str:
    if found.database is not None:
        return f"{found.size_bytes:,} bytes in the database"
    return f"{found.size_bytes:,} bytes, {found.new_bytes:,} of them new in the newest batch"


def _show(found: CheckpointReport) -> None:
    under_way = "" if found.uncommitted is None else f", {found.uncommitted} planned but not committed"
    kept = "none" if not found.committed else f"batches {found.committed[0]} to {found.committed[-1]}"
    output.fields(
        [
            ("checkpoint", found.uri),
            ("query", found.query_id),
            ("batch", f"{'none' if found.batch_id is None else found.batch_id}{under_way}"),
            ("planned", output.moment(found.planned_ms, in_utc=True)),
            ("watermark", output.moment(found.watermark_ms, in_utc=True)),
            ("retained", kept),
            ("provider", found.provider),
            *((("database", found.database),) if found.database is not None else ()),
            ("state", _state(found)),
        ]
    )
    output.line()
    output.table(
        ["SOURCE", "OFFSET", "PLANNED"],
        [
            (source.name, source.offset, source.planned if found.uncommitted is not None else None)
            for source in found.sources
        ],
    )
    if found.operators:
        output.line()
        output.table(
            [
                "OPERATOR",
                "KIND",
                "STATES",
                "PARTITIONS",
                "BYTES",
                "NEW BYTES",
                "SNAPSHOT KEYS",
                "OLDEST VERSION",
                "FORMAT",
            ],
            [
                (
                    operator.named.label,
                    operator.named.operator_kind,
                    ", ".join(operator.state_names),
                    operator.partitions,
                    operator.size_bytes,
                    operator.new_bytes,
                    operator.base_keys,
                    operator.oldest,
                    operator.format_version,
                )
                for operator in found.operators
            ],
            spare=("OLDEST VERSION", "SNAPSHOT KEYS", "FORMAT", "STATES"),
        )
    for store in (
        store for operator in found.operators for store in operator.stores if store.missing is not None
    ):
        output.line(f"missing: {store.missing}")


def _show_partitions(found: CheckpointReport) -> None:
    output.line()
    output.table(
        [
            "OPERATOR",
            "PARTITION",
            "STATE",
            "VERSION",
            "SNAPSHOT",
            "FILES",
            "BYTES",
            "NEW BYTES",
            "SNAPSHOT KEYS",
        ],
        [
            (
                operator.named.label,
                store.id.partition,
                state_name(operator.named, store.id.name),
                store.version,
                store.base_version,
                len(store.files),
                store.size_bytes,
                store.new_bytes,
                store.base_keys,
            )
            for operator in found.operators
            for store in operator.stores
        ],
        spare=("SNAPSHOT KEYS", "FILES", "SNAPSHOT"),
    )


def _show_history(batches: tuple[CommittedBatch, ...]) -> None:
    output.table(
        [
            "BATCH",
            "PLANNED",
            "TOOK",
            "FAILURES",
            "FILES",
            "NEW BYTES",
            "BY OPERATOR",
            "WATERMARK",
            "OFFSETS",
        ],
        [
            (
                batch.batch_id,
                output.moment(batch.planned_ms),
                _took(batch),
                None if batch.failures is None else len(batch.failures),
                batch.files,
                batch.new_bytes,
                _by_operator(batch),
                output.moment(batch.watermark_ms),
                ", ".join(f"{name}: {offset or '–'}" for name, offset in batch.offsets.items()),
            )
            for batch in batches
        ],
        spare=("BY OPERATOR", "OFFSETS", "FILES", "WATERMARK"),
        empty="no batch is committed yet",
    )


def _by_operator(batch: CommittedBatch) -> str | None:
    """Return the new bytes of each operator as text; None for a single operator."""
    if len(batch.operators) < 2:
        return None
    return ", ".join(f"{part.named.display_name}: {part.new_bytes:,}" for part in batch.operators)


def _took(batch: CommittedBatch) -> str:
    """Return the duration of a batch as text; `~` marks one derived from file times."""
    about = "~" if batch.duration_source == "files" else ""
    return output.WholeText(about + output.duration(batch.duration_ms))


def _show_verification(found: Verification) -> None:
    for problem in found.problems:
        output.whole(problem.file)
        output.prose(problem.what, "  ")
        output.prose(f"hint: {problem.hint}", "  ")
    for remark in found.remarks:
        where = "" if remark.file == "." else f"{remark.file}: "
        output.prose(f"note: {where}{remark.what}")
    verdict = "whole" if found.ok else f"damaged: {counted(len(found.problems), 'file')}"
    if found.ok and found.stateful is None and found.batch_id is not None:
        verdict += "; the query keeps no state, or its state is missing"
    newest = "no batch committed" if found.batch_id is None else f"newest committed batch {found.batch_id}"
    compared = "" if found.recorded_batch is None else f"; {found.compared:,} compared with the record"
    output.prose(
        f"{verdict} ({newest}; {counted(found.files, 'file')}, {found.size_bytes:,} bytes read{compared})"
    )
    if found.problems:
        output.line(f"batches that can still be restored: {ranges(found.restorable)}")


def ranges(batches: tuple[int, ...]) -> str:
    """Format batch ids as ranges: `3 to 7, 9`."""
    runs: list[list[int]] = []
    for batch in batches:
        if runs and batch == runs[-1][-1] + 1:
            runs[-1].append(batch)
        else:
            runs.append([batch])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs) or "none"
