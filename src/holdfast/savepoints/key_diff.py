"""The differences between two states key by key.

If an operator encodes its rows in the same way on both sides, equal rows are equal bytes, and with the same
number of partitions they occur at about the same position. Both sides are then read in step, rows that occur
on both are dropped, and only the remaining rows are held in memory.

Otherwise each row is reduced to a hash of its key and a hash of its value, 32 bytes, and the hashes are
compared bucket by bucket; beyond two million they are written to temporary files. Then the sample rows are
read again.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.keyed import KeyGroup, KeyRow, is_keyed, key_rows, shared_rows, stored_groups
from holdfast.checkpoints.state.contents import bare_bytes, bare_rows
from holdfast.checkpoints.state.rocksdb import Pairs
from holdfast.checkpoints.state.rows import CHUNK, state_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, StateName, operator_states
from holdfast.formats.rows.plain import plain
from holdfast.json_shapes import JsonShape, in_json, json_as, json_spread
from holdfast.savepoints.view import StateLocation
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


KeyedRow = tuple[Any, Any]


def keyed_rows(groups: Iterable[KeyGroup], where: str) -> Iterator[KeyedRow]:
    """Yield every key with its values by state, group by group.

    A key of one column is its value, of several a list. List states are lists and map states dictionaries;
    the timestamp of a value with a TTL is next to it, as `NAME.stamp_ms`. Rows of a broadcast stream, of
    which each group has a copy, have keys that name the stream. Cost: about 10 microseconds per key.

    Args:
        groups: The groups.
        where: The operator, for messages.

    Raises:
        Corrupt: A blob cannot be read.
    """
    for group in groups:
        for shared in shared_rows(group, where):
            yield {"broadcast": shared.state, "key_group": shared.group, "key": shared.key}, shared.value
        for row in key_rows(group, where):
            yield row.key[0] if len(row.key) == 1 else list(row.key), _values(row)


def _values(row: KeyRow) -> dict[str, Any]:
    found = {name: _in_order(value) for name, value in row.values.items()}
    found |= {f"{name}.stamp_ms": _in_order(value) for name, value in row.stamps.items()}
    if row.timers:
        timers = sorted(row.timers, key=lambda timer: (timer.name, timer.at_ms, timer.clock))
        found["timers"] = [
            {"name": timer.name, "clock": timer.clock, "at_ms": timer.at_ms} for timer in timers
        ]
    # Always in one order: what is the same must look the same.
    return {name: found[name] for name in sorted(found)}


def _in_order(value: Any) -> Any:
    """Sort a map's entries, so that equal maps are displayed alike."""
    return {key: value[key] for key in sorted(value, key=repr)} if isinstance(value, dict) else value


# More rows than this that the other side has not had yet are not held: the two have too little in common.
_MOST_HELD: Final = 400_000
KEY_HASH: Final = 16

Row = tuple[bytes, bytes]
Chunk = tuple[StateCodec, int, Pairs]


@dataclass(slots=True)
class Stepped:
    """The remaining differences of one state while both sides are read in step.

    Attributes:
        codec: The codec of the rows.
        first: Rows seen only on the first side so far.
        second: Rows seen only on the second side so far.
        first_rows: Number of rows of the first side.
        second_rows: Number of rows of the second side.
        first_bytes: Bytes of keys and values of the first side.
        second_bytes: Bytes of keys and values of the second side.
    """

    codec: StateCodec
    first: set[Row] = field(default_factory=set)
    second: set[Row] = field(default_factory=set)
    first_rows: int = 0
    second_rows: int = 0
    first_bytes: int = 0
    second_bytes: int = 0

    def count(self, rows: Pairs, others: Pairs) -> None:
        """Add the numbers of rows of both sides, and the bytes of the first side's rows."""
        self.first_rows += len(rows)
        self.first_bytes += bare_bytes(self.codec, rows)
        self.second_rows += len(others)

    def weigh(self) -> None:
        """Compute the bytes of the second side from those of the first and the differing rows."""
        only_first, only_second = (bare_bytes(self.codec, list(rows)) for rows in (self.first, self.second))
        self.second_bytes = self.first_bytes - only_first + only_second

    def take(self, rows: Pairs, others: Pairs) -> bool:
        """Add rows of both sides and drop the rows that both have; False if a side has a row twice."""
        for held, new in ((self.first, rows), (self.second, others)):
            before = len(held)
            held.update(new)
            if len(held) - before != len(new):
                return False
        both = self.first & self.second
        self.first -= both
        self.second -= both
        return True


