"""`holdfast state migrate --to`: state in the form of new code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.new_checkpoint import show_usage
from holdfast.cli.progress import progress
from holdfast.cli.sparks_words import without_sparks_words
from holdfast.config.units import counted
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from holdfast.at_rest.evolve.evolution_plan import EvolutionPlan, OperatorChange
    from holdfast.at_rest.evolve.evolving import Evolved
    from holdfast.model import PlanChange

To = Annotated[
    str | None,
    typer.Option("--to", metavar="FILE.py[:JOB]", help="New code, into whose form the state is brought."),
]
Old = Annotated[
    str | None,
    typer.Option(
        "--old",
        metavar="FILE.py[:JOB]",
        help="With --to: the code that wrote the state, if the savepoint does not record its plan.",
    ),
]
Initial = Annotated[
    list[str] | None,
    typer.Option(
        "--initial",
        metavar="NAME=VALUE",
        help="With --to: what a new aggregate or grouping column has for keys that are there. Repeatable.",
    ),
]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="OLD=NEW",
        help="With --to: a column or operator that is called otherwise now. Repeatable.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop", metavar="NAME", help="With --to: a column or operator whose state goes. Repeatable."
    ),
]
Merge = Annotated[
    bool,
    typer.Option("--merge", help="With --to: put rows together that get the same key, where that is exact."),
]
Query = Annotated[
    str | None,
    typer.Option("--query", metavar="NAME", help="With --to: which query, if the job has several."),
]


def refuse_mixed(to: str | None, move: Mapping[str, object], code: Mapping[str, object]) -> None:
    """Refuse options of the two kinds of migration together.

    Raises:
        Invalid: There are some of both, or some that need --to without it.
    """
    moves = [f"--{name.replace('_', '-')}" for name, value in move.items() if value is not None]
    if to is not None and moves:
        raise Invalid(
            "state is moved elsewhere, or brought into the form of new code: one at a time",
            found=f"--to, and {', '.join(moves)}",
            hint="run the second on the checkpoint that the first has made",
        )
    names = {"rename": "map", "overrides": "set"}
    codes = [f"--{names.get(name, name)}" for name, value in code.items() if value]
    if to is None and codes:
        raise Invalid(
            "this is for new code, and it is not said which",
            found=", ".join(codes),
            hint="give --to FILE.py[:JOB]",
        )


def run(
    address: str,
    checkpoint: str | None,
    to: str,
    code: Mapping[str, Any],
    *,
    home: str | None,
    stopped: bool,
    dry_run: bool,
    json: bool,
) -> None:
    """Make the checkpoint, or say what would be done."""
    from holdfast.jobs.loader import require_job_file
    from holdfast.jobs.trials import evolution

    for file in (to, code["old"]):
        if file is not None:
            require_job_file(file)
    wanted = {**code, "to": to, "home": options.settings(home).ensure_home().resolve()}
    if dry_run:
        with without_sparks_words():
            planned = evolution.plan_evolve(address, checkpoint, **wanted)
        output.show_plan(planned, json, _show_plan)
        next_step.say_for_real(json, ready=stopped or planned.usage is None)
        return
    with without_sparks_words() as words, progress("migrate", "steps", words) as tell:
        made = evolution.evolve(address, checkpoint, **wanted, stopped=stopped, tell=tell)
    output.show(made, json, _show_made)
    place = f"checkpoint.storage={next_step.typed(made.checkpoint)}"
    given = (f"{name}={value}" for name, value in code["overrides"].items())
    settings = tuple(next_step.given_words("--set", [place, *given]))
    next_step.say_looked_up(json, lambda: next_step.run_words(to, home, *settings))


def _show_plan(plan: EvolutionPlan) -> None:
    output.line(f"would make {plan.checkpoint} of batch {plan.batch_id}, for {plan.target}")
    _show_operators(plan.operators)
    _show_changes(plan.changes)
    show_usage(plan.usage, output.line)


def _show_made(made: Evolved) -> None:
    output.whole(made.checkpoint)
    _show_operators(made.plan.operators)
    _show_changes(made.plan.changes)
    if made.merged:
        output.say(f"{counted(made.merged, 'row')} put together with another one of the same key")
    output.say(f"{counted(made.rows, 'row')} of state; the query goes on with batch {made.batch_id + 1}")


def _show_operators(operators: tuple[OperatorChange, ...]) -> None:
    output.table(
        ["OPERATOR", "COLUMN", "CHANGE", "BEFORE", "AFTER", "STARTS WITH"],
        [row for operator in operators for row in _rows(operator)],
    )


def _rows(operator: OperatorChange) -> list[tuple[str | None, ...]]:
    name = operator.after or operator.before or ""
    rows: list[tuple[str | None, ...]] = [
        (name, None, operator.change, operator.before, operator.after, None)
    ]
    rows += [
        (name, column.column, column.change, column.before, column.after, column.initial)
        for column in operator.columns
        if column.before != column.after
    ]
    return rows


def _show_changes(changes: tuple[PlanChange, ...]) -> None:
    for change in changes:
        output.say(f"{change.what} is another: {change.why}")
