"""A topic's records in any order that writers can leave them in, and what a consumer makes of them."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from holdfast.errors import Invalid
from holdfast.formats.record_header import RECORD_HEADER, RecordHeader, header_of, parse_header
from holdfast.stream.sinks.record_repeats import RepeatFilter, _DropRepeats, without_repeats
from holdfast.testing import Harness

# A partition, what a record holds, and the words of its header.
Sent: TypeAlias = tuple[int, str, str]
PARTITIONS = 3
QUERY = "5f2c1a34-0000-4000-8000-000000000001"


def sent(batch_id: int, contents: list[str], generation: str = "-", query: str = QUERY) -> list[Sent]:
    """A batch's records, each with its number among those alike; a partition is that of the content."""
    numbers: Counter[str] = Counter()
    records = []
    for content in contents:
        words = f"{query} {batch_id} {generation} {content}:{numbers[content]}"
        records.append((sum(map(ord, content)) % PARTITIONS, content, words))
        numbers[content] += 1
    return records


def read(records: list[Sent], seen: RepeatFilter | None = None) -> Counter[str]:
    """What a consumer uses of them."""
    seen = seen or RepeatFilter()
    return Counter(
        content
        for partition, content, words in records
        if seen.is_new("orders", partition, [("trace", b"1"), (RECORD_HEADER, words.encode())])
    )


@pytest.mark.parametrize("seed", range(30))
def test_whatever_was_sent_again_each_record_comes_once(seed: int) -> None:
    """Attempts break off anywhere, run in another order, and former writers send late what they still had."""
    rng = random.Random(seed)
    log: list[Sent] = []
    expected: Counter[str] = Counter()
    before: list[Sent] = []
    for batch_id in range(6):
        contents = [rng.choice("abcdefgh") for _ in range(rng.randrange(9))]
        expected.update(contents)
        batch = sent(batch_id, contents)
        for _ in range(rng.randrange(3)):
            log += rng.sample(batch, rng.randrange(len(batch) + 1))
        whole = rng.sample(batch, len(batch))
        late = rng.sample(before, rng.randrange(len(before) + 1))
        at = rng.randrange(len(whole) + 1)
        log += [*whole[:at], *late, *whole[at:], *rng.sample(batch, rng.randrange(len(batch) + 1))]
        before += batch
    assert read(log) == expected
    # One consumer stops after each record, and begins with what it has kept.
    state, piecewise = None, Counter[str]()
    for record in log:
        seen = RepeatFilter(state)
        piecewise += read([record], seen)
        state = json.loads(json.dumps(seen.state()))
    assert piecewise == expected


