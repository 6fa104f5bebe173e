"""`holdfast restore`, `fork` and `rescale`: a new checkpoint with the same state."""

from __future__ import annotations

import json as json_text
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import AtRest, NewCheckpoint, Savepoint, checkpoint_of
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.standard_streams import without_sparks_words
from holdfast.errors import Invalid
from holdfast.quantities import counted

if TYPE_CHECKING:
    from holdfast.changes.engine import StateReport
    from holdfast.changes.partitions import RescalePlan
    from holdfast.jobs.trials.comparison import ComparisonReport, Outputs, RowSample
    from holdfast.ownership.usage import CheckpointUsage
    from holdfast.savepoints.restoring import Restored, RestorePlan


def show_plan(plan: RestorePlan) -> None:
    """Print what a restore or a fork would do."""
    output.line(
        f"the savepoint is whole; would create {plan.checkpoint} at batch {plan.manifest.batch_id},"
        f" {counted(len(plan.manifest.files), 'file')}, {plan.manifest.size_bytes:,} bytes"
    )
    if plan.database is not None:
        output.line(f"its state would be written to new stores in {plan.database}")
    if plan.table is not None:
        output.line(f"the sink log of the new table {plan.table} would be prepared")


def show_restored(made: Restored) -> None:
    """Print the result of a restore or a fork."""
    output.whole(made.checkpoint)
    output.say(
        f"query {made.query_id} continues with batch {made.batch_id + 1};"
        f" {made.linked_bytes:,} of {made.plan.manifest.size_bytes:,} bytes are hard links into the catalog"
    )
    if made.plan.database is not None:
        output.say(f"its state is in new stores in {made.plan.database}")
    if made.plan.table is not None:
        output.say(f"the sink log of {made.plan.table} is prepared; have the query write its files there")
    if made.plan.state_format is not None and made.plan.has_formats:
        say_format(made.plan.state_format, ", as before")


def show_moved(made: StateReport, change: str) -> None:
    """Print the result of a rescale or a migration.

    Args:
        made: The report on the new checkpoint.
        change: The change from the old checkpoint, as text.
    """
    output.whole(made.checkpoint)
    output.say(f"{change}: {counted(made.rows, 'row')}, verified unchanged")
    output.say(
        f"query {made.plan.query_id} continues with batch {made.batch_id + 1};"
        " its old checkpoint is unchanged"
    )


def say_format(state_format: int, remark: str) -> None:
    """Print the state format with which the query must be started; a checkpoint does not record it."""
    output.say(f"start it with spark.sql.streaming.stateStore.checkpointFormatVersion={state_format}{remark}")


def show_usage(usage: CheckpointUsage | None, emit: Callable[[str], None]) -> None:
    """Print the known users of a checkpoint, to help decide on --confirm-stopped."""
    if usage is None:
        return
    emit(f"no query may use {usage.uri} during this change; confirm with --confirm-stopped.")
    emit("known activity:")
    for line in usage.lines():
        emit(f"  {line}")


def show_compared(compared: ComparisonReport) -> None:
    """Print both verdicts and the differences."""
    first, last = compared.batches[0], compared.batches[-1]
    batches = f"batch {first}" if first == last else f"batches {first} to {last}"
    output.line(
        f"{batches} over {counted(compared.input_rows, 'row')} of input:"
        f" original {compared.original}, new {compared.new}"
    )
    output.line()
    _show_outputs(compared.outputs)
    output.line()
    for line in compared.states.lines():
        output.line(line)
    output.line()
    output.line(
        "equal: outputs and final state"
        if compared.equal
        else f"different: {' and '.join(_different(compared))}"
    )
    if compared.fork is not None:
        show_restored(compared.fork)


def _different(compared: ComparisonReport) -> Iterable[str]:
    if not compared.outputs.equal:
        yield "outputs"
    if not compared.states.equal:
        yield "final state"


def _show_outputs(outputs: Outputs) -> None:
    rows = outputs.original_rows
    if outputs.equal:
        batches = counted(len(outputs.batches), "batch")
        output.line(f"outputs equal: {counted(rows, 'row')} in {batches}")
        return
    output.line(
        f"outputs different: {counted(rows, 'row')} from the original, {outputs.new_rows:,} from the new code"
    )
    if outputs.original_columns != outputs.new_columns:
        for sign, columns, others in (
            ("-", outputs.original_columns, outputs.new_columns),
            ("+", outputs.new_columns, outputs.original_columns),
        ):
            for column in columns:
                if column not in others:
                    output.line(f"  {sign} column {column}")
        output.line("  rows are compared on the common columns")
    if outputs.same_rows and any(batch.missing for batch in outputs.batches):
        output.line("  the rows are the same over all batches, but some are in a different batch")
    differing = [
        (batch.batch_id, batch.original_rows, batch.new_rows, batch.missing, batch.extra)
        for batch in outputs.batches
        if batch.missing or batch.extra
    ]
    if differing:
        output.table(["BATCH", "ORIGINAL", "NEW", "MISSING", "EXTRA"], differing)
    for sign, samples in (("-", outputs.missing), ("+", outputs.extra)):
        for sample in samples:
            output.line(f"  {sign} {_row(sample)}")


