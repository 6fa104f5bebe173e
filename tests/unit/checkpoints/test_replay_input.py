"""A batch that another checkpoint is to run again: its offsets and files, under its own watermark."""

from __future__ import annotations

import json

import pytest
from catalogs import file_query

from holdfast.checkpoints.copy import batch_files, empty_batch
from holdfast.errors import NotFound
from holdfast.formats.logs.batch_logs import parse_offsets
from holdfast.storage.memory import MemoryStorage


def left_at(batches: int, watermark_ms: int) -> MemoryStorage:
    """The other checkpoint: of the same query, at an earlier batch and with a watermark of its own."""
    files = file_query(batches)
    del files[f"sources/0/{batches}"]
    files[f"commits/{batches - 1}"] = f'v1\n{{"nextBatchWatermarkMs":{watermark_ms}}}'.encode()
    return MemoryStorage(files)


def test_a_batch_has_the_offsets_and_time_of_the_original_and_its_own_watermark() -> None:
    original, other = MemoryStorage(file_query(5)), left_at(2, 777)
    *sources, (path, data) = batch_files(original, other, 2)
    assert path == "offsets/2"
    found = parse_offsets(data, path)
    assert (found.watermark_ms, found.timestamp_ms, dict(found.offsets)) == (777, 2, {"0": '{"logOffset":2}'})
    # Every file that the source has noted and the other does not know.
    assert [name for name, _ in sources] == ["sources/0/2", "sources/0/3", "sources/0/4", "sources/0/5"]
    assert dict(sources)["sources/0/2"] == original.files["sources/0/2"]


def test_what_the_other_has_is_not_given_again() -> None:
    original, other = MemoryStorage(file_query(3)), left_at(2, 0)
    for path, data in batch_files(original, other, 2):
        other.write(path, data)
    other.write("commits/2", b'v1\n{"nextBatchWatermarkMs":5}')
    original = MemoryStorage(file_query(4))
    (source, _), (offsets, _) = batch_files(original, other, 3)
    assert (source, offsets) == ("sources/0/4", "offsets/3")


def test_a_batch_without_input_stands_where_the_one_before_stood() -> None:
    path, data = empty_batch(left_at(2, 42), 2, 1000)
    found = parse_offsets(data, path)
    assert path == "offsets/2"
    assert (found.watermark_ms, found.timestamp_ms) == (42, 1000)
    assert [json.loads(each or "null") for each in found.offsets.values()] == [{"logOffset": 1}]


def test_a_batch_that_is_not_next_is_refused() -> None:
    original = MemoryStorage(file_query(5))
    with pytest.raises(NotFound) as error:
        batch_files(original, left_at(2, 0), 4)
    assert (error.value.where or "").endswith("commits/3")
    with pytest.raises(NotFound) as error:
        batch_files(original, left_at(5, 0), 5)
    assert (error.value.where or "").endswith("offsets/5")
