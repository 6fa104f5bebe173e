"""What differs between two states key by key, wherever the keys are.

Each row is boiled down to a hash of its key and one of its value, 32 bytes, and these are compared bucket by
bucket; beyond two million they wait in temporary files. Then the rows that are to be shown are read once
more.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.checkpoints.keyed.key_groups import is_keyed, stored_groups
from holdfast.checkpoints.state.contents import bare_rows
from holdfast.checkpoints.state.families import Pairs
from holdfast.checkpoints.state.rows import CHUNK, state_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, StateName, operator_states
from holdfast.checkpoints.values import ProgressCallback
from holdfast.formats.rows.plain import plain
from holdfast.json_shapes import JsonShape, in_json, json_as, json_spread
from holdfast.savepoints.differences.keyed_values import Row, keyed_rows
from holdfast.savepoints.differences.merge_walk import KEY_HASH, Stepped, alike, differing, step
from holdfast.savepoints.differences.merge_walk import shown as row_values
from holdfast.savepoints.places import Place
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KEYED: Final = "keyed"
_BUCKETS: Final = 64
_HASH: Final = KEY_HASH
_PAIR: Final = struct.Struct(f"{_HASH}s{_HASH}s")
# So many rows are held in memory, at 32 bytes each, before they are put into files.
_HELD: Final = 1 << 21


@dataclass(frozen=True, slots=True)
class Sample(JsonShape):
    """A key that is not the same on both sides.

    Attributes:
        change: `added`, `removed` or `changed`.
        key: The key's values by name.
        first: Its value on the first side; None where it is not there.
        second: Its value on the second side.
    """

    change: str
    key: Any = field(metadata=json_as(convert=plain))
    first: Any = field(metadata=json_as(convert=plain))
    second: Any = field(metadata=json_as(convert=plain))


@dataclass(frozen=True, slots=True)
class StateDifference(JsonShape):
    """One state of both sides.

    Attributes:
        state: The state.
        first_rows: Its keys on the first side.
        second_rows: Its keys on the second side.
        added: Keys that only the second has.
        removed: Keys that only the first has.
        changed: Keys with another value.
        first_bytes: The bytes of keys and values on the first side.
        second_bytes: The bytes on the second side.
        samples: Some of the keys that differ.
    """

    state: StateName = field(metadata=json_spread())
    first_rows: int
    second_rows: int
    added: int
    removed: int
    changed: int
    first_bytes: int
    second_bytes: int
    samples: tuple[Sample, ...] = ()

    @property
    def same(self) -> bool:
        """Whether every key has the same value on both sides."""
        return not (self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True)
class StatesDifference(JsonShape):
    """All states of both sides.

    Attributes:
        first: The first side.
        second: The second side.
        states: Every state that one of them has, ascending by operator and name.
    """

    first: str
    second: str
    states: tuple[StateDifference, ...]

    @property
    @in_json
    def same(self) -> bool:
        """Whether both sides hold the same state."""
        return all(state.same for state in self.states)


def compare_states(
    first: Place, second: Place, *, samples: int = 5, tell: ProgressCallback | None = None
) -> StatesDifference:
    """Compare two states key by key; partitions, files and providers may be different.

    States are matched by operator, store and column family. Holdfast's own keyed operators are compared by
    the keys of their users.

    Cost: all rows of both are read, about 2 microseconds each. Where the two are kept in other ways, 4, and
    once more where some differ and are to be shown; memory for two million rows and one partition's changes,
    32 bytes a row of temporary files beyond.

    Args:
        first: One side.
        second: The other.
        samples: How many keys of each kind of difference to show, of each state.
        tell: Called with what is done, what there is in all, and what is being done.

    Raises:
        NotFound: A batch is not committed, or a file that it needs is gone.
        Corrupt: A file or a row is damaged.
        Unsupported: A state is of a kind that cannot be read.
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
    shown = _shown(wanted, (first, second), tell, stepped) if wanted else {}
    states = [_with_samples(state, wanted.get(name, {}), shown) for name, (state, _) in found.items()]
    states += [difference for made in stepped.values() for difference in made]
    return StatesDifference(
        first.name, second.name, tuple(sorted(states, key=lambda difference: difference.state))
    )


def _in_step(
    first: Place, second: Place, samples: int, tell: ProgressCallback | None
) -> Iterator[tuple[int, list[StateDifference]]]:
    """The operators that both sides keep in the same way, by number: they are read once, and side by side."""
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
    shown: dict[str, list[Sample]] = {change: [] for change in counts}
    for unlike in differing(found):
        change = "added" if unlike.first is None else "removed" if unlike.second is None else "changed"
        counts[change] += 1
        if counts[change] <= samples:
            sides = [
                None if row is None else row_values(found.codec, row) for row in (unlike.first, unlike.second)
            ]
            key = next(side[0] for side in sides if side is not None)
            shown[change].append(Sample(change, key, *(None if side is None else side[1] for side in sides)))
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
class _Chunk:
    """Some rows of one state: bytes that are the same wherever the row is, and what shows a row."""

    name: StateName
    keys: Sequence[bytes]
    values: Sequence[bytes]
    shown: Callable[[int], Row]

    def hashes(self) -> list[bytes]:
        make = hashlib.blake2b
        return [make(key, digest_size=_HASH).digest() for key in self.keys]


def _chunks(state: Place, tell: ProgressCallback | None, without: Container[int]) -> Iterator[_Chunk]:
    for operator in operator_states(state.storage, state.batch_id):
        if operator.operator_id not in without:
            read = _keyed if is_keyed(operator) else _plain
            yield from read(state.storage, operator, tell)


