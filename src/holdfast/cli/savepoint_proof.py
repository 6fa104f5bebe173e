"""`holdfast savepoint verify` and `diff`: a savepoint proved, and two states compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import Savepoint, place_of, whole_address
from holdfast.cli.examples import examples
from holdfast.cli.progress import progress
from holdfast.cli.state import key_words, opened
from holdfast.config.locations import place_word
from holdfast.config.units import counted
from holdfast.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.at_rest.read.model import NamedOperator, NamedState
    from holdfast.at_rest.read.state_reader import StateReader
    from holdfast.checkpoints.state.states import StateName
    from holdfast.savepoints.differences.key_diff import Sample, StatesDifference
    from holdfast.savepoints.differences.manifest_diff import Difference
    from holdfast.savepoints.proof.proof import Proof


@examples("savepoints/20260305T080000", "savepoints/20260305T080000 --deep")
def verify(
    savepoint: Savepoint,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also read every row and compare with the recorded digests."),
    ] = False,
    json: options.Json = False,
) -> None:
    """Prove that a savepoint is what was taken; exit 0 if it is, 6 if it is damaged.

    With --deep the rows are counted, hashed and compared with what was recorded when the savepoint was new.
    Where that is pending there is nothing to compare with, and that is said.
    """
    from holdfast import savepoints

    with progress("verify", "files") as tell:
        proof = savepoints.verify(savepoint, deep=deep, tell=tell)
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
            help="A savepoint, or a checkpoint or job, with @BATCH behind it.",
            callback=whole_address,
        ),
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.", callback=whole_address)],
    samples: Annotated[
        int,
        typer.Option("--samples", min=0, metavar="N", help="How many keys to show of each kind."),
    ] = 5,
    files: Annotated[
        bool,
        typer.Option("--files", help="Compare two savepoints by their files alone."),
    ] = False,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show what differs between two states, key by key."""
    from holdfast import savepoints

    if files:
        compared = savepoints.diff_files(first, second)
        output.show(compared, json, _show_difference)
        if not compared.same_state:
            sides = (first, second)
            next_step.say_looked_up(
                json, lambda: ("savepoint", "diff", *map(next_step.savepoint_word, sides))
            )
        return
    with progress("diff", "stores") as tell:
        found = savepoints.diff(place_of(first, home), place_of(second, home), samples=samples, tell=tell)
    output.show(found, json, _show_states)
    next_step.say_looked_up(json, lambda: _after_difference(first, second, found, home))


def _after_proof(savepoint: str, proof: Proof) -> tuple[str, ...]:
    """What a restore would make of it; of a damaged one, which others there are."""
    if proof.ok and proof.manifest is not None:
        return next_step.restore_words(savepoint, proof.manifest.checkpoint)
    return ("savepoint", "list", next_step.typed(proof.uri.rpartition("/savepoints/")[0]))


def _after_difference(first: str, second: str, found: StatesDifference, home: str | None) -> tuple[str, ...]:
    """Why the first key that differs has its value, or had it where it is gone."""
    from holdfast.at_rest.read.state_catalog import is_the_only

    readers: dict[str, StateReader] = {}
    for difference in found.states:
        if not difference.samples:
            continue
        sample = difference.samples[0]
        place = first if sample.change == "removed" else second
        if place not in readers:
            readers[place] = opened(place, home, None)
        operators = readers[place].operators
        state = _named(operators, difference.state)
        word = None if state is None else _key_word(state, sample)
        if state is not None and word is not None:
            name = None if is_the_only(operators, word) else state.full_name
            return key_words("explain", place, name, [word], None, None, home)
    return ()


def _named(operators: Sequence[NamedOperator], stored: StateName) -> NamedState | None:
    """A state that differs, as people name it; None of what Spark keeps for itself beside their states."""
    from holdfast.at_rest.read.model import StateForm
    from holdfast.savepoints.differences.key_diff import KEYED

    for state in (state for operator in operators for state in operator.states):
        family = KEYED if state.form is StateForm.KEYED else state.codec and state.codec.name.family
        store = stored.store if state.codec is None else state.codec.name.store
        if (state.operator_id, store, family) == (stored.operator_id, stored.store, stored.family):
            return state
    return None


def _key_word(state: NamedState, sample: Sample) -> str | None:
    """The key of a row as it is typed; None where the row as it is stored has other columns.

    A stored key has more columns than people name: a session's start, a row's place.
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
    verdict = "whole" if proof.ok else f"damaged: {len(proof.problems):,} of its files"
    batch = "" if proof.manifest is None else f"batch {proof.manifest.batch_id}; "
    output.prose(f"{verdict} ({batch}{counted(proof.files, 'file')}, {proof.size_bytes:,} bytes read)")
    if proof.content is not None:
        _show_content(proof)


def _show_content(proof: Proof) -> None:
    """What was read of the rows, and what they were compared with."""
    later = f"`holdfast savepoint digest {place_word(proof.uri)}` records them"
    if proof.states is None:
        told = proof.recorded
        if told is None:
            output.prose(f"digests pending: there is nothing to compare the rows with; {later}")
        elif told:
            output.line(f"rows not read: --deep compares the digests of {counted(len(told), 'state')}")
        return
    rows = counted(sum(state.rows for state in proof.states), "row")
    output.line(f"{rows} of {counted(len(proof.states), 'state')} read, {proof.compared:,} of them compared")
    if proof.recorded is None:
        output.prose(
            f"digests pending: the rows were counted, and there was nothing to compare with; {later}"
        )
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
        output.table(["WHAT", "IN A", "IN B"], named)
    for operator in found.operators:
        name = (operator.second or operator.first)["display_name"]
        output.line(f"operator {operator.name} {name} is not the same: --json shows both")
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
    output.line("the same state files" if found.same_state else "the state files differ")


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
        empty="neither has state",
    )
    for difference in found.states:
        if difference.samples:
            output.line()
            output.line(difference.state.shown)
        for sample in difference.samples:
            _show_sample(sample)
    output.line()
    output.line("the same state" if found.same else "the states differ")


def _show_sample(sample: Sample) -> None:
    shown = sample.as_dict()
    key, first, second = (output.compact(shown[name]) for name in ("key", "first", "second"))
    sign = {"added": "+", "removed": "-", "changed": "~"}[sample.change]
    value = {"added": second, "removed": first, "changed": f"{first} -> {second}"}[sample.change]
    output.line(f"  {sign} {key}  {value}")


def _plain(value: object) -> str | None:
    """A number as it stands: batches and times are names here, and not amounts."""
    return None if value is None else str(value)
