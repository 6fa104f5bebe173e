"""Where sources go on, read and moved: the new checkpoint has the same state, the old one stays as it is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from catalogs import Hands, catalog
from grid import WHOLE

from golden import KAFKA, files_read_from, golden_files, kafka_files
from holdfast.changes.offsets.moving import OffsetPlan, OffsetRequest, move_offsets, plan_offsets
from holdfast.changes.offsets.position_changes import (
    OffsetChange,
    PositionChange,
    RenameTopic,
    SkipRecords,
    SyncPoint,
    ToOffset,
    ToRecord,
    ToVersion,
    Translate,
    changed,
    listed_offsets,
    sync_points,
)
from holdfast.changes.offsets.positions import SourceKind, read_positions
from holdfast.changes.working_copy import WorkingCopy
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.logs import read_again
from holdfast.checkpoints.state.contents import contents
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Corrupt, HoldfastError, Invalid, NotFound, Unsupported
from holdfast.formats.logs.batch_logs import OffsetLog, parse_offsets
from holdfast.formats.logs.table_logs import parse_source
from holdfast.savepoints.access import ChangeSource
from holdfast.savepoints.planning import SAVEPOINT
from holdfast.storage.memory import MemoryStorage
from holdfast.testing.failing_storage import FaultyStorage, Killed

NAME = "4.2/aggregate-memory"
JOIN = "4.2/join-memory"
DELTA = {
    "sourceVersion": 1,
    "reservoirId": "7b0e",
    "reservoirVersion": 12,
    "index": 4,
    "isStartingVersion": True,
}
NEWEST, BEFORE = "offsets/11", "offsets/10"


def reading(*sources: Any) -> MemoryStorage:
    """A real checkpoint whose sources have come to these offsets."""
    return MemoryStorage(kafka_files(NAME, *sources), uri="memory://ck")


def moved(checkpoint: MemoryStorage, folder: Path, *changes: OffsetChange) -> tuple[list[Any], OffsetPlan]:
    """The offsets of the new checkpoint, whose state is proved to be the same, and what was planned."""
    new, before = MemoryStorage(uri="memory://new"), dict(checkpoint.files)
    source, wanted = ChangeSource(checkpoint), OffsetRequest(changes)
    plan = plan_offsets(source, new, wanted)
    made = move_offsets(source, new, plan, folder)
    assert checkpoint.files == before
    assert contents(new) == contents(checkpoint) == made.states
    assert verify(new).problems == ()
    found, old = read(new), read(checkpoint)
    assert (found.batch_id, found.query_id, found.confs) == (old.batch_id, old.query_id, old.confs)
    ends = [
        [json.loads(offset or "null") for offset in parse_offsets(new.read(path), path).offsets.values()]
        for path in (NEWEST, BEFORE)
    ]
    # Spark asks a source for what lies between the two when it starts.
    assert ends[0] == ends[1]
    return ends[0], plan


def refusal(checkpoint: MemoryStorage, *changes: OffsetChange) -> HoldfastError:
    with pytest.raises(HoldfastError) as error:
        plan_offsets(ChangeSource(checkpoint), MemoryStorage(uri="memory://new"), OffsetRequest(changes))
    return error.value


def test_every_source_is_read_by_its_kind() -> None:
    shown = read_positions(reading(KAFKA, DELTA, {"logOffset": 8}, 1234), "memory://ck").sources
    assert [(at.source, at.kind, at.topic, at.partition, at.next) for at in shown] == [
        ("0", SourceKind.KAFKA, "orders", 0, 40),
        ("0", SourceKind.KAFKA, "orders", 1, 25),
        ("0", SourceKind.KAFKA, "orders", 10, 7),
        ("0", SourceKind.KAFKA, "refunds", 0, 3),
        ("1", SourceKind.DELTA, None, None, 12),
        ("2", SourceKind.FILES, None, None, 9),
        ("3", SourceKind.OTHER, None, None, None),
    ]


def test_a_partition_goes_on_with_another_record(tmp_path: Path) -> None:
    ends, plan = moved(reading(KAFKA), tmp_path, ToRecord("orders", 0, 12), ToRecord("orders", 10, 9))
    assert ends == [{"orders": {"0": 12, "1": 25, "10": 9}, "refunds": {"0": 3}}]
    assert [(each.partition, each.before, each.after) for each in plan.positions] == [(0, 40, 12), (10, 7, 9)]
    assert (plan.repeated, plan.skipped) == (28, 2)


def test_records_are_left_out(tmp_path: Path) -> None:
    ends, plan = moved(reading(KAFKA), tmp_path, SkipRecords("orders", 1, 3))
    assert ends[0]["orders"]["1"] == 28
    assert (plan.repeated, plan.skipped) == (0, 3)


def test_a_stream_that_stands_in_the_plan_twice_moves_as_one(tmp_path: Path) -> None:
    ends, _ = moved(reading(KAFKA, KAFKA), tmp_path, SkipRecords("orders", 0, 1))
    assert [end["orders"]["0"] for end in ends] == [41, 41]


def test_a_topic_has_another_name(tmp_path: Path) -> None:
    ends, plan = moved(reading(KAFKA), tmp_path, RenameTopic("orders", "dc2.orders"))
    assert ends == [{"dc2.orders": {"0": 40, "1": 25, "10": 7}, "refunds": {"0": 3}}]
    assert {(each.topic, each.new_topic, each.before, each.after) for each in plan.positions} == {
        ("orders", "dc2.orders", 40, 40),
        ("orders", "dc2.orders", 25, 25),
        ("orders", "dc2.orders", 7, 7),
    }
    assert (plan.repeated, plan.skipped) == (0, 0)


def places(plan: OffsetPlan) -> set[tuple[Any, ...]]:
    """Source, topic, partition and offset, before and after."""
    return {
        (
            (each.source, each.topic, each.partition, each.before),
            (
                each.new_topic or each.topic,
                each.partition if each.new_partition is None else each.new_partition,
                each.after,
            ),
        )
        for each in plan.positions
    }


def test_a_topic_is_renamed_twice(tmp_path: Path) -> None:
    changes = RenameTopic("orders", "o2"), RenameTopic("o2", "o3")
    ends, plan = moved(reading({"orders": {"0": 40}}), tmp_path, *changes)
    assert ends == [{"o3": {"0": 40}}]
    assert places(plan) == {(("0", "orders", 0, 40), ("o3", 0, 40))}


def test_two_topics_exchange_their_names(tmp_path: Path) -> None:
    changes = RenameTopic("orders", "tmp"), RenameTopic("refunds", "orders"), RenameTopic("tmp", "refunds")
    ends, plan = moved(reading({"orders": {"0": 40}, "refunds": {"0": 3}}), tmp_path, *changes)
    assert ends == [{"refunds": {"0": 40}, "orders": {"0": 3}}]
    assert places(plan) == {
        (("0", "orders", 0, 40), ("refunds", 0, 40)),
        (("0", "refunds", 0, 3), ("orders", 0, 3)),
    }
    back = RenameTopic("orders", "o2"), RenameTopic("o2", "orders")
    assert "moves no offset" in refusal(reading(KAFKA), *back).fact


def test_a_topic_is_renamed_in_every_source_that_reads_it(tmp_path: Path) -> None:
    sources = {"orders": {"0": 40}}, {"orders": {"0": 38}}, {"refunds": {"0": 3}}
    ends, plan = moved(reading(*sources), tmp_path, RenameTopic("orders", "o2"))
    assert ends == [{"o2": {"0": 40}}, {"o2": {"0": 38}}, {"refunds": {"0": 3}}]
    assert places(plan) == {
        (("0", "orders", 0, 40), ("o2", 0, 40)),
        (("1", "orders", 0, 38), ("o2", 0, 38)),
    }


def test_sources_of_one_topic_are_translated_each_from_its_own_place(tmp_path: Path) -> None:
    points = SyncPoint("orders", 0, 38, "o2", 0, 30), SyncPoint("orders", 0, 40, "o2", 1, 31)
    checkpoint = reading({"orders": {"0": 40}}, {"orders": {"0": 39}})
    ends, plan = moved(checkpoint, tmp_path, Translate(points))
    assert ends == [{"o2": {"1": 31}}, {"o2": {"0": 30}}]
    assert places(plan) == {
        (("0", "orders", 0, 40), ("o2", 1, 31)),
        (("1", "orders", 0, 39), ("o2", 0, 30)),
    }


def test_an_offset_may_have_other_partitions(tmp_path: Path) -> None:
    """Spark begins a partition without an offset with the first record, so all 25, 7 and 3 are read again."""
    ends, plan = moved(reading(KAFKA), tmp_path, ToOffset('{"orders":{"0":42,"2":5}}', "0"))
    assert ends == [{"orders": {"0": 42, "2": 5}}]
    assert places(plan) == {
        (("0", "orders", 0, 40), ("orders", 0, 42)),
        (("0", "orders", 1, 25), ("orders", 1, None)),
        (("0", "orders", 10, 7), ("orders", 10, None)),
        (("0", "refunds", 0, 3), ("refunds", 0, None)),
        (("0", "orders", 2, None), ("orders", 2, 5)),
    }
    assert (plan.repeated, plan.skipped) == (25 + 7 + 3, 2 + 5)


def test_a_source_without_an_offset_gets_one() -> None:
    ends, positions = changed({"0": None}, [ToOffset('{"orders":{"0":42}}')], "memory://ck")
    assert ends == {"0": '{"orders":{"0":42}}'}
    assert positions == (PositionChange("0", "orders", 0, None, 42),)


def test_offsets_become_those_of_another_cluster(tmp_path: Path) -> None:
    """Worked by hand: the newest point that is not behind the position; behind it nothing is left out."""
    points = (
        SyncPoint("orders", 0, 0, "o2", 0, 0),
        SyncPoint("orders", 0, 38, "o2", 0, 30),
        SyncPoint("orders", 0, 41, "o2", 0, 33),
        SyncPoint("orders", 1, 25, "o2", 7, 2),
        SyncPoint("orders", 10, 7, "o2", 1, 7),
        SyncPoint("refunds", 0, 1, "refunds", 0, 1),
    )
    ends, plan = moved(reading(KAFKA), tmp_path, Translate(points))
    assert ends == [{"o2": {"0": 30, "7": 2, "1": 7}, "refunds": {"0": 1}}]
    assert [(each.new_topic, each.new_partition) for each in plan.positions] == [
        ("o2", None),
        ("o2", 7),
        ("o2", 1),
        (None, None),
    ]


def test_two_partitions_cannot_become_one() -> None:
    """Behind the larger of two places, records of the other partition would be left out."""
    points = (
        SyncPoint("orders", 0, 38, "o2", 0, 30),
        SyncPoint("orders", 1, 20, "o2", 0, 99),
        SyncPoint("orders", 10, 7, "o2", 1, 7),
        SyncPoint("refunds", 0, 1, "refunds", 0, 1),
    )
    error = refusal(reading(KAFKA), Translate(points))
    assert isinstance(error, Invalid)
    assert "two partitions" in error.fact
    assert error.found == "orders,0,38,o2,0,30 and orders,1,20,o2,0,99"


def test_a_table_goes_on_with_a_version(tmp_path: Path) -> None:
    ends, _ = moved(reading(DELTA), tmp_path, ToVersion(9))
    assert ends == [{**DELTA, "reservoirVersion": 9, "index": -1, "isStartingVersion": False}]


def test_a_source_goes_on_at_its_own_offset(tmp_path: Path) -> None:
    assert moved(reading(KAFKA, 7), tmp_path, ToOffset("12", "1"))[0] == [KAFKA, 12]


@pytest.mark.parametrize(
    ("change", "kind", "fact"),
    [
        (ToRecord("nobody", 0, 1), NotFound, "no source of the query has read the topic"),
        (ToRecord("orders", 2, 1), NotFound, "no offset for a partition of the topic"),
        (ToRecord("orders", 0, 1 << 63), Invalid, "invalid record offset"),
        (SkipRecords("orders", 0, -41), Invalid, "invalid record offset"),
        (ToRecord("orders", 0, 40), Invalid, "moves no offset"),
        (RenameTopic("orders", "refunds"), Invalid, "already reads a topic with the new name"),
        (ToVersion(3), Invalid, "the query has no Delta sources"),
        (ToOffset("12", "0"), Invalid, "not have the form"),
        (ToOffset("{", "0"), Invalid, "not valid JSON"),
        (ToOffset("12"), Invalid, "the query has several sources"),
        (ToOffset('{"logOffset":3}', "1"), Invalid, "it logs the files"),
        (Translate((SyncPoint("orders", 0, 99, "o2", 0, 0),)), Invalid, "no record at or before"),
    ],
)
def test_what_does_not_fit_is_refused(change: OffsetChange, kind: type[HoldfastError], fact: str) -> None:
    error = refusal(reading(KAFKA, {"logOffset": 8}), change)
    assert isinstance(error, kind)
    assert fact in error.fact
    assert error.hint


def test_two_sources_of_a_topic_that_are_at_different_records_must_be_named(tmp_path: Path) -> None:
    behind = {"orders": {"0": 39}}
    assert (
        "the query has several sources of the topic orders"
        in refusal(reading({"orders": {"0": 40}}, behind), SkipRecords("orders", 0, 1)).fact
    )
    ends, _ = moved(reading({"orders": {"0": 40}}, behind), tmp_path, SkipRecords("orders", 0, 1, "1"))
    assert ends == [{"orders": {"0": 40}}, {"orders": {"0": 40}}]


def test_a_savepoint_is_moved_too(tmp_path: Path) -> None:
    into = catalog()
    taken = Hands().take(reading(KAFKA), into)
    new = MemoryStorage(uri="memory://new")
    source = ChangeSource(into, taken.manifest.savepoint_id)
    plan = plan_offsets(source, new, OffsetRequest([ToRecord("refunds", 0, 0)]))
    move_offsets(source, new, plan, tmp_path)
    assert json.loads(read(new).sources[0].offset or "")["refunds"] == {"0": 0}
    assert plan.original == "memory://ck"


def reading_files(folder: Path) -> MemoryStorage:
    """A real checkpoint whose source has read twelve files of this directory, and not `012.json`."""
    folder.mkdir(exist_ok=True)
    return MemoryStorage(files_read_from(NAME, folder.as_uri()), uri="memory://ck")


def left_out(checkpoint: MemoryStorage, *files: str | Path) -> tuple[str, ...]:
    wanted = OffsetRequest(files=[str(file) for file in files])
    return plan_offsets(ChangeSource(checkpoint), MemoryStorage(uri="memory://new"), wanted).skipped_files


def test_a_file_is_left_out_as_if_it_had_been_read(tmp_path: Path) -> None:
    """The log of the twelve files of the golden query; the thirteenth entry is that of the file."""
    checkpoint = reading_files(tmp_path / "in")
    (tmp_path / "in/bad.json").touch()
    os.utime(tmp_path / "in/bad.json", (1_772_697_700,) * 2)
    bad = f"file://{tmp_path}/in/bad.json"
    new = MemoryStorage(uri="memory://new")
    plan = plan_offsets(ChangeSource(checkpoint), new, OffsetRequest(files=[bad]))
    assert plan.skipped_files == (bad,)
    move_offsets(ChangeSource(checkpoint), new, plan, tmp_path / "work")
    assert read(new).sources[0].offset == '{"logOffset":12}'
    (file,) = parse_source(new.read("sources/0/12"), "sources/0/12").list_files("sources/0/12")
    assert (file.path, file.entry, file.timestamp_ms) == (bad, 12, 1_772_697_700_000)
    assert contents(new) == contents(checkpoint)
    assert verify(new).problems == ()


# Of each name, what Java's `Path.toUri` makes of it, as Spark's own logs show.
@pytest.mark.parametrize(
    ("name", "noted"),
    [
        ("bad.json", "bad.json"),
        ("bad file #1.json", "bad%20file%20%231.json"),
        ("a%20b.json", "a%2520b.json"),
        ('[x]?{y}^|\\`<>".json', "%5Bx%5D%3F%7By%7D%5E%7C%5C%60%3C%3E%22.json"),
        ("d=1;t=10:00,a&b+c@d$!~'(*).json", "d=1;t=10:00,a&b+c@d$!~'(*).json"),
        ("größe\u00a0日.json", "größe%C2%A0日.json"),
    ],
)
def test_a_file_is_noted_as_spark_spells_it(tmp_path: Path, name: str, noted: str) -> None:
    folder = tmp_path / "in put#1"
    checkpoint = reading_files(folder)
    (folder / name).touch()
    expected = (f"file://{tmp_path}/in%20put%231/{noted}",)
    spelled = (
        folder / name,
        f"file://{folder}/{name}",
        f"file:{folder}/{name}",
        f"file:///..{folder}//{name}",
        expected[0],
        expected[0].replace("file:///", "file:/"),
    )
    for given in spelled:
        assert left_out(checkpoint, given) == expected
    assert left_out(checkpoint, *spelled) == expected


def test_a_file_that_was_read_or_is_elsewhere_cannot_be_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "in put"
    checkpoint = reading_files(folder)
    (tmp_path / "a.json").touch()
    for file in (
        folder / "011.json",
        f"file://{folder}/011.json",
        f"file:{folder}/011.json",
        f"file:{tmp_path}/in%20put/011.json",
    ):
        with pytest.raises(Invalid, match="has read it already"):
            left_out(checkpoint, file)
    for elsewhere in (tmp_path / "a.json", "s3a://other/bucket/x.json", f"s3a://{folder}/011.json"):
        with pytest.raises(Invalid, match="no file from its directory") as error:
            left_out(checkpoint, elsewhere)
        assert error.value.expected == f"file://{tmp_path}/in%20put"
    with pytest.raises(NotFound, match="the file to skip does not exist") as missing:
        left_out(checkpoint, f"file:{tmp_path}/in%20put/12.json")
    assert missing.value.found == str(folder / "12.json")
    with pytest.raises(NotFound, match="no file source that has read a file"):
        left_out(reading(KAFKA), "/a.json")


def test_a_file_of_an_object_store_is_noted_as_the_ones_before() -> None:
    checkpoint = MemoryStorage(files_read_from(NAME, "s3a://lake/day=1%253A00"), uri="memory://ck")
    for given in ("s3a://lake/day=1%253A00/a%20b.json", "s3a://lake/day=1%3A00/a b.json"):
        assert left_out(checkpoint, given) == ("s3a://lake/day=1%253A00/a%20b.json",)


def test_a_file_is_left_out_of_one_of_two_sources(tmp_path: Path) -> None:
    """Each of the two sides of a join has a log of its own, and both have come to the same entry."""
    checkpoint = MemoryStorage(files_read_from(JOIN, "s3a://lake/in"), uri="memory://ck")
    end = read(checkpoint).sources[0].offset
    assert [source.offset for source in read(checkpoint).sources] == [end, end]
    entry = json.loads(end or "")["logOffset"]
    new = MemoryStorage(uri="memory://new")
    wanted = OffsetRequest(files=["s3a://lake/in/bad.json"], source="0")
    move_offsets(ChangeSource(checkpoint), new, plan_offsets(ChangeSource(checkpoint), new, wanted), tmp_path)
    assert [json.loads(source.offset or "")["logOffset"] for source in read(new).sources] == [
        entry + 1,
        entry,
    ]
    assert verify(new).problems == ()


def test_a_file_is_left_out_of_a_stream_that_is_read_twice(tmp_path: Path) -> None:
    """It stands in the plan twice, and has one log."""
    files = files_read_from(JOIN, "s3a://lake/in")
    once = {path: data for path, data in files.items() if not path.startswith("sources/1/")}
    checkpoint, new = MemoryStorage(once, uri="memory://ck"), MemoryStorage(uri="memory://new")
    wanted = OffsetRequest(files=["s3a://lake/in/bad.json"])
    move_offsets(ChangeSource(checkpoint), new, plan_offsets(ChangeSource(checkpoint), new, wanted), tmp_path)
    first, second = (json.loads(source.offset or "")["logOffset"] for source in read(new).sources)
    assert first == second == json.loads(read(checkpoint).sources[0].offset or "")["logOffset"] + 1
    assert verify(new).problems == ()


def test_which_of_two_sources_is_read_twice_cannot_always_be_told() -> None:
    ends = OffsetLog(1, None, dict.fromkeys(("0", "1", "2"), '{"logOffset":4}'))
    begun = OffsetLog(1, None, {"0": '{"logOffset":1}', "1": '{"logOffset":2}', "2": '{"logOffset":1}'})
    assert read_again("0", ["0", "1"], ends, lambda: [begun, ends], "memory://ck") == ("2",)
    assert read_again("1", ["0", "1"], ends, lambda: [begun, ends], "memory://ck") == ()
    with pytest.raises(Unsupported, match="cannot be assigned"):
        read_again("0", ["0", "1"], ends, lambda: [ends], "memory://ck")


def test_what_is_wrong_in_the_copy_is_told_of_the_source(tmp_path: Path) -> None:
    work = WorkingCopy(tmp_path, SAVEPOINT, None)
    with pytest.raises(Corrupt) as error, work.standing_for("memory://ck"):
        raise Corrupt("a file is lost", where=f"{work.checkpoint.uri}/sources/1/12", hint="restore")
    assert (error.value.where, error.value.hint) == ("memory://ck/sources/1/12", "restore")


def test_a_batch_that_never_ends_is_planned_anew(tmp_path: Path) -> None:
    checkpoint = reading(KAFKA)
    planned = json.loads(checkpoint.read(NEWEST).decode().splitlines()[-1])
    checkpoint.write("offsets/12", checkpoint.read(NEWEST).replace(b'"0":40', b'"0":55'))
    assert (read(checkpoint).uncommitted, planned["orders"]["0"]) == (12, 40)
    new = MemoryStorage(uri="memory://new")
    plan = plan_offsets(ChangeSource(checkpoint), new, OffsetRequest([SkipRecords("orders", 0, 1)]))
    assert (plan.batch_id, plan.uncommitted, plan.skipped) == (11, 12, 1)
    move_offsets(ChangeSource(checkpoint), new, plan, tmp_path)
    after = read(new)
    assert (after.batch_id, after.uncommitted) == (11, None)
    assert json.loads(after.sources[0].offset or "")["orders"]["0"] == 41
    assert verify(new).problems == ()


def test_a_file_at_which_every_batch_fails_is_left_out(tmp_path: Path) -> None:
    """It is in the log already, of the batch that was planned and never ends; the file may be gone."""
    files = golden_files(NAME)
    checkpoint = MemoryStorage(
        {path: data for path, data in files.items() if path not in {"commits/11", "commits/.11.crc"}},
        uri="memory://ck",
    )
    path = max(path for path in files if path.startswith("sources/0/11"))
    bad = parse_source(files[path], path).list_files(path)[-1].path
    new = MemoryStorage(uri="memory://new")
    plan = plan_offsets(ChangeSource(checkpoint), new, OffsetRequest(files=[bad]))
    assert (plan.batch_id, plan.uncommitted, plan.skipped_files) == (10, 11, (bad,))
    assert left_out(checkpoint, bad.removeprefix("file://")) == (bad,)
    move_offsets(ChangeSource(checkpoint), new, plan, tmp_path)
    assert read(new).sources[0].offset == '{"logOffset":11}'
    assert [file.path for file in parse_source(new.read(path), path).list_files(path)] == [bad]
    assert contents(new) == contents(checkpoint)
    assert verify(new).problems == ()


@pytest.mark.slow
def test_killed_at_any_write_it_is_old_or_new_and_a_second_try_works(tmp_path: Path) -> None:
    checkpoint = reading(KAFKA)
    files, wanted = dict(checkpoint.files), OffsetRequest([ToRecord("orders", 0, 12)])
    source, at = ChangeSource(checkpoint), 0
    while True:
        at += 1 if WHOLE else 5  # an odd number: every other one is late
        new = MemoryStorage(uri="memory://new")
        try:
            faulty = FaultyStorage(new, at, kill=True, late=at % 2 == 0)
            move_offsets(source, faulty, plan_offsets(source, faulty, wanted), tmp_path / f"{at}")
            break
        except Killed:
            assert checkpoint.files == files
        if "metadata" not in new.files:
            move_offsets(source, new, plan_offsets(source, new, wanted), tmp_path / f"{at} again")
        assert json.loads(read(new).sources[0].offset or "")["orders"]["0"] == 12
        assert verify(new).problems == ()
    assert at > 20


def test_what_kafkas_tool_prints_is_read() -> None:
    text = "# at 08:00\norders:0:120\norders:1:98\n\nwith:colon:0:7\n"
    assert listed_offsets(text, "-") == (
        ToRecord("orders", 0, 120),
        ToRecord("orders", 1, 98),
        ToRecord("with:colon", 0, 7),
    )
    for wrong in ("", "orders:0", "orders:x:1", ":0:1", "orders:0:-1"):
        with pytest.raises(Invalid):
            listed_offsets(wrong, "offsets.txt")


def test_pairs_of_two_clusters_are_read() -> None:
    assert sync_points("orders, 0, 38, o2, 0, 30\n", "m") == (SyncPoint("orders", 0, 38, "o2", 0, 30),)
    for wrong in ("", "orders,0,38,o2,0", "orders,0,38,o2,0,x", ",0,38,o2,0,1"):
        with pytest.raises(Invalid):
            sync_points(wrong, "map.csv")
