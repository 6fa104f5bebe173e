"""A file of prices, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.advice.prices import Prices, medium_of, read_prices
from holdfast.errors import Invalid, NotFound


def written(folder: Path, text: str) -> Path:
    file = folder / "prices.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_defaults_are_the_guides_and_requests_have_no_price() -> None:
    prices = Prices()
    assert (prices.local, prices.hdfs, prices.s3) == (0.10, 0.03, 0.023)
    assert (prices.memory, prices.writes, prices.lists, prices.reads) == (None, None, None, None)
    assert not prices.has_requests


def test_units_are_brought_to_a_gb_month_and_a_request(tmp_path: Path) -> None:
    prices = read_prices(
        written(
            tmp_path,
            """
            currency = "EUR"
            local = { price = 80, per = "TB-month" }
            hdfs = { price = 0.0001, per = "GB-hour" }
            s3 = { price = 1073.741824, per = "TiB-month" }
            memory = { price = 2, per = "GiB-month" }
            writes = { price = 0.005, per = "1000 requests" }
            reads = { price = 4, per = "1000000 requests" }
            lists = { price = 0.05, per = "10000 requests" }
            deletes = { price = 1, per = "request" }
            """,
        )
    )
    assert prices.currency == "EUR"
    assert prices.local == pytest.approx(0.08)
    assert prices.hdfs == pytest.approx(0.073)  # 730 hours
    assert prices.s3 == pytest.approx(1073.741824 * 1000 / 1024**4 * 1e6)
    assert prices.memory == pytest.approx(2 / 1.073741824)
    assert prices.writes == pytest.approx(5e-6)
    assert prices.reads == pytest.approx(4e-6)
    assert prices.lists == pytest.approx(5e-6)
    assert prices.deletes == 1


def test_what_a_file_does_not_name_keeps_its_default(tmp_path: Path) -> None:
    prices = read_prices(written(tmp_path, 's3 = { price = 0.02, per = "GB-month" }'))
    assert prices == Prices(s3=0.02)


@pytest.mark.parametrize(
    ("text", "fact", "found"),
    [
        ('s3 = { price = 1, per = "parsec" }', "unknown unit in the price file", "'parsec'"),
        ('reads = { price = 1, per = "GB-month" }', "unknown unit in the price file", "'GB-month'"),
        ("s3 = { price = 1, per = 3 }", "unknown unit in the price file", "3"),
        ('s3 = { price = -1, per = "GB-month" }', "invalid amount in the price file", "-1"),
        ('s3 = { price = nan, per = "GB-month" }', "invalid amount in the price file", "nan"),
        ('s3 = { price = true, per = "GB-month" }', "invalid amount in the price file", "True"),
        ('s3 = { price = "1", per = "GB-month" }', "invalid amount in the price file", "'1'"),
        ("s3 = 0.02", "invalid price in the price file", "0.02"),
        ("s3 = { price = 1 }", "invalid price in the price file", "{'price': 1}"),
        ('tape = { price = 1, per = "GB-month" }', "unknown name in the price file", "'tape'"),
        ("currency = 3", "invalid currency in the price file", "3"),
        ("s3 = ", "cannot read the price file", None),
        ("\udcff", "cannot read the price file", None),
    ],
)
def test_what_means_nothing_is_refused(tmp_path: Path, text: str, fact: str, found: str | None) -> None:
    file = tmp_path / "prices.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(Invalid) as refused:
        read_prices(file)
    assert refused.value.fact == fact
    assert refused.value.where is not None
    assert refused.value.where.startswith(str(file))
    assert refused.value.hint is not None
    if found is not None:
        assert refused.value.found == found


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="the price file does not exist"):
        read_prices(tmp_path / "nowhere.toml")
    with pytest.raises(Invalid, match="the price file is not a regular file"):
        read_prices(tmp_path)


@pytest.mark.parametrize(
    ("uri", "medium"),
    [
        ("file:///a/b", "local"),
        ("/a/b", "local"),
        ("hdfs://name/a", "hdfs"),
        ("webhdfs://name:1/a", "hdfs"),
        ("s3://bucket/a", "s3"),
        ("s3a://bucket/a", "s3"),
        ("abfss://box@account.dfs.core.windows.net/a", "s3"),
        ("gs://bucket/a", "s3"),
    ],
)
def test_an_address_is_on_a_medium(uri: str, medium: str) -> None:
    assert medium_of(uri) == medium
