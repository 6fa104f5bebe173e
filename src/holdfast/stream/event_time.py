"""The event time of a frame: the column with the watermark, and durations in Spark's format.

Spark marks the column named in `withWatermark` in the metadata of the schema. The mark follows the column
through `select` and `alias`, and is lost if the column is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.config.units import Duration, parse_duration
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


WATERMARK_KEY: Final = "spark.watermarkDelayMs"
# Types by which Spark cannot group rows, or whose values have several encodings.
NOT_KEYS: Final = ("array", "map", "struct", "variant", "interval")
_UNITS: Final = (
    (86_400_000, "day"),
    (3_600_000, "hour"),
    (60_000, "minute"),
    (1_000, "second"),
)


def watermarks(frame: DataFrame) -> dict[str, int]:
    """Return the columns of a frame that have a watermark, with the delay in milliseconds.

    Reading the schema costs an analysis of the plan and no job. A batch frame has no watermark, because Spark
    removes it.
    """
    return {
        field.name: int(field.metadata[WATERMARK_KEY])
        for field in frame.schema.fields
        if WATERMARK_KEY in field.metadata
    }


def with_watermark(frame: DataFrame, time: str, delay: Duration | None, *, where: str) -> DataFrame:
    """Set a watermark on a frame that has none; return the frame unchanged if `delay` is None.

    Raises:
        Invalid: The frame already has a watermark; Spark reports that only when the query starts.
    """
    if delay is None:
        return frame
    present = watermarks(frame)
    if present:
        column, ms = next(iter(present.items()))
        raise Invalid(
            "the frame already has a watermark",
            code="HF-E2290",
            where=where,
            found=f"a watermark of {spark_interval(ms)} on `{column}`, and watermark={delay!r}",
            hint="remove `watermark=`, or remove `.withWatermark(…)` from the frame",
        )
    ms = parse_duration(delay, f"{where}: watermark", allow_zero=True)
    return frame.withWatermark(time, spark_interval(ms))


def with_event_time(frame: DataFrame, time: str, delay_ms: int) -> DataFrame:
    """Return a keyed operator's result with a column marked as its event time.

    The watermark itself comes from the operator's input: Spark passes it on to the next operator with state.
    `withWatermark` would define a second one, which Spark refuses.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    marks = {name: {"metadata": {WATERMARK_KEY: delay_ms}} if name == time else {} for name in frame.columns}
    return frame.select(*(F.col(quoted(name)).alias(name, **mark) for name, mark in marks.items()))


def require_watermark(frame: DataFrame, time: str, *, where: str, why: str) -> None:
    """Raise an error for a streaming frame without a watermark on `time`; a batch frame needs none.

    Raises:
        Invalid: The frame is a stream without a watermark, or with one on a different column.
    """
    present = watermarks(frame)
    if not frame.isStreaming or time in present:
        return
    raise Invalid(
        f"the stream has no watermark on `{time}`",
        code="HF-E2291",
        where=where,
        found=f"a watermark on {_list_names(present)}" if present else None,
        expected=f"a watermark on `{time}`, because {why}",
        hint=f"use `{next(iter(present))}` as the time"
        if present
        else 'give the allowed lateness, as in watermark="10 minutes"',
    )


def require_columns(frame: DataFrame, names: Sequence[str], *, where: str) -> None:
    """Raise an error for names that are not columns of the frame.

    Raises:
        Invalid: A column is missing, or a name is given twice.
    """
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise Invalid(
            f"the frame has no column {_list_names(missing)}",
            code="HF-E2292",
            where=where,
            found=_list_names(frame.columns),
            expected=_list_names(names),
            hint="name an existing column, or add the missing one first: .withColumn(…)",
        )
    if len(set(names)) != len(names):
        raise Invalid(
            "a column is named twice",
            code="HF-E2293",
            where=where,
            found=_list_names([name for name in dict.fromkeys(names) if names.count(name) > 1]),
            hint="name each column once",
        )


def require_time(frame: DataFrame, name: str, *, where: str) -> None:
    """Raise an error for a time column that is missing or is not a timestamp.

    Raises:
        Invalid: The column does not exist or is not a timestamp.
    """
    require_columns(frame, [name], where=where)
    kind = type_of(frame, name)
    if kind != "timestamp":
        raise Invalid(
            f"time column `{name}` has the wrong type",
            code="HF-E2294",
            where=where,
            found=kind,
            expected="timestamp",
            hint=f'convert it first: .withColumn("{name}", F.to_timestamp("{name}"))',
        )


def names_of(names: str | Iterable[str], *, where: str) -> list[str]:
    """Return one column name, or several, as a list.

    Raises:
        Invalid: A value is not a string, such as a Column.
    """
    listed = [names] if isinstance(names, str) else list(names)
    for name in listed:
        if not isinstance(name, str):
            raise Invalid(
                "a column must be given by its name",
                code="HF-E2295",
                where=where,
                found=type(name).__name__,
                hint="turn the expression into a named column first: .withColumn(…)",
            )
    return listed


