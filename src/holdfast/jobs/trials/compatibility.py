"""`hf.check`: the state of a savepoint that new code keeps.

Three checks are combined. Spark plans a first batch of the new code on an empty checkpoint, which shows the
state of each operator. Spark plans the next batch on a copy of the savepoint's metadata, which shows what it
refuses. The code's plan is compared with the plan that made the saved state, which covers what Spark does not
compare. All of this happens in a temporary directory; no source is read and no sink is written.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.keyed_operators import stored_names
from holdfast.changes.evolving import operator_columns, steps_for
from holdfast.changes.operator_matching import Wishes
from holdfast.changes.reordering import places_swapped
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.state.states import OperatorShape, operator_states, shapes
from holdfast.config.checks import local_path
from holdfast.config.spark_defaults import FORMAT_KEY, SHORT_LIVED
from holdfast.errors import HoldfastError, Invalid, Unsupported
from holdfast.formats.logs.notes import QueryPlan
from holdfast.formats.operators import KEYED_VARIABLES
from holdfast.formats.text import foreign_json
from holdfast.jobs.definition import Job
from holdfast.jobs.processes.user_query import Code, built, loaded, session_for
from holdfast.layout import OWN, OwnFile, noted_operator, operator_note
from holdfast.model import Effect, PlanChange, StateVerdict, Try, UpgradeReport, Verdict
from holdfast.savepoints.dry_run_checkpoint import DryRunCheckpoint, lay_out, lay_out_first, open_saved
from holdfast.savepoints.plan_changes import (
    compare_plans,
    format_change,
    moved_sources,
    pinned_changes,
    without_operators,
)
from holdfast.savepoints.verdicts import (
    HOLDFAST,
    MIGRATED,
    OTHER_KEY,
    OTHER_VALUE,
    Size,
    Sizes,
    compare_states,
    measured,
    states_of,
    verdict_on,
    with_changes,
    with_names,
    with_trial,
)
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.jobs.processes.user_query import Target
    from holdfast.stream.operator_check import Defined, OperatorNote


@dataclass(frozen=True, slots=True)
class _Own:
    """Holdfast's operators on both sides.

    Attributes:
        notes: The note of each operator, by file name.
        before: The name of each keyed operator of the savepoint by Spark's number; None if unknown.
        now: The keyed operators of the new code by Spark's number.
        sizes: The sizes of the states.
        moves: Whether the start of the new code moves the state of operators that changed places.
    """

    notes: Mapping[str, Mapping[str, Any]]
    before: Mapping[int, str | None]
    now: Mapping[int, Defined]
    sizes: Sizes
    moves: bool = False

    def note_of(self, operator: str) -> Mapping[str, Any] | None:
        """Return the note of a keyed operator."""
        return self.notes.get(operator_note(operator))

    def size_of(self, number: int, state: str) -> Size | None:
        """Return the size of a state of the savepoint."""
        return self.sizes.of(number, state) if number in self.before else None


def with_own(
    verdicts: Sequence[StateVerdict],
    old: Sequence[OperatorShape],
    new: Sequence[OperatorShape],
    operators: Sequence[OperatorNote],
    saved: DryRunCheckpoint,
    sizes: Sizes,
    before: QueryPlan | None,
    *,
    moves: bool = False,
) -> tuple[StateVerdict, ...]:
    """Return the verdicts, with Holdfast's operators and their states judged by name.

    verdicts: The verdicts from comparing Spark's metadata.
    old: The savepoint's operators.
    new: The new code's operators.
    operators: The new code's operators of Holdfast, in the order of its plan.
    saved: The savepoint.
    sizes: The sizes of its states.
    before: The plan that made its state, if known.
    moves: Whether the start of the new code moves the state of operators that changed places.
    """
    from holdfast.stream.keyed_upgrades import note_verdicts
    from holdfast.stream.operator_check import Defined

    keyed = [operator for operator in operators if isinstance(operator, Defined)]
    own_new = [operator.operator_id for operator in new if _is_own(operator)]
    notes = dict(_notes(saved))
    own = _Own(
        notes,
        _names(old, saved, notes, before),
        dict(zip(own_new, keyed, strict=False)),
        sizes,
        moves,
    )
    labels = {operator.label: operator.operator_id for operator in (*old, *new) if _is_own(operator)}
    judged: list[StateVerdict] = []
    done: set[int] = set()
    for verdict in verdicts:
        number = labels.get(verdict.operator)
        if number is None:
            judged.append(verdict)
        elif number not in done:
            done.add(number)
            judged += _by_name(number, verdict, own)
    others = [
        operator
        for operator in operators
        if not isinstance(operator, Defined) and operator.note_name in notes
    ]
    for other in others:
        said = note_verdicts(other, notes[other.note_name])
        judged += [verdict for verdict in said if verdict.verdict is Verdict.INCOMPATIBLE]
    return tuple(judged)


def _by_name(number: int, general: StateVerdict, own: _Own) -> Iterator[StateVerdict]:
    """Yield the verdicts on the Holdfast operator with this number."""
    from holdfast.stream.keyed_upgrades import note_verdicts, noted_states

    was, now = own.before.get(number), own.now.get(number)
    if number not in own.before or now is None:
        # It is there on one side only, and what Spark says of that holds for each of its states.
        note = own.note_of(was) if was is not None else None
        if now is not None:
            states = [(verdict.operator, verdict.state) for verdict in note_verdicts(now, None)]
        elif was is not None and note is not None:
            states = [(was, state) for state in noted_states(note)]
        else:
            states = [(was or general.operator, general.state)]
        for operator, state in states:
            yield _sized(replace(general, operator=operator, state=state), own.size_of(number, state))
        return
    name = now.layout.operator
    mine = own.note_of(name)
    if was is not None and was != name and (mine is not None or name in own.before.values()):
        yield from _at_new_place(now, mine, own)
        return
    note = own.note_of(was) if mine is None and was is not None else mine
    called = "" if was in (None, name) else f"the operator was formerly named {was}"
    for verdict in note_verdicts(now, note):
        why = "; ".join(part for part in (called, verdict.why) if part)
        size = None if verdict.verdict is Verdict.NEW else own.size_of(number, verdict.state)
        yield _sized(replace(verdict, why=why), size)


def _at_new_place(operator: Defined, note: Mapping[str, Any] | None, own: _Own) -> Iterator[StateVerdict]:
    """Yield the verdicts on an operator that has a different position in the new code."""
    from holdfast.stream.keyed_upgrades import note_verdicts, noted_states

    name = operator.layout.operator
    before = next((number for number, called in own.before.items() if called == name), -1)
    verdicts = note_verdicts(operator, note)
    readable = all(verdict.verdict is not Verdict.INCOMPATIBLE for verdict in verdicts)
    if readable and not own.moves:
        why = (
            f"{name} has changed its position, and Spark would give it the state of a different operator;"
            " a new checkpoint with the state in the new order keeps it"
        )
        verdicts = tuple(
            StateVerdict(name, state, Verdict.INCOMPATIBLE, why, spark_error=HOLDFAST)
            for state in (noted_states(note) if note is not None else [found.state for found in verdicts])
        )
    for verdict in verdicts:
        size = None if verdict.verdict is Verdict.NEW else own.size_of(before, verdict.state)
        if verdict.verdict is Verdict.MAP:
            verdict = replace(  # noqa: PLW2901 - the same verdict, with its reason
                verdict, verdict=Verdict.MIGRATE, why="`holdfast run` moves the state by name at the start"
            )
        yield _sized(verdict, size)


def _sized(verdict: StateVerdict, size: Size | None) -> StateVerdict:
    if size is None:
        return replace(verdict, keys=None, size_bytes=None)
    return replace(verdict, keys=size.keys, size_bytes=size.size_bytes)


def _is_own(shape: OperatorShape) -> bool:
    return frozenset(shape.variables) == KEYED_VARIABLES


def _names(
    old: Sequence[OperatorShape], saved: DryRunCheckpoint, notes: Mapping[str, Any], before: QueryPlan | None
) -> dict[int, str | None]:
    """Return the savepoint's keyed operators by number, in the order of the plan, or else of the state."""
    numbers = [operator.operator_id for operator in old if _is_own(operator)]
    noted = [noted_operator(name) for name, note in notes.items() if "forms" in note]
    names: Sequence[str | None] = [None] * len(numbers)
    if before is not None and len(before.operators) == len(numbers):
        names = before.operators
    elif len(noted) == len(numbers) == 1:
        names = noted
    elif numbers:
        stored = stored_names(saved.storage, saved.batch_id)
        names = [stored.get(number) for number in numbers]
    return dict(zip(numbers, names, strict=True))


