"""The reader of a checkpoint's states by name, by key and row by row.

Spark's internal state, such as counters of list elements and indexes of expiry times, is not listed. The two
stores of one side of a join are one state, and so are the two families of timers.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.keys import refused, typed_key
from holdfast.at_rest.model import KeyState, NamedOperator, NamedState, StateEntry, StateForm
from holdfast.at_rest.spark_source import SparkSource
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.keyed import is_keyed
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.state.key_partition import placing_fields
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, operator_states
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.formats.operators import (
    TIMER_NAMES,
    FamilyUse,
    OperatorName,
    companion,
    family_of,
    operator_names,
    state_name,
)
from holdfast.formats.rows.plain import plain
from holdfast.formats.rows.spark_types import Atom, DataType, Struct
from holdfast.layout import DEFAULT_STORE
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.at_rest.keyed_reader import KeyedStateReader


# Spark's placeholder in a value without columns.
_FILLING: Final = ("__dummy__", "__empty__")
_TTL_VALUE: Final = ("value", "ttlExpirationMs")
_MAP_KEY: Final = ("key", "userKey")
_JOIN_INDEXES: Final = (FamilyUse.JOIN_COUNTS, FamilyUse.JOIN_TIMES)


def named_operators(storage: Storage, batch_id: int | None = None) -> tuple[NamedOperator, ...]:
    """Return the stateful operators at a committed batch, by number.

    Cost: reads the newest files of the logs; for each operator, reads a few small files and lists folders.

    Args:
        storage: The checkpoint, or a savepoint's view.
        batch_id: A committed batch that is still kept; the newest by default.

    Raises:
        NotFound: The checkpoint does not exist, or the batch is not committed or no longer kept.
        Corrupt: A file that was read is damaged.
        Unsupported: The state's provider is not supported.
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
    """Return the operator and the state with a name.

    Args:
        operators: The operators of the checkpoint.
        name: `STATE`, `OPERATOR.STATE`, or an operator that has one state. An operator is given by its name,
            its number or Spark's name for it. A full name, as in a list of states, comes first. An empty name
            selects the only state, or the combined state of the only operator if that is keyed.
        operator: The operator, if several operators have a state with this name.

    Raises:
        NotFound: The state does not exist; the message lists the existing ones.
        Invalid: Several states have this name.
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
    fits = [fit for fit in fits if fit[1].full_name == name] or fits
    if name and len({owner.operator_id for owner, _ in fits}) == 1:
        # A state of a keyed operator may have the name of the operator, which its combined state has too.
        fits = [fit for fit in fits if fit[1].form is not StateForm.KEYED] or fits
    listed = ", ".join(dict.fromkeys(state.full_name for owner in operators for state in owner.states))
    if not name and len(chosen) == 1 and fits:
        # The states of a keyed operator are parts of its combined state.
        fits = [fit for fit in fits if fit[1].form is StateForm.KEYED] or fits
    if not name and len(fits) != 1:
        raise Invalid(
            "no state name was given, and the query has several states" if fits else "the query has no state",
            code="HF-E2029",
            expected="one of " + listed if listed else None,
            hint="give the name of a state before the key, as in `holdfast state get CHECKPOINT STATE KEY`"
            if fits
            else "give the checkpoint of a query with a stateful operator, such as an aggregation or a join",
        )
    if not fits:
        raise NotFound(
            f"unknown state {name!r}" if operator is None else f"operator {operator!r} has no state {name!r}",
            code="HF-E3006",
            expected=listed or "a query with state",
            hint="list the states with `holdfast state list CHECKPOINT`",
        )
    if len(fits) > 1:
        numbered = ", ".join(f"{owner.operator_id}.{state.name}" for owner, state in fits)
        raise Invalid(
            f"several operators have a state {name!r}",
            code="HF-E2030",
            expected=f"one of {numbered}",
            hint="write OPERATOR.STATE, with the name or the number of the operator",
        )
    return fits[0]


def pick_operators(operators: Sequence[NamedOperator], operator: str | int | None) -> Sequence[NamedOperator]:
    """Return the operators with a name; all operators if no name is given.

    Raises:
        NotFound: The operator does not exist; the message lists the existing ones.
    """
    chosen = _of_name(operators, operator)
    if operator is not None and not chosen:
        raise NotFound(
            f"unknown operator {operator!r}",
            code="HF-E3007",
            expected=", ".join(f"{each.operator_id} {each.name}" for each in operators)
            or "a query with state",
            hint="list the operators with `holdfast state list CHECKPOINT`",
        )
    return chosen


def _of_name(operators: Sequence[NamedOperator], operator: str | int | None) -> list[NamedOperator]:
    return [each for each in operators if operator is None or str(operator) in each.named.spellings]


def is_the_only(operators: Sequence[NamedOperator], name: str, operator: str | int | None = None) -> bool:
    """Return whether there is only one state, so that its name can be omitted, and `name` is not a state."""
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
    """Return the states by SQL table name: `OPERATOR.STATE`, and shorter names if unique."""
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


def _names(
    operators: Sequence[OperatorStates], keyed: Mapping[int, KeyedStateReader]
) -> dict[int, OperatorName]:
    """Return the names of each operator; for keyed operators, the rows of state may provide missing names."""
    own = {operator.operator_id: operator.named.user_name for operator in operators if is_keyed(operator)}
    own |= {number: state.operator.name for number, state in keyed.items() if state.operator.note_path}
    return operator_names({operator.operator_id: operator.name for operator in operators}, own)


def _keyed_states(storage: Storage, operators: Sequence[OperatorStates]) -> dict[int, KeyedStateReader]:
    if not any(is_keyed(operator) for operator in operators):
        return {}
    from holdfast.at_rest.keyed_reader import keyed_states

    return {state.operator.operator_id: state for state in keyed_states(storage, operators[0].batch_id)}


def _states(
    storage: Storage, operator: OperatorStates, named: OperatorName, keyed: KeyedStateReader | None
) -> Iterator[NamedState]:
    if keyed is not None:
        from holdfast.at_rest.keyed_source import name_states as keyed_named

        yield from keyed_named(keyed, operator, named)
    if is_keyed(operator):
        return  # an operator with neither a file nor state has no states that could be named
    source = SparkSource(storage, operator)
    codecs = {codec.name.label: codec for codec in operator.declared_codecs()}
    families = any(codec.name.family != DEFAULT_STORE for codec in codecs.values())
    for label, codec in codecs.items():
        if codec.schema is None and label == DEFAULT_STORE and families:
            continue
        codec.require_schema()
        if codec.name.store == DEFAULT_STORE == codec.name.family and families:
            continue  # a store with families also has an unused default family
        family = family_of(operator.name, label)
        if family is not None and family.use in (FamilyUse.JOIN_ROWS, FamilyUse.JOIN_ROWS_BY_TIME):
            counts = codecs.get(companion(operator.name, label, FamilyUse.JOIN_COUNTS))
            yield _name_state(source, named, codec, state_name(named, label), StateForm.ROWS, counts)
        elif family is not None and family.use is FamilyUse.TIMERS:
            if family.state(label) in TIMER_NAMES:
                yield _name_state(source, named, codec, state_name(named, label), StateForm.TIMERS)
        elif not codec.name.internal and (family is None or family.use not in _JOIN_INDEXES):
            is_list = companion(operator.name, label, FamilyUse.LIST_COUNTER) in codecs
            form = StateForm.LIST if is_list else StateForm.VALUE
            yield _name_state(
                source, named, codec, state_name(named, label) if family is None else label, form
            )


def _name_state(
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


_STRING: Final = Atom("string")


FirstKey = Callable[[], "Mapping[str, Any] | None"]


def no_key() -> Mapping[str, Any] | None:
    """Return None, as the default for `first`."""
    return None


def first_key(state: NamedState) -> Mapping[str, Any] | None:
    """Return a key of a state; None if the state is empty or unreadable, which other calls report."""
    try:
        return next((entry.key for entry in state.source.scan(state)), None)
    except HoldfastError:
        return None


def parse_key(words: Sequence[str], columns: Struct, where: str, first: FirstKey = no_key) -> dict[str, Any]:
    """Return the values of a key written on a command line.

    A key is a JSON object with all columns, a JSON list of values in the order of the columns, `column=value`
    for each column, the values separated by commas, or, for a key with one column, only the value. The text
    after `=` is a plain value or JSON. A window may be given by its start, if the state has a key from which
    the length of windows is known.

    Args:
        words: The words of the text; several words are several `column=value`, or a value for each column.
        columns: The columns of the key, with their types.
        where: The state, for messages.
        first: The function that returns an existing key of the state; called for errors and for the length of
            a window.

    Raises:
        Invalid: The text does not match the columns; the message lists these and a key of the state.
    """
    return _Keys(columns, where, first).parse(words)


def key_in(state: NamedState, words: Sequence[str]) -> dict[str, Any]:
    """Parse a key of a state written on a command line; see `parse_key`."""
    return parse_key(words, state.key, state.full_name, partial(first_key, state))


def key_of(state: NamedState, given: Any) -> dict[str, Any]:
    """Check a key of a state given in Python; see `typed_key`."""
    return typed_key(given, state.key, state.full_name, sample=partial(sample_key, state))


def sample_key(state: NamedState) -> str | None:
    """Return a key of a state in the form of `parse_key`; None if the state is empty."""
    return _Keys(state.key, state.full_name, partial(first_key, state)).sample()


def written_key(state: NamedState, key: Mapping[str, Any]) -> str | None:
    """Return a given key of a state in the form of `parse_key`; None if the state has no key columns."""
    return _Keys(state.key, state.full_name, lambda: key).sample()


class _Keys:
    """A parser for the keys of one state, whose first row is read at most once and only if needed."""

    def __init__(self, columns: Struct, where: str, first: FirstKey) -> None:
        self._columns = columns
        self._where = where
        self._types = dict(zip(columns.names, columns.types, strict=True))
        self._any = cache(first)

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        names = self._columns.names
        text = words[0].strip() if len(words) == 1 else ""
        if not names and not any(words):
            return {}
        if text.startswith(("{", "[")) and self._is_json(text):
            return self._typed(self._json(text))
        if words and all(self._names_column(word) for word in words):
            return self._typed_texts(
                {name: value for name, _, value in (word.partition("=") for word in words)}
            )
        parts = [words[0]] if len(words) == len(names) == 1 else _parts(words)
        if parts and len(parts) == len(names):
            return self._typed_texts(dict(zip(names, parts, strict=True)))
        fact = "not a valid key of the state" if any(words) else "the key is missing"
        raise self._refused(fact, " ".join(words) or "no key")

    def sample(self) -> str | None:
        key = self._any()
        if key is None or not self._columns.names:
            return None
        short = self._short(key)
        try:
            if short is not None and plain(self.parse([short])) == plain(key):
                return short
        except HoldfastError:
            pass  # text that could be parsed differently, for example with a brace, is written as JSON
        return json.dumps(plain(key), ensure_ascii=False)

    def _short(self, key: Mapping[str, Any]) -> str | None:
        values = [_text(key[name]) for name in self._columns.names]
        texts = [value for value in values if value is not None]
        if len(texts) < len(values):
            return None
        return texts[0] if len(texts) == 1 else ",".join(map(_quoted, texts))

    def _typed(self, given: Any) -> dict[str, Any]:
        return typed_key(given, self._columns, self._where, sample=self.sample)

    def _typed_texts(self, texts: Mapping[str, str]) -> dict[str, Any]:
        values = {name: self._value(name, text) for name, text in texts.items()}
        return typed_key(values, self._columns, self._where, written=True, sample=self.sample)

    def _value(self, name: str, text: str) -> Any:
        """Parse the value of a column: JSON for nested values and quoted text, a window's start, or text."""
        type_ = self._types[name]
        if text[:1] and text[:1] in ('"' if isinstance(type_, Atom) else "{["):
            try:
                return json.loads(text)
            except ValueError:
                return text
        length = self._window_length(name, type_)
        start = None if length is None else utc_time(text)
        return text if length is None or start is None else {"start": start, "end": start + length}

    def _window_length(self, name: str, type_: DataType) -> dt.timedelta | None:
        if not isinstance(type_, Struct) or tuple(type_.names) != ("start", "end"):
            return None
        key = self._any()
        window = None if key is None else key[name]
        if window is None or not isinstance(window["start"], dt.datetime):
            return None
        length: dt.timedelta = window["end"] - window["start"]
        return length

    def _is_json(self, text: str) -> bool:
        """Return whether a text with an initial brace or bracket is JSON and not a value of text."""
        if tuple(self._columns.types) != (_STRING,) or text.startswith('{"'):
            return True
        try:
            value = json.loads(text)
        except ValueError:
            return False
        return isinstance(value, dict) and set(value) == set(self._columns.names)

    def _json(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise self._refused("the key is not valid JSON", f"{text}: {error}") from error

    def _refused(self, fact: str, given: str) -> Invalid:
        return refused(fact, self._where, given, self._columns, self.sample)

    def _names_column(self, word: str) -> bool:
        name, equals, _ = word.partition("=")
        return bool(equals) and name in self._columns.names


def _parts(words: Sequence[str]) -> list[str]:
    if len(words) != 1:
        return list(words)
    try:
        return next(csv.reader([words[0]], skipinitialspace=True, strict=True), [])
    except csv.Error:
        return []


def _quoted(text: str) -> str:
    plain_text = text == text.strip() and not set(text) & set(',"\r\n')
    return text if plain_text else '"' + text.replace('"', '""') + '"'


def _text(value: Any) -> str | None:
    if isinstance(value, Mapping) and tuple(value) == ("start", "end"):
        value = value["start"]
    if isinstance(value, dt.datetime):
        written = value.replace(tzinfo=None).isoformat(sep=" ")
        return written[:-3] if value.second == 0 and value.microsecond == 0 else written
    return str(value) if isinstance(value, (str, int, dt.date)) and not isinstance(value, bool) else None


def utc_time(text: str) -> dt.datetime | None:
    """Parse a time in ISO 8601; UTC without a zone. None for any other text."""
    try:
        time = dt.datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)


