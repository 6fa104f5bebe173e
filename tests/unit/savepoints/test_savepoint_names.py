"""Savepoints by the beginning of their id, and by their label."""

from __future__ import annotations

from pathlib import Path

import pytest
from catalogs import Hands, file_query

import holdfast as hf
from holdfast.errors import Invalid, NotFound
from holdfast.savepoints.catalog import manifest_path
from holdfast.savepoints.labels import set_label
from holdfast.savepoints.names import SavepointName, parse_name, savepoint_address, unnameable
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage

ID = "20260305T080000.000Z-1f0c33aa-b41-9d2e"


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("sp/20260305", SavepointName("sp", "20260305")),
        ("sp/20260305T08", SavepointName("sp", "20260305T08")),
        (f"/data/sp/{ID}", SavepointName("/data/sp", ID)),
        ("s3a://bucket/sp/20260305T0800/", SavepointName("s3a://bucket/sp", "20260305T0800")),
        ("sp@before", SavepointName("sp", label="before")),
        ("./sp@before the upgrade", SavepointName("./sp", label="before the upgrade")),
        ("s3a://bucket/sp@v2", SavepointName("s3a://bucket/sp", label="v2")),
        (
            "abfss://c@a.dfs.core.windows.net/sp@v2",
            SavepointName("abfss://c@a.dfs.core.windows.net/sp", label="v2"),
        ),
        ("sp@v2@prod", SavepointName("sp@v2", label="prod")),
        ("sp@٣", SavepointName("sp", label="٣")),
        # Digits are the batch of a checkpoint.
        ("ck@12", None),
        # Paths and hosts may have an @ in them.
        ("/home/ann@work/sp", None),
        ("abfss://container@account.dfs.core.windows.net/sp", None),
        ("abfss://container@account", None),
        ("file:sp@x", None),
        ("sp", None),
        ("sp@", None),
        ("sp@before/", None),
        ("@first", None),
        ("20260305", None),
        (f"sp/savepoints/{ID}", None),
        ("sp/2026", None),
    ],
)
def test_what_an_address_names(address: str, name: SavepointName | None) -> None:
    assert parse_name(address) == name


@pytest.mark.parametrize(
    ("label", "can"),
    [("v2", True), ("before the move", True), ("v2=b", True), ("12", False), ("a/b", False), ("a@b", False)],
)
def test_which_labels_can_name(label: str, can: bool) -> None:
    assert (unnameable(label) is None) is can
    assert (parse_name(f"sp@{label}") == SavepointName("sp", label=label)) is can


