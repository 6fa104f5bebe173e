"""The number of a state format is checked before anything is planned with it."""

from __future__ import annotations

from typing import Any

import pytest
from catalogs import target

from golden import golden
from holdfast.changes.reshaping import planned_migration
from holdfast.errors import Invalid, Unsupported
from holdfast.savepoints.access import ChangeSource


@pytest.mark.parametrize("wanted", [0, -1, True, "2"])
def test_a_number_that_is_no_state_format_is_refused(wanted: Any) -> None:
    source = ChangeSource(golden("4.2/aggregate-rocksdb"))
    with pytest.raises(Invalid, match="state_format") as caught:
        planned_migration(source, target(), state_format=wanted)
    assert caught.value.expected == "a whole number of at least 1"


def test_format_2_is_refused_for_a_checkpoint_of_spark_before_4() -> None:
    source = ChangeSource(golden("3.5/aggregate-rocksdb"))
    with pytest.raises(Unsupported, match="the Spark that wrote this checkpoint") as caught:
        planned_migration(source, target(), state_format=2)
    error = caught.value
    assert (error.code, error.found, error.expected, error.hint) == (
        "HF-E7031",
        "format 2, which needs Spark 4.0",
        "format 1",
        "remove --state-format",
    )
    assert error.where == source.uri
