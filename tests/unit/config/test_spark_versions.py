"""Which Spark and Java a program's own session may have."""

from __future__ import annotations

import pytest

from holdfast.config.spark_versions import require_spark_of_program
from holdfast.errors import Unsupported

WHERE = "hf.guard(…)"


@pytest.mark.parametrize("version", ["3.5.0", "3.5.6-amzn-2", "4.0.0", "4.1.4", "4.2.0", "4.3.0"])
@pytest.mark.parametrize("java", ["11", "17", "21", None])
def test_spark_3_5_and_newer_on_java_11_and_newer_are_supported(version: str, java: str | None) -> None:
    require_spark_of_program(version, WHERE, java=java)


@pytest.mark.parametrize("version", ["2.4.8", "3.4.4", "3.4.1-amzn-0", "4.4.0", "5.0.0"])
def test_other_versions_are_refused_by_name(version: str) -> None:
    with pytest.raises(Unsupported) as refused:
        require_spark_of_program(version, WHERE)
    assert refused.value.found == f"Spark {version}"
    assert refused.value.expected == "Spark 3.5 or newer, below 4.4"
    assert refused.value.where == WHERE


@pytest.mark.parametrize("java", ["1.8", "9", "10"])
def test_older_javas_are_refused_by_name(java: str) -> None:
    with pytest.raises(Unsupported) as refused:
        require_spark_of_program("3.5.9", WHERE, java=java)
    assert refused.value.found == f"Java {java.removeprefix('1.')}"
    assert refused.value.expected == "Java 11 or newer"


@pytest.mark.parametrize(("version", "supported"), [("3.5.9", False), ("4.0.0", True), ("4.2.0", True)])
def test_over_connect_the_client_has_to_be_of_spark_4(version: str, supported: bool) -> None:
    if supported:
        require_spark_of_program(version, WHERE, connect=True)
        return
    with pytest.raises(Unsupported) as refused:
        require_spark_of_program(version, WHERE, connect=True)
    assert refused.value.expected == "Spark 4.0 or newer, below 4.4"