def key_columns(
    frame: DataFrame,
    by: str | Iterable[str],
    *,
    where: str,
    argument: str = "by",
    refused: tuple[str, ...] = (),
) -> list[str]:
    """Return the key columns as a list, after checking them.

    Args:
        frame: The rows.
        by: The columns as given by the user.
        where: The operator, for error messages.
        argument: The name of the argument with the columns.
        refused: The prefixes of types that cannot be a key.

    Raises:
        Invalid: No column is given, or a column is missing or has a type that cannot be a key.
    """
    keys = names_of(by, where=where)
    if not keys:
        raise Invalid(
            "no key column given",
            code="HF-E2296",
            where=where,
            expected=f"{argument}=… with at least one column",
            hint=f'name the key columns, as in {argument}="customer"',
        )
    require_columns(frame, keys, where=where)
    for key in keys:
        kind = type_of(frame, key)
        if kind.startswith(refused):
            raise Invalid(
                f"a column of type {kind} cannot be a key",
                code="HF-E2297",
                where=f"{where}: {argument}={key!r}",
                expected="a simple type, such as string, long or date",
                hint="extract the fields of the key into separate columns",
            )
    return keys


def require_stream(
    frame: DataFrame, *, where: str, hint: str = "read the frame with spark.readStream"
) -> None:
    """Raise an error for a batch frame; `hint` names the alternative.

    Raises:
        Invalid: The frame is not a stream.
    """
    if not frame.isStreaming:
        raise Invalid("the frame is not a stream", code="HF-E2298", where=where, hint=hint)


def refuse_repeated(
    names: Sequence[str],
    *,
    where: str,
    hint: str,
    taken: Iterable[str] = (),
    fact: str = "two columns of the result have the same name",
) -> None:
    """Raise an error for result columns with equal names, or with a name in `taken`.

    Raises:
        Invalid: Two result columns have the same name, or a name is in `taken`.
    """
    repeated = sorted({name for name in names if names.count(name) > 1 or name in taken})
    if repeated:
        raise Invalid(
            fact,
            code="HF-E2299",
            where=where,
            found=", ".join(repeated),
            expected="unique names",
            hint=hint,
        )


def timed_stream(
    df: DataFrame,
    by: str | Iterable[str],
    time: str,
    watermark: Duration | None,
    *,
    where: str,
    why: str,
    at_rest: str,
) -> tuple[list[str], DataFrame]:
    """Check the arguments of an operator in event time, and set the stream's watermark.

    Args:
        df: The stream.
        by: The key columns.
        time: The event-time column.
        watermark: The allowed lateness of a row; None if the frame has a watermark.
        where: The operator, for error messages.
        why: The reason why the operator needs a watermark.
        at_rest: The alternative for a batch frame.

    Returns:
        The key columns, and the stream with a watermark and without rows that have no time.

    Raises:
        Invalid: A column is missing or has the wrong type, the time is a key, there is no watermark, or the
            frame is not a stream.
    """
    keys = key_columns(df, by, where=where)
    require_time(df, time, where=where)
    refuse_time_key([time], keys, where=where)
    require_stream(df, where=where, hint=f"for a batch frame, use {at_rest}")
    marked = with_watermark(df, time, watermark, where=where)
    require_watermark(marked, time, where=where, why=why)
    return keys, marked.filter(f"{quoted(time)} IS NOT NULL")


def refuse_time_key(times: Iterable[str], keys: Sequence[str], *, where: str) -> None:
    """Raise an error for a time column that is also a key column.

    Raises:
        Invalid: A time column is a key column.
    """
    both = [time for time in times if time in keys]
    if both:
        raise Invalid(
            "the time column cannot be a key",
            code="HF-E2300",
            where=where,
            found=_list_names(both),
            hint="remove the column from by=…; to group by day or hour, add a column with the day or hour",
        )


def spark_interval(ms: int) -> str:
    """Return milliseconds as a Spark interval in the largest whole unit: 90000 is "90 seconds"."""
    for factor, unit in _UNITS:
        if ms % factor == 0 and ms:
            count = ms // factor
            return f"{count} {unit}" if abs(count) == 1 else f"{count} {unit}s"
    return f"{ms} milliseconds"


def type_of(frame: DataFrame, name: str) -> str:
    """Return the type of a column in Spark's notation."""
    return str(frame.schema[name].dataType.simpleString())


def quoted(name: str) -> str:
    """Return a column name in backquotes for `F.col`, which reads an unquoted dot as access to a struct
    field.
    """
    return "`" + name.replace("`", "``") + "`"


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
