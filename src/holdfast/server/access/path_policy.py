"""The directories that requests may name: checkpoints and savepoints of jobs, and what an operator allows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.config.locations import canonical_uri, parse_storage
from holdfast.errors import Invalid
from holdfast.jobs.registry.client import JobDetails
from holdfast.savepoints.catalog.catalog import is_savepoint, split_address
from holdfast.server.control_plane import ControlPlane

# Where savepoints and forks of a job go unless a request says where.
SAVEPOINTS: Final = ".savepoints"
FORK: Final = "-fork"
_BESIDE: Final = re.compile(r"(\.savepoints|-fork|-restored)([.-][^/]*)?(/|$)")
# `file:///` and `s3://` with the name of a bucket.
_ROOT_SLASHES: Final = 2


def resolve(plane: ControlPlane, address: str, setting: str) -> str:
    """The canonical URI of a directory that a request names.

    Links are followed before it is compared, so that none leads out of where it may be.

    Raises:
        Invalid: It is no address, is not absolute, or lies elsewhere.
    """
    text = parse_storage(address, setting)
    remote = ":" in text.partition("/")[0]
    if not remote and not text.startswith("/"):
        raise Invalid(
            "a request has to name a directory in full",
            where=setting,
            found=address[:200],
            expected="a path that begins with /, or a URI",
        )
    if remote and ".." in text.split("/"):
        raise Invalid(
            "this is no address of a directory",
            where=setting,
            found=address[:200],
            expected="a URI without `..` in it",
        )
    uri = canonical_uri(text, Path("/"))
    if not _allowed(plane, uri):
        raise Invalid(
            "this server may not use that directory",
            where=setting,
            found=address[:200],
            expected="a checkpoint of a job, a directory that has its savepoints, or one below a root",
            hint="start the server with --root DIR for a directory above it",
        )
    return uri


def savepoint(plane: ControlPlane, address: str, setting: str) -> str:
    """The address of a savepoint that a request names.

    Raises:
        Invalid: It is none, or lies elsewhere.
    """
    uri = resolve(plane, address, setting).removesuffix("/_metadata")
    catalog, savepoint_id = split_address(uri)
    return f"{catalog}/savepoints/{savepoint_id}"


def state(plane: ControlPlane, address: str, setting: str) -> str:
    """The address of a savepoint, or of a checkpoint with `@BATCH` behind it.

    Raises:
        Invalid: It is none, or lies elsewhere.
    """
    if is_savepoint(address):
        return savepoint(plane, address, setting)
    place, at, number = address.rpartition("@")
    if at and number.isascii() and number.isdigit():
        return f"{resolve(plane, place, setting)}@{number}"
    return resolve(plane, address, setting)


def new_checkpoint(plane: ControlPlane, address: str, setting: str) -> str:
    """The address of a checkpoint that is to be made: apart from those that jobs use.

    Raises:
        Invalid: It lies inside one of them, or elsewhere.
    """
    uri = resolve(plane, address, setting)
    for used in _checkpoints(plane):
        if within(uri, used) or within(used, uri):
            raise Invalid(
                "a new checkpoint has to be apart from those of jobs",
                where=setting,
                found=uri,
                expected=f"a directory that is neither in {used} nor above it",
            )
    return uri


def catalog_of(plane: ControlPlane, details: JobDetails, directory: str | None, setting: str) -> str:
    """Where a savepoint of a job goes: as the request says, else where its last one is, else as configured.

    Raises:
        Invalid: Nobody says where, or it lies elsewhere.
    """
    if directory is not None:
        return resolve(plane, directory, setting)
    known = plane.settings.savepoints or next(iter(plane.catalogs(details)), None)
    if known is None:
        known = beside(details.status.job.checkpoint, SAVEPOINTS)
    if known is None:
        raise Invalid(
            "nobody has said where savepoints go",
            where=setting,
            found="no directory",
            hint="name one, or start the server with --savepoint-dir DIR",
        )
    return known


def beside(checkpoint: str, ending: str) -> str | None:
    """What lies beside a checkpoint under its name; None where a checkpoint is a whole bucket or disk."""
    place = checkpoint.rstrip("/")
    return f"{place}{ending}" if place.count("/") > _ROOT_SLASHES else None


def roots(plane: ControlPlane) -> Iterator[str]:
    """Everything below which a request may name something.

    Not what a checkpoint lies in: that may be somebody's home.
    """
    yield from plane.settings.roots
    if plane.settings.savepoints is not None:
        yield plane.settings.savepoints
    yield f"file://{plane.home.path / 'savepoints'}"
    for status in plane.jobs():
        yield status.job.checkpoint
        yield from plane.catalogs(plane.brief(status.job.name))


def _allowed(plane: ControlPlane, uri: str) -> bool:
    if any(within(uri, root) for root in roots(plane)):
        return True
    return any(_belongs(uri, status.job.checkpoint.rstrip("/")) for status in plane.jobs())


def _belongs(uri: str, checkpoint: str) -> bool:
    """Whether something lies beside a checkpoint under a name that we make of the checkpoint's own."""
    if not uri.startswith(checkpoint) or checkpoint.count("/") <= _ROOT_SLASHES:
        return False
    return _BESIDE.match(uri, len(checkpoint)) is not None


def within(uri: str, root: str) -> bool:
    """Whether one address is another or below it."""
    return uri == root or uri.startswith(f"{root.rstrip('/')}/")


def _checkpoints(plane: ControlPlane) -> Iterator[str]:
    for status in plane.jobs():
        yield status.job.checkpoint
        for query in plane.brief(status.job.name).queries:
            yield query.checkpoint