def _row(sample: RowSample) -> str:
    from holdfast.formats.rows.plain import plain

    text = json_text.dumps({name: plain(value) for name, value in sample.row.items()}, ensure_ascii=False)
    times = f", {sample.count:,} times" if sample.count > 1 else ""
    return f"batch {sample.batch_id}: {text}{times}"


@examples(
    "savepoints/20260305T080000 checkpoints/experiment",
    "savepoints/20260305T080000 --compare new.py --original visits.py",
)
def fork(  # noqa: PLR0917 - each argument is an option
    savepoint: Savepoint,
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHECKPOINT]",
            help="A new directory, as path or URI. Optional with --compare.",
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="FILE.py[:JOB]",
            help="The new code, to run in a sandbox with --original over the same input.",
        ),
    ] = None,
    original: Annotated[
        str | None,
        typer.Option(
            "--original",
            metavar="FILE.py[:JOB]",
            help="The code of the savepoint's query; a savepoint contains no code.",
        ),
    ] = None,
    batches: Annotated[
        int, typer.Option("--batches", min=1, metavar="N", help="With --compare: maximum number of batches.")
    ] = 20,
    samples: Annotated[
        int,
        typer.Option(
            "--samples", min=0, metavar="N", help="With --compare: number of differing rows to show."
        ),
    ] = 5,
    drop_expired: options.DropExpired = False,
    database: options.Database = None,
    table: options.Table = None,
    query: options.Query = None,
    set_: options.Pairs = None,
    conf: options.Conf = None,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Create a checkpoint from a savepoint for a different query: the same state, a new query id.

    With --compare the original code and the new code first run from the savepoint over the same input,
    without their sinks. Exit code 0: outputs and final state are equal; 1: they differ. CHECKPOINT, if given,
    is created in both cases.
    """
    if compare is None:
        _fork(savepoint, checkpoint, dry_run, json, drop_expired=drop_expired, database=database, table=table)
        return
    if table is not None:
        raise Invalid(
            "--table cannot be combined with --compare",
            code="HF-E2124",
            where="--compare --table",
            hint="run with --compare and without CHECKPOINT first, then fork with --table",
        )
    if database is not None:
        raise Invalid(
            "--database cannot be combined with --compare",
            code="HF-E2125",
            where="--compare --database",
            hint="run with --compare and without CHECKPOINT first, then fork with --database",
        )
    if drop_expired:
        raise Invalid(
            "--drop-expired cannot be combined with --compare",
            code="HF-E2126",
            where="--compare --drop-expired",
            hint="omit --compare, or compare from a savepoint taken with `holdfast savepoint take"
            " --drop-expired`",
        )
    if original is None:
        raise Invalid(
            "--compare needs the original code",
            code="HF-E2127",
            where="--compare",
            expected="--original FILE.py[:JOB]",
            hint="name the job file that the savepoint's query runs",
        )
    if dry_run:
        raise Invalid(
            "--dry-run cannot be combined with --compare",
            code="HF-E2128",
            where="--compare --dry-run",
            hint="omit --dry-run and CHECKPOINT; without CHECKPOINT no fork is created",
        )
    with progress("compare", "batches") as tell:
        compared = hf.compare(
            savepoint,
            original=original,
            new=compare,
            checkpoint=checkpoint,
            batches=batches,
            samples=samples,
            query=query,
            overrides=options.pairs("--set", set_),
            conf=options.pairs("--conf", conf),
            home=home,
            tell=tell,
        )
    output.show(compared, json, show_compared)
    if not compared.equal:
        raise typer.Exit(1)
    if compared.fork is not None:
        next_step.say_option(json, compared.fork.checkpoint)


@examples(
    "savepoints/20260305T080000 new.py --original visits.py",
    "savepoints/20260305T080000 new.py --original old.py",
)
def compare(
    savepoint: Savepoint,
    new: Annotated[str, typer.Argument(metavar="FILE.py[:JOB]", help="The new code.")],
    original: Annotated[
        str,
        typer.Option(
            "--original",
            metavar="FILE.py[:JOB]",
            help="The code of the savepoint's query; a savepoint contains no code.",
        ),
    ],
    batches: Annotated[
        int, typer.Option("--batches", min=1, metavar="N", help="Maximum number of batches.")
    ] = 20,
    samples: Annotated[
        int,
        typer.Option("--samples", min=0, metavar="N", help="Number of differing rows to show."),
    ] = 5,
    query: options.Query = None,
    set_: options.Pairs = None,
    conf: options.Conf = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Run the original code and new code from a savepoint over the same input, and compare the results.

    Both run in a sandbox, without their sinks. Exit code 0: outputs and final state are equal; 1: they
    differ. `fork --compare` can also create a checkpoint.
    """
    fork(
        savepoint,
        compare=new,
        original=original,
        batches=batches,
        samples=samples,
        query=query,
        set_=set_,
        conf=conf,
        home=home,
        json=json,
    )