def _notes(saved: DryRunCheckpoint) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in saved.storage.list(OWN).names:
        if noted_operator(name) is not None:
            note = None
            with suppress(ValueError):  # who reads the operator's state says that its note is damaged
                note = foreign_json(saved.read(OwnFile(name).render()))
            if isinstance(note, dict):
                yield name, note


_STEPS: Final = 5
_NO_PLAN: Final = (
    "filters, watermarks, expressions, addresses and options of sources, and the sink: no plan is recorded"
    " with this state; give the code that made it with --old"
)


@dataclass(frozen=True, slots=True)
class _Rehearsed:
    """Spark's answers about a query on an empty checkpoint and on the savepoint."""

    trial: Try
    shapes: tuple[OperatorShape, ...] | None = None
    changes: tuple[PlanChange, ...] = ()


def check(
    target: Target,
    *,
    against: str | os.PathLike[str],
    query: str | None = None,
    old: Target | None = None,
    overrides: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    master: str | None = None,
    home: str | Path | None = None,
    deep: bool = False,
    spark: SparkSession | None = None,
    tell: ProgressCallback | None = None,
) -> UpgradeReport:
    """Report which state of a savepoint or checkpoint new code would keep, without starting the code.

    The job's function is called to get its plan; a source may look up a schema then, but no row is read. Code
    that starts its queries itself is refused. The bodies of Python functions are not compared.

    Needs a local Spark session and some seconds, whatever the size of the state; the keys of large state are
    counted only with `deep`.

    Args:
        target: The new code: `FILE.py[:JOB]`, a job, a sink, or a `DataStreamWriter`.
        against: A savepoint, or a checkpoint at its newest committed batch.
        query: The sink, for a job with several; `against` may then be the directory of their checkpoints.
        old: The code that made the state, for a query that did not run under Holdfast. For one that did, the
            savepoint has the plan.
        overrides: Settings and parameters of the job, as in `holdfast run --set`.
        conf: Spark settings of the session.
        master: The Spark master; by default local, whatever the job says.
        home: The state home.
        deep: True to count the keys of large state too, which reads all of it.
        spark: The session to use; by default one is started and stopped. A sink or writer has its own.
        tell: Called with steps done, steps in all, and the current step.

    Raises:
        Invalid: The code starts its query itself, or the query is ambiguous.
        NotFound: The file, job, savepoint or checkpoint does not exist, or it has no committed batch.
        Corrupt: The savepoint is damaged.

    Example:
        from pyspark.sql import functions as F

        sums = [F.count("*").alias("visits"), F.sum(F.col("amount").cast("long")).alias("spend")]
        totals = events.groupBy("customer").agg(*sums)
        report = hf.check(totals.writeStream.outputMode("update"), against="savepoints@daily")
        assert report.verdict == "kept"
    """
    begun = itertools.count()

    def begin(step: str) -> None:
        if tell is not None:
            tell(next(begun), _STEPS, step)

    begin("reading the state")
    saved = open_saved(os.fspath(against), query)
    sizes = measured(saved.storage, saved.found, saved.recorded, deep=deep)
    new = loaded(target, overrides)
    job = new if isinstance(new, Job) else None
    given = {**({} if job is None else job.spark_conf()), **(conf or {})}
    # A job gets the format of its checkpoint, unless somebody has written one down.
    adopts_format = job is not None and FORMAT_KEY not in {**job.conf, **(conf or {})}
    begin("starting Spark")
    from holdfast.config.installed_spark import given_settings
    from holdfast.config.spark_versions import minor

    theirs = given_settings(os.environ)
    quick = {key: value for key, value in SHORT_LIVED.items() if key not in theirs}
    with session_for(new, {**quick, **given}, master, home, spark, "check") as session:
        begin("planning the code")
        code = built(new, session, query)
        before, source = old_plan(old, saved, session, query)
        made = _rehearsed(code, saved, begin)
        states, failures = _states(code, saved, sizes, made, before, is_job=job is not None)
        changes = [*made.changes, *failures]
        if before is not None and code.plan is not None:
            changes += _plan_changes(before, code.plan, saved)
        changes += pinned_changes(
            saved.offsets.confs, given if job is not None else _settings(session, saved)
        )
        state_format = int(session.conf.get(FORMAT_KEY, "1") or "1")
        changes += format_change(
            saved.state_format, state_format, adopted=adopts_format, spark=minor(session.version)
        )
        migration = _migration(code, saved, made, before, states, changes)
        states, settled = with_changes(states, changes)
        return UpgradeReport(
            target=os.fspath(target) if isinstance(target, (str, os.PathLike)) else type(target).__name__,
            against=saved.uri,
            query=code.name,
            batch_id=saved.batch_id,
            states=states,
            changes=settled,
            trial=made.trial,
            compared_with=source,
            not_compared=tuple(_not_compared(before, code.plan, made.trial)),
            migration=migration,
        )


