"""The counts of a stream's keys in a sketch: an observed metric that is read from the progress of the query.

A Spark Connect server sends a row in a progress as its values and its schema.

The sketch is Spark's `approx_top_k`, the frequent-items sketch of Apache DataSketches. It does not support
null, binary or compound keys, so it counts a string: the key as JSON, preceded by Spark's own hash of the
key, from which the partition follows for any number of partitions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.connect import is_connect
from holdfast.model import HeavyKey, SkewReport

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField


_BARE: Final = {"values", "schema"}


def observed_metrics(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Return the observed metrics of a batch by name, as Spark rows or as mappings."""
    return {name: _rows_as_mappings(row) for name, row in (progress.get("observedMetrics") or {}).items()}


def _rows_as_mappings(value: Any) -> Any:
    """Return a value with rows given as values and schema, at any depth, converted to mappings."""
    if isinstance(value, list):
        return [_rows_as_mappings(item) for item in value]
    fields = value.asDict() if hasattr(value, "asDict") else value
    if not isinstance(fields, Mapping) or set(fields) != _BARE:
        return value
    names = [field["name"] for field in fields["schema"]["fields"]]
    return dict(zip(names, map(_rows_as_mappings, fields["values"]), strict=True))


# The prefix of the metric's name, followed by the name of the report.
SKEW_METRIC: Final = "holdfast-skew."
# The maximum number of keys in the sketch, which has a few megabytes in each task and in the driver.
TRACKED: Final = 10_000
_MAP_SIZE: Final = 16_384  # the size that `approx_top_k` chooses: the next power of two above 10,000 / 0.75
# The maximum error of the sketch is 3.5 / map size of the rows that it counted, according to its authors.
SKETCH_ERROR: Final = 3.5 / _MAP_SIZE
# Three standard deviations: the error of a sample is larger in one of 370 cases.
_DEVIATIONS: Final = 3.0

_SEED: Final = 20260305

_ITEM: Final = "_holdfast_skew_item"
_JSON: Final = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def with_item(frame: DataFrame, keys: Sequence[Column], every: int) -> DataFrame:
    """Return the frame with the counted column added: the key of one row in `every`, null in the others.

    Rows are selected at random, so equal rows are not selected together. From a table the same rows are
    selected each time.
    """
    from pyspark.sql import functions as F  # noqa: N812 - needs Spark

    item = F.to_json(F.struct(F.hash(*keys).alias("hash"), F.struct(*keys).alias("key")), _JSON)
    if every > 1:
        item = F.when(_picked(frame, every), item)
    return frame.withColumn(_ITEM, item)