def _fork(
    savepoint: str,
    checkpoint: str | None,
    dry_run: bool,
    json: bool,
    *,
    drop_expired: bool,
    database: str | None,
    table: str | None,
) -> None:
    if checkpoint is None:
        raise Invalid(
            "no checkpoint directory given for the fork",
            code="HF-E2129",
            expected="holdfast fork SP CHECKPOINT",
            hint="name a directory that does not exist yet",
        )
    if dry_run:
        with progress("verify", "files") as tell:
            plan = hf.savepoints.plan_fork(savepoint, checkpoint, database=database, table=table, tell=tell)
        output.show_plan(plan, json, show_plan)
        next_step.say_for_real(json)
        return
    with progress("fork", "files") as tell:
        made = hf.savepoints.fork(
            savepoint, checkpoint, drop_expired=drop_expired, database=database, table=table, tell=tell
        )
    output.show(made, json, show_restored)
    next_step.say_option(json, made.checkpoint)


@examples(
    "savepoints/20260305T080000 checkpoints/again --dry-run",
    "savepoints/20260305T080000 checkpoints/again",
)
def restore(
    savepoint: Savepoint,
    checkpoint: NewCheckpoint,
    claim: Annotated[bool, typer.Option("--claim", help="Delete the savepoint afterwards.")] = False,
    drop_expired: options.DropExpired = False,
    database: options.Database = None,
    table: options.Table = None,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Restore a pipeline's flow at an older batch, although its sink skips the later batches.",
        ),
    ] = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Create a checkpoint from a savepoint; the same query continues from it, exactly once.

    A query that writes files (Parquet, JSON, CSV, …) to a new directory needs --table: without it, Spark's
    file sink fails permanently within ten batches, because its log lacks the earlier batches.
    """
    if dry_run:
        with progress("verify", "files") as tell:
            plan = hf.savepoints.plan_restore(
                savepoint,
                checkpoint,
                claim=claim,
                database=database,
                table=table,
                accept_loss=accept_loss,
                tell=tell,
            )
        output.show_plan(plan, json, show_plan)
        if claim:
            output.say(f"the savepoint would be deleted afterwards: {plan.savepoint}")
        next_step.say_for_real(json)
        return
    with progress("restore", "files") as tell:
        made = hf.savepoints.restore(
            savepoint,
            checkpoint,
            claim=claim,
            drop_expired=drop_expired,
            database=database,
            table=table,
            accept_loss=accept_loss,
            tell=tell,
        )
    output.show(made, json, show_restored)
    next_step.say_start(json, made.checkpoint, made.plan.original)


@examples(
    "savepoints/20260305T080000 --partitions 8",
    "checkpoints/visits wider --partitions 8 --confirm-stopped",
)
def rescale(
    source: AtRest,
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="[CHECKPOINT]",
            help="A new directory, as path or URI. [the checkpoint's name with -pN]",
        ),
    ] = None,
    *,
    partitions: Annotated[
        int,
        typer.Option("--partitions", min=1, metavar="N", help="Number of partitions of the state."),
    ],
    master: options.MovingMaster = None,
    stopped: options.Stopped = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Create a checkpoint with the same state in N partitions, and verify that all rows are equal.

    The query continues from it after the last batch of the original, which stays unchanged. A checkpoint
    needs --confirm-stopped; a savepoint does not. With --master the state is moved by a Spark job, for state
    that one machine cannot move in time; without it, Spark is used only if the keys require it.
    """
    address = checkpoint_of(source, home)
    if dry_run:
        plan = hf.savepoints.plan_rescale(address, checkpoint, partitions=partitions)
        output.show_plan(plan, json, _show_plan)
        next_step.say_for_real(json, ready=stopped or plan.usage is None)
        return
    with without_sparks_words() as words, progress("rescale", "files", words) as tell:
        made = hf.savepoints.rescale(
            address,
            checkpoint,
            partitions=partitions,
            master=master,
            stopped=stopped,
            home=home,
            tell=tell,
        )
    output.show(made, json, lambda rescaled: show_moved(rescaled, _change(rescaled.plan)))
    next_step.say_start(json, made.checkpoint, made.plan.original)


def _show_plan(plan: RescalePlan) -> None:
    by = "runs Spark" if plan.starts_spark else "does not need Spark"
    output.line(
        f"would create {plan.checkpoint} from batch {plan.batch_id}:"
        f" {_change(plan)}, {plan.size_bytes:,} bytes; {by}"
    )
    show_usage(plan.usage, output.line)


def _change(plan: RescalePlan) -> str:
    if not plan.before:
        return "all state stays in one partition"
    if plan.same:
        return f"{plan.partitions} partitions, as before"
    return f"{', '.join(map(str, sorted(set(plan.before))))} to {plan.partitions} partitions"