@dataclass(frozen=True, slots=True)
class Differing:
    """A row that differs between the sides: its bare key, and its stored form on each side."""

    key: bytes
    first: Row | None
    second: Row | None


def alike(first: OperatorStates, second: OperatorStates) -> bool:
    """Return whether equal rows have equal bytes on both sides, in about the same order."""
    return (
        not is_keyed(first)
        and not is_keyed(second)
        and first.partitions == second.partitions
        and first.store_names == second.store_names
        and first.values == second.values
        and _forms(first) == _forms(second)
    )


def step(
    first: tuple[Storage, OperatorStates],
    second: tuple[Storage, OperatorStates],
    tell: ProgressCallback | None,
    partition: int | None = None,
) -> dict[StateName, Stepped] | None:
    """Read both sides in step, and drop the rows that both have.

    Args:
        first: One side: its storage, and the operator at its batch.
        second: The other side, in the same form.
        tell: Called with the number of finished stores, the number of all stores, and the current step.
        partition: The partition to read; None for all.

    Returns:
        The remaining rows by state; None if too many remain, or if a side has a row twice, as damaged state
        may: these states must be compared by hashes.

    Raises:
        NotFound: A file that a batch needs is missing.
        Corrupt: A file or a row is damaged.
        Unsupported: A state cannot be read.
    """
    found: dict[StateName, Stepped] = {}
    sides = (_row_chunks(*side, tell, partition) for side in (first, second))
    for chunk, against in zip_longest(*sides):
        for codec, rows, others in _by_state(chunk, against):
            state = found.setdefault(codec.name, Stepped(codec))
            state.count(rows, others)
            if not state.take(*_unlike(rows, others)):
                return None
        if sum(len(state.first) + len(state.second) for state in found.values()) > _MOST_HELD:
            return None
    for state in found.values():
        state.weigh()
    return found


def differing(state: Stepped) -> Iterator[Differing]:
    """Return the remaining rows, by the hash of their key."""
    sides: dict[bytes, list[Row | None]] = defaultdict(lambda: [None, None])
    for side, rows in enumerate((state.first, state.second)):
        pairs = list(rows)
        for bare, row in zip(bare_rows(state.codec, pairs)[0], pairs, strict=True):
            sides[bare][side] = row
    ordered = sorted(sides, key=lambda key: hashlib.blake2b(key, digest_size=KEY_HASH).digest())
    for key in ordered:
        yield Differing(key, *sides[key])


def show_row(codec: StateCodec, row: Row) -> tuple[Any, Any]:
    """Return the key and the value of a row in display form."""
    rows, is_list = codec.values.rows(row[1], codec.where)
    values = [codec.value_values(value) for value in rows]
    return codec.key_values(codec.key_row(row[0])), values if is_list else values[0]


def _row_chunks(
    storage: Storage, operator: OperatorStates, tell: ProgressCallback | None, partition: int | None = None
) -> Iterator[Chunk]:
    return state_chunks(
        storage, operator.batch_id, operator_id=operator.operator_id, partition=partition, tell=tell
    )


def _by_state(chunk: Chunk | None, against: Chunk | None) -> Iterator[tuple[StateCodec, Pairs, Pairs]]:
    """Yield the rows of both sides by state."""
    if chunk is not None and against is not None and chunk[0].name == against[0].name:
        yield chunk[0], chunk[2], against[2]
        return
    if chunk is not None:
        yield chunk[0], chunk[2], []
    if against is not None:
        yield against[0], [], against[2]


def _unlike(rows: Pairs, others: Pairs) -> tuple[Pairs, Pairs]:
    """Return the rows of both sides without equal rows at the same position."""
    if len(rows) != len(others):
        return rows, others
    unlike = [(row, other) for row, other in zip(rows, others, strict=True) if row != other]
    return [row for row, _ in unlike], [other for _, other in unlike]


