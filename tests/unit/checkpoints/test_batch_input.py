"""Which files, or which records of topics and tables, a batch has read; by hand from what is in the logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from golden import golden_files
from holdfast.checkpoints.logs import InputRange, Logs, TablePosition, TopicRange, batch_input
from holdfast.storage.memory import MemoryStorage

# What `sources/0/9.compact` of this checkpoint names, entry by entry, and `10` and `11` after it.
ORDER = ("001", "000", "007", "003", "006", "009", "002", "008", "004", "010")
KAFKA_START = b'\0v1\n{"orders":{"0":5,"1":0}}'


def taken(files: Mapping[str, bytes], batch: int) -> tuple[InputRange, ...]:
    storage = MemoryStorage(files)
    return batch_input(storage, Logs(storage), batch)


def planned(*offsets: Any) -> bytes:
    lines = ["v1", '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}']
    return "\n".join([*lines, *("-" if each is None else json.dumps(each) for each in offsets)]).encode()


def names(read: InputRange) -> list[str]:
    assert read.files is not None
    return [path.rpartition("/")[2] for path in read.files]


@pytest.mark.parametrize("compacted", [False, True])
def test_files_come_from_the_entry_or_from_the_compacted_log(compacted: bool) -> None:
    files = dict(golden_files("4.2/aggregate-format2"))
    if compacted:
        for entry in range(9):
            del files[f"sources/0/{entry}"]
    for batch in range(5, 12):
        if f"offsets/{batch - 1}" in files:
            [read] = taken(files, batch)
            own = [ORDER[batch]] if batch < 10 else None
            assert own is None or names(read) == [f"{own[0]}.json"]
            assert (read.file_count, read.topics, read.why_unknown) == (1, None, None)


def test_a_batch_of_many_entries_has_the_files_of_all_and_no_others() -> None:
    files = {
        "sources/0/0": b'v1\n{"path":"file:/in/a%20b","timestamp":1,"batchId":0}',
        "sources/0/2.compact": b"v1\n"
        + b"\n".join(b'{"path":"file:/in/%d","timestamp":1,"batchId":%d}' % (n, n) for n in range(3)),
        "sources/0/3": b'v1\n{"path":"file:/in/x","timestamp":1,"batchId":3}\n'
        b'{"path":"file:/in/y","timestamp":1,"batchId":3}',
        "offsets/0": planned({"logOffset": 0}),
        "offsets/1": planned({"logOffset": 3}),
        "offsets/2": planned({"logOffset": 3}),
    }
    assert taken(files, 0)[0].files == ("file:/in/a%20b",)
    assert taken(files, 1)[0].files == ("file:/in/1", "file:/in/2", "file:/in/x", "file:/in/y")
    assert taken(files, 2)[0].files == ()
    assert taken(files, 3) == ()


def test_what_is_not_known_is_said() -> None:
    log = {
        "offsets/4": planned({"logOffset": 4}),
        "sources/0/4": b'v1\n{"path":"f","timestamp":1,"batchId":4}',
    }
    [before] = taken(log, 4)
    assert before.files is None
    assert "offsets of the batch before" in (before.why_unknown or "")
    [lost] = taken({**log, "offsets/3": planned({"logOffset": 2})}, 4)
    assert lost.files is None
    assert "own log" in (lost.why_unknown or "")


def test_records_of_topics_between_two_batches() -> None:
    files = {
        "sources/0/0": KAFKA_START,
        "offsets/0": planned({"orders": {"0": 12, "1": 0}}),
        "offsets/1": planned({"orders": {"0": 12, "1": 7, "10": 3}, "refunds": {"0": 1}}),
    }
    assert taken(files, 0)[0].topics == (TopicRange("orders", 0, 5, 11),)
    assert taken(files, 1)[0].topics == (
        TopicRange("orders", 1, 0, 6),
        TopicRange("orders", 10, None, 2),
        TopicRange("refunds", 0, None, 0),
    )
    assert taken(files, 1)[0].files is None


def test_positions_in_a_table_and_offsets_of_other_sources_as_they_are() -> None:
    def delta(version: int, index: int) -> dict[str, Any]:
        return {
            "sourceVersion": 1,
            "reservoirId": "6e",
            "reservoirVersion": version,
            "index": index,
            "isStartingVersion": False,
        }

    files = {"offsets/0": planned(delta(3, -1), 40), "offsets/1": planned(delta(4, 2), 80)}
    table, rate = taken(files, 1)
    assert (table.table_after, table.table_upto) == (TablePosition(3, -1), TablePosition(4, 2))
    assert rate == InputRange("1", "40", "80")
    assert taken(files, 0)[0].table_after is None
