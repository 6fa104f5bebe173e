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
from holdfast.config.units import counted
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from holdfast.changes.engine import StateReport
    from holdfast.changes.partitions import RescalePlan
    from holdfast.jobs.trials.comparison import Compared, Outputs, RowSample
    from holdfast.ownership.usage import CheckpointUsage
    from holdfast.savepoints.restoring import Restored, RestorePlan


def show_plan(plan: RestorePlan) -> None:
    """Print what a restore or a fork would do."""
    output.line(
        f"the savepoint is whole: would make {plan.checkpoint} at batch {plan.manifest.batch_id},"
        f" {counted(len(plan.manifest.files), 'file')}, {plan.manifest.size_bytes:,} bytes"
    )
    if plan.database is not None:
        output.line(f"its state would be written to {plan.database}, into stores of its own")
    if plan.table is not None:
        output.line(f"the log of the new table {plan.table} would be prepared")


def show_restored(made: Restored) -> None:
    """Print what a restore or a fork has made."""
    output.whole(made.checkpoint)
    output.say(
        f"query {made.query_id} goes on with batch {made.batch_id + 1};"
        f" {made.linked_bytes:,} of {made.plan.manifest.size_bytes:,} bytes are links into the catalog"
    )
    if made.plan.database is not None:
        output.say(f"its state is in {made.plan.database}, in stores of its own")
    if made.plan.table is not None:
        output.say(f"the log of {made.plan.table} is prepared: let the query write its files there")
    if made.plan.state_format is not None and made.plan.has_formats:
        say_format(made.plan.state_format, ", as it had")


def show_moved(made: StateReport, change: str) -> None:
    """Print what a rescale or a migration has made.

    Args:
        made: The checkpoint.
        change: What is other than before.
    """
    output.whole(made.checkpoint)
    output.say(f"{change}: {counted(made.rows, 'row')}, proved to be the same")
    output.say(
        f"query {made.plan.query_id} goes on with batch {made.batch_id + 1}; its old checkpoint is as it was"
    )


def say_format(state_format: int, remark: str) -> None:
    """Say what a checkpoint does not note, and the query has to be started with."""
    output.say(f"start it with spark.sql.streaming.stateStore.checkpointFormatVersion={state_format}{remark}")


def show_usage(usage: CheckpointUsage | None, emit: Callable[[str], None]) -> None:
    """Print who may be using a checkpoint, before a person confirms that none does."""
    if usage is None:
        return
    emit(f"nobody may use {usage.uri} meanwhile, which --stopped says; what is known:")
    for line in usage.lines():
        emit(f"  {line}")


def show_compared(compared: Compared) -> None:
    """Print both verdicts, and what differs."""
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


