"""`holdfast savepoint verify`, `diff`, `digest` and `label`."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import (
    Catalog,
    Savepoint,
    catalog_of,
    place_of,
    warn_of_label,
    whole_address,
    whole_address_or_directory,
)
from holdfast.cli.help_text import examples
from holdfast.cli.progress import progress
from holdfast.cli.standard_streams import confirm
from holdfast.cli.state import key_words, open_state
from holdfast.clock import now_ms
from holdfast.config.checks import place_word
from holdfast.errors import Corrupt, HoldfastError, Invalid, NotFound
from holdfast.formats.operators import state_name
from holdfast.layout import DEFAULT_STORE
from holdfast.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.at_rest.model import NamedOperator, NamedState
    from holdfast.at_rest.state_reader import StateReader
    from holdfast.checkpoints.state.states import StateName
    from holdfast.formats.manifest import LabelChange
    from holdfast.formats.operators import OperatorName
    from holdfast.savepoints.digests import Digested
    from holdfast.savepoints.key_diff import DifferingKey, StatesDifference
    from holdfast.savepoints.manifest_diff import Difference
    from holdfast.savepoints.proof import Proof
    from holdfast.savepoints.removal import Removal
    from holdfast.savepoints.taking import Taken


@examples("savepoints/20260305T080000", "savepoints/20260305T080000 --deep")
def verify(
    savepoint: Savepoint,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also read every row and compare with the recorded digests."),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="URL", help="Hash files and read rows on the executors of this Spark cluster."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Verify that a savepoint is whole; exit code 0 if it is, 6 if it is damaged.

    With --deep the rows are counted, hashed and compared with the digests recorded when it was taken. If the
    digests are pending, the rows are counted but not compared.

    With --master the work is a Spark job, for state that one machine cannot read in time. The result is the
    same. The executors must reach the catalog.
    """
    with progress("verify", "files") as tell:
        proof = hf.savepoints.verify(savepoint, deep=deep, master=master, tell=tell)
    output.show(proof, json, _show_proof)
    next_step.say_looked_up(json, lambda: _after_proof(savepoint, proof))
    if not proof.ok:
        raise typer.Exit(Corrupt.exit_code)


