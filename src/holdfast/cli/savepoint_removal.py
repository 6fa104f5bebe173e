"""`holdfast savepoint delete` and `gc`: remove savepoints, and what no savepoint needs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import Catalog, Savepoint, catalog_of
from holdfast.cli.asking import confirm
from holdfast.cli.examples import examples
from holdfast.cli.progress import progress
from holdfast.clock import now_ms
from holdfast.config.units import counted

if TYPE_CHECKING:
    from holdfast.savepoints.catalog.removal import Removal


@examples("savepoints/20260305T080000 --dry-run", "savepoints/20260305T080000 --yes")
def delete(
    savepoint: Savepoint,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Delete a savepoint, and the bytes that no other savepoint of its directory needs."""
    from holdfast import savepoints
    from holdfast.savepoints.access import opened
    from holdfast.savepoints.catalog.removal import plan_delete

    removal = plan_delete(*opened(savepoint), now_ms())
    if not dry_run:
        if not yes:
            confirm(f"Delete {removal.savepoint} and free {removal.size_bytes:,} bytes?")
        with progress("delete", "files") as tell:
            removal = savepoints.delete(savepoint, tell=tell)
    output.show_plan(removal, json, partial(_show, dry_run=dry_run), dry_run=dry_run)
    _say_next(removal, json, dry_run=dry_run)


@examples("savepoints --dry-run", "savepoints --older-than 6h --yes")
def gc(
    catalog: Catalog,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help="How long a take may be silent before it counts as killed; a running one reports"
            " every minute.",
        ),
    ] = "1h",
    yes: options.Yes = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Remove what no savepoint of a directory needs: what killed takes and deletes have left."""
    from holdfast import savepoints
    from holdfast.config.units import parse_duration
    from holdfast.savepoints.catalog.catalog import require_catalog
    from holdfast.savepoints.catalog.removal import plan_sweep
    from holdfast.storage import open_storage

    dead_after_ms = parse_duration(older_than, "--older-than", allow_zero=True)
    address = catalog_of(catalog, home)
    place = open_storage(address, "catalog")
    require_catalog(place)
    removal = plan_sweep(place, now_ms(), dead_after_ms)
    if not dry_run:
        if removal.paths and not yes:
            confirm(
                f"Remove {counted(len(removal.paths), 'file')}, {removal.size_bytes:,} bytes,"
                " that no savepoint needs?"
            )
        with progress("gc", "files") as tell:
            removal = savepoints.gc(address, older_than=older_than, tell=tell)
    output.show_plan(removal, json, partial(_show, dry_run=dry_run), dry_run=dry_run)
    _say_next(removal, json, dry_run=dry_run)


def _say_next(removal: Removal, json: bool, *, dry_run: bool) -> None:
    """What is left; after a look at what would go, the same in earnest."""
    if dry_run:
        next_step.say_for_real(json, ready=bool(removal.savepoint or removal.paths) and not removal.live)
    else:
        next_step.say_looked_up(json, lambda: ("savepoint", "list", next_step.typed(removal.catalog)))


def _show(removal: Removal, *, dry_run: bool) -> None:
    did = "would remove" if dry_run else "removed"
    what = f"{removal.savepoint} and " if removal.savepoint else ""
    output.line(
        f"{did} {what}{counted(len(removal.paths), 'file')}, {removal.size_bytes:,} bytes;"
        f" keeping {counted(removal.kept, 'savepoint')}"
    )
    for owner in removal.dead:
        output.line(f"a take of {owner} was killed")
    for owner in removal.live:
        output.insist(f"a take is under way, by {owner}: nothing can be removed until it ends")
    for savepoint in removal.unreadable:
        output.insist(
            f"the manifest of {savepoint} is damaged; nobody knows what it needs, so all bytes stay"
        )