def old_plan(
    old: Target | None,
    saved: DryRunCheckpoint,
    spark: SparkSession,
    query: str | None,
) -> tuple[QueryPlan | None, str | None]:
    """Return the plan that made the state, and its origin: `old code`, `note` or None."""
    if old is not None:
        plan = built(loaded(old, None), spark, query).plan
        return plan, None if plan is None else "old code"
    note = saved.note
    plan = None if note is None else note.at(saved.batch_id)
    return plan, None if plan is None else "note"


def _plan_changes(before: QueryPlan, now: QueryPlan, saved: DryRunCheckpoint) -> tuple[PlanChange, ...]:
    changes = moved_sources(compare_plans(before, now), saved.last_files)
    stateful = sum(step.stateful for step in before.steps)
    return changes if stateful == len(saved.found.operators) else without_operators(changes)


def _migration(
    code: Code,
    saved: DryRunCheckpoint,
    made: _Rehearsed,
    before: QueryPlan | None,
    states: Sequence[StateVerdict],
    changes: Sequence[PlanChange],
) -> str | None:
    """Return the further arguments with which `state migrate --code` fixes a refusal; None if it cannot."""
    refused = [state for state in states if state.verdict is Verdict.INCOMPATIBLE]
    old = shapes(saved.storage, saved.batch_id)
    # Rows of transformWithState are moved as they are, whatever type its variables have.
    typed = {shape.operator_id for shape in old if shape.variables}
    stored = stored_names(saved.storage, saved.batch_id)
    names = [name or "" for name in stored.values()] if before is None else list(before.operators)
    now = [] if code.plan is None else list(code.plan.operators)
    swapped = names != now and sorted(names) == sorted(now)
    if not refused or any(
        (state.spark_error not in MIGRATED and not (swapped and state.spark_error == HOLDFAST))
        or (state.operator_id in typed and state.spark_error in (OTHER_KEY, OTHER_VALUE))
        for state in refused
    ):
        return None
    if made.shapes is None or any(change.effect is Effect.FAILS for change in changes):
        return None
    stateful = None if code.plan is None else sum(step.stateful for step in code.plan.steps)
    if stateful not in (None, len(made.shapes)) or unfit_for_evolution(saved) is not None:
        return None
    confs = saved.offsets.confs
    try:
        steps_for(
            operator_columns(old, before, confs, saved.uri, stored),
            operator_columns(made.shapes, code.plan, confs, saved.uri),
            Wishes(),
            saved.uri,
        )
    except Invalid as error:
        return error.hint or error.fact
    except HoldfastError:
        return None
    return ""