def _different(compared: Compared) -> Iterable[str]:
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
        output.line("  rows are compared by the columns that both have")
    if outputs.same_rows and any(batch.missing for batch in outputs.batches):
        output.line("  all batches together hold the same rows; some come in another batch")
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
def fork(  # noqa: PLR0917 - each is an option
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
            help="The new code: it and --original run in a sandbox over the same input.",
        ),
    ] = None,
    original: Annotated[
        str | None,
        typer.Option(
            "--original",
            metavar="FILE.py[:JOB]",
            help="The code that the savepoint belongs to; a savepoint holds no code.",
        ),
    ] = None,
    batches: Annotated[
        int, typer.Option("--batches", min=1, metavar="N", help="With --compare: the most batches to run.")
    ] = 20,
    samples: Annotated[
        int,
        typer.Option("--samples", min=0, metavar="N", help="With --compare: how many rows to show."),
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
    """Make a new checkpoint from a savepoint for another query: the same state, a new query id.

    With --compare the original code and the new code first run from the savepoint over the same input,
    without their sinks: exit 0 if outputs and final state are equal, 1 if they differ. A CHECKPOINT that is
    named is made either way.
    """
    if compare is None:
        _fork(savepoint, checkpoint, dry_run, json, drop_expired=drop_expired, database=database, table=table)
        return
    if table is not None:
        raise Invalid(
            "--table cannot be combined with --compare",
            code="HF-E2124",
            where="--compare --table",
            hint="compare first, without CHECKPOINT; then fork with --table",
        )
    if database is not None:
        raise Invalid(
            "a comparison makes its fork where the state was",
            code="HF-E2125",
            where="--compare --database",
            hint="leave --database out; or compare first, and fork to the other database then",
        )
    if drop_expired:
        raise Invalid(
            "a comparison runs from the savepoint as it is",
            code="HF-E2126",
            where="--compare --drop-expired",
            hint="leave --compare out; or compare from one of `holdfast savepoint take --drop-expired`"
            " instead",
        )
    if original is None:
        raise Invalid(
            "a savepoint holds no code, so the original code must be named too",
            code="HF-E2127",
            where="--compare",
            expected="--original FILE.py[:JOB]",
            hint="name the job file that the savepoint's query runs",
        )
    if dry_run:
        raise Invalid(
            "a comparison changes nothing, so there is nothing to leave out",
            code="HF-E2128",
            where="--compare --dry-run",
            hint="leave out CHECKPOINT, and no fork is made",
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
            help="The code that the savepoint belongs to; a savepoint holds no code.",
        ),
    ],
    batches: Annotated[
        int, typer.Option("--batches", min=1, metavar="N", help="The most batches to run.")
    ] = 20,
    samples: Annotated[
        int,
        typer.Option("--samples", min=0, metavar="N", help="How many rows to show."),
    ] = 5,
    query: options.Query = None,
    set_: options.Pairs = None,
    conf: options.Conf = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Run the original code and new code from a savepoint over the same input, and compare what they do.

    Both run in a sandbox, without their sinks. Exit 0 if outputs and final state are equal, 1 if they
    differ. `fork --compare` also makes a checkpoint.
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
            "it is not said where the fork is to go",
            code="HF-E2129",
            expected="holdfast fork SP CHECKPOINT",
            hint="name a directory that does not exist",
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
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a new checkpoint from a savepoint; the same query resumes from it, exactly once.

    A query that writes files (Parquet, JSON, CSV, …) and gets a new directory for them needs --table: Spark's
    file sink fails for good up to ten batches later if its log lacks the batches before.
    """
    if dry_run:
        with progress("verify", "files") as tell:
            plan = hf.savepoints.plan_restore(
                savepoint, checkpoint, claim=claim, database=database, table=table, tell=tell
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
            tell=tell,
        )
    output.show(made, json, show_restored)
    next_step.say_start(json, made.checkpoint, made.plan.original)


@examples(
    "savepoints/20260305T080000 --partitions 8",
    "checkpoints/visits wider --partitions 8 --stopped",
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
        typer.Option("--partitions", min=1, metavar="N", help="How many partitions the state gets."),
    ],
    master: Annotated[
        str | None, typer.Option("--master", help="Where Spark runs, should it be needed.")
    ] = None,
    stopped: options.Stopped = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a new checkpoint with the same state in N partitions, and prove that it is the same.

    The query continues from it after the batch that it ends with. What is rescaled stays as it is. A
    checkpoint needs --stopped, a savepoint does not.
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
    by = "Spark does it" if plan.starts_spark else "no Spark is needed"
    output.line(
        f"would make {plan.checkpoint} of batch {plan.batch_id}:"
        f" {_change(plan)}, {plan.size_bytes:,} bytes; {by}"
    )
    show_usage(plan.usage, output.line)


def _change(plan: RescalePlan) -> str:
    if not plan.before:
        return "one task has all of the state, whatever the number"
    if plan.same:
        return f"{plan.partitions} partitions, as before"
    return f"{', '.join(map(str, sorted(set(plan.before))))} to {plan.partitions} partitions"