def _picked(frame: DataFrame, every: int) -> Column:
    """Return a boolean column that selects the rows to count.

    In a stream Spark gives `rand` a different seed in each batch and writes it into generated code, so each
    batch would compile its code again and run it without warm-up. Java's own random numbers take no seed. If
    Spark's internals are not accessible, over Spark Connect or in an unknown version, `rand` is used.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as above

    if frame.isStreaming and not is_connect(frame):
        from py4j.protocol import Py4JError

        with suppress(AttributeError, ImportError, TypeError, Py4JError):
            return F.pmod(_any_number(frame.sparkSession), F.lit(every)) == 0
    return F.rand(_SEED) * F.lit(every) < F.lit(1)


def _any_number(spark: Any) -> Column:
    """Return a column with a random integer from Java for each row."""
    from pyspark.sql.classic.column import Column

    jvm = spark._jvm
    objects = jvm.org.apache.spark.sql.catalyst.expressions.objects
    source = jvm.java.lang.Class.forName("java.util.concurrent.ThreadLocalRandom")
    kind = jvm.org.apache.spark.sql.types.ObjectType(source)
    integer = spark._jsparkSession.parseDataType('"integer"')
    none = jvm.PythonUtils.toSeq([])
    # No arguments and no argument types; nulls pass through, the result is never null, and it is not
    # deterministic.
    how = (none, none, True, False, False)
    here = objects.StaticInvoke(source, kind, "current", *how, jvm.scala.Option.empty())
    number = objects.Invoke(here, "nextInt", integer, *how)
    return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(number))


def metric(name: str, by: Sequence[str], every: int, heavy: int) -> list[Column]:
    """Return the columns of the metric to observe in a frame from `with_item`."""
    from pyspark.sql import functions as F  # noqa: N812 - needs Spark

    # One more than requested, because the null of rows that were not sampled may be the most frequent item.
    top = F.call_function("approx_top_k", F.col(_ITEM), F.lit(heavy + 1), F.lit(TRACKED))
    about = json.dumps({"name": name, "by": list(by), "every": every, "heavy": heavy})
    return [
        top.alias("top"),
        F.count(F.lit(1)).alias("rows"),
        F.count(F.col(_ITEM)).alias("looked_at"),
        F.lit(about).alias("about"),
    ]


def without_item(frame: DataFrame) -> DataFrame:
    """Return the frame without the counted column."""
    return frame.drop(_ITEM)


def skew_in(progress: Mapping[str, Any]) -> tuple[SkewReport, ...]:
    """Return the key-skew reports of one batch, by name; empty for a batch without rows.

    The argument is a progress as reported by Spark: `query.lastProgress` or the JSON of a listener's event.
    The partitions are those of the query's stateful operators, if all of them have the same number.
    """
    numbers = {int(state.get("numShufflePartitions") or 0) for state in progress.get("stateOperators") or ()}
    partitions = numbers.pop() if len(numbers) == 1 else 0
    found = []
    for name, values in sorted(observed_metrics(progress).items()):
        if name.startswith(SKEW_METRIC) and values["rows"]:
            found.append(report_of(values, partitions or None, int(progress["batchId"])))
    return tuple(found)


def typed_keys(
    spark: SparkSession, items: Sequence[str], fields: Sequence[StructField]
) -> list[tuple[Any, ...]]:
    """Return the keys of items as Python values, which Spark parses from the JSON that it wrote."""
    from pyspark.sql import functions as F  # noqa: N812 - needs Spark
    from pyspark.sql.types import StructField, StructType

    if not items:
        return []
    keys = StructType([StructField(field.name, field.dataType) for field in fields])
    texts = F.explode(F.array(*(F.lit(item) for item in items))).alias("item")
    frame = spark.range(1).select(texts)
    read = F.from_json("item", StructType([StructField("key", keys)]), _JSON)
    return [tuple(row[0]) for row in frame.select(read["key"]).collect()]


def report_of(values: Any, partitions: int | None, batch_id: int | None = None) -> SkewReport:
    """Return the report for a metric's values, given as a Spark row or as plain JSON."""
    about = json.loads(values["about"])
    looked_at = int(values["looked_at"])
    counted = [(item["item"], int(item["count"])) for item in values["top"] or () if item["item"] is not None]
    heavy = tuple(_heavy(item, rows, looked_at, partitions) for item, rows in counted[: about["heavy"]])
    return SkewReport(
        about["name"],
        tuple(about["by"]),
        int(values["rows"]),
        looked_at,
        heavy,
        _error(looked_at, about["every"]),
        _even_but_for(heavy, partitions) if partitions else (),
        estimated=True,
        batch_id=batch_id,
    )


def items_of(values: Any) -> list[str]:
    """Return the items of a metric in descending order of count, without that of rows not sampled."""
    return [item["item"] for item in values["top"] or () if item["item"] is not None]


def _heavy(item: str, rows: int, looked_at: int, partitions: int | None) -> HeavyKey:
    fields = json.loads(item)
    partition = None if partitions is None else int(fields["hash"]) % partitions
    return HeavyKey(tuple(fields["key"].values()), rows, rows / looked_at, partition)


def _error(looked_at: int, every: int) -> float:
    """Return the maximum error of a share, from the sketch and, if rows were sampled, from the sample."""
    if not looked_at:
        return 1.0
    # The standard deviation of a share is at most one half.
    sample = _DEVIATIONS * math.sqrt(0.25 / looked_at) if every > 1 else 0.0
    return min(1.0, SKETCH_ERROR + sample)


def _even_but_for(heavy: Sequence[HeavyKey], partitions: int) -> tuple[float, ...]:
    rest = max(0.0, 1.0 - sum(key.share for key in heavy))
    shares = [rest / partitions] * partitions
    for key in heavy:
        if key.partition is not None:
            shares[key.partition] += key.share
    return tuple(shares)
