"""`holdfast state edit`, `undo` and `erase`."""

from __future__ import annotations

import json as json_
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import Catalog, catalog_of, checkpoint_of, warn_of_label, whole_address
from holdfast.cli.fork import show_usage
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.standard_streams import confirm
from holdfast.config.checks import place_word
from holdfast.errors import Conflict, Invalid, NotFound, Unavailable
from holdfast.quantities import counted

if TYPE_CHECKING:
    from holdfast.changes.edit.editing import EditPlan, EditReport
    from holdfast.changes.edit.undoing import UndoPlan, UndoReport
    from holdfast.changes.erase.certificate import Certificate, ErasePlan


Why = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="The reason; recorded in the savepoint.")
]
_DOES = "creates a savepoint"


@examples(
    "savepoints/20260305T080000 --key ann --set count=1 -y",
    "savepoints/20260305T080000 --where 'count = 1' --delete -y",
)
def edit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT|JOB|SP",
            help="A savepoint, or the checkpoint of a stopped query or job.",
            callback=whole_address,
        ),
    ],
    state: Annotated[
        str,
        typer.Argument(
            metavar="[STATE]", help="The state, as for `state get`. Optional if there is only one."
        ),
    ] = "",
    *,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=SQL", help="A column's new value. Repeatable."),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the rows.")] = False,
    insert: Annotated[
        list[str] | None,
        typer.Option("--insert", metavar="JSON", help="A row to insert. Repeatable."),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="A condition that selects rows.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="KEY", help="The key whose rows to change: column=value, JSON, or a value."
        ),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all", help="Change every row of the state; not with --where or --key."),
    ] = False,
    to: Annotated[
        str | None,
        typer.Option("--catalog", metavar="DIR", help="The catalog of the new savepoint. [the source's]"),
    ] = None,
    why: Why = None,
    label: options.Label = None,
    home: options.Home = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Create a savepoint with some rows of a state changed; the original savepoint stays unchanged.

    Conditions and values are DuckDB SQL over the columns of one row. All other rows are verified to be the
    same, row by row, before the new savepoint is published. The label stays with the original: `@LABEL` still
    names it.
    """
    from holdfast.changes import edit_api
    from holdfast.changes.edit import editing
    from holdfast.changes.edit.request import Edit
    from holdfast.savepoints.taking import check_label

    check_label(label)
    if all_ and (where or key):
        raise Invalid(
            "--all cannot be combined with --where or --key",
            code="HF-E2151",
            hint="omit --all, or omit --where and --key",
        )
    where = "true" if all_ else where
    asked = Edit(state, where, key, tuple(assign or ()), delete, tuple(map(_row, insert or ())))
    address = checkpoint_of(source, home)
    with progress("edit", "parts") as tell:
        opened = edit_api.source_of(address, to, tell, keep=not dry_run, home=home)
        with opened as (catalog, savepoint_id, target):
            plan = editing.plan_edit(catalog, savepoint_id, target, asked, tell=tell)
            if dry_run:
                output.show_plan(edit_api.as_asked(plan, address), json, _show_plan)
                next_step.say_for_real(json)
                return
            if not yes:
                _say_fields(_counts(plan))
                _show_samples(plan)
                confirm(f"Create a savepoint from {plan.savepoint} with these changes?", _DOES)
            made = edit_api.apply(plan, catalog, target, why=why, label=label, who=None, tell=tell)
    output.show(made, json, _show_made)
    warn_of_label(label, made.uri)
    next_step.say_looked_up(json, lambda: next_step.restore_words(made.uri, plan.manifest.checkpoint))


@examples("savepoints/20260306T080000 --dry-run", "savepoints/20260306T080000 --reason 'it was right' -y")
def undo(
    savepoint: Annotated[
        str, typer.Argument(metavar="SP", help="A savepoint that an edit created.", callback=whole_address)
    ],
    why: Why = None,
    label: options.Label = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Undo an edit: create a savepoint with the state from before it.

    The label of the original savepoint stays with it.
    """
    from holdfast.savepoints.taking import check_label

    check_label(label)
    plan = hf.plan_undo(savepoint)
    if dry_run:
        output.show_plan(plan, json, _show_undo_plan)
        next_step.say_for_real(json)
        return
    if not yes:
        confirm(
            f"Undo {plan.change.statement!r} and create a savepoint with the state of {plan.back_to}?", _DOES
        )
    made = hf.undo(savepoint, why=why, label=label)
    output.show(made, json, _show_undone)
    warn_of_label(label, made.uri)
    next_step.say_looked_up(json, lambda: next_step.restore_words(made.uri, plan.manifest.checkpoint))


