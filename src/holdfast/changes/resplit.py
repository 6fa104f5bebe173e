"""The change of the hot keys of a join of streams: `hf.change(…).split(…)`.

Each waiting row of the split side is in one part of its hot key, and each waiting row of the other side is
copied into all parts, so a split decides where rows are stored. This step moves the rows of the keys whose
parts change. It takes one copy of each row of the other side and copies it into the new parts, and it puts
each row of the split side into one new part. Any part is correct for a stored row, because the other side is
in all parts. The part is chosen by a hash of the row, so that the parts get equal shares.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast import layout
from holdfast.at_rest.insight import split_joins, split_note
from holdfast.changes.rewriting import OperatorRewrite, StateShape, rewrite
from holdfast.changes.working_copy import WorkingCopy
from holdfast.checkpoints.checkpoint import ProgressCallback, read
from holdfast.checkpoints.state.contents import ContentSum, contents
from holdfast.checkpoints.state.key_partition import KeyPartitions
from holdfast.checkpoints.state.rocksdb import Pairs
from holdfast.checkpoints.state.rows import store_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, operator_states
from holdfast.config.checks import whole
from holdfast.config.spark_defaults import ROCKSDB_PROVIDER
from holdfast.errors import Internal, Invalid, NotFound, Unsupported
from holdfast.formats.operators import STREAM_JOIN, FamilyUse, family_of
from holdfast.formats.providers import known_provider
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.json_shapes import JsonShape
from holdfast.layout import OwnFile, StoreId
from holdfast.storage.port import Storage, full
from holdfast.stream.keyed.hot_keys import MOST_HOT, MOST_PARTS, PART, key_text, key_values, refuse_one_key

_WHERE: Final = "hf.change(…).split(…)"
# The field of a stored row that shows whether the row has met a match.
_MATCHED: Final = "matched"
_BATCH: Final = 64

Row = dict[str, Any]
# A store, a column family of it, and a partition.
_Place = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class SplitReport(JsonShape):
    """The change of a join's hot keys.

    Attributes:
        join: The name of the join.
        side: The side whose rows are split.
        hot_before: The hot keys before the change, each as a JSON list of its values.
        hot: The hot keys after the change.
        parts_before: The number of parts of each key before the change.
        parts: The number of parts of each key after the change.
        left_rows: The number of waiting rows of the left side, each counted once.
        right_rows: The number of waiting rows of the right side, each counted once.
    """

    join: str
    side: str
    hot_before: tuple[str, ...]
    hot: tuple[str, ...]
    parts_before: int
    parts: int
    left_rows: int
    right_rows: int


@dataclass(frozen=True, slots=True)
class _Split:
    """A split of a join: its hot keys as text, the number of parts, and the side that is split."""

    hot: frozenset[str]
    parts: int
    side: str


class ResplitJoin:
    """The step that changes the hot keys of a join.

    Args:
        join: The name of the join.
        hot: The new hot keys: values, or tuples for several key columns.
        parts: The new number of parts of each key; None to keep it.
    """

    name = "split"

    def __init__(self, join: str, hot: Iterable[Any], parts: int | None) -> None:
        refuse_one_key(hot, _WHERE)
        self.join = join
        self.hot = tuple(hot)
        self.parts = None if parts is None else whole(parts, f"{_WHERE}: parts", least=2, most=MOST_PARTS)
        if not 1 <= len(self.hot) <= MOST_HOT:
            raise Invalid(
                "invalid number of hot keys",
                code="HF-E2532",
                where=f"{_WHERE}: hot",
                found=str(len(self.hot)),
                expected=f"1 to {MOST_HOT}: without hot keys the state of a join has a different key",
                hint="name at least one key; a key that no longer occurs does no harm",
            )

    def plan(self, checkpoint: Storage) -> dict[str, Any]:
        """Return the split before and after the change, after checking it against the state.

        Raises:
            NotFound: The checkpoint has no split join with this name.
            Invalid: A key does not match the key columns, or the split is unchanged.
            Unsupported: The split of this join cannot be changed.
        """
        found = _Join.of(checkpoint, self.join)
        now = self._now(found)
        return {
            "join": self.join,
            "side": now.side,
            "hot_before": sorted(found.split.hot),
            "hot": sorted(now.hot),
            "parts_before": found.split.parts,
            "parts": now.parts,
        }

    def apply(self, work: WorkingCopy, folder: Path, tell: ProgressCallback | None) -> SplitReport:
        """See `Step`; the rows of both sides are compared as if no key were split."""
        batch_id = read(work.checkpoint).batch_id
        found = _Join.of(work.checkpoint, self.join)
        now = self._now(found)
        before = found.view(found.split)
        moved = dict(found.moved(now))
        shape = found.shape()

        def rewriting(*arguments: Any) -> OperatorRewrite:
            operator = arguments[2].operator_id
            if operator != found.number:
                return OperatorRewrite(*arguments)
            return _JoinRewrite(*arguments, join=found, now=now, moved=moved)

        rewrite(work.checkpoint, shape, folder / "stores", tell, make=rewriting)
        work.end_at(batch_id or 0)
        found.write_note(work.checkpoint, now)
        contents(work.checkpoint, check_partitions=True, tell=tell)
        after = _Join.of(work.checkpoint, self.join).view(now)
        if {side: view.digest() for side, view in before.items()} != {
            side: view.digest() for side, view in after.items()
        }:
            raise Internal(
                "verification failed, so nothing was written: the waiting rows of a join have changed",
                code="HF-E9037",
                where=found.where,
                found=f"{after['left'].rows} left and {after['right'].rows} right rows",
                expected=f"{before['left'].rows} left and {before['right'].rows} right rows",
                hint="please report this; the source is unchanged",
            )
        rows = {side: view.rows for side, view in after.items()}
        return SplitReport(
            self.join,
            now.side,
            tuple(sorted(found.split.hot)),
            tuple(sorted(now.hot)),
            found.split.parts,
            now.parts,
            rows["left"],
            rows["right"],
        )

    def _now(self, found: _Join) -> _Split:
        texts = [found.text(key_values(found.by, key, _WHERE)) for key in self.hot]
        now = _Split(frozenset(texts), self.parts or found.split.parts, found.split.side)
        if len(now.hot) < len(texts):
            raise Invalid(
                "a hot key is given twice",
                code="HF-E2319",
                where=f"{_WHERE}: hot",
                found=", ".join(text for text, times in Counter(texts).items() if times > 1),
                hint="give each key once",
            )
        if now == found.split:
            raise Invalid(
                "the join already has these hot keys and parts",
                code="HF-E2533",
                where=found.where,
                found=f"{', '.join(sorted(now.hot))} in {now.parts} parts",
                hint="run the query on this checkpoint, or give different keys or parts",
            )
        return now


@dataclass(slots=True)
class _Join:
    """The state of a split join in a checkpoint.

    Attributes:
        storage: The checkpoint.
        name: The name of the join.
        by: The key columns.
        split: The split of the state.
        states: The states of the join.
        note: The fields of the file that describes the split.
    """

    storage: Storage
    name: str
    by: tuple[str, ...]
    split: _Split
    states: OperatorStates
    note: Mapping[str, Any]
    _placements: dict[str, KeyPartitions] = field(default_factory=dict)

    @classmethod
    def of(cls, storage: Storage, name: str) -> _Join:
        """Return the join with this name.

        Raises:
            NotFound: The checkpoint has no split join with this name.
            Unsupported: The split of this join cannot be changed.
        """
        try:
            note = split_note(storage, name)
        except NotFound:
            known = ", ".join(split_joins(storage))
            raise NotFound(
                f"the checkpoint has no split join {name!r}",
                code="HF-E3070",
                where=storage.uri,
                expected=known or "a join of hf.split_hot(…).join_within(…)",
                hint="name a split join of this checkpoint: the name= of join_within, by default 'join'",
            ) from None
        if not note["hot"]:
            raise Unsupported(
                "the join was started without hot keys, so its state has no parts",
                code="HF-E7126",
                where=f"{storage.uri}, join {name}",
                hint="start the query on a new checkpoint with a hot key: split_hot(…, hot=[…])",
            )
        external = read(storage).external
        if external is not None:
            raise Unsupported(
                "the hot keys of a join cannot be changed while its state is in a database",
                code="HF-E7127",
                where=storage.uri,
                found=external.kind,
                hint="move the state to files first, with `holdfast state migrate CHECKPOINT NEW --backend"
                " rocksdb`",
            )
        by = tuple(note["by"])
        split = _Split(frozenset(note["hot"]), int(note["parts"]), str(note["side"]))
        return cls(storage, name, by, split, _states_of(storage, name, by), note)

    @property
    def number(self) -> int:
        """The number of the operator."""
        return self.states.operator_id

    @property
    def where(self) -> str:
        """The address of the state, for messages."""
        return full(self.storage.uri, f"{layout.STATE}/{self.number}")

    def text(self, key: Sequence[Any]) -> str:
        """Return a key as in the description of the split."""
        types = _fields(next(codec for codec, _, use in self.codecs() if use is FamilyUse.JOIN_ROWS))
        return key_text(key, types[: len(self.by)])

    def codecs(self) -> Iterator[tuple[StateCodec, str, FamilyUse]]:
        """Yield each state of the join with its side and its use."""
        for codec in self.states.declared_codecs():
            family = family_of(STREAM_JOIN, codec.name.label)
            if family is not None:
                yield codec, family.state(codec.name.label), family.use

    def shape(self) -> StateShape:
        """Return the layout of the checkpoint, which does not change."""
        found = read(self.storage)
        return StateShape(
            rocksdb=known_provider(found.confs, self.storage.uri) == ROCKSDB_PROVIDER,
            partitions=self.states.partitions,
            state_format=max(operator.format_version for operator in found.operators),
            external=found.external,
        )

    def rows(self) -> Iterator[tuple[StateCodec, str, FamilyUse, Row, bytes]]:
        """Yield every row: its state, side and use, the fields of its key, and its value as a row."""
        for store in self.states.store_names:
            for partition in range(self.states.partitions):
                for codec, pairs in store_chunks(
                    self.storage, self.states, StoreId(self.number, partition, store)
                ):
                    family = family_of(STREAM_JOIN, codec.name.label)
                    if family is None:
                        continue
                    side = family.state(codec.name.label)
                    for key, value in pairs:
                        rows, _ = codec.values.rows(value, codec.where)
                        yield codec, side, family.use, codec.key_values(codec.key_row(key)), rows[0]

    def text_of(self, codec: StateCodec, key: Row) -> str:
        """Return the values of the key columns as in the description of the split."""
        return key_text(list(key.values())[: len(self.by)], _fields(codec)[: len(self.by)])

    def part_of(self, key: Row) -> int:
        """Return the part of a stored key."""
        return int(list(key.values())[len(self.by)])

    def labels(self, codec: StateCodec, key: Row, text: str, split: _Split) -> tuple[int, ...]:
        """Return the parts of a key in a split, as `hot_keys.labels_of` numbers them."""
        if text not in split.hot:
            return (0,)
        found: dict[int, int] = {}
        first = 0
        while len(found) < split.parts:
            numbers = range(first, first + _BATCH)
            rows = [codec.stored_key(self.key_row(codec, key, number)) for number in numbers]
            for number, hashed in zip(numbers, self.hashes(codec, rows), strict=True):
                found.setdefault(hashed % split.parts, number)
            first += _BATCH
        return tuple(found[remainder] for remainder in range(split.parts))

    def key_row(self, codec: StateCodec, key: Row, part: int, index: int | None = None) -> bytes:
        """Return the row of a key with a different part and index."""
        names = codec.key_type.names
        changed = {**key, names[len(self.by)]: part}
        if index is not None:
            changed[names[len(self.by) + 1]] = index
        return RowCodec(codec.key_type).encode(changed)

    def hashes(self, codec: StateCodec, keys: Sequence[bytes]) -> list[int]:
        """Return Spark's hashes of stored keys."""
        placement = self._placements.get(codec.name.label)
        if placement is None:
            placement = KeyPartitions(self.states, codec, self.where)
            self._placements[codec.name.label] = placement
        return placement.hashes(keys)

    def changes(self, text: str, now: _Split) -> bool:
        """Return whether the parts of a key change."""
        was, will = text in self.split.hot, text in now.hot
        return was != will or (will and now.parts != self.split.parts)

    def moved(self, now: _Split) -> Iterator[tuple[_Place, list[tuple[bytes, bytes]]]]:
        """Yield the new rows of the keys whose parts change, by store, column family and partition."""
        waiting: dict[tuple[str, str], dict[int, list[tuple[int, bytes]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        keys: dict[tuple[str, str], tuple[StateCodec, Row]] = {}
        counts = {side: codec for codec, side, use in self.codecs() if use is FamilyUse.JOIN_COUNTS}
        for codec, side, use, key, value in self.rows():
            text = self.text_of(codec, key)
            if use is not FamilyUse.JOIN_ROWS or not self.changes(text, now):
                continue
            keys[side, text] = codec, key
            waiting[side, text][self.part_of(key)].append((int(list(key.values())[-1]), value))
        placed: dict[_Place, list[tuple[bytes, bytes]]] = defaultdict(list)
        for (side, text), by_part in waiting.items():
            codec, key = keys[side, text]
            labels = self.labels(codec, key, text, now)
            for part, values in self._in_parts(codec, side, by_part, labels):
                self._place(
                    placed, codec, [self.key_row(codec, key, part, at) for at in range(len(values))], values
                )
                counting = counts[side]
                short = dict(list(key.items())[: len(self.by) + 1])
                short = dict(zip(counting.key_type.names, short.values(), strict=True))
                count = RowCodec(counting.value_type).encode({counting.value_type.names[0]: len(values)})
                self._place(placed, counting, [self.key_row(counting, short, part)], [count])
        yield from placed.items()

    def _in_parts(
        self,
        codec: StateCodec,
        side: str,
        by_part: Mapping[int, list[tuple[int, bytes]]],
        labels: Sequence[int],
    ) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the new parts of a key with their rows, in the order of arrival."""
        if side != self.split.side:
            one = [value for _, value in sorted(by_part[min(by_part)], key=lambda row: row[0])]
            for label in labels:
                yield label, [_with_part(codec, value, label) for value in one]
            return
        values = [
            value for part in sorted(by_part) for _, value in sorted(by_part[part], key=lambda row: row[0])
        ]
        chosen: dict[int, list[bytes]] = defaultdict(list)
        for value in values:
            digest = hashlib.blake2b(value, digest_size=8).digest()
            chosen[labels[int.from_bytes(digest, "big") % len(labels)]].append(value)
        yield from sorted(chosen.items())

    def _place(
        self,
        placed: dict[_Place, list[tuple[bytes, bytes]]],
        codec: StateCodec,
        keys: Sequence[bytes],
        values: Sequence[bytes],
    ) -> None:
        stored = [codec.stored_key(key) for key in keys]
        for key, value, hashed in zip(stored, values, self.hashes(codec, stored), strict=True):
            at = codec.name.store, codec.name.family, hashed % self.states.partitions
            placed[at].append((key, value))

    def view(self, split: _Split) -> dict[str, ContentSum]:
        """Return the sum of each side's rows as if no key were split.

        Raises:
            Internal: The copies of a hot key differ, or counts and rows of a key differ.
        """
        sums = {"left": ContentSum(), "right": ContentSum()}
        copies: dict[str, dict[int, Counter[bytes]]] = defaultdict(lambda: defaultdict(Counter))
        found: Counter[tuple[str, str, int]] = Counter()
        counted: Counter[tuple[str, str, int]] = Counter()
        expected: dict[str, tuple[int, ...]] = {}
        for codec, side, use, key, value in self.rows():
            text, part = self.text_of(codec, key), self.part_of(key)
            if use is FamilyUse.JOIN_COUNTS:
                counted[side, text, part] += int(next(iter(codec.value_values(value).values())))
                continue
            found[side, text, part] += 1
            if text not in expected:
                expected[text] = self.labels(codec, key, text, split)
            if part not in expected[text]:
                raise self._wrong(f"a row of {text} in part {part}", f"parts {expected[text]}")
            fields = codec.value_values(value)
            fields.pop(PART, None)
            if side == split.side:
                sums[side].add([text.encode()], [repr(fields).encode()])
                continue
            fields.pop(_MATCHED, None)
            copies[text][part][repr(fields).encode()] += 1
        for text, parts in copies.items():
            first = next(iter(parts.values()))
            if set(parts) != set(expected[text]) or any(copy != first for copy in parts.values()):
                raise self._wrong(f"different copies of {text}", f"equal copies in parts {expected[text]}")
            rows = list(first.elements())
            sums[_other(split.side)].add([text.encode()] * len(rows), rows)
        if found != +counted:
            raise self._wrong("counts that differ from the rows", "the number of rows of each key")
        return sums

    def _wrong(self, found: str, expected: str) -> Internal:
        return Internal(
            "the state of a split join is inconsistent, so nothing was written",
            code="HF-E9038",
            where=self.where,
            found=found,
            expected=expected,
            hint="please report this; the source is unchanged",
        )

    def write_note(self, made: Storage, now: _Split) -> None:
        """Write the description of the split after the change."""
        path = OwnFile(layout.split_note(self.name)).render()
        fields = {**self.note, "hot": sorted(now.hot), "parts": now.parts}
        made.delete(layout.HadoopChecksumFile(path).render())
        made.write(path, json.dumps(fields).encode(), replace=True)


class _JoinRewrite(OperatorRewrite):
    """A writer of a join's state with the rows of some keys in different parts."""

    def __init__(
        self,
        *arguments: Any,
        join: _Join,
        now: _Split,
        moved: Mapping[_Place, list[tuple[bytes, bytes]]],
    ) -> None:
        super().__init__(*arguments)
        self._join = join
        self._now = now
        self._moved_rows = moved

    def _copy(self, store: StoreId, families: Any, writers: Any) -> None:
        writer = writers.get(store.partition)
        if writer is None:
            return
        as_stored = self._same_form and self._base_families(store) == families
        for state, pairs in store_chunks(self.checkpoint, self._states, store):
            self._add(writer, state, self._staying(state, pairs), as_stored=as_stored)
        for (name, family, partition), rows in self._moved_rows.items():
            if (name, partition) == (store.name, store.partition):
                writer.add([key for key, _ in rows], [row for _, row in rows], family)

    def _staying(self, state: StateCodec, pairs: Pairs) -> Pairs:
        join, now = self._join, self._now
        return [
            (key, value)
            for key, value in pairs
            if not join.changes(join.text_of(state, state.key_values(state.key_row(key))), now)
        ]


def _states_of(storage: Storage, name: str, by: tuple[str, ...]) -> OperatorStates:
    """Return the states of the join whose key has the key columns and the part.

    Raises:
        Unsupported: The join cannot be identified, or its format is not supported.
    """
    batch_id = read(storage).batch_id
    fitting: list[OperatorStates] = []
    for operator in () if batch_id is None else operator_states(storage, batch_id):
        if operator.name != STREAM_JOIN:
            continue
        uses = {
            codec.name.label: family_of(STREAM_JOIN, codec.name.label) for codec in operator.declared_codecs()
        }
        rows = [
            codec
            for codec in operator.declared_codecs()
            if _use(uses[codec.name.label]) is FamilyUse.JOIN_ROWS
        ]
        if rows and len(rows[0].key_type.names) == len(by) + 2 and _fields(rows[0])[len(by)] == "integer":
            fitting.append(operator)
    if len(fitting) != 1 or fitting[0].values.avro:
        raise Unsupported(
            "the state of the split join cannot be identified",
            code="HF-E7128",
            where=f"{storage.uri}, join {name}",
            found=f"{len(fitting)} joins by {', '.join(by)} and a part, in the format of UnsafeRow",
            expected="one",
            hint="keep the hot keys of this checkpoint, or start the query on a new checkpoint",
        )
    return fitting[0]


def _use(family: Any) -> FamilyUse | None:
    return None if family is None else family.use


def _fields(codec: StateCodec) -> list[str]:
    """Return the types of the fields of a key, as in Spark's JSON."""
    return [str(found["type"]) for found in json.loads(codec.require_schema().key_schema)["fields"]]


def _with_part(codec: StateCodec, value: bytes, part: int) -> bytes:
    """Return a row of the copied side with a different part."""
    names = codec.value_type.names
    if PART not in names:
        return value
    return RowCodec(codec.value_type).encode({**codec.value_values(value), PART: part})


def _other(side: str) -> str:
    return "right" if side == "left" else "left"