class StateReader:
    """The states of a checkpoint or savepoint at one batch.

    Args:
        storage: The checkpoint, or a savepoint's view.
        batch_id: A committed batch that is still kept; the newest by default.

    Raises:
        NotFound: The checkpoint does not exist, or the batch is not committed or no longer kept.
        Corrupt: A file that was read is damaged.
        Unsupported: The state's provider is not supported.
    """

    def __init__(self, storage: Storage, batch_id: int | None = None) -> None:
        self.storage = storage
        self.operators: tuple[NamedOperator, ...] = named_operators(storage, batch_id)
        if self.operators:
            batch_id = self.operators[0].files.batch_id
        elif batch_id is None:
            batch_id = Logs(storage).newest
        self.batch_id: int = batch_id or 0

    def pick(self, name: str, operator: str | int | None = None) -> tuple[NamedOperator, NamedState]:
        """Return the operator and the state with a name; see the function `pick`."""
        return pick(self.operators, name, operator)

    def ask(self, query: str, *, tell: ProgressCallback | None = None, **bounds: Any) -> pa.Table:
        """Run a query in SQL over the states that it names; see `sql.answer`."""
        from holdfast.at_rest.sql import answer

        return answer(query, self._named_in(query, tell), **bounds)

    def stream_query(self, query: str, **bounds: Any) -> AbstractContextManager[pa.RecordBatchReader]:
        """Run a query as `ask` does, and return its rows as a stream; see `sql.streamed`."""
        from holdfast.at_rest.sql import streamed

        return streamed(query, self._named_in(query, None), **bounds)

    def _named_in(self, query: str, tell: ProgressCallback | None) -> dict[str, pa.Table]:
        """Read the states that a query names completely, because the query may read each several times."""
        from holdfast.at_rest.sql import tables_in
        from holdfast.at_rest.tables import schema_of, state_table

        known = table_names(self.operators)
        named = tables_in(query, {name: schema_of(state) for name, (_, state) in known.items()})
        return {name: state_table(known[name][1], tell=tell).read_all() for name in named}

    def get(self, name: str, key: Any, operator: str | int | None = None) -> KeyState:
        """Return the state of a key.

        Cost: reads the files of one partition that can contain the key, without Spark.

        Args:
            name: The name of the state.
            key: A dictionary by column, a list in the order of the columns, or the value of the only column.
            operator: The operator, if several operators have a state with this name.

        Raises:
            NotFound: The state does not exist, or a file that the batch needs is missing.
            Invalid: Several states have this name, or the key does not match its columns.
            Corrupt: A file is damaged.
            Unsupported: The state's format cannot be read.
        """
        _, state = self.pick(name, operator)
        return self.read_key(state, key_of(state, key))

    def get_written(self, name: str, words: Sequence[str], operator: str | int | None = None) -> KeyState:
        """Return the state of a key written on a command line; see `parse_key`."""
        _, state = self.pick(name, operator)
        return self.read_key(state, key_in(state, words))

    def read_key(self, state: NamedState, key: Mapping[str, Any]) -> KeyState:
        """Return the state of a key, whose values have the types of its columns."""
        return KeyState(state, self.batch_id, dict(key), tuple(state.source.get(state, key)))

    def scan(
        self, name: str, operator: str | int | None = None, *, tell: ProgressCallback | None = None
    ) -> Iterator[StateEntry]:
        """Yield every row of a state, partition by partition, in no particular order.

        Cost: several microseconds per row; `tables.state_table` is many times faster.

        Raises:
            As for `get`.
        """
        _, state = self.pick(name, operator)
        yield from state.source.scan(state, tell)