def _show_undo_plan(plan: UndoPlan) -> None:
    output.line(f"would create a savepoint with the state of {plan.back_to}")


def _show_undone(made: UndoReport) -> None:
    output.whole(made.uri)
    output.say("edit undone")
    _say_fields(
        [
            ("original", f"{made.plan.back_to} (same state)"),
            ("edited", f"{made.plan.savepoint} (unchanged)"),
        ]
    )


def _say_fields(pairs: list[tuple[str, Any]]) -> None:
    """Print aligned names and values as messages."""
    for text in output.field_lines(pairs, output.width(sys.stderr)):
        output.say(text)


def _row(text: str) -> dict[str, Any]:
    try:
        given = json_.loads(text)
    except ValueError as error:
        raise _no_row(text, str(error)) from error
    if not isinstance(given, dict):
        raise _no_row(text, f"JSON of type {type(given).__name__}")
    return given


def _no_row(text: str, problem: str) -> Invalid:
    return Invalid(
        "the row to insert is not a JSON object",
        code="HF-E2152",
        found=f"{text[:200]}: {problem}",
        expected='{"column": value, …}',
        hint="quote the JSON for the shell, and list the columns with `holdfast state list CHECKPOINT`",
    )


def _show_plan(plan: EditPlan) -> None:
    output.line("would create a savepoint with this edit:")
    output.fields(
        [
            ("original", plan.savepoint),
            ("state", plan.state),
            ("edit", plan.statement),
            *_counts(plan),
        ]
    )
    _show_samples(plan, output.line)


def _counts(plan: EditPlan) -> list[tuple[str, str]]:
    tally = plan.tally
    return [
        ("rows", f"{tally.rows:,} before, {tally.rows_after:,} after"),
        ("changes", f"{tally.changed:,} changed, {tally.deleted:,} deleted, {tally.inserted:,} inserted"),
        ("partitions", f"{len(plan.partitions):,} changed"),
    ]


def _show_samples(plan: EditPlan, line: Any = output.say) -> None:
    tally = plan.tally
    for sample in plan.as_dict()["samples"]:
        line(f"  {_change(sample['before'], sample['after'])}")
    if tally.touched > len(tally.samples):
        line(f"  and {tally.touched - len(tally.samples):,} more")


