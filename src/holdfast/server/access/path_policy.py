"""The directories that requests may name: checkpoints and savepoints of jobs, and what an operator allows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast.config.checks import canonical_uri, parse_storage
from holdfast.errors import Invalid
from holdfast.jobs.registry.client import JobDetails
from holdfast.layout import SAVEPOINTS_BESIDE, beside
from holdfast.savepoints.catalog import is_savepoint, split_address
from holdfast.savepoints.names import find, parse_name
from holdfast.server.control_plane import ControlPlane

_BESIDE: Final = re.compile(r"(\.savepoints|-fork|-restored)([.-][^/]*)?(/|$)")
# Of the directories that may be named, an error shows so many.
_SHOWN: Final = 4


def resolve(plane: ControlPlane, address: str, setting: str) -> str:
    """The canonical URI of a directory that a request names.

    Links are followed before it is compared, so that none leads out of where it may be.

    Raises:
        Invalid: It is not an address, is not absolute, or lies elsewhere.
    """
    text = parse_storage(address, setting)
    remote = ":" in text.partition("/")[0]
    if not remote and not text.startswith("/"):
        raise Invalid(
            "a request has to name a directory in full",
            code="HF-E2261",
            where=setting,
            found=address[:200],
            expected="a path that begins with /, or a URI",
        )
    if remote and ".." in text.split("/"):
        raise Invalid(
            "this is no address of a directory",
            code="HF-E2262",
            where=setting,
            found=address[:200],
            expected="a URI without `..` in it",
        )
    uri = canonical_uri(text, Path("/"))
    if not _allowed(plane, uri):
        raise Invalid(
            "this server may not use that directory",
            code="HF-E2263",
            where=setting,
            found=address[:200],
            expected=_what_may_be_named(plane),
            hint="name one of these, or none; or start `holdfast run` or `holdfast serve`"
            f" with `--root {shlex.quote(address[:200])}`",
        )
    return uri


def _what_may_be_named(plane: ControlPlane) -> str:
    """Return the directories that a request may name, for the error of a refused one."""
    proposed = (beside(status.job.checkpoint, SAVEPOINTS_BESIDE) for status in plane.jobs())
    places = list(dict.fromkeys([*(place for place in proposed if place is not None), *roots(plane)]))
    told = [place.removeprefix("file://") for place in places[:_SHOWN]]
    more = f", or one of {len(places) - _SHOWN} others" if len(places) > _SHOWN else ""
    return f"a directory that is or lies below {' or '.join(told)}{more}"


def savepoint(plane: ControlPlane, address: str, setting: str) -> str:
    """The address of a savepoint that a request names, by its id or its label.

    Nothing is looked for in a directory that the request may not name.

    Raises:
        Invalid: It is none, lies elsewhere, or is named as several are.
        NotFound: No savepoint of the directory has the label.
    """
    address = _complete_address(plane, address, setting) or address
    catalog, savepoint_id = split_address(resolve(plane, address, setting).removesuffix("/_metadata"))
    return f"{catalog}/savepoints/{savepoint_id}"


def state(plane: ControlPlane, address: str, setting: str) -> str:
    """The address of a savepoint, or of a checkpoint with `@BATCH` behind it.

    Raises:
        Invalid: It is none, lies elsewhere, or is named as several savepoints are.
        NotFound: No savepoint of the directory has the label.
    """
    named = address if is_savepoint(address) else _complete_address(plane, address, setting)
    if named is not None:
        return savepoint(plane, named, setting)
    place, at, number = address.rpartition("@")
    if at and number.isascii() and number.isdigit():
        return f"{resolve(plane, place, setting)}@{number}"
    uri = resolve(plane, address, setting)
    # With a slash behind it it is a directory: an @ in its name leads into no other one.
    return uri if parse_name(uri) is None else f"{uri}/"


def _complete_address(plane: ControlPlane, address: str, setting: str) -> str | None:
    """The address of a savepoint that is named by the beginning of its id or its label; None of any other."""
    name = parse_name(address)
    if name is None:
        return None
    try:
        catalog = resolve(plane, name.catalog, setting)
    except Invalid:  # where the whole address may be named, its @ stands for no label
        return None
    return find(replace(name, catalog=catalog), address)


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
                code="HF-E2264",
                where=setting,
                found=uri,
                expected=f"a directory that is neither in {used} nor above it",
            )
    return uri if parse_name(uri) is None else f"{uri}/"


def catalog_of(plane: ControlPlane, details: JobDetails, directory: str | None, setting: str) -> str:
    """Return where a savepoint of a job goes: as the request, the server or the job's settings say.

    Raises:
        Invalid: Nobody says where, or it lies elsewhere.
    """
    if directory is not None:
        return resolve(plane, directory, setting)
    known = plane.settings.savepoints or details.savepoint_directory
    if known is None:
        raise Invalid(
            "a savepoint of this job needs a directory",
            code="HF-E2237",
            where=setting,
            found=f"none, and the checkpoint {details.status.job.checkpoint} has nothing beside it",
            hint="start the server with `--savepoint-dir DIR`, or name a directory below a `--root DIR`",
        )
    return known


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
        if status.job.savepoint_catalog is not None:
            yield status.job.savepoint_catalog
        yield from plane.brief(status.job.name).catalogs


def _allowed(plane: ControlPlane, uri: str) -> bool:
    if any(within(uri, root) for root in roots(plane)):
        return True
    return any(_belongs(uri, status.job.checkpoint.rstrip("/")) for status in plane.jobs())


def _belongs(uri: str, checkpoint: str) -> bool:
    """Return whether a path is next to a checkpoint, under a name derived from the checkpoint's own."""
    if not uri.startswith(checkpoint) or beside(checkpoint, "") is None:
        return False
    return _BESIDE.match(uri, len(checkpoint)) is not None


def within(uri: str, root: str) -> bool:
    """Return whether one address is equal to a different one or below it."""
    return uri == root or uri.startswith(f"{root.rstrip('/')}/")


def _checkpoints(plane: ControlPlane) -> Iterator[str]:
    for status in plane.jobs():
        yield status.job.checkpoint
        for query in plane.brief(status.job.name).queries:
            yield query.checkpoint
