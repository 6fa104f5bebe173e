"""Hot keys: their checks, the assignment of their rows to parts, and the numbers of the parts.

A part is a number that is added to the key, so that Spark's shuffle puts the parts of a key into different
partitions. Rows of all other keys are in part 0.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Invalid
from holdfast.formats.rows.murmur3 import hash_int
from holdfast.stream.event_time import quoted, type_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The column with the part of each row.
PART: Final = "_holdfast_part"
# The maximum number of hot keys: with more, not every key can have a share worth splitting.
MOST_HOT: Final = 100
MOST_PARTS: Final = 1024

_UNHASHED: Final = ("map<", "variant")
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "tinyint": (int,),
    "smallint": (int,),
    "int": (int,),
    "bigint": (int,),
    "string": (str,),
    "boolean": (bool,),
    "date": (dt.date,),
    "timestamp": (dt.datetime,),
    "timestamp_ntz": (dt.datetime,),
    "float": (float, int),
    "double": (float, int),
    "decimal": (Decimal, int),
    "binary": (bytes, bytearray),
}


@dataclass(frozen=True, slots=True)
class HotKeys:
    """The hot keys of a frame, and the number of parts of each.

    Attributes:
        by: The key columns.
        keys: The hot keys, each with a value for every key column.
        parts: The number of parts of each key.
        labels: The numbers of the parts of each key. They are chosen so that Spark's hash puts the parts of a
            key into different partitions if `parts` equals, divides or is a multiple of the number of
            partitions; parts numbered 0, 1, 2, … would share some partitions and leave others empty.
    """

    by: tuple[str, ...]
    keys: tuple[tuple[Any, ...], ...]
    parts: int
    labels: tuple[tuple[int, ...], ...]

    def split(self, frame: DataFrame, salt: Column | None = None) -> DataFrame:
        """Return the frame with the part of each row as an additional column."""
        return frame.withColumn(PART, self.part(frame, salt))

    def part(self, frame: DataFrame, salt: Column | None = None, *, of: str = "") -> Column:
        """Return the part of each row: for a hot key it is chosen by the hash of the row or of `salt`,
        otherwise it is 0.

        The part is never random, because a repeated task must assign its rows to the same parts.

        Args:
            frame: The rows.
            salt: The column to hash, or None for all columns.
            of: The prefix of column names, for example `l.`.
        """
        from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

        if salt is None:
            salt = F.xxhash64(*_hashable(frame, of))
        place = F.pmod(salt, F.lit(self.parts)).cast("int")
        part = self._of_each(frame, lambda labels: F.get(labels, place), F.lit(0), of)
        # The column is never null; declared so, Spark does not check it for nulls below the watermark.
        return F.coalesce(part, F.lit(0))

    def replicate(self, frame: DataFrame) -> DataFrame:
        """Return the frame with each row of a hot key copied into all of its parts."""
        from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

        parts = self._of_each(frame, lambda labels: labels, F.array(F.lit(0)))
        return frame.withColumn(PART, F.explode(parts))

    def _of_each(
        self, frame: DataFrame, made: Callable[[Column], Column], otherwise: Column, of: str = ""
    ) -> Column:
        """Return a column computed from the labels of a row's key, or `otherwise` if the key is not hot."""
        from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

        chosen: Column | None = None
        for key, labels in zip(self.keys, self.labels, strict=True):
            value = made(F.array(*(F.lit(label) for label in labels)))
            here = self._is(frame, key, of)
            chosen = F.when(here, value) if chosen is None else chosen.when(here, value)
        return otherwise if chosen is None else chosen.otherwise(otherwise)

    def _is(self, frame: DataFrame, key: tuple[Any, ...], of: str) -> Column:
        from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

        pairs = zip(self.by, literals_of(frame, self.by, key), strict=True)
        return reduce(and_, (F.col(of + quoted(name)).eqNullSafe(literal) for name, literal in pairs))

    def note(self) -> dict[str, Any]:
        """Return the settings that must not change while the query has state, as JSON values."""
        keys = sorted(json.dumps([_plain(value) for value in key], ensure_ascii=False) for key in self.keys)
        return {"by": list(self.by), "hot": keys, "parts": self.parts if self.keys else 0}


def key_text(key: Sequence[Any], types: Sequence[str]) -> str:
    """Return a key as `HotKeys.note` writes it.

    Args:
        key: The values.
        types: The types of the key columns, as in Spark's JSON.
    """
    values = (_plain(_like(value, kind)) for value, kind in zip(key, types, strict=True))
    return json.dumps(list(values), ensure_ascii=False)


