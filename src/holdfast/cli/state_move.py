"""`holdfast state migrate` and `bootstrap`: the same state elsewhere, and state to start with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options, output
from holdfast.cli.progress import progress
from holdfast.cli.rescale import show_usage
from holdfast.cli.run import Pairs, pairs

if TYPE_CHECKING:
    from holdfast.at_rest.create.bootstrap import Bootstrapped, BootstrapPlan
    from holdfast.at_rest.create.migrating import Migrated, MigrationPlan


def migrate(
    source: Annotated[
        str, typer.Argument(metavar="CHECKPOINT|SP", help="A checkpoint that no query uses, or a savepoint.")
    ],
    backend: Annotated[
        str | None,
        typer.Option("--backend", metavar="NAME", help="rocksdb, or memory (hashmap). [unchanged]"),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, metavar="N", help="How many partitions. [unchanged]"),
    ] = None,
    state_format: Annotated[
        int | None,
        typer.Option(
            "--state-format",
            min=1,
            max=2,
            metavar="1|2",
            help="RocksDB's state-checkpoint format. [unchanged; 2 when moving from memory]",
        ),
    ] = None,
    key_groups: Annotated[
        int | None,
        typer.Option(
            "--key-groups", min=1, metavar="G", help="How many key groups Holdfast's keyed state gets."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="DIR",
            help="A new directory. [the checkpoint's name with -migrated]",
        ),
    ] = None,
    stopped: options.Stopped = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a new checkpoint with the same state elsewhere, and prove that it is the same.

    Any of them in one go, without Spark. The query goes on from it after the batch that it ends with. What is
    migrated stays as it is. A checkpoint needs --stopped, a savepoint does not.
    """
    from holdfast.at_rest.create import migrating

    if dry_run:
        plan = migrating.plan_migrate(
            source,
            to,
            backend=backend,
            partitions=partitions,
            state_format=state_format,
            key_groups=key_groups,
        )
        _show_plan(plan, json)
        return
    with progress("migrate", "stores") as tell:
        made = migrating.migrate(
            source,
            to,
            backend=backend,
            partitions=partitions,
            state_format=state_format,
            key_groups=key_groups,
            stopped=stopped,
            tell=tell,
        )
    _show_made(made, json)


def bootstrap(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py[:JOB]", help="The job that will start from the savepoint.")
    ],
    given: Annotated[
        Path,
        typer.Option(
            "--from",
            metavar="PLAN.py",
            help="A file with a function warm(spark) that returns the history: a batch DataFrame with the"
            " columns of the source; or a dictionary of history, start, states and watermark.",
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="DIR", help="The directory of savepoints; created if absent.")
    ],
    label: Annotated[str | None, typer.Option("--label", metavar="TEXT", help="A name for people.")] = None,
    query: options.Query = None,
    set_: Pairs = None,
    master: Annotated[str | None, typer.Option("--master", help="Where Spark runs.")] = None,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a savepoint of what a job would know after a history, so that it starts warm.

    The job itself is run over the history, with its sink left out, in a directory that is gone afterwards.
    Start it with `holdfast run FILE.py -s SAVEPOINT`.
    """
    from holdfast.jobs.trials import bootstrapping

    function = bootstrapping.plan_of(given)
    settings = pairs("--set", set_)
    place = options.settings(home).home
    if dry_run:
        plan = bootstrapping.planned(
            target, to, history=function, query=query, overrides=settings, master=master, home=place
        )
        _show_start(plan, json)
        return
    with progress("bootstrap", "stores") as tell:
        made = bootstrapping.bootstrap(
            target,
            to,
            history=function,
            query=query,
            label=label,
            overrides=settings,
            master=master,
            home=place,
            tell=tell,
        )
    _show_warm(made, json)


def _show_start(plan: BootstrapPlan, json: bool) -> None:
    if json:
        output.emit_json({"dry_run": True, **plan.as_dict()})
        return
    given = f"states {', '.join(plan.states)}" if plan.states else "its history"
    output.line(f"would run {plan.name} over {given}, and make a savepoint in {plan.catalog}")
    _show_sources(plan)


def _show_warm(made: Bootstrapped, json: bool) -> None:
    if json:
        output.emit_json(made.as_dict())
        return
    output.line(made.uri)
    over = f"states {', '.join(made.plan.states)}" if made.plan.states else f"{made.input_rows:,} rows"
    output.say(f"{made.plan.name} knows {made.rows:,} rows of state out of {over}")
    _show_sources(made.plan)


def _show_sources(plan: BootstrapPlan) -> None:
    for number, each in enumerate(plan.sources):
        facts = each.beginning.as_dict()
        begins = (
            f"behind {facts['files_read']:,} files that count as read"
            if "files_read" in facts
            else f"at {output.compact(facts['offset'])}"
            if facts["offset"] is not None
            else "where its own options say"
        )
        output.say(f"source {number}, {each.kind}, begins {begins}")


def _show_plan(plan: MigrationPlan, json: bool) -> None:
    if json:
        output.emit_json({"dry_run": True, **plan.as_dict()})
        return
    output.line(
        f"would make {plan.checkpoint} of batch {plan.batch_id}: {_change(plan)}; {plan.size_bytes:,} bytes"
    )
    show_usage(plan.usage, output.line)


def _show_made(made: Migrated, json: bool) -> None:
    if json:
        output.emit_json(made.as_dict())
        return
    plan = made.plan
    output.line(made.checkpoint)
    output.say(f"{_change(plan)}: {made.rows:,} rows are proved to be the same")
    output.say(
        f"query {plan.query_id} goes on with batch {made.batch_id + 1}; its old checkpoint is as it was"
    )
    output.say(
        "start it with spark.sql.streaming.stateStore.checkpointFormatVersion"
        f"={plan.after.state_format}; its backend and partitions are noted in the checkpoint"
    )


def _change(plan: MigrationPlan) -> str:
    facts = plan.as_dict()
    before = ", ".join(str(each) for each in sorted(set(plan.partitions_before))) or "1"
    pairs: tuple[tuple[str, str, str], ...] = (
        ("backend", facts["backend_before"], facts["backend"]),
        ("partitions", before, str(facts["partitions"]) if plan.partitions_before else "1"),
        ("format", str(facts["state_format_before"]), str(facts["state_format"])),
    )
    if plan.key_groups is not None:
        groups = ", ".join(str(each) for each in sorted(set(plan.key_groups_before.values())))
        pairs += (("key groups", groups, str(plan.key_groups)),)
    moved = [f"{what} {old} to {new}" for what, old, new in pairs if old != new]
    return ", ".join(moved) or "everything as before"