@examples(
    "checkpoints/visits@1 checkpoints/visits@2",
    "savepoints/20260305T080000 checkpoints/visits",
)
def diff(
    first: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A savepoint, or a checkpoint or job; append @BATCH for an older batch.",
            callback=whole_address,
        ),
    ],
    second: Annotated[
        str, typer.Argument(metavar="B", help="The state to compare it with.", callback=whole_address)
    ],
    samples: Annotated[
        int,
        typer.Option(
            "--samples", min=0, metavar="N", help="The number of keys to show per state and kind of change."
        ),
    ] = 5,
    files: Annotated[
        bool,
        typer.Option("--files", help="Compare only the files of two savepoints."),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="URL", help="Read and compare rows on the executors of this Spark cluster."
        ),
    ] = None,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show the keys that differ between two states.

    With --master the work is a Spark job, for states that one machine cannot read in time. The result is
    the same. The executors must reach both states.
    """
    if files and master is not None:
        raise Invalid(
            "--files compares manifests on this machine and uses no executors",
            code="HF-E2567",
            found="--files and --master",
            expected="one of the two",
            hint="omit --master to compare the files, or omit --files to compare the rows on executors",
        )
    if files:
        compared = hf.savepoints.diff_files(first, second)
        output.show(compared, json, _show_difference)
        if not compared.same_state:
            sides = (first, second)
            next_step.say_looked_up(
                json, lambda: ("savepoint", "diff", *map(next_step.savepoint_word, sides))
            )
        return
    with progress("diff", "stores") as tell:
        found = hf.savepoints.diff(
            place_of(first, home), place_of(second, home), samples=samples, master=master, tell=tell
        )
    output.show(found, json, _show_states)
    next_step.say_looked_up(json, lambda: _after_difference(first, second, found, home))


def _after_proof(savepoint: str, proof: Proof) -> tuple[str, ...]:
    """Return the next step after a verification: restore the savepoint, or list others if it is damaged."""
    if proof.ok and proof.manifest is not None:
        return next_step.restore_words(savepoint, proof.manifest.checkpoint)
    return ("savepoint", "list", next_step.typed(proof.uri.rpartition("/savepoints/")[0]))


def _after_difference(first: str, second: str, found: StatesDifference, home: str | None) -> tuple[str, ...]:
    """Return the next step after a difference: explain the first differing key."""
    from holdfast.at_rest.state_reader import is_the_only

    readers: dict[str, StateReader] = {}
    for difference in found.states:
        if not difference.samples:
            continue
        sample = difference.samples[0]
        place = first if sample.change == "removed" else second
        if place not in readers:
            readers[place] = open_state(place, home, None)
        operators = readers[place].operators
        state = _name_state(operators, difference.state)
        word = None if state is None else _key_word(state, sample)
        if state is not None and word is not None:
            name = None if is_the_only(operators, word) else state.full_name
            return key_words("explain", place, name, [word], None, None, home)
    return ()


def _name_state(operators: Sequence[NamedOperator], stored: StateName) -> NamedState | None:
    """Return the named state of a store; None for a store that Spark uses internally."""
    from holdfast.at_rest.model import StateForm
    from holdfast.savepoints.key_diff import KEYED

    for state in (state for operator in operators for state in operator.states):
        family = KEYED if state.form is StateForm.KEYED else state.codec and state.codec.name.family
        store = stored.store if state.codec is None else state.codec.name.store
        if (state.operator_id, store, family) == (stored.operator_id, stored.store, stored.family):
            return state
    return None


def _key_word(state: NamedState, sample: DifferingKey) -> str | None:
    """Return the key of a row as typed in a shell; None if its columns do not match the stored row.

    A stored key may have additional columns, such as the start of a session.
    """
    key, names = sample.as_dict()["key"], state.key.names
    if not isinstance(key, dict):
        key = dict(zip(names, [key], strict=False))
    if not set(names) <= key.keys():
        return None
    return next_step.key_word({name: key[name] for name in names})


def _show_proof(proof: Proof) -> None:
    for problem in proof.problems:
        output.whole(problem.file)
        output.prose(problem.what, "  ")
        output.prose(f"hint: {problem.hint}", "  ")
    verdict = "whole" if proof.ok else f"damaged: {counted(len(proof.problems), 'file')}"
    batch = "" if proof.manifest is None else f"batch {proof.manifest.batch_id}; "
    output.prose(f"{verdict} ({batch}{counted(proof.files, 'file')}, {proof.size_bytes:,} bytes read)")
    if proof.content is not None:
        _show_content(proof)


def _show_content(proof: Proof) -> None:
    """Print which rows were read, and with which digests they were compared."""
    later = f"`holdfast savepoint digest {place_word(proof.uri)}` records them"
    if proof.states is None:
        told = proof.recorded
        if told is None:
            output.prose(f"rows not counted or hashed; the digests are pending; {later}")
        elif told:
            states = counted(len(told), "state")
            output.prose(f"rows not counted or hashed; --deep compares them with the digests of {states}")
        return
    rows = counted(sum(state.rows for state in proof.states), "row")
    done = f"{rows} of {counted(len(proof.states), 'state')} counted and hashed"
    if proof.recorded is None:
        output.prose(f"{done}, but not compared, because the digests are pending; {later}")
    else:
        output.prose(f"{done}; {counted(proof.compared, 'state')} compared with the recorded digests")
    told_of = {
        (recorded.operator_id, recorded.store, recorded.family): recorded for recorded in proof.recorded or ()
    }
    lines = []
    for content in proof.states:
        told_state = told_of.get((content.state.operator_id, content.state.store, content.state.family))
        same = told_state is not None and (told_state.rows, told_state.digest) == (
            content.rows,
            content.digest,
        )
        verdict = "not compared" if told_state is None else "same" if same else "differs"
        lines.append(
            (
                content.state.shown_operator,
                content.state.state_name,
                content.rows,
                f"{content.digest[:12]}…",
                verdict,
            )
        )
    output.table(["OPERATOR", "STATE", "ROWS", "DIGEST", "COMPARED"], lines)


def _show_difference(found: Difference) -> None:
    named = [(change.name, _plain(change.first), _plain(change.second)) for change in found.changes]
    named += [(f"source {source.name}", source.first, source.second) for source in found.sources]
    if named:
        output.table(["FIELD", "IN A", "IN B"], named)
    for operator in found.operators:
        name = (operator.second or operator.first)["display_name"]
        output.line(f"operator {operator.name} {name} differs; --json shows both")
    if found.partitions:
        if named or found.operators:
            output.line()
        output.table(
            ["OPERATOR", "PARTITION", "BYTES ONLY IN A", "BYTES ONLY IN B", "BYTES IN BOTH"],
            [
                (
                    f"{partition.operator_id} {partition.display_name}",
                    partition.partition,
                    partition.first_bytes,
                    partition.second_bytes,
                    partition.shared_bytes,
                )
                for partition in found.partitions
            ],
        )
    output.line()
    output.line("the state files are the same" if found.same_state else "the state files differ")


def _show_states(found: StatesDifference) -> None:
    output.table(
        ["OPERATOR", "STATE", "ROWS IN A", "ROWS IN B", "ADDED", "REMOVED", "CHANGED", "BYTES B-A"],
        [
            (
                difference.state.shown_operator,
                difference.state.state_name,
                difference.first_rows,
                difference.second_rows,
                difference.added,
                difference.removed,
                difference.changed,
                difference.second_bytes - difference.first_bytes,
            )
            for difference in found.states
        ],
        spare=("BYTES B-A",),
        empty="neither side has state",
    )
    for difference in found.states:
        if difference.samples:
            output.line()
            output.line(difference.state.shown)
        for sample in difference.samples:
            _show_sample(sample)
    output.line()
    output.line("the states are the same" if found.same else "the states differ")


def _show_sample(sample: DifferingKey) -> None:
    shown = sample.as_dict()
    key, first, second = (output.compact(shown[name]) for name in ("key", "first", "second"))
    sign = {"added": "+", "removed": "-", "changed": "~"}[sample.change]
    value = {"added": second, "removed": first, "changed": f"{first} -> {second}"}[sample.change]
    output.line(f"  {sign} {key}  {value}")


def _plain(value: object) -> str | None:
    """Return a number without thousands separators, because batch ids and times are not amounts."""
    return None if value is None else str(value)


# The exit code of a command that Ctrl-C ended.
INTERRUPTED: Final = 130


@examples("savepoints/20260305T080000", "savepoints --dry-run")
def digest(
    place: Annotated[
        str,
        typer.Argument(
            metavar="SP|DIR|JOB",
            help="A savepoint; or a directory or job, for all its savepoints with pending digests.",
            callback=whole_address_or_directory,
        ),
    ],
    full_speed: Annotated[
        bool,
        typer.Option("--full-speed", help="Use all CPU cores, even if the query runs on this machine."),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="URL", help="Count and hash rows on the executors of this Spark cluster."
        ),
    ] = None,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Count and hash the rows of a savepoint and record the digests, for `savepoint verify --deep`.

    Savepoints with digests are left unchanged. Ctrl-C leaves the savepoint that is being read pending.

    With --master the work is a Spark job at full speed, for state that one machine cannot read in time. The
    result is the same. The executors must reach the catalog.
    """
    from holdfast.savepoints.address import StateAddress
    from holdfast.savepoints.catalog import SAVEPOINTS, load
    from holdfast.savepoints.digests import not_digested, pending
    from holdfast.savepoints.savepoint_api import digest as make
    from holdfast.storage import open_storage

    place = catalog_of(place, home)
    address = StateAddress.parse(place)
    if address.is_savepoint:
        catalog, savepoint_id = address.open_savepoint()
        wanted = [savepoint_id]
    else:
        catalog = open_storage(place, "catalog")
        if SAVEPOINTS not in catalog.list().names:
            raise NotFound(
                "the directory is not a savepoint catalog",
                code="HF-E3027",
                where=catalog.uri,
                hint="give the directory that was passed as DIR to `holdfast savepoint take`, or a savepoint",
            )
        wanted = pending(catalog)
    found: list[Digested] = []
    for savepoint_id in wanted:
        state = not_digested(catalog, savepoint_id)
        if not dry_run:
            with progress("digest", "stores") as tell:
                state = make(state.uri, gentle=False if full_speed else None, master=master, tell=tell)
        found.append(state)
        if not json:
            _show_digest(state, load(catalog, savepoint_id).operator_names)
    if json:
        made = [digested.as_dict() for digested in found]
        output.emit_json({"dry_run": dry_run, **(made[0] if address.is_savepoint else {"savepoints": made})})
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
    """Change or remove the label of a savepoint; the change is recorded with its author and time.

    The manifest stays unchanged. Periodic savepoints are deleted by label, so one with a new label is kept.
    """
    from holdfast.savepoints.address import StateAddress
    from holdfast.savepoints.labels import person, plan_label, set_label

    if remove == (text is not None):
        raise Invalid(
            "`savepoint label` needs either a label or --remove",
            code="HF-E2146",
            found="both" if remove else "no label",
            hint="run `holdfast savepoint label SP LABEL` or `holdfast savepoint label SP --remove`",
        )
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
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
    """Record the digests of a savepoint that was just taken; print a note if they stay pending.

    Args:
        uri: The address of the savepoint.
        gentle: Whether to leave CPU cores to the query; None to do so if the query seems to be running.

    Returns:
        `recorded` or `pending`.
    """
    from holdfast.savepoints.catalog import PENDING
    from holdfast.savepoints.savepoint_api import digest as make

    try:
        with progress("digests", "stores") as tell:
            return make(uri, gentle=gentle, tell=tell).content
    except HoldfastError as error:
        output.insist(f"{digests_later(uri)} ({error.fact}{f': {error.found}' if error.found else ''})")
        return PENDING