def _forms(operator: OperatorStates) -> Mapping[StateName, tuple[Any, ...]]:
    """Return the encoding of each state's keys, and its columns, by which rows are shown."""
    return {
        codec.name: (codec.key_form, codec.schema and (codec.schema.key_schema, codec.schema.value_schema))
        for codec in operator.declared_codecs()
    }


KEYED: Final = "keyed"
_BUCKETS: Final = 64
_HASH: Final = KEY_HASH
_PAIR: Final = struct.Struct(f"{_HASH}s{_HASH}s")
# So many rows are held in memory, at 32 bytes each, before they are put into files.
_HELD: Final = 1 << 21


@dataclass(frozen=True, slots=True)
class DifferingKey(JsonShape):
    """A key that differs between the two sides.

    Attributes:
        change: `added`, `removed` or `changed`.
        key: The key's values by name.
        first: The value on the first side; None if the key is missing there.
        second: The value on the second side; None if the key is missing there.
    """

    change: str
    key: Any = field(metadata=json_as(convert=plain))
    first: Any = field(metadata=json_as(convert=plain))
    second: Any = field(metadata=json_as(convert=plain))


@dataclass(frozen=True, slots=True)
class StateDifference(JsonShape):
    """The differences of one state.

    Attributes:
        state: The state.
        first_rows: Number of keys on the first side.
        second_rows: Number of keys on the second side.
        added: Number of keys only on the second side.
        removed: Number of keys only on the first side.
        changed: Number of keys with a different value.
        first_bytes: The bytes of keys and values on the first side.
        second_bytes: The bytes on the second side.
        samples: Some of the differing keys.
    """

    state: StateName = field(metadata=json_spread())
    first_rows: int
    second_rows: int
    added: int
    removed: int
    changed: int
    first_bytes: int
    second_bytes: int
    samples: tuple[DifferingKey, ...] = ()

    @property
    def same(self) -> bool:
        """Return whether every key has the same value on both sides."""
        return not (self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True)
class StatesDifference(JsonShape):
    """The differences of all states.

    Attributes:
        first: The first side.
        second: The second side.
        states: Every state of either side, ascending by operator and name.

    Example:
        difference: hf.savepoints.StatesDifference
        difference = hf.savepoints.diff("checkpoints/visits", "savepoints@daily")
        assert difference.same
    """

    first: str
    second: str
    states: tuple[StateDifference, ...]

    @property
    @in_json
    def same(self) -> bool:
        """Return whether both sides hold the same state."""
        return all(state.same for state in self.states)


def compare_states(
    first: StateLocation, second: StateLocation, *, samples: int = 5, tell: ProgressCallback | None = None
) -> StatesDifference:
    """Compare two states key by key; partitions, files and providers may be different.

    States are matched by operator, store and column family. Holdfast's keyed operators are compared by the
    keys of the user's code.

    Cost: all rows of both sides are read, about 2 microseconds each; 4 if the two sides are encoded
    differently, and again if samples of differing rows are returned. Memory for two million rows and one
    partition's changes; beyond that temporary files of 32 bytes per row.

    Args:
        first: One side.
        second: The other.
        samples: Number of keys to return for each type of difference in each state.
        tell: Called with the number of finished items, the number of all items, and the current step.

    Raises:
        NotFound: A batch is not committed, or a file that it needs is missing.
        Corrupt: A file or a row is damaged.
        Unsupported: A state cannot be read.
    """
    stepped = dict(_in_step(first, second, samples, tell))
    with tempfile.TemporaryDirectory(prefix="holdfast-diff-", ignore_cleanup_errors=True) as temporary:
        one, other = _Side(Path(temporary, "first")), _Side(Path(temporary, "second"))
        for side, state in ((one, first), (other, second)):
            for chunk in _chunks(state, tell, stepped):
                side.add(chunk)
        names = sorted({*one.states, *other.states})
        found = {name: _compared(name, one, other, samples) for name in names}
    wanted = {name: keys for name, (_, keys) in found.items() if any(keys.values())}
    shown = _sample_rows(wanted, (first, second), tell, stepped) if wanted else {}
    states = [with_samples(state, wanted.get(name, {}), shown) for name, (state, _) in found.items()]
    states += [difference for made in stepped.values() for difference in made]
    return StatesDifference(
        first.name, second.name, tuple(sorted(states, key=lambda difference: difference.state))
    )


