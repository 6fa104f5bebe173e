"""Arguments that several verbs share, and what a person means by them: a directory, a savepoint, or a job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast.cli import options
from holdfast.errors import Invalid, NotFound

if TYPE_CHECKING:
    from holdfast.jobs.registry.client import JobDetails


# So much of a savepoint's id at least, its day, stands for all of it.
_SHORT_ID: Final = re.compile(r"[0-9]{8}(T[0-9.]*(Z[-b0-9a-f]*)?)?")


def whole_id(given: str) -> str:
    """The address of a savepoint with its whole id, where that is short as in tables; any other as it is.

    `savepoints` may be left out of an address, so that `DIR/20260305T080000` is enough.

    Raises:
        Invalid: Several savepoints begin like this.
    """
    from holdfast.savepoints.catalog.catalog import ids, is_savepoint, savepoint_uri
    from holdfast.storage import open_storage

    folder, _, begins = given.rstrip("/").rpartition("/")
    if is_savepoint(given) or not _SHORT_ID.fullmatch(begins) or not folder:
        return given
    catalog = open_storage(folder.removesuffix("/savepoints"), "savepoint")
    found = [savepoint_id for savepoint_id in ids(catalog) if savepoint_id.startswith(begins)]
    if len(found) > 1:
        raise Invalid(
            "several savepoints begin like this",
            where=given,
            found=", ".join(found),
            hint="write so much of the id that one is left",
        )
    return savepoint_uri(catalog, found[0]) if found else given


JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name or id.")]
Checkpoint = Annotated[
    str, typer.Argument(metavar="CHECKPOINT|JOB", help="A checkpoint's path or URI, or a job's name.")
]
AtRest = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT|SP", help="A checkpoint that no query uses, or a savepoint.", callback=whole_id
    ),
]
Place = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT|SP",
        help="A checkpoint, a job, or a savepoint; append @BATCH for an older batch.",
        callback=whole_id,
    ),
]
Savepoint = Annotated[
    str,
    typer.Argument(
        metavar="SP", help="A savepoint: DIR/ID; the beginning of an ID is enough.", callback=whole_id
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