def remember(checkpoint: str, taken: Taken, took_s: float, home: str | None) -> None:
    """Record a savepoint in the state home with its job, so that API requests may use its directory."""
    from holdfast.storage import open_storage

    with suppress(HoldfastError):  # the savepoint exists, even if the state home does not list it
        options.control(home).note_taken(open_storage(checkpoint).uri, taken, int(took_s * 1000))


def digests_later(uri: str) -> str:
    """Return the note about a savepoint whose digests are pending or failed."""
    making = f"`holdfast savepoint digest {place_word(uri)}`"
    return f"the savepoint is whole, but its digests are pending; run {making}"


def _show_digest(digested: Digested, names: Mapping[int, OperatorName]) -> None:
    output.whole(digested.uri)
    if digested.states is None:
        output.line(
            f"digests pending; would count and hash the rows of {counted(digested.read, 'store')},"
            f" {digested.size_bytes:,} bytes"
        )
        return
    rows = f"{counted(digested.rows or 0, 'row')} of {counted(len(digested.states), 'state')}"
    if digested.made:
        output.line(f"{rows} counted and hashed; digests recorded")
        reused = digested.stores - digested.read
        if reused:
            stores = counted(digested.stores, "store")
            output.line(f"{reused:,} of {stores} reused from an earlier savepoint with the same files")
    else:
        output.line(f"{rows}; digests already recorded")
    rows_of = []
    for state in digested.states:
        named = names.get(state.operator_id)
        label = state.store if state.family == DEFAULT_STORE else state.family
        operator, name = (
            (state.operator_id, label) if named is None else (named.label, state_name(named, label))
        )
        rows_of.append((str(operator), name, state.rows, f"{state.digest[:12]}…"))
    output.table(["OPERATOR", "STATE", "ROWS", "DIGEST"], rows_of)


