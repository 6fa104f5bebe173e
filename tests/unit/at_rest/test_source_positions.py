"""Where a warm query's sources begin, written into a real checkpoint's logs."""

from __future__ import annotations

import json

import pytest

from golden import golden
from holdfast.changes.bootstrap import Beginning, after_kafka, begin_at, begin_under, files_read, offset_of
from holdfast.checkpoints.checkpoint import read
from holdfast.errors import Invalid, NotFound
from holdfast.storage.memory import MemoryStorage

NAME = "4.2/aggregate-memory"


def test_files_that_count_as_read() -> None:
    checkpoint = golden(NAME)
    begin_at(checkpoint, [files_read([("file:///in/b", 7), ("file:///in/a", 5)])])
    [source] = read(checkpoint).sources
    assert json.loads(source.offset or "") == {"logOffset": 0}
    assert sorted(path for path in checkpoint.files if path.startswith("sources/")) == ["sources/0/0"]
    lines = checkpoint.files["sources/0/0"].decode().split("\n")
    assert [lines[0], *map(json.loads, lines[1:])] == [
        "v1",
        {"path": "file:///in/a", "timestamp": 5, "batchId": 0},
        {"path": "file:///in/b", "timestamp": 7, "batchId": 0},
    ]


@pytest.mark.parametrize("beginning", [files_read([]), Beginning()])
def test_as_on_a_first_day(beginning: Beginning) -> None:
    checkpoint = golden(NAME)
    begin_at(checkpoint, [beginning])
    assert [each.offset for each in read(checkpoint).sources] == [None]
    assert not [path for path in checkpoint.files if path.startswith("sources/")]


def test_both_batches_that_a_restart_reads_begin_there() -> None:
    """Spark asks a source for the newest batch once more; it must not be given the history."""
    checkpoint = golden(NAME)
    newest = read(checkpoint).batch_id or 0
    begin_at(checkpoint, [offset_of('{"orders":{"0":5}}')])
    for batch_id in (newest, newest - 1):
        assert checkpoint.files[f"offsets/{batch_id}"].decode().split("\n")[-1] == '{"orders":{"0":5}}'
        assert f"offsets/.{batch_id}.crc" not in checkpoint.files
    assert '{"logOffset"' in checkpoint.files[f"offsets/{newest - 2}"].decode()


def test_behind_the_last_offsets_of_kafka() -> None:
    last = [("orders", 1, 8), ("orders", 0, 41), ("payments", 0, 0)]
    offset = after_kafka(last).offset
    assert json.loads(offset or "") == {"orders": {"0": 42, "1": 9}, "payments": {"0": 1}}


def test_a_watermark() -> None:
    checkpoint = golden("4.2/windowed-memory")
    begin_under(checkpoint, 1_772_700_000_000)
    found = read(checkpoint)
    assert found.watermark_ms == 1_772_700_000_000
    assert '"batchWatermarkMs":1772700000000' in checkpoint.files[f"offsets/{found.batch_id}"].decode()


def test_what_is_no_offset() -> None:
    with pytest.raises(Invalid, match="not valid JSON"):
        offset_of("42 orders")
    with pytest.raises(Invalid, match="not valid JSON"):
        offset_of({1, 2})
    with pytest.raises(Invalid, match="differs from the number of sources") as wrong:
        begin_at(golden(NAME), [Beginning(), Beginning()])
    assert (wrong.value.found, wrong.value.expected) == ("2", "1, one for each source")
    with pytest.raises(NotFound):
        begin_under(MemoryStorage({"metadata": b'{"id":"7d7a1b9e-9dda-47b2-8f49-4073fd4a7361"}'}), 5)
