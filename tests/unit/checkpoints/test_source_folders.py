"""Which log belongs to which source, where a stream is read twice."""

from __future__ import annotations

import pytest

from holdfast.checkpoints.copy import cut
from holdfast.checkpoints.logs import ends_of_named_logs, read_twice, source_folders
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Unsupported
from holdfast.formats.logs.batch_logs import OffsetLog
from holdfast.storage.memory import MemoryStorage

QUERY = "7d7a1b9e-9dda-47b2-8f49-4073fd4a7361"


def batch(*entries: int | None) -> OffsetLog:
    offsets = {
        str(at): None if entry is None else f'{{"logOffset":{entry}}}' for at, entry in enumerate(entries)
    }
    return OffsetLog(1, None, offsets)


def found(folders: set[str], *batches: OffsetLog) -> dict[str, str]:
    return dict(source_folders(folders, batches[-1], lambda: batches, "here"))


def test_as_a_rule_they_go_together_by_number() -> None:
    assert found({"0", "1"}, batch(1, 5), batch(2, 6)) == {"0": "0", "1": "1"}
    assert found({"0"}, batch(1, None)) == {"0": "0"}
    assert found(set(), batch(-1)) == {}


def test_a_stream_that_is_read_twice_has_one_folder() -> None:
    assert found({"0"}, batch(1, 1), batch(2, 2)) == {"0": "0"}
    assert found({"0", "1"}, batch(0, 0, 4), batch(1, 1, 9)) == {"0": "0", "1": "2"}
    assert found({"0", "1"}, batch(0, 4, 0), batch(1, 9, 1)) == {"0": "0", "1": "1"}
    assert found({"0", "1"}, batch(4, 0, 0), batch(9, 1, 1)) == {"0": "0", "1": "1"}


def test_equal_offsets_by_chance_are_told_apart_by_an_earlier_batch() -> None:
    assert found({"0", "1"}, batch(0, 0, 1), batch(3, 3, 3)) == {"0": "0", "1": "2"}


def test_where_every_reading_ends_alike_it_does_not_matter() -> None:
    kinds = found({"0", "1"}, batch(1, 1, 1), batch(2, 2, 2))
    assert set(kinds) == {"0", "1"}


def test_a_lost_folder_is_nobody_elses() -> None:
    assert found({"0"}, batch(1, 5), batch(2, 6)) == {"0": "0"}
    assert found({"1"}, batch(1, 5), batch(2, 6)) == {"1": "1"}


def test_what_is_read_twice_is_told() -> None:
    assert read_twice({"0"}, [batch(1, 1), batch(2, 2)]) == ["1"]
    assert read_twice({"0", "1"}, [batch(1, 1), batch(2, 2)]) == []
    assert read_twice({"0"}, [batch(1, 2), batch(2, 2)]) == []
    assert read_twice({"0"}, [OffsetLog(2, None, {"a": '{"logOffset":1}', "b": '{"logOffset":1}'})]) == []


def test_what_cannot_be_told_is_refused() -> None:
    """Three folders for two pairs of sources: one pair is one stream, and nothing tells which."""
    with pytest.raises(Unsupported, match="cannot be assigned"):
        found({"0", "1", "2"}, batch(0, 0, 4, 4), batch(1, 1, 9, 9))


def joined_with_itself() -> dict[str, bytes]:
    """Stream A twice, then stream B, whose files come faster."""
    files = {"metadata": f'{{"id":"{QUERY}"}}'.encode()}
    for number in range(4):
        ends = "\n".join(f'{{"logOffset":{each}}}' for each in (number, number, 2 * number + 1))
        files[f"offsets/{number}"] = (
            f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{number}}}\n{ends}'.encode()
        )
        files[f"commits/{number}"] = b'v1\n{"nextBatchWatermarkMs":0}'
    for source, count in ((0, 5), (1, 10)):
        for number in range(count):
            seen = f'{{"path":"file:///in/{source}-{number}","timestamp":{number},"batchId":{number}}}'
            files[f"sources/{source}/{number}"] = f"v1\n{seen}".encode()
    return files


def test_a_copy_of_a_query_that_joins_a_stream_with_itself_has_what_each_source_has_taken() -> None:
    """By number, the log of B would be cut where A stands: four files of it would be read again or never."""
    paths = {file.path for file in cut(MemoryStorage(joined_with_itself())).files}
    assert {path for path in paths if path.startswith("sources/0/")} == {f"sources/0/{n}" for n in range(4)}
    assert {path for path in paths if path.startswith("sources/1/")} == {f"sources/1/{n}" for n in range(8)}


def test_it_is_whole_and_said_to_read_a_stream_twice() -> None:
    verified = verify(MemoryStorage(joined_with_itself()))
    assert verified.problems == ()
    files = joined_with_itself()
    del files["sources/1/6"]
    assert [problem.file for problem in verify(MemoryStorage(files)).problems] == ["sources/1/6"]


def test_a_source_of_ticks_has_no_folder() -> None:
    """Two sources that move in step, and ticks beside the second, all read a second time for late rows."""
    file, tick = '{"logOffset":4}', '{"at_ms": 1795683568526}'
    offsets = dict(zip("012345", (file, file, tick) * 2, strict=True))
    assert found({"0", "1"}, OffsetLog(1, None, offsets)) == {"0": "0", "1": "1"}


def test_named_logs_end_where_the_offsets_without_names_end() -> None:
    """Spark 4.2 names folders, but by default not the offsets: logs may be an entry longer."""
    assert ends_of_named_logs({"a": 1, "b": 0}, batch(0, 1), "here") == {"a": 1, "b": 0}
    assert ends_of_named_logs({"a": 6, "b": 3}, batch(3, 5), "here") == {"a": 5, "b": 3}
    assert ends_of_named_logs({"a": 2, "b": 1}, batch(1, 1), "here") == {"a": 1, "b": 1}
    with pytest.raises(Unsupported, match="cannot be assigned"):
        ends_of_named_logs({"a": 4, "b": 3}, batch(3, 3, 4), "here")


def named(log: dict[str, bytes]) -> dict[str, bytes]:
    names = {"sources/0/": "sources/ay/", "sources/1/": "sources/bee/"}
    return {names.get(path[:10], path[:10]) + path[10:]: data for path, data in log.items()}


def test_a_copy_of_named_sources_is_cut_at_its_batch() -> None:
    """Files of a planned batch would be taken for read, and no batch would have their rows."""
    files = named(joined_with_itself())
    del files["sources/bee/9"]
    for path in [path for path in files if path.startswith("offsets/")]:
        lines = files[path].split(b"\n")
        files[path] = b"\n".join([*lines[:3], lines[4]])
    copied = {file.path for file in cut(MemoryStorage(files)).files}
    assert {path for path in copied if "/ay/" in path} == {f"sources/ay/{n}" for n in range(4)}
    assert {path for path in copied if "/bee/" in path} == {f"sources/bee/{n}" for n in range(8)}
    assert verify(MemoryStorage(files)).problems == ()