@examples("savepoints/20260305T080000 --dry-run", "savepoints/20260305T080000 --yes")
def delete(
    savepoint: Savepoint,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Delete a savepoint, and the files that no other savepoint of its directory needs."""
    removal = hf.savepoints.plan_delete(savepoint)
    if not dry_run:
        if not yes:
            confirm(f"Delete {removal.savepoint} and free {removal.size_bytes:,} bytes?")
        with progress("delete", "files") as tell:
            removal = hf.savepoints.delete(savepoint, tell=tell)
    output.show_plan(removal, json, partial(_show_removal, dry_run=dry_run), dry_run=dry_run)
    _say_next(removal, json, dry_run=dry_run)


@examples("savepoints --dry-run", "savepoints --older-than 6h --yes")
def gc(
    catalog: Catalog,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help="The time after which a silent take counts as killed; a running take reports every minute.",
        ),
    ] = "1h",
    yes: options.Yes = False,
    home: options.Home = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Delete files left behind by interrupted takes and deletes."""
    address = catalog_of(catalog, home)
    removal = hf.savepoints.plan_gc(address, older_than=older_than)
    if not dry_run:
        if removal.paths and not yes:
            confirm(
                f"Delete {counted(len(removal.paths), 'file')}, {removal.size_bytes:,} bytes,"
                " that no savepoint needs?"
            )
        with progress("gc", "files") as tell:
            removal = hf.savepoints.gc(address, older_than=older_than, tell=tell)
    output.show_plan(removal, json, partial(_show_removal, dry_run=dry_run), dry_run=dry_run)
    _say_next(removal, json, dry_run=dry_run)


def _say_next(removal: Removal, json: bool, *, dry_run: bool) -> None:
    """Print the next step after a removal: list what is left, or after a plan, run it."""
    if dry_run:
        next_step.say_for_real(json, ready=bool(removal.savepoint or removal.paths) and not removal.live)
    else:
        next_step.say_looked_up(json, lambda: ("savepoint", "list", next_step.typed(removal.catalog)))


def _show_removal(removal: Removal, *, dry_run: bool) -> None:
    did = "would delete" if dry_run else "deleted"
    what = f"{removal.savepoint} and " if removal.savepoint else ""
    output.line(
        f"{did} {what}{counted(len(removal.paths), 'file')}, {removal.size_bytes:,} bytes;"
        f" {counted(removal.kept, 'savepoint')} retained"
    )
    for owner in removal.dead:
        output.line(f"a take by {owner} was killed")
    for owner in removal.live:
        output.insist(f"a take by {owner} is running; nothing can be deleted until it ends")
    for savepoint in removal.unreadable:
        output.insist(
            f"the manifest of {savepoint} is damaged, so the files it needs are unknown; no file is deleted"
        )
