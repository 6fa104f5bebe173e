"""How far a batch has read its sources, out of what Spark reports."""

from __future__ import annotations

from typing import Any

from holdfast.engine.queries.watch import committed_batch, sources_in
from holdfast.model import BatchProgress, PartitionPosition, SourceProgress

# As Spark 4.2 prints it.
KAFKA: dict[str, Any] = {
    "description": "KafkaV2[Subscribe[orders]]",
    "startOffset": {"orders": {"0": 3, "1": 1}},
    "endOffset": {"orders": {"1": 2, "0": 5}},
    "latestOffset": {"orders": {"1": 2, "0": 9}},
    "numInputRows": 3,
    "inputRowsPerSecond": 30.0,
    "processedRowsPerSecond": 3.0,
    "metrics": {"avgOffsetsBehindLatest": "2.0"},
}
FILES: dict[str, Any] = {
    "description": "FileStreamSource[file:/in]",
    "startOffset": None,
    "endOffset": {"logOffset": 0},
    "latestOffset": None,
    "numInputRows": 7,
}
RATE: dict[str, Any] = {"description": "RateStreamV2", "endOffset": 3, "latestOffset": 4, "numInputRows": 1}


def read(*sources: dict[str, Any]) -> tuple[SourceProgress, ...]:
    return sources_in({"sources": list(sources)})


def test_partitions_of_a_topic() -> None:
    assert read(KAFKA) == (
        SourceProgress(
            0,
            "KafkaV2[Subscribe[orders]]",
            3,
            (PartitionPosition("orders", 0, 5, 9), PartitionPosition("orders", 1, 2, 2)),
        ),
    )


def test_other_sources_do_not_tell() -> None:
    found = read(FILES, RATE, KAFKA)
    assert [(source.source, source.rows, len(source.positions)) for source in found] == [
        (0, 7, 0),
        (1, 1, 0),
        (2, 3, 2),
    ]


def test_offsets_may_be_text() -> None:
    text = {**KAFKA, "endOffset": '{"orders":{"0":5}}', "latestOffset": '{"orders":{"0":9,"1":2}}'}
    assert read(text)[0].positions == (PartitionPosition("orders", 0, 5, 9),)
    assert read({**KAFKA, "endOffset": "no JSON"})[0].positions == ()


def test_of_many_partitions_the_topics_are_noted() -> None:
    ends = {str(partition): partition for partition in range(201)}
    many = {**KAFKA, "endOffset": {"a": ends, "b": {"0": 1}}, "latestOffset": {"a": ends, "b": {"0": 4}}}
    assert read(many)[0].positions == (
        PartitionPosition("a", None, 20_100, 20_100),
        PartitionPosition("b", None, 1, 4),
    )


def test_a_batch_carries_them_and_is_read_back() -> None:
    progress = {
        "batchId": 4,
        "durationMs": {"addBatch": 5, "triggerExecution": 9},
        "sources": [KAFKA, FILES],
    }
    batch = committed_batch("q", progress, 1_000)
    assert batch is not None
    assert [source.source for source in batch.sources] == [0, 1]
    assert BatchProgress.from_dict(batch.as_dict()) == batch
    assert batch.sources[0].positions[0].behind == 4
    old = {name: value for name, value in batch.as_dict().items() if name != "sources"}
    assert BatchProgress.from_dict(old).sources == ()
