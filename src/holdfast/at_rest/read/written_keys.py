"""Keys as people write them on a command line, and real ones to show them how."""

from __future__ import annotations

import csv
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

from holdfast.at_rest.read.keys import refused, typed_key
from holdfast.at_rest.read.model import NamedState
from holdfast.errors import HoldfastError, Invalid
from holdfast.formats.rows.plain import plain
from holdfast.formats.rows.spark_types import Atom, DataType, Struct

_STRING: Final = Atom("string")


FirstKey = Callable[[], "Mapping[str, Any] | None"]


def no_key() -> Mapping[str, Any] | None:
    """No key to take an example from."""
    return None


def first_key(state: NamedState) -> Mapping[str, Any] | None:
    """A key that a state has; None if it is empty or cannot be read: whoever reads it tells of that."""
    try:
        return next((entry.key for entry in state.source.scan(state)), None)
    except HoldfastError:
        return None


def parse_key(words: Sequence[str], columns: Struct, where: str, first: FirstKey = no_key) -> dict[str, Any]:
    """The values of a key written on a command line.

    A JSON object with all columns, a JSON list in their order, `column=value` for each, the values in their
    order with commas between them, or, of a key with one column, just its value. Behind `=` stands the value
    as it is, or its JSON. A window may be given by its start, where the state has a key to tell its length.

    Args:
        words: What was written; several words are several `column=value`, or a value for each column.
        columns: The columns of the key, with their types.
        where: The state, for messages.
        first: Gives a key that the state has; called for an error, and for the length of a window.

    Raises:
        Invalid: It does not fit; the message has the columns, and a key of the state.
    """
    return _Keys(columns, where, first).parse(words)


def key_in(state: NamedState, words: Sequence[str]) -> dict[str, Any]:
    """The values of a key of a state written on a command line; see `parse_key`."""
    return parse_key(words, state.key, state.full_name, partial(first_key, state))


def key_of(state: NamedState, given: Any) -> dict[str, Any]:
    """The values of a key of a state given in Python; see `typed_key`."""
    return typed_key(given, state.key, state.full_name, sample=partial(sample_key, state))


def sample_key(state: NamedState) -> str | None:
    """A key that a state has, as `parse_key` reads it; None if there is none to show."""
    return _Keys(state.key, state.full_name, partial(first_key, state)).sample()


def written_key(state: NamedState, key: Mapping[str, Any]) -> str | None:
    """A key of a state as `parse_key` reads it; None of a state without one."""
    return _Keys(state.key, state.full_name, lambda: key).sample()


class _Keys:
    """The keys of one state; its first row is read where it is needed, and once."""

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
        fact = "this is no key of the state" if any(words) else "name the key"
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
            pass  # a text that reads as something else, such as one with a brace: JSON says it exactly
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
        """JSON of what has parts, and of text in quotes; a window by its start; anything else as it is."""
        type_ = self._types[name]
        if text[:1] and text[:1] in ('"' if isinstance(type_, Atom) else "{["):
            try:
                return json.loads(text)
            except ValueError:
                return text
        length = self._window_length(name, type_)
        start = None if length is None else _time(text)
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
        """Whether a brace or bracket begins JSON; it may begin the text of the only column."""
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
            raise self._refused("this key is not JSON", f"{text}: {error}") from error

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


def _time(text: str) -> dt.datetime | None:
    """A window's start; without a zone it is in UTC, as times of state are printed."""
    try:
        time = dt.datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)