class Kept:
    """A catalog on disk, and the savepoints in it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.storage = LocalStorage(place)
        self.hands = Hands()
        self.number = 0

    def take(self, label: str | None = None) -> str:
        self.number += 1
        taken = self.hands.take(MemoryStorage(file_query(self.number)), self.storage, label=label)
        return taken.uri

    def label(self, uri: str, label: str | None) -> None:
        set_label(self.storage, uri.rpartition("/")[2], label, who="ann", when_ms=self.hands.clock())


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.chdir(tmp_path)
    return Kept(tmp_path / "sp")


def test_a_label_names_the_savepoint_that_has_it_by_now(kept: Kept) -> None:
    first, second = kept.take("first"), kept.take("other")
    assert savepoint_address("sp@first") == first
    assert savepoint_address(f"{kept.place}@other") == second
    assert savepoint_address(f"file://{kept.place}@other") == second
    kept.label(second, "before the move")
    kept.label(first, None)
    assert savepoint_address("sp@before the move") == second
    for gone in ("first", "other", "First", "before"):
        with pytest.raises(NotFound, match="has the label") as caught:
            savepoint_address(f"sp@{gone}")
        assert caught.value.found == "the labels 'before the move'"
    kept.label(first, "other")
    assert savepoint_address("sp@other") == first


def test_a_label_that_several_have_names_none(kept: Kept) -> None:
    first, other, third = kept.take("twice"), kept.take("once"), kept.take("twice")
    with pytest.raises(Invalid, match="2 savepoints have this label") as caught:
        savepoint_address("sp@twice")
    assert caught.value.found == ", ".join(uri.rpartition("/")[2] for uri in (third, first))
    assert savepoint_address("sp@once") == other
    kept.label(first, "the older one")
    assert savepoint_address("sp@twice") == third


def test_what_is_no_catalog_has_no_labels(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "ck@v2").mkdir()
    (tmp_path / "ck").mkdir()
    assert savepoint_address("ck@v2") == "ck@v2"
    assert savepoint_address("nowhere@v2") == "nowhere@v2"
    with pytest.raises(Invalid, match="invalid savepoint address") as caught:
        hf.savepoints.show("ck@v2")
    assert "DIR@LABEL" in str(caught.value)


def test_digits_are_a_batch(kept: Kept) -> None:
    uri = kept.take("12")
    assert savepoint_address("sp@12") == "sp@12"
    with pytest.raises(Invalid, match="digits after @ are a batch"):
        hf.savepoints.show("sp@12")
    assert hf.savepoints.show(uri).label == "12"


def test_a_damaged_manifest_has_no_label(kept: Kept) -> None:
    first, second = kept.take("same"), kept.take("same")
    path = kept.place / manifest_path(second.rpartition("/")[2])
    path.write_bytes(path.read_bytes()[:-20])
    assert savepoint_address("sp@same") == first
    with pytest.raises(NotFound) as caught:
        savepoint_address("sp@other")
    assert caught.value.found == "the labels 'same'"


def test_a_short_id(kept: Kept) -> None:
    first, second = kept.take(), kept.take()
    one, two = (uri.rpartition("/")[2] for uri in (first, second))
    assert savepoint_address(f"sp/{one[:19]}") == first
    assert savepoint_address(f"sp/savepoints/{two[:19]}") == second
    assert savepoint_address(f"sp/{two}") == second
    with pytest.raises(Invalid, match="the savepoint id is ambiguous") as caught:
        savepoint_address(f"sp/{one[:13]}")
    assert caught.value.found == f"{one}, {two}"
    assert savepoint_address("sp/19990101") == "sp/19990101"


def test_a_catalog_that_is_called_savepoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path / "savepoints")
    uri = kept.take("first")
    savepoint_id = uri.rpartition("/")[2]
    monkeypatch.chdir(tmp_path)
    for folder in ("savepoints", "./savepoints", str(kept.place), "savepoints/savepoints"):
        for name in (savepoint_id, savepoint_id[:19]):
            assert hf.savepoints.show(f"{folder}/{name}").savepoint_id == savepoint_id, (folder, name)
    assert savepoint_address("savepoints@first") == uri
    monkeypatch.chdir(kept.place)
    assert savepoint_address(f"savepoints/{savepoint_id[:19]}") == uri


def test_python_takes_every_name(kept: Kept, tmp_path: Path) -> None:
    uri = kept.take("first")
    second = kept.take("second")
    short = f"sp/{uri.rpartition('/')[2][:19]}"
    assert hf.savepoints.show("sp@first").savepoint_id == uri.rpartition("/")[2]
    assert hf.savepoints.verify(short).ok
    assert hf.savepoints.restore("sp@first", tmp_path / "restored").plan.savepoint == uri
    assert hf.savepoints.fork(short, tmp_path / "forked").plan.savepoint == uri
    assert hf.state("sp@first").name == uri
    assert hf.savepoints.label("sp@first", "1st").before == "first"
    assert hf.savepoints.diff_files("sp@1st", "sp@second").first == uri.rpartition("/")[2]
    assert hf.drill("sp@second").drill.savepoint == second
    assert hf.savepoints.delete("sp@1st").savepoint == uri
    assert [listed.uri for listed in hf.savepoints.list("sp")] == [second]
