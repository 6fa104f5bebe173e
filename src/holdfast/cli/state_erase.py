"""`holdfast state erase`: a key that is to be forgotten, out of every savepoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import Catalog, catalog_of, checkpoint_of
from holdfast.cli.asking import confirm
from holdfast.cli.examples import examples
from holdfast.cli.new_checkpoint import show_usage
from holdfast.cli.progress import progress
from holdfast.config.units import counted
from holdfast.errors import Conflict, Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from holdfast.at_rest.erase.certificate import Certificate
    from holdfast.at_rest.erase.erase_plan import ErasePlan


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
        typer.Option(
            "--column", metavar="NAME", help="Only look for the value in this column, in keys and in values."
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="CHECKPOINT|JOB",
            help="Also erase from this stopped query's checkpoint, or a job's.",
        ),
    ] = None,
    stopped: options.Stopped = False,
    why: Annotated[
        str | None, typer.Option("--why", metavar="TEXT", help="The reason; recorded in the certificate.")
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option("--certificate", metavar="FILE", help="Write the certificate to this file, as JSON."),
    ] = None,
    home: options.Home = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Erase a key from every savepoint of a directory, from all bytes, and say what was searched and found.

    Savepoints keep their addresses and are proved afterwards. Of a checkpoint only the newest batch is left.
    The state home, logs and notes are searched for its text and left as they are; what was not searched is
    named. Exit code 3 where the key is nowhere.
    """
    from holdfast.at_rest import edit_api
    from holdfast.checkpoints.guard.checkpoint_guard import not_said

    target = None if certificate is None else Path(certificate)
    if target is not None:
        _require_writable(target)
    everywhere = catalog_of(catalog, home)
    address = None if checkpoint is None else checkpoint_of(checkpoint, home)
    usage = None if address is None else edit_api.checkpoint_usage(address)
    if usage is not None and not dry_run and not stopped:
        raise not_said(usage, edit_api.SAY_STOPPED)
    if dry_run or not yes:
        with progress("erase", "savepoints") as tell:
            plan = edit_api.plan_erase(
                key, everywhere=everywhere, column=column, checkpoint=address, home=home, tell=tell
            )
        if dry_run:
            if json:
                usage_fields = None if usage is None else usage.as_dict()
                output.emit_json({"dry_run": True, **plan.as_dict(), "usage": usage_fields})
            else:
                _show_lines(plan)
                show_usage(usage, output.line)
            _tell_outcome(plan.outcome)
            next_step.say_for_real(json, ready=stopped or usage is None)
            return
        if plan.touched:
            show_usage(usage, output.insist)
            more = "" if address is None else f", and all but the newest batch of {checkpoint}"
            confirm(
                f"Erase {counted(plan.rows, 'row')} from {plan.touched:,} of {len(plan.searched):,}"
                f" places{more}? Nothing brings them back"
            )
    with progress("erase", "savepoints") as tell:
        made = edit_api.erase(
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
        output.insist(f"the certificate above could not be written to {certificate}: {problem}")
        raise typer.Exit(Unavailable.exit_code)
    _tell_outcome(made.outcome)


def _show_lines(value: ErasePlan | Certificate) -> None:
    for line in value.lines():
        output.prose(line)


def _require_writable(target: Path) -> None:
    """Refuse a certificate that could not be written once all is erased.

    Raises:
        Conflict: The file exists.
        NotFound: Its directory does not.
        Invalid: Nobody may write there.
    """
    if target.exists():
        raise Conflict("the certificate's file exists", where=str(target), hint="name a new one")
    if not target.absolute().parent.is_dir():
        raise NotFound(
            "the certificate's directory does not exist", where=str(target), hint="make it, or name another"
        )
    if not os.access(target.absolute().parent, os.W_OK | os.X_OK):
        raise Invalid(
            "the certificate cannot be written there",
            where=str(target),
            found="no permission to write",
            hint="name a file in a directory of yours",
        )


def _written(target: Path, data: bytes) -> str | None:
    """Write the certificate; what went wrong, if anything did: the erasure is done, and has to be told."""
    try:
        with target.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return None


def _tell_outcome(outcome: str) -> None:
    """End with the exit code of what is not there, where the key is nowhere."""
    from holdfast.at_rest.erase.certificate import NOT_FOUND

    if outcome == NOT_FOUND:
        output.insist("the key was not found in any savepoint or checkpoint that was searched")
        raise typer.Exit(NotFound.exit_code)
