"""The states of a checkpoint as people name them: operators by their users' names, states by what they hold.

What Spark keeps for its own use, such as counters of list elements and indexes of expiry times, is not
listed. A join's two stores of a side are one state, and so are the two families of timers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.at_rest.read.model import NamedOperator, NamedState, StateForm
from holdfast.at_rest.read.spark_source import SparkSource
from holdfast.checkpoints.keyed.key_groups import is_keyed
from holdfast.checkpoints.state.key_partition import placing_fields
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, operator_states
from holdfast.errors import Invalid, NotFound
from holdfast.formats.operators import (
    TIMER_NAMES,
    FamilyUse,
    OperatorName,
    companion,
    family_of,
    operator_names,
    state_name,
)
from holdfast.formats.rows.spark_types import Struct
from holdfast.layout import DEFAULT_STORE
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from holdfast.at_rest.keyed.keyed_reader import KeyedState

# What Spark puts where a value has no columns.
_FILLING: Final = ("__dummy__", "__empty__")
_TTL_VALUE: Final = ("value", "ttlExpirationMs")
_MAP_KEY: Final = ("key", "userKey")


def named_operators(storage: Storage, batch_id: int | None = None) -> tuple[NamedOperator, ...]:
    """The stateful operators at a committed batch, by number.

    Cost: the newest files of the logs, and a few small ones and listings for each operator.

    Args:
        storage: The checkpoint, or a savepoint's view.
        batch_id: A committed batch that is still kept; the newest by default.

    Raises:
        NotFound: There is no checkpoint, or the batch is not committed or no longer kept.
        Corrupt: A file that had to be read is damaged.
        Unsupported: The state is of a provider that is not known here.
    """
    operators = operator_states(storage, batch_id)
    keyed = _keyed_states(storage, operators)
    names = _names(operators, keyed)
    return tuple(
        NamedOperator(
            files.operator_id,
            names[files.operator_id].display_name,
            files.name,
            names[files.operator_id],
            files.partitions,
            tuple(_states(storage, files, names[files.operator_id], keyed.get(files.operator_id))),
            files,
            keyed.get(files.operator_id),
        )
        for files in operators
    )


def pick(
    operators: Sequence[NamedOperator], name: str, operator: str | int | None = None
) -> tuple[NamedOperator, NamedState]:
    """The state that a person means.

    Args:
        operators: Those of the checkpoint.
        name: `STATE`, `OPERATOR.STATE`, or an operator that has one state. An operator is known by its name,
            its number and Spark's name for it. Nothing means the only state that there
            is, or all that the only operator, a keyed one, holds.
        operator: The operator, where the state's name alone would not do.

    Raises:
        NotFound: There is no such state; the message lists those that there are.
        Invalid: Several have this name.
    """
    chosen = _of_name(operators, operator)
    fits: list[tuple[NamedOperator, NamedState]] = []
    for candidate in chosen:
        for state in candidate.states:
            labels = {state.name, *(f"{word}.{state.name}" for word in candidate.named.spellings)}
            if len(candidate.states) == 1 or state.form is StateForm.KEYED:
                labels |= candidate.named.spellings
            if state.codec is not None:
                labels.add(state.codec.name.label)
            if not name or name in labels:
                fits.append((candidate, state))
    listed = ", ".join(dict.fromkeys(state.full_name for owner in operators for state in owner.states))
    if not name and len(chosen) == 1 and fits:
        # A keyed operator's states are parts of what it holds for a key.
        fits = [fit for fit in fits if fit[1].form is StateForm.KEYED] or fits
    if not name and len(fits) != 1:
        raise Invalid(
            "name the state",
            found=f"{len(fits)} states",
            expected=listed or "a query that keeps state",
            hint="put one of them in front of the key, as in `holdfast state get CHECKPOINT STATE KEY`",
        )
    if not fits:
        raise NotFound(
            f"there is no state {name!r}"
            if operator is None
            else f"there is no state {name!r} of {operator!r}",
            expected=listed or "a query that keeps state",
            hint="see them with `holdfast state list`",
        )
    if len(fits) > 1:
        numbered = ", ".join(f"{owner.operator_id}.{state.name}" for owner, state in fits)
        raise Invalid(
            f"several operators have a state {name!r}",
            expected=numbered,
            hint="name the operator too: its number or its name, a dot, and the state",
        )
    return fits[0]


def pick_operators(operators: Sequence[NamedOperator], operator: str | int | None) -> Sequence[NamedOperator]:
    """The operators that a person means; all of them where none is named.

    Raises:
        NotFound: There is no such operator; the message lists those that there are.
    """
    chosen = _of_name(operators, operator)
    if operator is not None and not chosen:
        raise NotFound(
            f"there is no operator {operator!r}",
            expected=", ".join(f"{each.operator_id} {each.name}" for each in operators)
            or "a query that keeps state",
            hint="see them with `holdfast state list`",
        )
    return chosen


def _of_name(operators: Sequence[NamedOperator], operator: str | int | None) -> list[NamedOperator]:
    return [each for each in operators if operator is None or str(operator) in each.named.spellings]


def is_the_only(operators: Sequence[NamedOperator], name: str, operator: str | int | None = None) -> bool:
    """Whether a state need not be named, and a word is no state's name."""
    try:
        pick(operators, "", operator)
    except Invalid:
        return False
    try:
        pick(operators, name, operator)
    except NotFound:
        return True
    return False


