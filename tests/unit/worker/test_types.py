from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import Invalid
from holdfast.worker.declarations.types import (
    name_text,
    parse_schema,
    parse_type,
    schema_of,
    schema_text,
    type_text,
)

EXPECTED = "a Spark type, such as long, string, decimal(10,2), array<int> or struct<a: int, b: string>"
UTC = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("text", "arrow"),
    [
        ("boolean", pa.bool_()),
        ("byte", pa.int8()),
        ("TINYINT", pa.int8()),
        ("short", pa.int16()),
        ("smallint", pa.int16()),
        ("int", pa.int32()),
        ("Integer", pa.int32()),
        ("long", pa.int64()),
        ("bigint", pa.int64()),
        ("float", pa.float32()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(7)", pa.decimal128(7, 0)),
        ("decimal(38, 38)", pa.decimal128(38, 38)),
        ("numeric(5,2)", pa.decimal128(5, 2)),
        ("dec( 5 , 0 )", pa.decimal128(5, 0)),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", UTC),
        ("timestamp_ltz", UTC),
        ("timestamp_ntz", pa.timestamp("us")),
        (" array < int > ", pa.list_(pa.int32())),
        ("map<string,array<double>>", pa.map_(pa.string(), pa.list_(pa.float64()))),
        ("struct<a: int, b string>", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        (
            "struct<`a b`: int NOT NULL COMMENT 'first, >', `c``d`:long comment \"x\">",
            pa.struct([pa.field("a b", pa.int32(), nullable=False), pa.field("c`d", pa.int64())]),
        ),
        ("struct<größe: int>", pa.struct([("größe", pa.int32())])),
        (int, pa.int64()),
        (float, pa.float64()),
        (str, pa.string()),
        (bool, pa.bool_()),
        (bytes, pa.binary()),
        (dt.datetime, UTC),
        (dt.date, pa.date32()),
        (Decimal, pa.decimal128(38, 18)),
        (pa.large_string(), pa.string()),
        (pa.timestamp("us", tz="Europe/Berlin"), UTC),
    ],
)
def test_a_type_is_read(text: Any, arrow: pa.DataType) -> None:
    assert parse_type(text) == arrow


def test_a_wrong_text_is_shown_with_a_mark_under_the_place() -> None:
    with pytest.raises(Invalid) as caught:
        parse_type("array<intt>")
    assert str(caught.value).splitlines()[:4] == [
        f"the declared type cannot be parsed [{caught.value.code}]",
        "  in array<intt>",
        "           ^",
        f"  found `intt` at character 7, expected {EXPECTED}",
    ]


@pytest.mark.parametrize(
    ("text", "character", "expected"),
    [
        ("int int", 5, "the end of the text"),
        ("map<string>", 11, "`,`"),
        ("decimal(39,2)", 9, "a precision of 1 to 38"),
        ("decimal(0)", 9, "a precision of 1 to 38"),
        ("decimal(5,6)", 11, "a scale of 0 to 5, the precision"),
        ("decimal(99999999999)", 9, "a precision of 1 to 38"),
        ("struct<>", 8, "a name, then a type"),
        ("struct<a: int, a: int>", 16, "each name only once"),
        ("struct<a: int NOT>", 18, "`null`"),
        (
            "struct<a: int DEFAULT 5>",
            15,
            "a type without this clause; declare defaults with `default=` or `field_defaults=`",
        ),
        ("string collate UTF8_LCASE", 8, "string without a collation, since Arrow compares bytes"),
        ("array<int> ;", 12, None),
        ("`int`", 1, None),
        ("'int'", 1, None),
        ("array<" * 65 + "int", 385, "at most 64 nested types"),
        ("array<" * 5_000, 385, "at most 64 nested types"),
    ],
)
def test_a_wrong_text_is_refused_where_it_is_wrong(text: str, character: int, expected: str | None) -> None:
    with pytest.raises(Invalid) as caught:
        parse_type(text)
    assert str(caught.value.found).endswith(f" at character {character}")
    assert expected is None or caught.value.expected == expected


@pytest.mark.parametrize("text", ["", "  ", "array<", "array<int", "struct<a", "struct<a: int,", "decimal("])
def test_a_text_that_ends_too_soon_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_type(text)
    assert caught.value.found == "the end of the text"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("varchar(3)", "length would not be enforced"),
        ("char(3)", "length would not be enforced"),
        ("interval day to second", "Arrow cannot represent"),
        ("array<variant>", "Arrow has no such type"),
        ("time(6)", "loses precision"),
        ("void", "always null"),
        ("object", "later versions of the job"),
        ("pickle", "later versions of the job"),
        (object, "later versions of the job"),
    ],
)
def test_a_type_that_state_cannot_keep_is_refused_with_the_reason(given: Any, reason: str) -> None:
    with pytest.raises(Invalid, match="state cannot store") as caught:
        parse_type(given)
    assert reason in caught.value.fact


