from __future__ import annotations

import pytest

from holdfast.engine.session.jars import extra_settings, joined
from holdfast.errors import Invalid, Unsupported


def test_lists_are_joined_without_repeats() -> None:
    assert joined("a, b", "b,c") == "a,b,c"
    assert joined("", "a") == "a"


def test_several_extras_share_the_package_list() -> None:
    found = extra_settings(["delta", "kafka"], "4.2.0")
    assert found["spark.jars.packages"] == (
        "io.delta:delta-spark_4.2_2.13:4.4.0,org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
    )


def test_an_unknown_extra_says_which_there_are() -> None:
    with pytest.raises(Invalid, match="delta, kafka"):
        extra_settings(["detla"], "4.2.0")  # type: ignore[list-item]


def test_an_extra_without_a_build_for_this_spark_says_for_which_there_is_one() -> None:
    with pytest.raises(Unsupported, match=r"Spark 4\.2"):
        extra_settings(["delta"], "4.3.0")
