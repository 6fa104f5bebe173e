"""`holdfast init`: a small job of one's own, with its test and its settings."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.examples import examples

if TYPE_CHECKING:
    from holdfast.demo.starter.writing import Starter


@examples("", "pipelines --name totals")
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

    The job keeps a count and a sum for each customer, over a directory of JSON files. It runs as it is, once
    the extra `spark` and Java are installed; what is missing is said. No file is written over.
    """
    from holdfast.demo.starter.writing import plan_starter, write_starter

    starter = plan_starter(folder, name)
    if not dry_run:
        write_starter(starter)
    output.show_plan(starter, json, _show, dry_run=dry_run)
    if starter.install is not None and not json and (dry_run or not next_step.is_wanted(json)):
        output.say(f"install what the job needs and is missing here: {starter.install}")
    if dry_run:
        next_step.say_for_real(json)
    else:
        _say_next(starter, json)


def _show(starter: Starter) -> None:
    for file in starter.files:
        output.whole(str(Path(starter.folder) / file))


def _say_next(starter: Starter, json: bool) -> None:
    name = starter.name
    steps = [
        (f"python -m pytest test_{name}.py", "tests the job without Spark"),
        (f"holdfast run {name}.py", "runs it until all orders are read"),
        (f"holdfast state scan {name} totals", "shows what it knows of each customer"),
        (f"holdfast check {name}.py --against checkpoint", "says which state a change keeps"),
    ]
    if Path(starter.folder) != Path.cwd():
        steps.insert(0, (f"cd {shlex.quote(starter.folder)}", ""))
    if starter.install is not None:
        steps.insert(0, (starter.install, "installs what is missing here"))
    next_step.say_steps(
        json, steps, "Put another file into orders/ and run it again: it goes on from its checkpoint."
    )