def unfit_for_evolution(saved: DryRunCheckpoint) -> Unsupported | None:
    """Return the reason why the state of a savepoint or checkpoint cannot be converted, or None."""
    if saved.found.external is not None:
        return Unsupported(
            "state in a database cannot be converted",
            code="HF-E7088",
            where=saved.uri,
            found=saved.found.external.kind,
            hint="move the state to files first, with `holdfast state migrate CHECKPOINT NEW --backend"
            " rocksdb`",
        )
    if any(operator.values.avro for operator in operator_states(saved.storage, saved.batch_id)):
        return Unsupported(
            "state rows in Avro encoding cannot be converted",
            code="HF-E7089",
            where=saved.uri,
            hint="check the new code with `holdfast check FILE.py --against SP`, then run it: Spark itself"
            " applies a new schema to Avro state",
        )
    return None


def _rehearsed(code: Code, saved: DryRunCheckpoint, begin: Callable[[str], None]) -> _Rehearsed:
    """Let Spark plan both batches in a temporary directory."""
    from holdfast.engine.queries.dry_run import rehearse, without_sources

    with tempfile.TemporaryDirectory(prefix="holdfast-check-") as name:
        # Spark resolves links in the paths that it writes down.
        folder = Path(name).resolve()
        (folder / "empty").mkdir()
        try:
            frame, count = without_sources(code.frame, folder / "empty")
        except Unsupported as error:
            why = f"{error.fact}: {error.found}"
            return _Rehearsed(Try(ran=False, accepted=False, message=why))
        first, next_ = folder / "first", folder / "next"
        names = [each.name for each in code.plan.sources] if code.plan is not None else []
        lay_out_first(saved, LocalStorage(first), names or [str(each) for each in range(count)])
        begin("planning a first batch")
        alone = rehearse(frame, first, code.mode)
        if not alone.accepted:
            # The code cannot be started on anything, so the savepoint is not to blame.
            why = f"Spark cannot plan this query, even without state: {alone.message}"
            change = PlanChange("start", None, alone.spark_error, Effect.FAILS, why)
            return _Rehearsed(alone, changes=(change,))
        lay_out(saved, LocalStorage(next_))
        begin("planning the next batch on the state")
        return _Rehearsed(rehearse(frame, next_, code.mode), shapes(LocalStorage(first), 0))