@pytest.mark.parametrize("seed", range(12))
def test_the_operator_of_a_stream_takes_what_the_filter_takes(seed: int) -> None:
    """Its state lasts from batch to batch, and over a restart; batches of the reader are cut anywhere."""
    rng = random.Random(seed)
    log: list[Sent] = []
    for batch_id in range(5):
        batch = sent(batch_id, [rng.choice("abcdef") for _ in range(8)], str(batch_id // 2 + 1))
        log += [*rng.sample(batch, rng.randrange(9)), *rng.sample(batch, 8), *rng.sample(log, len(log) // 4)]
    log.insert(rng.randrange(len(log)), (1, "foreign", ""))
    headers = "array<struct<key: string, value: binary>>"
    events = f"topic string, partition int, offset long, value string, headers {headers}"
    dropper = _DropRepeats(5, 2, 4)
    shop = Harness(
        dropper,
        by=("topic", "partition", "query"),
        events=f"{events}, query string",
        output=events,
        late="keep",
    )
    used: Counter[str] = Counter()
    waiting = list(enumerate(log))
    while waiting:
        size = rng.randrange(1, 12)
        read_now, waiting = waiting[:size], waiting[size:]
        rng.shuffle(read_now)
        rows = [
            {
                "topic": "orders",
                "partition": partition,
                "offset": offset,
                "value": content,
                "headers": [{"key": RECORD_HEADER, "value": words.encode()}] if words else [],
                "query": words.partition(" ")[0],
            }
            for offset, (partition, content, words) in read_now
        ]
        used.update(row["value"] for row in shop.send(*rows))
        if rng.random() < 0.3:
            shop.restart(_DropRepeats(5, 2, 4))
    assert used == read(log)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_former_owner_sends_after_its_successor_is_dropped(seed: int) -> None:
    """The two make other records of one batch; those from before the successor's first one stay."""
    rng = random.Random(seed)
    old = sent(4, [rng.choice("abcdef") for _ in range(12)], "7")
    new = sent(4, [rng.choice("uvwxyz") for _ in range(12)], "8")
    began, rest = old[:4], old[4:]
    mixed = [*began]
    while new or rest:
        take = new if new and (not rest or rng.random() < 0.5) else rest
        mixed.append(take.pop(0))
    first: dict[int, int] = defaultdict(lambda: len(mixed))
    for at, (partition, _, words) in enumerate(mixed):
        if words.split()[2] == "8":
            first[partition] = min(first[partition], at)
    expected = Counter(
        content
        for at, (partition, content, words) in enumerate(mixed)
        if words.split()[2] == "8" or at < first[partition]
    )
    assert read(mixed) == expected


def test_an_owner_that_was_rewound_on_purpose_writes_earlier_batches_anew() -> None:
    log = [*sent(3, ["a"], "1"), *sent(4, ["a"], "1"), *sent(3, ["a"], "2"), *sent(3, ["a"], "2")]
    assert read([*log, *sent(4, ["a"], "1"), *sent(4, ["a"], "2")]) == Counter(a=4)


def test_queries_topics_and_partitions_are_told_apart() -> None:
    one, other = sent(1, ["a"]), sent(1, ["a"], query="another")
    assert read([*one, *other, *one, *other]) == Counter(a=2)
    seen = RepeatFilter()
    headers = [(RECORD_HEADER, f"{QUERY} 1 - x:0".encode())]
    places = [("orders", 0), ("orders", 1), ("bills", 0), ("orders", 0)]
    assert [seen.is_new(*place, headers) for place in places] == [True, True, True, False]


def test_records_of_others_are_new() -> None:
    seen = RepeatFilter()
    for headers in (None, [], [("trace", None)], [(RECORD_HEADER, b"not ours")], [(RECORD_HEADER, None)]):
        assert seen.is_new("orders", 0, headers)
        assert seen.is_new("orders", 0, headers)
    assert seen.state() == {"newest": []}


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (b"q 3 - ab:0", RecordHeader("q", 3, None, "ab:0")),
        (b"q 3 12 ab:0", RecordHeader("q", 3, 12, "ab:0")),
        (b"q 3 12", None),
        (b"q x 12 ab:0", None),
        (b"q 3 x ab:0", None),
        (b"q -3 12 ab:0", None),
        (b"q  12 ab:0", None),
        ("q 3 12 ä".encode(), None),
        (b"\xff 3 12 ab:0", None),
        (b"", None),
    ],
)
def test_a_header_is_read_or_is_nobodys(value: bytes, meant: RecordHeader | None) -> None:
    assert parse_header(value) == meant
    assert header_of([("a", b"b"), (RECORD_HEADER, value)]) == meant


@pytest.mark.parametrize("state", [{}, {"newest": [{}]}, {"newest": 3}, {"newest": [{"topic": "t"}]}])
def test_what_is_no_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="invalid state for a RepeatFilter"):
        RepeatFilter(state)


@dataclass
class Frame:
    """A batch frame, as far as it can be known before Spark runs."""

    schema: StructType

    @property
    def columns(self) -> list[str]:
        return self.schema.names


def frame_of(value: DataType, without: str = "") -> Any:
    """A frame of Spark's Kafka source whose headers have values of a type, without one of its columns."""
    header = StructType().add("key", StringType()).add("value", value)
    columns = {
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "headers": ArrayType(header),
    }
    return Frame(StructType([StructField(*column) for column in columns.items() if column[0] != without]))


@pytest.mark.parametrize(
    ("missing", "found", "hint"),
    [
        (
            "headers",
            "topic, partition, offset",
            'read the topic with .option("includeHeaders", "true"), and drop columns afterwards',
        ),
        ("offset", "topic, partition, headers", "drop offset only after without_repeats"),
    ],
    ids=["headers", "offset"],
)
def test_a_frame_without_a_column_that_identifies_records_is_refused(
    missing: str, found: str, hint: str
) -> None:
    with pytest.raises(Invalid, match="the frame lacks columns that identify repeated records") as refused:
        without_repeats(frame_of(BinaryType(), missing))
    assert (refused.value.found, refused.value.hint) == (found, hint)


def test_a_frame_whose_headers_were_converted_is_refused() -> None:
    with pytest.raises(Invalid, match="`headers` does not have the type of Spark's Kafka source") as refused:
        without_repeats(frame_of(StringType()))
    assert refused.value.found == "array<struct<key:string,value:string>>"
    assert refused.value.expected == "array<struct<key:string,value:binary>>"
