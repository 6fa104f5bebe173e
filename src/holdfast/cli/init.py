"""`holdfast init`: a small job of one's own, with its test and its settings."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options, output

if TYPE_CHECKING:
    from holdfast.demo.starter.writing import Starter


def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]",
            help="Where to write; it is made if need be.",
            callback=options.on_this_machine,
        ),
    ] = Path(),
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="The job's name; its file is NAME.py.")
    ] = "shop",
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Write a small job to begin with: NAME.py, its test, its data and holdfast.toml.

    The job keeps a count and a sum for each customer, over a directory of JSON files. It runs as it is. No
    file is written over.

    \b
    Examples:
      holdfast init
      holdfast init pipelines --name totals
    """  # noqa: D301 - the help's own sign for lines that stay as they are
    from holdfast.demo.starter.writing import plan_starter, write_starter

    starter = plan_starter(folder, name)
    if not dry_run:
        write_starter(starter)
    output.show_plan(starter, json, _show, dry_run=dry_run)
    if not dry_run and not json:
        _say_next(starter)


def _show(starter: Starter) -> None:
    for file in starter.files:
        output.whole(str(Path(starter.folder) / file))


def _say_next(starter: Starter) -> None:
    name = starter.name
    steps = [
        (f"python -m pytest test_{name}.py", "tests the job without Spark"),
        (f"holdfast run {name}.py", "runs it until all orders are read"),
        (f"holdfast state scan {name} totals", "shows what it knows of each customer"),
        (f"holdfast check {name}.py --against checkpoint", "says which state a change keeps"),
    ]
    if Path(starter.folder) != Path.cwd():
        steps.insert(0, (f"cd {shlex.quote(starter.folder)}", ""))
    width = max(len(command) for command, why in steps if why)
    output.say("\nnext:")
    for command, why in steps:
        output.say(f"  {command.ljust(width)}  {why}".rstrip())
    output.say("\nPut another file into orders/ and run it again: it goes on from its checkpoint.")
