"""Arguments that several verbs share, and what a person means by them: a directory, a savepoint, or a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import options, output
from holdfast.errors import Invalid, NotFound

if TYPE_CHECKING:
    from holdfast.jobs.registry.client import JobDetails


def whole_address(context: typer.Context, given: str) -> str:
    """The whole address of a savepoint that is named by a short id or a label; any other as it is.

    Raises:
        Invalid: Several savepoints are named like this.
        NotFound: No savepoint of the directory has the label.
    """
    from holdfast.savepoints.catalog.savepoint_names import savepoint_address

    # Where it is only asked what could be typed next, nothing is looked up.
    return given if context.resilient_parsing else savepoint_address(given)


def say_unnameable(label: str | None) -> None:
    """Say of a label that was given to a savepoint why it cannot stand in the savepoint's address."""
    from holdfast.savepoints.catalog.savepoint_names import unnameable

    why = None if label is None else unnameable(label)
    if why is not None:
        output.say(f"note: {label!r} cannot name the savepoint as DIR@LABEL, since {why}; its id does")


JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name or id.")]
Checkpoint = Annotated[
    str, typer.Argument(metavar="CHECKPOINT|JOB", help="A checkpoint's path or URI, or a job's name.")
]
AtRest = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT|SP",
        help="A checkpoint that no query uses, or a savepoint.",
        callback=whole_address,
    ),
]
Place = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT|SP",
        help="A checkpoint, a job, or a savepoint; append @BATCH for an older batch.",
        callback=whole_address,
    ),
]
Savepoint = Annotated[
    str,
    typer.Argument(
        metavar="SP",
        help="A savepoint: DIR/ID, of which the beginning is enough, or DIR@LABEL.",
        callback=whole_address,
    ),
]
Catalog = Annotated[str, typer.Argument(metavar="DIR", help="The directory of savepoints, a path or URI.")]
State = Annotated[
    str | None,
    typer.Argument(
        metavar="[STATE]",
        help="STATE, OPERATOR.STATE, or an operator with one state. Optional if there is only one.",
    ),
]
Key = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY",
        help="The values with commas between them, column=value …, or JSON. A window is named by its start.",
    ),
]


def checkpoint_of(given: str, home: str | None) -> str:
    """The checkpoint's address, from itself or from the name of a job in the state home.

    What is written like a path or a URI is one, and so is what names a directory; anything else names a job.

    Raises:
        NotFound: There is neither a directory nor a job of this name.
        Invalid: The job has several queries, each with a checkpoint of its own.
    """
    if "/" in given or ":" in given or "\\" in given or Path(given).is_dir():
        return given
    try:
        details = options.control(home).details(given)
    except NotFound as error:
        raise NotFound(
            f"there is neither a directory nor a job {given!r}",
            where=error.where,
            found=error.found,
            hint="see the jobs with `holdfast list`; write a path with a slash in it, such as ./checkpoint",
        ) from error
    return _of_job(details)


def place_of(given: str, home: str | None) -> str:
    """The address of a savepoint or of a checkpoint, with the `@BATCH` that was given.

    Raises:
        NotFound: There is neither a directory nor a job of this name.
        Invalid: The job has several queries, each with a checkpoint of its own.
    """
    place, at, batch = given.rpartition("@")
    if at and batch.isascii() and batch.isdigit():
        return f"{checkpoint_of(place, home)}@{batch}"
    return checkpoint_of(given, home)


def _of_job(details: JobDetails) -> str:
    checkpoints = [query.checkpoint for query in details.queries]
    if len(checkpoints) > 1:
        raise Invalid(
            f"job {details.status.job.name!r} has {len(checkpoints)} queries with a checkpoint each",
            found=", ".join(query.name for query in details.queries),
            expected="the checkpoint of one of them",
            hint=f"name one of {', '.join(checkpoints)}",
        )
    return checkpoints[0] if checkpoints else details.status.job.checkpoint
