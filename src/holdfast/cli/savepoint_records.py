"""`holdfast savepoint digest` and `label`: what is put beside the manifest of a savepoint that is there."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import Savepoint, catalog_of, warn_of_label, whole_address
from holdfast.cli.examples import examples
from holdfast.cli.progress import progress
from holdfast.clock import now_ms
from holdfast.config.locations import place_word
from holdfast.config.units import counted
from holdfast.errors import HoldfastError, Invalid, NotFound

if TYPE_CHECKING:
    from holdfast.formats.savepoint.savepoint_label import LabelChange
    from holdfast.savepoints.proof.digests import Digested
    from holdfast.savepoints.taking.taking import Taken

# What a shell makes of a command that Ctrl-C has ended.
INTERRUPTED: Final = 130


@examples("savepoints/20260305T080000", "savepoints --dry-run")
def digest(
    place: Annotated[
        str,
        typer.Argument(
            metavar="SP|DIR|JOB",
            help="A savepoint; or all with pending digests of a directory, or of the one where a job's go.",
            callback=whole_address,
        ),
    ],
    full_speed: Annotated[
        bool,
        typer.Option("--full-speed", help="Use all processors, even if the query runs on this machine."),
    ] = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Count and hash the rows of a savepoint's states, and record it for `verify --deep` to compare with.

    A savepoint that has its digests stays as it is. Ctrl-C leaves the one that is being read pending.
    """
    from holdfast.savepoints.access import opened
    from holdfast.savepoints.catalog.catalog import SAVEPOINTS, is_savepoint
    from holdfast.savepoints.proof.digests import not_digested, pending
    from holdfast.savepoints.savepoint_api import digest as make
    from holdfast.storage import open_storage

    place = catalog_of(place, home)
    single = is_savepoint(place)
    if single:
        catalog, savepoint_id = opened(place)
        wanted = [savepoint_id]
    else:
        catalog = open_storage(place, "catalog")
        if SAVEPOINTS not in catalog.list().names:
            raise NotFound(
                "this is no directory of savepoints",
                where=catalog.uri,
                found=f"no {SAVEPOINTS} in it",
                hint="name the directory that `holdfast savepoint take` was given, or a savepoint",
            )
        wanted = pending(catalog)
    found: list[Digested] = []
    for savepoint_id in wanted:
        state = not_digested(catalog, savepoint_id)
        if not dry_run:
            with progress("digest", "stores") as tell:
                state = make(state.uri, gentle=False if full_speed else None, tell=tell)
        found.append(state)
        if not json:
            _show(state, dry_run=dry_run)
    if json:
        made = [digested.as_dict() for digested in found]
        output.emit_json({"dry_run": dry_run, **(made[0] if single else {"savepoints": made})})
    elif not found:
        output.line("no digests are pending")
    if dry_run:
        next_step.say_for_real(json, ready=any(state.states is None for state in found))
    elif found:
        newest = found[-1].uri
        next_step.say_looked_up(
            json, lambda: ("savepoint", "verify", next_step.savepoint_word(newest), "--deep")
        )


@examples("savepoints/20260305T080000 'before the upgrade'", "savepoints/20260305T080000 --remove")
def label(
    savepoint: Savepoint,
    text: Annotated[str | None, typer.Argument(metavar="LABEL", help="The new label.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the label.")] = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Give a savepoint another label. Its manifest stays as it was written; who and when is kept.

    Periodic savepoints are deleted by their label, so one with another label stays.
    """
    from holdfast.savepoints.access import opened
    from holdfast.savepoints.taking.labels import person, plan_label, set_label

    if remove == (text is not None):
        raise Invalid(
            "a savepoint is given a label, or loses it",
            found="both" if remove else "no label",
            expected="LABEL or --remove",
            hint="holdfast savepoint label SP LABEL, or holdfast savepoint label SP --remove",
        )
    catalog, savepoint_id = opened(savepoint)
    do = plan_label if dry_run else set_label
    change = do(catalog, savepoint_id, text, who=person(), when_ms=now_ms())
    output.show_plan(change, json, partial(_show_label, savepoint_id, dry_run=dry_run), dry_run=dry_run)
    warn_of_label(text, savepoint)
    if dry_run:
        next_step.say_for_real(json)
    else:
        next_step.say_looked_up(json, lambda: ("savepoint", "list", next_step.typed(catalog.uri)))


def _show_label(savepoint_id: str, change: LabelChange, *, dry_run: bool) -> None:
    before, after = (value or "no label" for value in (change.before, change.label))
    output.line(f"{'would label' if dry_run else 'labelled'} {savepoint_id}: {after} (before: {before})")


def digest_taken(uri: str, *, gentle: bool | None = None) -> str:
    """Make the digests of a savepoint that was just taken, and say so where that does not come to its end.

    Args:
        uri: The savepoint.
        gentle: Whether to leave the query its processors; by default where it seems to run.

    Returns:
        `recorded` or `pending`.
    """
    from holdfast.savepoints.catalog.catalog import PENDING
    from holdfast.savepoints.savepoint_api import digest as make

    try:
        with progress("digests", "stores") as tell:
            return make(uri, gentle=gentle, tell=tell).content
    except HoldfastError as error:
        output.insist(f"{digests_later(uri)} ({error.fact}{f': {error.found}' if error.found else ''})")
        return PENDING


def remember(checkpoint: str, taken: Taken, took_s: float, home: str | None) -> None:
    """Tell the job whose checkpoint it is of a savepoint: requests may name its directory from now on."""
    from holdfast.storage import open_storage

    with suppress(HoldfastError):  # the savepoint is there, whether the state home knows of it or not
        options.control(home).note_taken(open_storage(checkpoint).uri, taken, int(took_s * 1000))


def digests_later(uri: str) -> str:
    """What is said of a savepoint whose digests could not be waited for, or not be made."""
    making = f"`holdfast savepoint digest {place_word(uri)}`"
    return f"the savepoint is whole, its digests are pending: {making} makes them"


def _show(digested: Digested, *, dry_run: bool) -> None:
    output.whole(digested.uri)
    if digested.states is None:
        output.line(f"  pending: would read {counted(digested.read, 'store')}, {digested.size_bytes:,} bytes")
        return
    rows = f"{counted(digested.rows or 0, 'row')} of {counted(len(digested.states), 'state')}"
    if digested.made:
        output.line(f"  {rows}; {digested.read:,} of {counted(digested.stores, 'store')} read")
    else:
        output.line(f"  {rows}; recorded before{', nothing to do' if dry_run else ''}")
    for state in digested.states:
        output.line(
            f"  operator {state.operator_id}, {state.store}/{state.family}:"
            f" {counted(state.rows, 'row')}, digest {state.digest[:12]}…"
        )
