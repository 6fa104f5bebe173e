"""Compare what two runs have put out: each batch's rows as a multiset, whatever their order."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.formats.rows.plain import plain
from holdfast.json_shapes import in_json, in_json_as, json_as
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    import pyarrow as pa

# So many rows of a batch are held against each other at a time; each takes some hundred bytes meanwhile.
ROWS_AT_ONCE: Final = 2_000_000
_PIECE: Final = 8192


@dataclass(frozen=True, slots=True)
class RowSample:
    """Rows that only one of the two has put out in a batch.

    Attributes:
        batch_id: The batch.
        count: How many more of them this one has.
        row: The row, by column.
    """

    batch_id: int
    count: int
    row: Mapping[str, Any] = field(metadata=json_as(convert=plain))


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """One batch of both runs.

    Attributes:
        batch_id: The batch.
        original_rows: The rows that the original has put out.
        new_rows: The rows that the new code has put out.
        missing: Rows of the original that the new code has not put out.
        extra: Rows of the new code that the original has not put out.
    """

    batch_id: int
    original_rows: int
    new_rows: int
    missing: int
    extra: int


@dataclass(frozen=True, slots=True)
class Outputs:
    """The verdict on the outputs.

    Attributes:
        original_columns: Names and types of the original's columns.
        new_columns: Names and types of the new code's.
        batches: Each batch.
        same_rows: Whether all batches together hold the same rows, though perhaps in others of them.
        missing: Samples of what only the original has put out.
        extra: Samples of what only the new code has put out.
    """

    original_columns: tuple[str, ...]
    new_columns: tuple[str, ...]
    batches: tuple[BatchOutput, ...]
    same_rows: bool
    missing: tuple[RowSample, ...] = field(metadata=json_as("missing_samples"))
    extra: tuple[RowSample, ...] = field(metadata=json_as("extra_samples"))

    @property
    @in_json
    def equal(self) -> bool:
        """Whether columns are the same, and each batch has the same rows."""
        same = all(batch.missing == batch.extra == 0 for batch in self.batches)
        return same and self.original_columns == self.new_columns

    @property
    @in_json
    def original_rows(self) -> int:
        """The rows that the original has put out."""
        return sum(batch.original_rows for batch in self.batches)

    @property
    @in_json
    def new_rows(self) -> int:
        """The rows that the new code has put out."""
        return sum(batch.new_rows for batch in self.batches)

    @property
    @in_json_as("missing")
    def missing_rows(self) -> int:
        """The rows that only the original has put out, batch by batch."""
        return sum(batch.missing for batch in self.batches)

    @property
    @in_json_as("extra")
    def extra_rows(self) -> int:
        """The rows that only the new code has put out, batch by batch."""
        return sum(batch.extra for batch in self.batches)


@dataclass(slots=True)
class _Side:
    """The rows of one batch of one run."""

    storage: Storage
    folder: str
    schema: pa.Schema | None = None
    rows: int = 0
    files: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, storage: Storage, batch_id: int) -> _Side:
        import pyarrow.parquet as pq

        side = cls(storage, str(batch_id))
        for name in sorted(storage.list(side.folder).names):
            if not name.endswith(".parquet") or name.startswith((".", "_")):
                continue
            read = pq.ParquetFile(io.BytesIO(storage.read(f"{side.folder}/{name}")))
            side.schema = read.schema_arrow
            side.rows += read.metadata.num_rows
            side.files.append(name)
        return side

    @property
    def columns(self) -> tuple[str, ...]:
        """Names and types."""
        return () if self.schema is None else tuple(f"{field.name} {field.type}" for field in self.schema)

    def read(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Its rows, with these columns."""
        import pyarrow.parquet as pq

        for name in self.files:
            file = pq.ParquetFile(io.BytesIO(self.storage.read(f"{self.folder}/{name}")))
            for piece in file.iter_batches(_PIECE, columns=list(names)):
                yield from piece.to_pylist()


def compare_outputs(original: Storage, new: Storage, batches: Iterable[int], samples: int) -> Outputs:
    """Compare the rows of each batch.

    Where the columns differ, the rows are compared by those that both have. Values are equal if they print
    alike: there is no tolerance for numbers, and 0.0 is -0.0.

    Cost: both outputs are read twice; of a batch, so many rows as `ROWS_AT_ONCE` are held by their hashes.

    Args:
        original: The directory with the original's rows: Parquet files in one directory a batch.
        new: The same of the new code.
        batches: The batches.
        samples: How many different rows to show of each side.
    """
    compared: list[BatchOutput] = []
    columns: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    missing: list[RowSample] = []
    extra: list[RowSample] = []
    overall: Counter[bytes] = Counter()
    for batch_id in batches:
        one, other = _Side.of(original, batch_id), _Side.of(new, batch_id)
        columns = (one.columns or columns[0], other.columns or columns[1])
        difference = _difference(one, other)
        overall.update(difference)
        compared.append(
            BatchOutput(
                batch_id,
                one.rows,
                other.rows,
                sum(count for count in difference.values() if count > 0),
                -sum(count for count in difference.values() if count < 0),
            )
        )
        names = _shared(one, other)
        missing += _samples(one, names, batch_id, _some(difference, samples - len(missing), 1))
        extra += _samples(other, names, batch_id, _some(difference, samples - len(extra), -1))
    same = not any(overall.values())
    return Outputs(*columns, tuple(compared), same, tuple(missing), tuple(extra))


def _difference(one: _Side, other: _Side) -> Counter[bytes]:
    """By the hash of a row: how many more of it the first has."""
    names = _shared(one, other)
    found: Counter[bytes] = Counter()
    passes = -(-max(one.rows, other.rows, 1) // ROWS_AT_ONCE)
    for part in range(passes):
        counts: Counter[bytes] = Counter()
        for side, sign in ((one, 1), (other, -1)):
            for row in side.read(names):
                key = _hash(row, names)
                if key[0] % passes == part:
                    counts[key] += sign
        found.update({key: count for key, count in counts.items() if count})
    return found


def _shared(one: _Side, other: _Side) -> list[str]:
    if one.schema is None or other.schema is None:
        return []
    return [name for name in one.schema.names if name in other.schema.names]


def _some(difference: Counter[bytes], most: int, sign: int) -> dict[bytes, int]:
    wanted = sorted(key for key, count in difference.items() if count * sign > 0)
    return {key: abs(difference[key]) for key in wanted[: max(most, 0)]}


def _samples(
    side: _Side, names: Sequence[str], batch_id: int, wanted: dict[bytes, int]
) -> Iterator[RowSample]:
    for row in side.read(names) if wanted else ():
        count = wanted.pop(_hash(row, names), None)
        if count is not None:
            yield RowSample(batch_id, count, row)


def _hash(row: Mapping[str, Any], names: Sequence[str]) -> bytes:
    text = repr([_plain(row[name]) for name in names])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _plain(value: Any) -> Any:
    """A value that prints alike if it is alike: a map, which is a list of pairs here, has no order."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return [(name, _plain(part)) for name, part in value.items()]
    if isinstance(value, list):
        pairs = [_plain(pair) for pair in value]
        return sorted(pairs, key=repr) if value and all(isinstance(part, tuple) for part in value) else pairs
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    return value
