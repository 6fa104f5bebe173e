"""The two sides of a join: keys of one type, and names of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from holdfast.errors import Invalid
from holdfast.stream.event_time import quoted, refuse_repeated, type_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Pairs = list[tuple[str, str]]


def check_key_types(left: DataFrame, right: DataFrame, keys: Sequence[str], *, where: str) -> None:
    """Refuse keys that are not of one type: a cast between the two may lose the match.

    Raises:
        Invalid: A key has two types.
    """
    for key in keys:
        one, two = (type_of(side, key) for side in (left, right))
        if one != two:
            raise Invalid(
                f"key `{key}` has two types, and a cast between them may lose the match",
                where=where,
                found=f"{one} on the left, {two} on the right",
                expected="one type",
                hint="cast one side first",
            )


def result_names(
    left: Sequence[str],
    right: Sequence[str],
    keys: Sequence[str],
    prefixes: tuple[str, str] | None,
    *,
    where: str,
    hint: str,
) -> tuple[Pairs, Pairs]:
    """Pair each column but the keys with its name in the result, left and right.

    Args:
        left: The columns of the left side.
        right: Those of the right side.
        keys: Those that are equal on both.
        prefixes: What to put before names that both have.
        where: The operator, for errors.
        hint: How prefixes are given; `{name}` is the first name that clashes.

    Raises:
        Invalid: Two columns of the result would have one name.
    """
    sides = [[name for name in columns if name not in keys] for columns in (left, right)]
    clashing = [name for name in sides[0] if name in sides[1]]
    if clashing and prefixes is None:
        raise Invalid(
            "both sides have columns of one name",
            where=where,
            found=", ".join(clashing),
            expected="names of their own",
            hint=hint.format(name=clashing[0]),
        )
    pairs = []
    for side, prefix in zip(sides, prefixes or ("", ""), strict=True):
        pairs.append([(name, prefix + name if name in clashing else name) for name in side])
    result = [*keys, *(name for side in pairs for _, name in side)]
    refuse_repeated(result, where=where, hint="choose other prefixes")
    return pairs[0], pairs[1]


def same_keys(keys: Iterable[str]) -> Column:
    """When the keys of a row `l` and a row `r` are equal."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    return reduce(and_, (F.col(f"l.{quoted(key)}") == F.col(f"r.{quoted(key)}") for key in keys))