def _states(
    code: Code,
    saved: DryRunCheckpoint,
    sizes: Sizes,
    made: _Rehearsed,
    before: QueryPlan | None,
    *,
    is_job: bool,
) -> tuple[tuple[StateVerdict, ...], tuple[PlanChange, ...]]:
    old, trial = shapes(saved.storage, saved.batch_id), made.trial
    if made.shapes is None:
        # Spark has not said what the new code keeps; what there is stands or falls with the plan.
        verdict, why = (
            _by_plan(code, before) if not trial.ran else (Verdict.INCOMPATIBLE, trial.message or "")
        )
        listed = [(each, state) for each in old for state in states_of(each)]
        judged = [
            verdict_on(each, state, sizes, verdict, why=why, spark_error=trial.spark_error)
            for each, state in listed
        ]
        return with_names(judged, old, ()), ()
    found = compare_states(old, made.shapes, sizes)
    moves = is_job and _swapped(before, code.plan) and local_path(saved.storage.uri) is not None
    mixed = with_own(found, old, made.shapes, code.operators, saved, sizes, before, moves=moves)
    others = [operator.note_name for operator in code.operators]
    called = with_names(mixed, old, made.shapes, others)
    return with_trial(called, trial.accepted, trial.spark_error, trial.message)


def _swapped(before: QueryPlan | None, now: QueryPlan | None) -> bool:
    return before is not None and now is not None and places_swapped(before, now)


def _by_plan(code: Code, before: QueryPlan | None) -> tuple[Verdict, str]:
    if before is None or code.plan is None:
        return Verdict.INCOMPATIBLE, "the plan could not be tried, and no earlier plan is recorded"
    same = len(before.steps) == len(code.plan.steps) and all(
        one.same_as(other) for one, other in zip(before.steps, code.plan.steps, strict=True)
    )
    if same:
        return Verdict.MAP, "the plan is unchanged; it could not be tried"
    return Verdict.INCOMPATIBLE, "the plan has changed and could not be tried"


def _not_compared(before: QueryPlan | None, now: QueryPlan | None, trial: Try) -> Iterator[str]:
    if now is None:
        yield "the plan of the new code, which this Spark does not report"
    elif before is None:
        yield _NO_PLAN
    if not trial.ran:
        yield f"the next batch in Spark, which could not be tried: {trial.message}"


def _settings(session: SparkSession, saved: DryRunCheckpoint) -> dict[str, str]:
    """Return the session's values of the settings that a checkpoint pins."""
    found = {key: session.conf.get(key, None) for key in saved.offsets.confs}
    return {key: value for key, value in found.items() if value is not None}
