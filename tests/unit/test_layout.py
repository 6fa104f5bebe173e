from __future__ import annotations

import pytest

from holdfast import layout
from holdfast.layout import FileKind, StoreFile, StoreId

UUID = "7d7a1b9e-9dda-47b2-8f49-4073fd4a7361"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("metadata", layout.QueryMetadataFile()),
        ("offsets/12", layout.LogFile(layout.Log.OFFSETS, 12)),
        ("commits/0", layout.LogFile(layout.Log.COMMITS, 0)),
        ("sources/0/9.compact", layout.SourceLogFile("0", 9, True)),
        ("sources/orders/3", layout.SourceLogFile("orders", 3)),
        ("state/1/_metadata/metadata", layout.OperatorMetadataFile(1)),
        ("state/1/_metadata/v2/7", layout.OperatorMetadataFile(1, 7)),
        (f"state/0/_stateSchema/default/0_{UUID}", layout.SchemaFile(0, "default", 0, UUID)),
        ("state/0/0/_metadata/schema", layout.SchemaFile(0)),
        ("state/0/0/left/_metadata/schema", layout.SchemaFile(0, "left")),
        ("state/0/1/5.delta", StoreFile(StoreId(0, 1), 5, FileKind.DELTA)),
        (f"state/0/1/5_{UUID}.zip", StoreFile(StoreId(0, 1), 5, FileKind.ZIP, UUID)),
        ("state/0/1/left/5.changelog", StoreFile(StoreId(0, 1, "left"), 5, FileKind.CHANGELOG)),
        ("state/0/1/SSTs/8-x.sst", layout.SharedSstFile(StoreId(0, 1), "SSTs", "8-x.sst")),
        ("state/0/1/5.zip.crc", layout.SparkChecksumFile("state/0/1/5.zip")),
        ("state/0/1/.5.zip.crc", layout.HadoopChecksumFile("state/0/1/5.zip")),
        ("state/0/1/.5.zip.crc.crc", layout.HadoopChecksumFile("state/0/1/5.zip.crc")),
        (f"offsets/.6.{UUID}.tmp", layout.Temporary(f"offsets/.6.{UUID}.tmp")),
        ("_holdfast/operator-x.json", layout.OwnFile("operator-x.json")),
        ("_holdfast/origin.json", layout.OwnFile("origin.json")),
        ("_holdfast/plan.json", layout.OwnFile("plan.json")),
        ("_holdfast/split-meeting.json", layout.OwnFile(layout.split_note("meeting"))),
        ("_holdfast/operator-x/y.json", layout.UnknownFile("_holdfast/operator-x/y.json")),
        ("_holdfast/usercustomize.py", layout.UnknownFile("_holdfast/usercustomize.py")),
        ("_holdfast/origin.json/x", layout.UnknownFile("_holdfast/origin.json/x")),
        ("offsets/007", layout.UnknownFile("offsets/007")),
        ("state/0/1/5.sst", layout.UnknownFile("state/0/1/5.sst")),
        ("state/x/1/5.zip", layout.UnknownFile("state/x/1/5.zip")),
        ("notes.txt", layout.UnknownFile("notes.txt")),
    ],
)
def test_each_path_has_its_place(path: str, place: object) -> None:
    assert layout.parse(path) == place


def test_a_base_is_told_from_a_change() -> None:
    assert [kind for kind in FileKind if kind.whole] == [FileKind.SNAPSHOT, FileKind.ZIP]


def test_a_name_that_is_no_version_is_none() -> None:
    for name in ("SSTs", "5.zip.crc", ".5.zip.crc", "05.zip", "5_x.zip", "5.zip.tmp"):
        assert layout.version_file(StoreId(0, 0), name) is None