def hot_keys(df: DataFrame, by: Sequence[str], hot: Iterable[Any], parts: int, *, where: str) -> HotKeys:
    """Check the hot keys against the frame's types, and choose the numbers of their parts.

    Raises:
        Invalid: There are too many keys, a key is given twice, has the wrong number of values, or has a value
            of the wrong type.
    """
    keys = tuple(checked_key(df, by, key, where) for key in hot)
    if len(keys) > MOST_HOT:
        raise Invalid(
            "too many hot keys",
            code="HF-E2318",
            where=where,
            found=f"{len(keys)} hot keys",
            expected=f"at most {MOST_HOT}",
            hint="split only keys that take most of the time of a shuffle task",
        )
    twice = sorted({repr(key) for key in keys if keys.count(key) > 1})
    if twice:
        raise Invalid(
            "a hot key is given twice",
            code="HF-E2319",
            where=where,
            found=", ".join(twice),
            hint="give each key once",
        )
    return HotKeys(tuple(by), keys, parts, _labels(df, by, keys, parts))


def refuse_one_key(hot: Iterable[Any], where: str) -> None:
    """Raise an error for a text in place of a list of hot keys.

    Raises:
        Invalid: The keys are one text.
    """
    if isinstance(hot, (str, bytes)):
        raise Invalid(
            "hot= is not a list",
            code="HF-E2395",
            where=f"{where}: hot",
            found=repr(hot),
            hint=f"write hot=[{hot!r}]",
        )


def key_values(by: Sequence[str], key: Any, where: str) -> tuple[Any, ...]:
    """Return a hot key as a tuple with one value per key column.

    Raises:
        Invalid: The key has the wrong number of values.
    """
    values = tuple(key) if isinstance(key, (tuple, list)) else (key,)
    if len(values) != len(by):
        raise Invalid(
            "a hot key does not match the key columns",
            code="HF-E2320",
            where=f"{where}: hot",
            found=repr(key),
            expected="one value" if len(by) == 1 else f"a tuple of {', '.join(by)}",
            hint="give one value per column, in the order of by=…",
        )
    return values


def literals_of(df: DataFrame, by: Sequence[str], key: Sequence[Any]) -> list[Column]:
    """Return a key's values as literal columns with the types of the key columns."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    return [F.lit(value).cast(df.schema[name].dataType) for name, value in zip(by, key, strict=True)]


def checked_key(df: DataFrame, by: Sequence[str], key: Any, where: str) -> tuple[Any, ...]:
    """Return a hot key as a tuple with one value per key column, of the column's type.

    Raises:
        Invalid: The key has the wrong number of values, or a value has the wrong type.
    """
    values = key_values(by, key, where)
    for name, value in zip(by, values, strict=True):
        kind = type_of(df, name)
        allowed = _TYPES.get(kind.split("(")[0].split(" ")[0])
        wrong = isinstance(value, bool) and kind != "boolean"
        if allowed is None or (value is not None and (wrong or not isinstance(value, allowed))):
            raise Invalid(
                f"a hot key has the wrong type for `{name}`",
                code="HF-E2321",
                where=f"{where}: hot",
                found=f"{value!r} of type {type(value).__name__}",
                expected=f"a value of type {kind}",
                hint="give a value of this type, as hf.skew.find(…) returns it",
            )
    return tuple(_like(value, type_of(df, name)) for name, value in zip(by, values, strict=True))


def _like(value: Any, kind: str) -> Any:
    """Convert an integer to the floating-point or decimal type of its column."""
    if value is not None and kind in ("float", "double"):
        return float(value)
    return Decimal(value) if value is not None and kind.startswith("decimal") else value


def _plain(value: Any) -> Any:
    """Return a value for JSON; equal values give equal results."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.timezone.utc).isoformat()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, Decimal):
        return format(value.normalize(), "f")
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _labels(
    df: DataFrame, by: Sequence[str], keys: Sequence[tuple[Any, ...]], parts: int
) -> tuple[tuple[int, ...], ...]:
    """Return the labels of the parts of each key; see `labels_of`."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    if not keys:
        return ()
    # A frame without a source, which Spark evaluates while planning, without a job.
    one = df.sparkSession.sql("SELECT 1")
    hashes = one.select(*(F.hash(*literals_of(df, by, key)) for key in keys)).collect()[0]
    return tuple(labels_of(seed, parts) for seed in hashes)


def labels_of(seed: int, parts: int) -> tuple[int, ...]:
    """Return the smallest number whose hash has each remainder modulo `parts`, in the order of the
    remainders.

    Args:
        seed: Spark's hash of the key; the hash of the key and a number continues from it.
        parts: The number of labels.
    """
    labels: dict[int, int] = {}
    number = 0
    while len(labels) < parts:
        # 0 is also the part of all other keys, which does no harm, because a part belongs to its key.
        labels.setdefault(hash_int(number, seed) % parts, number)
        number += 1
    return tuple(labels[remainder] for remainder in range(parts))


def _hashable(frame: DataFrame, of: str) -> list[Column]:
    """Return the columns that Spark can hash: all except maps, variants and types that contain one."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    return [
        F.col(of + quoted(name))
        for name, type_name in types.items()
        if not any(kind in type_name for kind in _UNHASHED)
    ]
