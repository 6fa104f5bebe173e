"""The text formats, by files written down by hand."""

from __future__ import annotations

import pytest

from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.logs.batch_logs import log_offset, parse_commit, parse_offsets, parse_query
from holdfast.formats.logs.operator_metadata import parse_operator, schema_place, schema_root
from holdfast.formats.logs.table_logs import SeenFile, compact_interval, parse_source

UUID = "7d7a1b9e-9dda-47b2-8f49-4073fd4a7361"
OFFSETS = (
    b'v1\n{"batchWatermarkMs":7,"batchTimestampMs":9,"conf":{"spark.sql.shuffle.partitions":"3"}}\n'
    b'{"logOffset":4}\n-\n{"topic":{"0":12}}'
)
OPERATOR = (
    b'v2\n{"operatorInfo":{"operatorId":1,"operatorName":"tws"},"stateStoreInfo":[{"storeName":"default",'
    b'"numColsPrefixKey":0,"numPartitions":2,"stateSchemaFilePaths":["file:/a/b/state/1/_stateSchema/default/0_'
    + UUID.encode()
    + b'"]}],"operatorPropertiesJson":"{\\"timeMode\\":\\"None\\"}"}'
)


def test_offsets_by_position() -> None:
    log = parse_offsets(OFFSETS, "offsets/4")
    assert (log.version, log.watermark_ms, log.timestamp_ms, log.partitions) == (1, 7, 9, 3)
    assert log.offsets == {"0": '{"logOffset":4}', "1": None, "2": '{"topic":{"0":12}}'}
    assert [log_offset(each) for each in log.offsets.values()] == [4, None, None]
    assert log.render() == OFFSETS


@pytest.mark.parametrize(
    ("old", "new", "is_maintenance"),
    [
        (b'"3"', b'"8"', True),  # a repartition fixes the number of partitions, and nothing else
        (b'"batchTimestampMs":9', b'"batchTimestampMs":10', False),
        (b'"batchWatermarkMs":7', b'"batchWatermarkMs":8', False),
        (b'{"logOffset":4}', b'{"logOffset":5}', False),
    ],
)
def test_a_batch_that_read_nothing_is_known_by_the_one_before(
    old: bytes, new: bytes, is_maintenance: bool
) -> None:
    after = parse_offsets(OFFSETS.replace(old, new), "offsets/5")
    assert after.is_maintenance_after(parse_offsets(OFFSETS, "offsets/4")) is is_maintenance


def test_offsets_by_name() -> None:
    text = b'v2\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\norders:{"logOffset":4}\npaid:-'
    log = parse_offsets(text, "offsets/0")
    assert log.offsets == {"orders": '{"logOffset":4}', "paid": None}
    assert log.render() == text


def test_offsets_without_metadata() -> None:
    log = parse_offsets(b"v1\n\n5", "offsets/0")
    assert (log.fields, log.watermark_ms, log.confs, log.offsets) == (None, 0, {}, {"0": "5"})
    assert log.render() == b"v1\n\n5"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"v1",
        b"x1\n{}\n5",
        b"v1\n{\n5",
        b"v1\n[]\n5",
        b'v1\n{"batchWatermarkMs":"x"}\n5',
        b'v1\n{"conf":{"a":1}}\n5',
        b'v1\n{}\n{"logOffset":',
        b'v1\n{"a":1,"a":2}\n5',
        b"v2\n{}\n5",
        b"v2\n{}\na:1\na:2",
        b"v1\n{}\n\xff",
        b"v1\n{}\n",
        b"v1\n{}\n0" + bytes(1),
    ],
)
def test_damaged_offsets(text: bytes) -> None:
    with pytest.raises(Corrupt) as error:
        parse_offsets(text, "offsets/4")
    assert error.value.where is not None
    assert error.value.where.startswith("offsets/4")


def test_offsets_of_a_newer_spark() -> None:
    with pytest.raises(Unsupported) as error:
        parse_offsets(b"v9\n{}\n5", "offsets/4")
    assert (error.value.found, error.value.expected) == ("v9", "v1, v2")


def test_a_commit() -> None:
    text = f'v2\n{{"nextBatchWatermarkMs":5,"stateUniqueIds":{{"0":[["{UUID}"],["b"]]}}}}'.encode()
    log = parse_commit(text, "commits/4")
    assert (log.version, log.next_watermark_ms, log.state_ids) == (2, 5, {0: ((UUID,), ("b",))})
    assert log.render() == text