@pytest.mark.parametrize("given", [list, list[int], dict[str, int], [1], None, 5, type(None), complex])
def test_what_is_no_type_is_refused(given: Any) -> None:
    with pytest.raises(Invalid, match="the declared type is not valid"):
        parse_type(given)


@pytest.mark.parametrize(
    "arrow", [pa.uint64(), pa.timestamp("ns"), pa.duration("us"), pa.struct([]), pa.decimal128(5, -2)]
)
def test_arrow_types_that_spark_has_not_are_refused(arrow: pa.DataType) -> None:
    with pytest.raises(Invalid, match="Spark has no equivalent"):
        type_text(arrow)


def test_a_schema_is_read_and_written() -> None:
    schema = parse_schema("customer string, visits long NOT NULL COMMENT 'how often', `a``b`: array<int>")
    assert schema == pa.schema(
        [
            pa.field("customer", pa.string()),
            pa.field("visits", pa.int64(), nullable=False),
            pa.field("a`b", pa.list_(pa.int32())),
        ]
    )
    assert schema_text(schema) == "customer string, visits long NOT NULL, `a``b` array<int>"
    assert schema_of(schema) == schema
    assert name_text("1a") == "`1a`"


@pytest.mark.parametrize("text", ["", "a", "a long,", "a long, a int", "a long b int", "a long)"])
def test_a_wrong_schema_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        schema_of(text)
    with pytest.raises(Invalid, match="no column names"):
        schema_of(int)


def test_types_of_pyspark_are_read_with_names_and_nulls() -> None:
    from pyspark.sql import types as spark

    given = spark.StructType(
        [
            spark.StructField("a b", spark.ArrayType(spark.DecimalType(3, 1)), nullable=False),
            spark.StructField("m", spark.MapType(spark.StringType(), spark.TimestampNTZType())),
        ]
    )
    expected = [
        pa.field("a b", pa.list_(pa.decimal128(3, 1)), nullable=False),
        pa.field("m", pa.map_(pa.string(), pa.timestamp("us"))),
    ]
    assert parse_type(given) == pa.struct(expected)
    assert schema_of(given) == pa.schema(expected)
    assert parse_type(spark.LongType) == pa.int64()


def test_types_of_pyspark_without_a_twin_are_refused() -> None:
    from pyspark.sql import types as spark

    twice = spark.StructType(
        [spark.StructField("a", spark.LongType()), spark.StructField("a", spark.LongType())]
    )
    for given in (
        spark.StringType("UTF8_LCASE"),
        spark.StructType([spark.StructField("a", spark.StringType("UTF8_LCASE"))]),
        spark.DayTimeIntervalType(),
        spark.VariantType(),
        spark.NullType(),
        spark.VarcharType(3),
        spark.StructType([]),
        twice,
    ):
        with pytest.raises(Invalid):
            parse_type(given)
