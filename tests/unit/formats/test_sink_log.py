"""What counts as committed, on logs written out by hand."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.logs import table_logs
from holdfast.formats.logs.table_logs import committed_files, empty_log, missing_batch, newest_batch
from holdfast.storage.memory import MemoryStorage


def entry(path: str, action: str = "add") -> str:
    return json.dumps({"path": path, "size": 1, "isDir": False, "action": action})


def write(table: Path, name: str, *lines: str, version: str = "v1") -> Path:
    log = table / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    file = log / name
    file.write_text("\n".join([version, *lines]))
    return file


def test_plain_batches_are_read_in_order(tmp_path: Path) -> None:
    for batch in range(11):
        write(tmp_path, str(batch), entry(f"file:///t/{batch}"))
    files = [Path(f"/t/{batch}") for batch in range(11)]
    assert committed_files(tmp_path) == committed_files(str(tmp_path)) == files


def test_a_compacted_batch_stands_for_all_before_it(tmp_path: Path) -> None:
    write(tmp_path, "0", entry("file:///t/expired"))
    write(tmp_path, "2.compact", entry("file:///t/a"), entry("file:///t/b"))
    write(tmp_path, "3", entry("file:///t/c"))
    assert committed_files(tmp_path) == [Path("/t/a"), Path("/t/b"), Path("/t/c")]


def test_the_newest_compacted_batch_wins(tmp_path: Path) -> None:
    write(tmp_path, "2.compact", entry("file:///t/a"))
    write(tmp_path, "5.compact", entry("file:///t/a"), entry("file:///t/b"))
    assert committed_files(tmp_path) == [Path("/t/a"), Path("/t/b")]


def test_a_deleted_file_is_not_committed(tmp_path: Path) -> None:
    write(tmp_path, "0", entry("file:///t/a"), entry("file:///t/b"))
    write(tmp_path, "1", entry("file:///t/a", "delete"))
    assert committed_files(tmp_path) == [Path("/t/b")]


def test_checksums_and_temporary_files_are_ignored(tmp_path: Path) -> None:
    file = write(tmp_path, "0", entry("file:///t/a"))
    for name in (".0.crc", ".1.abc.tmp", "notes"):
        file.with_name(name).write_text("noise")
    assert committed_files(tmp_path) == [Path("/t/a")]


def test_a_batch_without_files_and_a_log_without_batches(tmp_path: Path) -> None:
    file = write(tmp_path, "0")
    assert committed_files(tmp_path) == []
    file.unlink()
    assert committed_files(tmp_path) == []


def test_escapes_in_a_path_are_undone_once(tmp_path: Path) -> None:
    write(tmp_path, "0", entry("file:///t/at=10%253A30/a%20b.parquet"), entry("/t/plain"))
    assert committed_files(tmp_path) == [Path("/t/at=10%3A30/a b.parquet"), Path("/t/plain")]


def test_a_directory_without_a_log(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="the table has no log of a streaming file sink"):
        committed_files(tmp_path)


@pytest.mark.parametrize("present", [["1"], ["0", "2"], ["2.compact", "4"]])
def test_a_missing_batch_is_named(tmp_path: Path, present: list[str]) -> None:
    for name in present:
        write(tmp_path, name, entry(f"file:///t/{name}"))
    missing = {"1": "0", "0": "1", "2.compact": "3"}[present[0]]
    with pytest.raises(Corrupt) as caught:
        committed_files(tmp_path)
    assert caught.value.where == str(tmp_path / "_spark_metadata" / missing)


@pytest.mark.parametrize(
    "line",
    ['{"path":"file:///t/a","si', "[]", "3", '{"action":"add"}', '{"path":"x","action":"move"}', "",
     '{"path":1,"action":"add"}'],
)  # fmt: skip
def test_a_damaged_entry_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    file = write(tmp_path, "0", entry("file:///t/a"), line, entry("file:///t/b"))
    with pytest.raises(Corrupt) as caught:
        committed_files(tmp_path)
    assert caught.value.where == f"{file}, line 3"


@pytest.mark.parametrize("address", ["file://[t/a", "file:///t/\ud800"])
def test_what_is_no_address_of_a_file_is_damage(tmp_path: Path, address: str) -> None:
    write(tmp_path, "0", entry(address))
    with pytest.raises(Corrupt) as caught:
        committed_files(tmp_path)
    assert (caught.value.found, caught.value.expected) == (repr(address), "a file address")


def test_an_empty_log_file_and_one_of_noise(tmp_path: Path) -> None:
    file = write(tmp_path, "0")
    for content in (b"", b"\xff\xfe\x00", b"junk\n"):
        file.write_bytes(content)
        with pytest.raises(Corrupt) as caught:
            committed_files(tmp_path)
        assert caught.value.where == f"{file}, line 1"


@pytest.mark.parametrize("kind", ["link", "FIFO"])
def test_a_link_and_a_pipe_in_the_log_are_refused(tmp_path: Path, kind: str) -> None:
    written = write(tmp_path, "0", entry("file:///t/0"))
    odd = written.with_name("1")
    if kind == "link":
        odd.symlink_to(written)
    else:
        os.mkfifo(odd)
    with pytest.raises(Corrupt) as caught:
        committed_files(tmp_path)
    assert caught.value.where == f"file://{odd}"


def test_a_newer_version_and_a_remote_file_are_not_supported(tmp_path: Path) -> None:
    write(tmp_path, "0", version="v2")
    with pytest.raises(Unsupported, match="version"):
        committed_files(tmp_path)
    write(tmp_path, "0", entry("s3a://bucket/a"))
    with pytest.raises(Unsupported, match="local disk"):
        committed_files(tmp_path.as_uri())


def test_a_table_in_a_bucket_is_read_at_the_address_given(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage(uri="s3://bucket/t/_spark_metadata")
    monkeypatch.setattr(table_logs, "open_storage", lambda *_: storage)
    with pytest.raises(NotFound, match="no log of a streaming file sink"):
        committed_files("s3://bucket/t")
    lines = [entry("s3a://bucket/t/day=1/a%20b"), entry("s3a://other/t/c"), entry("s3a://bucket/tt/d")]
    storage.write("0", "\n".join(["v1", *lines]).encode())
    below, beside = "t/day=1/a b", ["s3a://other/t/c", "s3a://bucket/tt/d"]
    assert committed_files("s3://bucket/t/") == [f"s3://bucket/{below}", *beside]
    assert committed_files("s3a://bucket/t") == [f"s3a://bucket/{below}", *beside]
    storage.write("2", b"v1")
    with pytest.raises(Corrupt) as caught:
        committed_files("s3://bucket/t")
    assert caught.value.where == "s3://bucket/t/_spark_metadata/1"


def test_a_table_on_hdfs_is_recorded_at_its_native_address(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage(uri="webhdfs://name:9870/t/_spark_metadata")
    monkeypatch.setattr(table_logs, "open_storage", lambda *_: storage)
    storage.write("0", "\n".join(["v1", entry("hdfs://name:8020/t/a"), entry("hdfs://x:8020/u/a")]).encode())
    assert committed_files("webhdfs://name:9870/t") == ["webhdfs://name:9870/t/a", "hdfs://x:8020/u/a"]


@pytest.mark.parametrize(
    ("batch_id", "names"),
    [
        (0, "0"),
        (5, "0 1 2 3 4 5"),
        (8, "0 1 2 3 4 5 6 7 8"),
        (9, "9.compact"),
        (11, "9.compact 10 11"),
        (19, "9.compact 19.compact"),
        (1003, "989.compact 999.compact 1000 1001 1002 1003"),
    ],
)
def test_the_log_of_a_new_table_has_what_spark_looks_for(tmp_path: Path, batch_id: int, names: str) -> None:
    log = empty_log(batch_id)
    assert set(log) == set(names.split())
    for name in log:
        write(tmp_path, name)
    assert {file.read_bytes() for file in (tmp_path / "_spark_metadata").iterdir()} == set(log.values())
    assert committed_files(tmp_path) == []
    assert newest_batch(log) == batch_id
    assert missing_batch(log, batch_id + 1) is None
    assert missing_batch(log, batch_id + 2) == batch_id + 1


def test_a_log_lacks_what_neither_an_entry_nor_a_compacted_one_holds() -> None:
    assert missing_batch([], 0) is None
    assert missing_batch([], 3) == 0
    assert missing_batch(["0", "1", "3", ".2.crc", "2.tmp"], 4) == 2
    assert missing_batch(["4.compact", "5", "6"], 7) is None
    assert missing_batch(["4.compact", "6"], 7) == 5
    assert missing_batch(["4.compact", "9.compact"], 10) is None
