"""`holdfast state erase`: a key that is to be forgotten, out of every savepoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import options, output
from holdfast.cli.asking import Yes, confirm
from holdfast.cli.progress import progress
from holdfast.cli.where import checkpoint_of
from holdfast.errors import Conflict


def erase(
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="A value of any column of keys; or column=value, or a JSON object."
        ),
    ],
    everywhere: Annotated[
        str, typer.Option("--everywhere", metavar="DIR", help="The directory of savepoints.")
    ],
    column: Annotated[
        str | None,
        typer.Option(
            "--column", metavar="NAME", help="The column that has the value, of keys and of values."
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint", metavar="CK", help="A stopped query's checkpoint, or a job: erased too."
        ),
    ] = None,
    why: Annotated[str | None, typer.Option("--why", metavar="TEXT", help="What for.")] = None,
    certificate: Annotated[
        str | None,
        typer.Option("--certificate", metavar="FILE", help="Write the certificate there, as JSON."),
    ] = None,
    home: options.Home = None,
    yes: Yes = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Erase a key from every savepoint of a directory, from all bytes, and say what was searched and found.

    Savepoints keep their addresses and are proved afterwards. Of a checkpoint only the newest batch is left.
    """
    from holdfast.at_rest.mending import public  # noqa: PLC0415 - not needed for --help

    target = None if certificate is None else Path(certificate)
    if target is not None and target.exists():
        raise Conflict("the certificate's file exists", where=certificate, hint="name a new one")
    if dry_run or not yes:
        with progress("erase", "savepoints") as tell:
            plan = public.plan_erase(key, everywhere=everywhere, column=column, tell=tell)
        if dry_run:
            if json:
                output.emit_json({"dry_run": True, **plan.as_dict()})
                return
            for each in plan.searched:
                output.line(f"{each.place}: {each.rows:,} rows, in {each.traces:,} files")
            return
        more = "" if checkpoint is None else f", and all but the newest batch of {checkpoint}"
        confirm(
            f"Erase {plan.rows:,} rows from {plan.touched:,} of {len(plan.searched):,} savepoints{more}?"
            " Nothing brings them back"
        )
    address = None if checkpoint is None else checkpoint_of(checkpoint, home)
    with progress("erase", "savepoints") as tell:
        made = public.erase(key, everywhere=everywhere, column=column, checkpoint=address, why=why, tell=tell)
    if target is not None:
        with target.open("xb") as file:
            file.write(made.render())
    if json:
        output.emit_json(made.as_dict())
        return
    for line in made.lines():
        output.line(line)
