"""`holdfast state migrate`: the same state in another backend, other partitions, another format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options, output
from holdfast.cli.progress import progress

if TYPE_CHECKING:
    from holdfast.at_rest.migrating import Migrated, MigrationPlan


def migrate(
    source: Annotated[
        str, typer.Argument(metavar="CHECKPOINT|SP", help="A checkpoint that no query uses, or a savepoint.")
    ],
    backend: Annotated[
        str | None,
        typer.Option("--backend", metavar="NAME", help="rocksdb, or memory (hashmap). [as it is]"),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, metavar="N", help="How many partitions. [as many as it has]"),
    ] = None,
    state_format: Annotated[
        int | None,
        typer.Option(
            "--state-format",
            min=1,
            max=2,
            metavar="1|2",
            help="RocksDB's state-checkpoint format. [as it is; 2 for what comes from memory]",
        ),
    ] = None,
    key_groups: Annotated[
        int | None,
        typer.Option(
            "--key-groups", min=1, metavar="G", help="How many key groups keyed state of Holdfast's has."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="DIR",
            help="A directory that does not exist. By default the checkpoint's name with -migrated.",
        ),
    ] = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Make a new checkpoint with the same state elsewhere, and prove that it is the same.

    Any of them in one go, without Spark. The query goes on from it after the batch that it ends with. What is
    migrated stays as it is.
    """
    from holdfast.at_rest import migrating  # noqa: PLC0415 - not needed for --help

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
            tell=tell,
        )
    _show_made(made, json)


def _show_plan(plan: MigrationPlan, json: bool) -> None:
    if json:
        output.emit_json({"dry_run": True, **plan.as_dict()})
        return
    output.line(
        f"would make {plan.checkpoint} of batch {plan.batch_id}: {_change(plan)}; {plan.size_bytes:,} bytes"
    )


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