def _in_step(
    first: StateLocation, second: StateLocation, samples: int, tell: ProgressCallback | None
) -> Iterator[tuple[int, list[StateDifference]]]:
    """Compare the operators that both sides encode alike; yield their numbers and differences."""
    there = {operator.operator_id: operator for operator in operator_states(second.storage, second.batch_id)}
    for operator in operator_states(first.storage, first.batch_id):
        other = there.get(operator.operator_id)
        if other is None or not alike(operator, other):
            continue
        found = step((first.storage, operator), (second.storage, other), tell)
        if found is not None:
            made = [_of_step(name, state, samples) for name, state in found.items()]
            yield operator.operator_id, made


def _of_step(name: StateName, found: Stepped, samples: int) -> StateDifference:
    counts = {"added": 0, "removed": 0, "changed": 0}
    shown: dict[str, list[DifferingKey]] = {change: [] for change in counts}
    for unlike in differing(found):
        change = "added" if unlike.first is None else "removed" if unlike.second is None else "changed"
        counts[change] += 1
        if counts[change] <= samples:
            sides = [
                None if row is None else show_row(found.codec, row) for row in (unlike.first, unlike.second)
            ]
            key = next(side[0] for side in sides if side is not None)
            shown[change].append(
                DifferingKey(change, key, *(None if side is None else side[1] for side in sides))
            )
    return StateDifference(
        name,
        found.first_rows,
        found.second_rows,
        counts["added"],
        counts["removed"],
        counts["changed"],
        found.first_bytes,
        found.second_bytes,
        tuple(sample for samples_of in shown.values() for sample in samples_of),
    )


@dataclass(frozen=True, slots=True)
class RowChunk:
    """Some rows of one state, as comparable bytes and as displayable values."""

    name: StateName
    keys: Sequence[bytes]
    values: Sequence[bytes]
    shown: Callable[[int], KeyedRow]

    def hashes(self) -> list[bytes]:
        make = hashlib.blake2b
        return [make(key, digest_size=_HASH).digest() for key in self.keys]

    @property
    def size_bytes(self) -> int:
        """The bytes of keys and values."""
        return sum(map(len, self.keys)) + sum(map(len, self.values))

    def records(self) -> NDArray[np.uint8]:
        """Return the hash of the key and the hash of the value of each row."""
        import numpy as np

        make = hashlib.blake2b
        values = [make(value, digest_size=_HASH).digest() for value in self.values]
        records = np.empty((len(values), 2 * _HASH), np.uint8)
        records[:, :_HASH] = np.frombuffer(b"".join(self.hashes()), np.uint8).reshape(-1, _HASH)
        records[:, _HASH:] = np.frombuffer(b"".join(values), np.uint8).reshape(-1, _HASH)
        return records