def _change(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    """Format a change: the columns that identify the row, then the changed columns."""
    if before is None or after is None:
        return f"{'insert' if before is None else 'delete'} {output.compact(after or before, 300)}"
    changed = [name for name in before if before[name] != after[name]]
    kept = {name: value for name, value in before.items() if name not in changed}
    changes = ", ".join(
        f"{name} {output.compact(before[name], 60)} → {output.compact(after[name], 60)}" for name in changed
    )
    return f"{output.compact(kept, 160)}: {changes}"


def _show_made(made: EditReport) -> None:
    output.whole(made.uri)
    _say_fields(
        [
            *_counts(made.plan),
            ("other rows", "verified unchanged"),
            ("original", f"{made.plan.savepoint} (unchanged)"),
            ("undo", f"`holdfast state undo {place_word(made.uri)}`"),
        ]
    )
    _show_samples(made.plan)


@examples(
    "savepoints ann --dry-run",
    "savepoints ann --certificate ann.json --yes",
)
def erase(
    catalog: Catalog,
    key: Annotated[
        str,
        typer.Argument(metavar="KEY", help="A value of any key column, or column=value, or a JSON object."),
    ],
    column: Annotated[
        str | None,
        typer.Option("--column", metavar="NAME", help="The only column to search, in keys and in values."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="CHECKPOINT|JOB",
            help="The checkpoint of a stopped query or job, to erase from as well.",
        ),
    ] = None,
    stopped: options.Stopped = False,
    why: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="The reason; recorded in the certificate.")
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option("--certificate", metavar="FILE", help="A file for the certificate, as JSON."),
    ] = None,
    home: options.Home = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Erase a key from every savepoint of a directory, and report what was searched and found.

    Savepoints keep their addresses and are verified afterwards. A checkpoint keeps only its newest batch. The
    state home, logs and notes are searched for the key's text but not changed; what was not searched is
    listed. Exit code 3 if the key was not found.
    """
    from holdfast.changes import edit_api
    from holdfast.ownership.checkpoint_guard import not_said

    target = None if certificate is None else Path(certificate)
    if target is not None:
        _require_writable(target)
    everywhere = catalog_of(catalog, home)
    address = None if checkpoint is None else checkpoint_of(checkpoint, home)
    if address is not None and not dry_run and not stopped:
        raise not_said(edit_api.checkpoint_usage(address), edit_api.SAY_STOPPED)
    if dry_run or not yes:
        with progress("erase", "savepoints") as tell:
            plan = hf.plan_erase(
                key, everywhere=everywhere, column=column, checkpoint=address, home=home, tell=tell
            )
        if dry_run:
            output.show_plan(plan, json, _show_erase_plan)
            _tell_outcome(plan.outcome)
            next_step.say_for_real(json, ready=stopped or plan.usage is None)
            return
        if plan.touched:
            show_usage(plan.usage, output.insist)
            more = "" if address is None else f", and all but the newest batch of {checkpoint}"
            confirm(
                f"Erase {counted(plan.rows, 'row')} from {plan.touched:,} of {len(plan.searched):,}"
                f" searched locations{more}? This cannot be undone"
            )
    with progress("erase", "savepoints") as tell:
        made = hf.erase(
            key,
            everywhere=everywhere,
            column=column,
            checkpoint=address,
            stopped=stopped,
            why=why,
            home=home,
            tell=tell,
        )
    problem = None if target is None else _written(target, made.render())
    output.show(made, json, _show_lines)
    if problem is not None:
        output.insist(f"cannot write the certificate above to {certificate}: {problem}")
        raise typer.Exit(Unavailable.exit_code)
    _tell_outcome(made.outcome)


def _show_erase_plan(plan: ErasePlan) -> None:
    _show_lines(plan)
    show_usage(plan.usage, output.line)


def _show_lines(value: ErasePlan | Certificate) -> None:
    for line in value.lines():
        output.prose(line)


def _require_writable(target: Path) -> None:
    """Check before an erasure that its certificate can be written.

    Raises:
        Conflict: The file exists.
        NotFound: The directory of the file does not exist.
        Invalid: The directory is not writable.
    """
    if target.exists():
        raise Conflict(
            "the file for the certificate already exists",
            code="HF-E4010",
            where=str(target),
            hint="give the path of a new file",
        )
    if not target.absolute().parent.is_dir():
        raise NotFound(
            "the directory for the certificate does not exist",
            code="HF-E3029",
            where=str(target),
            hint="create the directory, or give a different one",
        )
    if not os.access(target.absolute().parent, os.W_OK | os.X_OK):
        raise Invalid(
            "the certificate cannot be written",
            code="HF-E2153",
            where=str(target),
            found="no permission to write to its directory",
            hint="give a file in a directory that this user can write",
        )


def _written(target: Path, data: bytes) -> str | None:
    """Write the certificate; return the text of an error, because the completed erasure must be reported."""
    try:
        with target.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return None


def _tell_outcome(outcome: str) -> None:
    """Exit with the exit code of `NotFound` if the key was not found."""
    from holdfast.changes.erase.certificate import NOT_FOUND

    if outcome == NOT_FOUND:
        output.insist("the key was not found in any savepoint or checkpoint that was searched")
        raise typer.Exit(NotFound.exit_code)