def _plain(storage: Storage, operator: OperatorStates, tell: ProgressCallback | None) -> Iterator[_Chunk]:
    for codec, _, pairs in state_chunks(
        storage, operator.batch_id, operator_id=operator.operator_id, tell=tell
    ):
        yield _Chunk(codec.name, *bare_rows(codec, pairs), partial(_row_at, codec, pairs))


def _row_at(codec: StateCodec, pairs: Pairs, at: int) -> Row:
    return row_values(codec, pairs[at])


def _keyed(storage: Storage, operator: OperatorStates, tell: ProgressCallback | None) -> Iterator[_Chunk]:
    """The keys of a keyed operator, partition by partition."""
    name = StateName(operator.operator_id, operator.store_names[0], KEYED, operator.name, operator.named)
    rows = keyed_rows(stored_groups(storage, operator, tell), f"operator {operator.operator_id}")
    while some := list(islice(rows, CHUNK)):
        keys = [repr(key).encode() for key, _ in some]
        values = [repr(value).encode() for _, value in some]
        yield _Chunk(name, keys, values, some.__getitem__)


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
        """Write what is held to files."""
        self.place.mkdir(parents=True, exist_ok=True)
        for number, parts in enumerate(self.buckets):
            if parts:
                with (self.place / str(number)).open("ab") as file:
                    for part in parts:
                        file.write(part.tobytes())
                parts.clear()

    def bucket(self, number: int) -> list[tuple[bytes, bytes]]:
        """The hashes of key and value of a bucket's rows."""
        file = self.place / str(number)
        data = file.read_bytes() if file.exists() else b""
        data += b"".join([part.tobytes() for part in self.buckets[number]])
        return list(_PAIR.iter_unpack(data))


class _Side:
    """The hashes of all rows of one side."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._held = 0
        self.states: dict[StateName, _Digests] = {}

    def add(self, chunk: _Chunk) -> None:
        import numpy as np

        state = self.states.get(chunk.name)
        if state is None:
            state = self.states[chunk.name] = _Digests(self._place / str(len(self.states)))
        make = hashlib.blake2b
        values = [make(value, digest_size=_HASH).digest() for value in chunk.values]
        records = np.empty((len(values), 2 * _HASH), np.uint8)
        records[:, :_HASH] = np.frombuffer(b"".join(chunk.hashes()), np.uint8).reshape(-1, _HASH)
        records[:, _HASH:] = np.frombuffer(b"".join(values), np.uint8).reshape(-1, _HASH)
        state.add(records)
        state.rows += len(values)
        state.size_bytes += sum(map(len, chunk.keys)) + sum(map(len, chunk.values))
        self._held += len(values)
        if self._held > _HELD:
            for state in self.states.values():
                state.put_away()
            self._held = 0


# The hashes of the keys to be shown, by kind of difference.
_Wanted = dict[str, list[bytes]]


def _compared(name: StateName, first: _Side, second: _Side, samples: int) -> tuple[StateDifference, _Wanted]:
    one = first.states.get(name) or _Digests(Path())
    other = second.states.get(name) or _Digests(Path())
    counts = {"added": 0, "removed": 0, "changed": 0}
    wanted: _Wanted = {change: [] for change in counts}
    for number in range(_BUCKETS):
        for change, keys in _changes(one.bucket(number), other.bucket(number)).items():
            counts[change] += len(keys)
            room = samples - len(wanted[change])
            wanted[change] += sorted(keys)[: max(room, 0)]
    difference = StateDifference(
        name,
        one.rows,
        other.rows,
        counts["added"],
        counts["removed"],
        counts["changed"],
        one.size_bytes,
        other.size_bytes,
    )
    return difference, wanted


def _changes(one: list[tuple[bytes, bytes]], other: list[tuple[bytes, bytes]]) -> dict[str, list[bytes]]:
    """The keys that differ."""
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
    """The same where a key may be there more than once, as in damaged state: as often as it differs."""
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


def _shown(
    wanted: dict[StateName, _Wanted],
    sides: tuple[Place, Place],
    tell: ProgressCallback | None,
    without: Container[int],
) -> dict[tuple[int, StateName, bytes], Row]:
    """The rows to be shown, by side, state and the hash of their key. Ends when it has them."""
    found: dict[tuple[int, StateName, bytes], Row] = {}
    missing = ("added", "removed")
    for number, side in enumerate(sides):
        left = {
            name: {key for change, keys in of_state.items() if change != missing[number] for key in keys}
            for name, of_state in wanted.items()
        }
        for chunk in _chunks(side, tell, without):
            keys = left.get(chunk.name)
            if keys:
                for at, key in enumerate(chunk.hashes()):
                    if key in keys:
                        keys.discard(key)
                        found[number, chunk.name, key] = chunk.shown(at)
            if not any(left.values()):
                break
    return found


def _with_samples(
    difference: StateDifference, wanted: _Wanted, shown: dict[tuple[int, StateName, bytes], Row]
) -> StateDifference:
    name = difference.state
    samples = []
    for change, keys in wanted.items():
        for key in keys:
            first, second = shown.get((0, name, key)), shown.get((1, name, key))
            either = first or second
            if either is not None:
                samples.append(
                    Sample(
                        change,
                        either[0],
                        None if first is None else first[1],
                        None if second is None else second[1],
                    )
                )
    return replace(difference, samples=tuple(samples))