def read_hashes(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the hashes of key and value of each row, from the bytes of their records."""
    return list(_PAIR.iter_unpack(data))


def _chunks(
    state: StateLocation, tell: ProgressCallback | None, without: Container[int]
) -> Iterator[RowChunk]:
    for operator in operator_states(state.storage, state.batch_id):
        if operator.operator_id not in without:
            yield from operator_chunks(state.storage, operator, tell)


def operator_chunks(
    storage: Storage, operator: OperatorStates, tell: ProgressCallback | None, partition: int | None = None
) -> Iterator[RowChunk]:
    """Yield the rows of an operator, or of one of its partitions."""
    read = _keyed if is_keyed(operator) else _plain
    return read(storage, operator, tell, partition)


def _plain(
    storage: Storage, operator: OperatorStates, tell: ProgressCallback | None, partition: int | None
) -> Iterator[RowChunk]:
    for codec, _, pairs in _row_chunks(storage, operator, tell, partition):
        yield RowChunk(codec.name, *bare_rows(codec, pairs), partial(_row_at, codec, pairs))


def _row_at(codec: StateCodec, pairs: Pairs, at: int) -> KeyedRow:
    return show_row(codec, pairs[at])


def _keyed(
    storage: Storage, operator: OperatorStates, tell: ProgressCallback | None, partition: int | None
) -> Iterator[RowChunk]:
    """Yield the keys of a keyed operator, partition by partition."""
    name = StateName(operator.operator_id, operator.store_names[0], KEYED, operator.name, operator.named)
    groups = stored_groups(storage, operator, tell, partition=partition)
    rows = keyed_rows(groups, f"operator {operator.operator_id}")
    while some := list(islice(rows, CHUNK)):
        keys = [repr(key).encode() for key, _ in some]
        values = [repr(value).encode() for _, value in some]
        yield RowChunk(name, keys, values, some.__getitem__)


class _Digests:
    """The hashes of one state's rows, in buckets by the hash of the key."""

    __slots__ = ("buckets", "place", "rows", "size_bytes")

    def __init__(self, place: Path) -> None:
        self.place = place
        self.rows = 0
        self.size_bytes = 0
        self.buckets: list[list[NDArray[np.uint8]]] = [[] for _ in range(_BUCKETS)]

    def add(self, records: NDArray[np.uint8]) -> None:
        import numpy as np

        number = records[:, 0] // (256 // _BUCKETS)
        order = np.argsort(number, kind="stable")
        bounds = np.searchsorted(number[order], np.arange(_BUCKETS + 1))
        records = records[order]
        for bucket in range(_BUCKETS):
            start, stop = int(bounds[bucket]), int(bounds[bucket + 1])
            if start < stop:
                self.buckets[bucket].append(records[start:stop])

    def put_away(self) -> None:
        """Write the hashes in memory to files."""
        self.place.mkdir(parents=True, exist_ok=True)
        for number, parts in enumerate(self.buckets):
            if parts:
                with (self.place / str(number)).open("ab") as file:
                    for part in parts:
                        file.write(part.tobytes())
                parts.clear()

    def bucket(self, number: int) -> list[tuple[bytes, bytes]]:
        """Return the hashes of key and value of a bucket's rows."""
        file = self.place / str(number)
        data = file.read_bytes() if file.exists() else b""
        data += b"".join([part.tobytes() for part in self.buckets[number]])
        return read_hashes(data)


class _Side:
    """The hashes of all rows of one side."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._held = 0
        self.states: dict[StateName, _Digests] = {}

    def add(self, chunk: RowChunk) -> None:
        state = self.states.get(chunk.name)
        if state is None:
            state = self.states[chunk.name] = _Digests(self._place / str(len(self.states)))
        state.add(chunk.records())
        state.rows += len(chunk.values)
        state.size_bytes += chunk.size_bytes
        self._held += len(chunk.values)
        if self._held > _HELD:
            for state in self.states.values():
                state.put_away()
            self._held = 0


# The hashes of the keys to be shown, by kind of difference.
KeySamples = dict[str, list[bytes]]
# The number of keys of each kind of difference, and the smallest hashes of these keys.
ChangeCounts = Mapping[str, tuple[int, list[bytes]]]


def _compared(
    name: StateName, first: _Side, second: _Side, samples: int
) -> tuple[StateDifference, KeySamples]:
    one = first.states.get(name) or _Digests(Path())
    other = second.states.get(name) or _Digests(Path())
    buckets = ((one.bucket(number), other.bucket(number)) for number in range(_BUCKETS))
    return merge_changes(
        name,
        (one.rows, other.rows),
        (one.size_bytes, other.size_bytes),
        (count_changes(*bucket, samples) for bucket in buckets),
        samples,
    )


def merge_changes(
    name: StateName,
    rows: Sequence[int],
    size_bytes: Sequence[int],
    parts: Iterable[ChangeCounts],
    samples: int,
) -> tuple[StateDifference, KeySamples]:
    """Return the difference of one state without samples, and the hashes of the keys to show.

    Args:
        name: The state.
        rows: The number of rows of each side.
        size_bytes: The bytes of each side.
        parts: The changes of disjoint sets of keys, ascending by the hash of the key.
        samples: Number of keys to show for each kind of difference.
    """
    counts = {"added": 0, "removed": 0, "changed": 0}
    wanted: KeySamples = {change: [] for change in counts}
    for part in parts:
        for change, (keys, smallest) in part.items():
            counts[change] += keys
            wanted[change] += smallest[: samples - len(wanted[change])]
    difference = StateDifference(
        name,
        rows[0],
        rows[1],
        counts["added"],
        counts["removed"],
        counts["changed"],
        size_bytes[0],
        size_bytes[1],
    )
    return difference, wanted


def count_changes(
    one: list[tuple[bytes, bytes]], other: list[tuple[bytes, bytes]], samples: int
) -> ChangeCounts:
    """Return the number of differing keys by type of change, with the smallest hashes as samples."""
    return {change: (len(keys), sorted(keys)[:samples]) for change, keys in _changes(one, other).items()}


def _changes(one: list[tuple[bytes, bytes]], other: list[tuple[bytes, bytes]]) -> dict[str, list[bytes]]:
    """Return the differing keys by type of change."""
    here, there = dict(one), dict(other)
    if len(here) != len(one) or len(there) != len(other):
        return _changes_of_many(_by_key(one), _by_key(other))
    both = here.keys() & there.keys()
    return {
        "added": list(there.keys() - both),
        "removed": list(here.keys() - both),
        "changed": [key for key in both if here[key] != there[key]],
    }


def _changes_of_many(
    here: dict[bytes, list[bytes]], there: dict[bytes, list[bytes]]
) -> dict[str, list[bytes]]:
    """Yield changes of keys that may occur more than once, as in damaged state."""
    found: dict[str, list[bytes]] = {"added": [], "removed": [], "changed": []}
    for key in here.keys() | there.keys():
        values, others = Counter(here.get(key, ())), Counter(there.get(key, ()))
        gone, new = (values - others).total(), (others - values).total()
        changed = min(gone, new)
        for change, times in (("changed", changed), ("removed", gone - changed), ("added", new - changed)):
            found[change] += [key] * times
    return found


def _by_key(rows: list[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for key, value in rows:
        found.setdefault(key, []).append(value)
    return found


def _sample_rows(
    wanted: dict[StateName, KeySamples],
    sides: tuple[StateLocation, StateLocation],
    tell: ProgressCallback | None,
    without: Container[int],
) -> dict[tuple[int, StateName, bytes], KeyedRow]:
    """Return the rows to show by side, state and hash of the key; stops reading when all are found."""
    found: dict[tuple[int, StateName, bytes], KeyedRow] = {}
    for number, side in enumerate(sides):
        left = keys_of_side(number, wanted)
        for chunk in _chunks(side, tell, without):
            for key, row in sample(chunk, left):
                found[number, chunk.name, key] = row
            if not any(left.values()):
                break
    return found


def keys_of_side(side: int, wanted: Mapping[StateName, KeySamples]) -> dict[StateName, set[bytes]]:
    """Return the hashes of the wanted keys that one side has."""
    missing = ("added", "removed")[side]
    return {
        name: {key for change, keys in of_state.items() if change != missing for key in keys}
        for name, of_state in wanted.items()
    }


def sample(chunk: RowChunk, left: dict[StateName, set[bytes]]) -> Iterator[tuple[bytes, KeyedRow]]:
    """Yield the rows of a chunk with these key hashes; each hash found is removed."""
    keys = left.get(chunk.name)
    if keys:
        for at, key in enumerate(chunk.hashes()):
            if key in keys:
                keys.discard(key)
                yield key, chunk.shown(at)


def with_samples(
    difference: StateDifference, wanted: KeySamples, shown: dict[tuple[int, StateName, bytes], KeyedRow]
) -> StateDifference:
    name = difference.state
    samples = []
    for change, keys in wanted.items():
        for key in keys:
            first, second = shown.get((0, name, key)), shown.get((1, name, key))
            either = first or second
            if either is not None:
                samples.append(
                    DifferingKey(
                        change,
                        either[0],
                        None if first is None else first[1],
                        None if second is None else second[1],
                    )
                )
    return replace(difference, samples=tuple(samples))
