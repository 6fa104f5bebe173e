"""The watermark of the batch before, out of the offset log."""

from __future__ import annotations

import json

import pytest

from holdfast.engine.queries.batch_facts import watermark_before
from holdfast.errors import Corrupt
from holdfast.storage.memory import MemoryStorage


def storage(*watermarks: int) -> MemoryStorage:
    made = MemoryStorage()
    for number, watermark in enumerate(watermarks):
        fields = {"batchWatermarkMs": watermark, "batchTimestampMs": 1, "conf": {}}
        made.write(f"offsets/{number}", f"v1\n{json.dumps(fields)}\n3".encode())
    return made


def test_a_batch_judges_by_the_batch_before() -> None:
    log = storage(0, 100, 250)
    assert [watermark_before(log, batch) for batch in (0, 1, 2, 3)] == [0, 0, 100, 250]


def test_without_chained_operators_it_judges_by_its_own() -> None:
    assert watermark_before(storage(0, 100), 1, 0) == 100


def test_a_missing_batch_is_damage() -> None:
    with pytest.raises(Corrupt, match="the offset log has no entry for batch"):
        watermark_before(storage(0), 5)