def table_names(operators: Sequence[NamedOperator]) -> dict[str, tuple[NamedOperator, NamedState]]:
    """The states by their names as tables in SQL: `OPERATOR.STATE`, and shorter where that will do."""
    tables: dict[str, tuple[NamedOperator, NamedState]] = {}
    times = Counter(state.name for owner in operators for state in owner.states)
    for operator in operators:
        for state in operator.states:
            tables[state.full_name] = operator, state
            if len(operator.states) == 1:
                tables[operator.name] = operator, state
            if times[state.name] == 1:
                tables.setdefault(state.name, (operator, state))
    return tables


def _names(operators: Sequence[OperatorStates], keyed: Mapping[int, KeyedState]) -> dict[int, OperatorName]:
    """What each operator is called; of keyed ones the rows of state may tell what the notes do not."""
    own = {operator.operator_id: operator.named.user_name for operator in operators if is_keyed(operator)}
    own |= {number: state.operator.name for number, state in keyed.items() if state.operator.note_path}
    return operator_names({operator.operator_id: operator.name for operator in operators}, own)


def _keyed_states(storage: Storage, operators: Sequence[OperatorStates]) -> dict[int, KeyedState]:
    """What reads Holdfast's own keyed operators, by number."""
    if not any(is_keyed(operator) for operator in operators):
        return {}
    from holdfast.at_rest.keyed.keyed_reader import keyed_states

    return {state.operator.operator_id: state for state in keyed_states(storage, operators[0].batch_id)}


def _states(
    storage: Storage, operator: OperatorStates, named: OperatorName, keyed: KeyedState | None
) -> Iterator[NamedState]:
    if keyed is not None:
        from holdfast.at_rest.read.keyed_source import named as keyed_named

        yield from keyed_named(keyed, operator, named)
    if is_keyed(operator):
        return  # one that has neither a note nor any state yet keeps nothing that could be named
    source = SparkSource(storage, operator)
    codecs = {codec.name.label: codec for codec in operator.known()}
    families = any(codec.name.family != DEFAULT_STORE for codec in codecs.values())
    for label, codec in codecs.items():
        if codec.schema is None and label == DEFAULT_STORE and families:
            continue
        codec.require_schema()
        if codec.name.store == DEFAULT_STORE == codec.name.family and families:
            continue  # a store with families has one that nobody uses besides them
        family = family_of(operator.name, label)
        if family is not None and family.use is FamilyUse.JOIN_ROWS:
            counts = codecs.get(companion(operator.name, label, FamilyUse.JOIN_COUNTS))
            yield _named(source, named, codec, state_name(named, label), StateForm.ROWS, counts)
        elif family is not None and family.use is FamilyUse.TIMERS:
            if family.state(label) in TIMER_NAMES:
                yield _named(source, named, codec, state_name(named, label), StateForm.TIMERS)
        elif not codec.name.internal and (family is None or family.use is not FamilyUse.JOIN_COUNTS):
            is_list = companion(operator.name, label, FamilyUse.LIST_COUNTER) in codecs
            form = StateForm.LIST if is_list else StateForm.VALUE
            yield _named(source, named, codec, state_name(named, label) if family is None else label, form)


def _named(
    source: SparkSource,
    named: OperatorName,
    codec: StateCodec,
    name: str,
    form: StateForm,
    counts: StateCodec | None = None,
) -> NamedState:
    key, value = codec.key_type, codec.value_type
    ttl = (
        value.names == _TTL_VALUE
        and isinstance(value.types[0], Struct)
        and codec.name.family != DEFAULT_STORE
    )
    if ttl and isinstance(value.types[0], Struct):
        value = value.types[0]
    fields = placing_fields(codec)
    sub = Struct(key.names[fields:], key.types[fields:])
    if form is StateForm.VALUE and sub.names:
        form = StateForm.MAP if key.names == _MAP_KEY else StateForm.SESSIONS
    first = key.types[0] if key.types else None
    key = Struct(key.names[:fields], key.types[:fields])
    if form in (StateForm.MAP, StateForm.TIMERS) and isinstance(first, Struct):
        # The grouping key is one field of the stored one.
        key = first
    if form is StateForm.MAP and isinstance(sub.types[0], Struct):
        sub = sub.types[0]
    if form is StateForm.TIMERS or (len(value.names) == 1 and value.names[0] in _FILLING):
        value = Struct((), ())
    operator = source.files
    return NamedState(
        operator.operator_id,
        named.display_name,
        operator.name,
        named,
        name,
        form,
        key,
        sub,
        value,
        ttl,
        source,
        codec,
        counts,
    )
