"""Which directories requests may name: those where jobs write anyway, and those that an operator allows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.config.storage import canonical_uri, local_path, parse_storage
from holdfast.errors import Invalid
from holdfast.jobs.control import JobDetails
from holdfast.savepoints.catalog import is_savepoint, split_address
from holdfast.server.plane import Plane


def named(plane: Plane, address: str, setting: str) -> str:
    """The canonical URI of a directory that a request names.

    Links are followed before it is compared, so that none leads out of where it may be.

    Raises:
        Invalid: It is no address, is not absolute, or lies elsewhere.
    """
    text = parse_storage(address, setting)
    remote = ":" in text.partition("/")[0]
    if not remote and not text.startswith("/"):
        raise Invalid(
            "a request has to name a directory in full", where=setting, found=address[:200], expected="/…"
        )
    if remote and ".." in text.split("/"):
        raise Invalid("this is no address of a directory", where=setting, found=address[:200])
    uri = canonical_uri(text, Path("/"))
    if not any(within(uri, root) for root in roots(plane)):
        raise Invalid(
            "this server may not use that directory",
            where=setting,
            found=address[:200],
            expected="one of its roots, or one that its jobs use",
            hint="start the server with --root DIR for a directory above it",
        )
    return uri


def savepoint(plane: Plane, address: str, setting: str) -> str:
    """The address of a savepoint that a request names.

    Raises:
        Invalid: It is none, or lies elsewhere.
    """
    uri = named(plane, address, setting).removesuffix("/_metadata")
    catalog, savepoint_id = split_address(uri)
    return f"{catalog}/savepoints/{savepoint_id}"


def state(plane: Plane, address: str, setting: str) -> str:
    """The address of a savepoint, or of a checkpoint with `@BATCH` behind it.

    Raises:
        Invalid: It is none, or lies elsewhere.
    """
    if is_savepoint(address):
        return savepoint(plane, address, setting)
    place, at, number = address.rpartition("@")
    if at and number.isascii() and number.isdigit():
        return f"{named(plane, place, setting)}@{number}"
    return named(plane, address, setting)


def new_checkpoint(plane: Plane, address: str, setting: str) -> str:
    """The address of a checkpoint that is to be made: apart from those that jobs use.

    Raises:
        Invalid: It lies inside one of them, or elsewhere.
    """
    uri = named(plane, address, setting)
    for used in _checkpoints(plane):
        if within(uri, used) or within(used, uri):
            raise Invalid(
                "a new checkpoint has to be apart from those of jobs", where=setting, found=uri, expected="…"
            )
    return uri


def catalog_of(plane: Plane, details: JobDetails, directory: str | None, setting: str) -> str:
    """Where a savepoint of a job goes: as the request says, else where its last one is, else as configured.

    Raises:
        Invalid: Nobody says where, or it lies elsewhere.
    """
    if directory is not None:
        return named(plane, directory, setting)
    known = plane.settings.savepoints or next(iter(plane.catalogs(details)), None)
    if known is None:
        raise Invalid(
            "nobody has said where savepoints go",
            where=setting,
            found="no directory",
            hint="name one, or start the server with --savepoint-dir DIR",
        )
    return known


def roots(plane: Plane) -> Iterator[str]:
    """Everything below which a request may name something."""
    yield from plane.settings.roots
    if plane.settings.savepoints is not None:
        yield plane.settings.savepoints
    yield f"file://{plane.home.path / 'savepoints'}"
    for status in plane.jobs():
        uri = status.job.checkpoint
        place = local_path(uri)
        # Beside its checkpoint a job's owner keeps what belongs to it; the root of a disk is nobody's.
        if place is None:
            yield uri.rpartition("/")[0] if uri.count("/") > 3 else uri
        elif place.parent != place.parent.parent:
            yield f"file://{place.parent}"
        yield from plane.catalogs(plane.brief(status.job.name))


def within(uri: str, root: str) -> bool:
    """Whether one address is another or below it."""
    return uri == root or uri.startswith(f"{root.rstrip('/')}/")


def _checkpoints(plane: Plane) -> Iterator[str]:
    for status in plane.jobs():
        yield status.job.checkpoint
        for query in plane.brief(status.job.name).queries:
            yield query.checkpoint