def test_commits_with_and_without_more() -> None:
    assert parse_commit(b'v1\n{"nextBatchWatermarkMs":0}', "c").state_ids is None
    assert parse_commit(b"v1\n{}", "c").next_watermark_ms == 0
    newer = b'v3\n{"nextBatchWatermarkMs":5,"sinkMetadataMap":{"s":{"sinkName":"s","isActive":true}}}'
    assert parse_commit(newer, "c").render() == newer


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"v2",
        b"v2\n",
        b"v2\n{}\n{}",
        b'v2\n{"stateUniqueIds":{"0":"x"}}' + bytes(1),
        b'v2\n{"stateUniqueIds":{"x":[]}}',
        b'v2\n{"stateUniqueIds":{"0":[[1]]}}',
        b'v1\n{"nextBatchWatermarkMs":true}',
    ],
)
def test_damaged_commits(text: bytes) -> None:
    with pytest.raises(Corrupt):
        parse_commit(text, "commits/4")


SEEN = (
    b'v1\n{"path":"file:///in/0.json","timestamp":11,"batchId":0}\n'
    b'{"path":"file:///in/1.json","timestamp":12,"batchId":1}'
)


def test_files_that_a_source_has_seen() -> None:
    log = parse_source(SEEN, "sources/0/1.compact")
    assert log.list_files("x") == (SeenFile("file:///in/0.json", 11, 0), SeenFile("file:///in/1.json", 12, 1))
    assert log.render() == SEEN
    assert log.between(0, 0, "x").render() == SEEN.split(b'\n{"path":"file:///in/1')[0]


def test_other_sources_keep_what_they_like() -> None:
    kafka = b'\0v1\n{"topic":{"0":0}}'
    assert parse_source(kafka, "x").list_files("x") == ()
    assert parse_source(kafka, "x").render() == kafka
    assert parse_source(b"v1\n1795260688155", "x").list_files("x") == ()


@pytest.mark.parametrize(
    "text", [b"", b"v1\n{", SEEN + b"\n5", SEEN[:-1], SEEN.replace(b'"batchId":1', b'"b":1')]
)
def test_a_damaged_source_log(text: bytes) -> None:
    with pytest.raises(Corrupt):
        parse_source(text, "x").list_files("x")


def test_an_operator() -> None:
    found = parse_operator(OPERATOR, "m")
    assert (found.version, found.operator_id, found.name) == (2, 1, "tws")
    assert (found.stores[0].name, found.stores[0].partitions) == ("default", 2)
    assert found.properties == {"timeMode": "None"}
    assert found.render() == OPERATOR


def test_an_operator_moves_with_its_schemas() -> None:
    moved = parse_operator(OPERATOR, "m").moved_to("file:/new/place")
    assert moved.render() == OPERATOR.replace(b"file:/a/b/", b"file:/new/place/")
    assert moved.stores[0].schema_paths == (f"file:/new/place/state/1/_stateSchema/default/0_{UUID}",)


def test_a_schema_path_is_told_from_any_other() -> None:
    path = f"s3a://bucket/state/3/state/1/_stateSchema/default/0_{UUID}"
    assert schema_place(path) == f"state/1/_stateSchema/default/0_{UUID}"
    assert schema_root(path) == "s3a://bucket/state/3"
    assert schema_place("file:/a/b/state/1/_stateSchema/default/schema") is None
    assert schema_root("/etc/passwd") is None


@pytest.mark.parametrize("text", [b"", b"v1", b"v1\n{}", b'v1\n{"operatorInfo":{}}', OPERATOR[:-2]])
def test_a_damaged_operator(text: bytes) -> None:
    with pytest.raises(Corrupt):
        parse_operator(text, "m")


def test_a_query() -> None:
    text = f'{{"id":"{UUID}"}}'.encode()
    assert parse_query(text, "metadata").query_id == UUID
    assert parse_query(text, "metadata").render() == text


@pytest.mark.parametrize("text", [b"", b"{}", b'{"id":5}', b'{"id":"x"}', b'{"id":"' + UUID.encode()])
def test_a_damaged_query(text: bytes) -> None:
    with pytest.raises(Corrupt):
        parse_query(text, "metadata")


@pytest.mark.parametrize(
    ("compacted", "interval"),
    [((), 10), ((9,), 10), ((19, 29), 10), ((29,), 10), ((4,), 5), ((14,), 15), ((34,), 35), ((4, 9, 14), 5)],
)
def test_the_distance_of_compacted_entries(compacted: tuple[int, ...], interval: int) -> None:
    assert compact_interval(compacted) == interval
