"""Addresses: savepoints by their id, the beginning of it, and their label; checkpoints with a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from catalogs import Hands, file_query

import holdfast as hf
from holdfast.errors import Invalid, NotFound
from holdfast.savepoints.address import StateAddress, unnameable
from holdfast.savepoints.catalog import manifest_path
from holdfast.savepoints.labels import set_label
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage

ID = "20260305T080000.000Z-1f0c33aa-b41-9d2e"


@pytest.mark.parametrize(
    ("address", "directory", "parts"),
    [
        ("sp/20260305", "sp", {"id_prefix": "20260305"}),
        ("sp/20260305T08", "sp", {"id_prefix": "20260305T08"}),
        (f"/data/sp/{ID}", "/data/sp", {"id_prefix": ID}),
        ("s3a://bucket/sp/20260305T0800/", "s3a://bucket/sp", {"id_prefix": "20260305T0800"}),
        ("sp@before", "sp", {"label": "before"}),
        ("./sp@before the upgrade", "./sp", {"label": "before the upgrade"}),
        ("s3a://bucket/sp@v2", "s3a://bucket/sp", {"label": "v2"}),
        ("abfss://c@a.dfs.core.windows.net/sp@v2", "abfss://c@a.dfs.core.windows.net/sp", {"label": "v2"}),
        ("sp@v2@prod", "sp@v2", {"label": "prod"}),
        ("sp@٣", "sp", {"label": "٣"}),
        (f"sp/savepoints/{ID}", "sp", {"savepoint_id": ID}),
        (f"sp/savepoints/{ID}/", "sp", {"savepoint_id": ID}),
        (f"sp/savepoints/{ID}/manifest.json", "sp", {"savepoint_id": ID}),
        (f"savepoints/{ID}", ".", {"savepoint_id": ID}),
        (f"/savepoints/{ID}", "/", {"savepoint_id": ID}),
        (f"s3a://bucket/savepoints/{ID}", "s3a://bucket", {"savepoint_id": ID}),
        # Digits are the batch of a checkpoint.
        ("ck@12", "ck", {"batch": 12}),
        (f"sp/savepoints/{ID}@12", f"sp/savepoints/{ID}", {"batch": 12}),
        pytest.param(f"ck@{'9' * 5000}", None, {}, id="more digits than a batch has"),
        # Paths and hosts may have an @ in them.
        ("/home/ann@work/sp", None, {}),
        ("abfss://container@account.dfs.core.windows.net/sp", None, {}),
        ("abfss://container@account", None, {}),
        ("file:sp@x", None, {}),
        ("sp", None, {}),
        ("sp@", None, {}),
        ("sp@before/", None, {}),
        ("@first", None, {}),
        ("20260305", None, {}),
        (ID, None, {}),
        ("sp/2026", None, {}),
    ],
)
def test_what_an_address_names(address: str, directory: str | None, parts: dict[str, Any]) -> None:
    parsed = StateAddress.parse(address)
    assert parsed == StateAddress(address, address if directory is None else directory, **parts)
    assert parsed.is_partial == (not parts.keys().isdisjoint({"id_prefix", "label"}))
    assert parsed.is_savepoint == ("savepoint_id" in parts)


@pytest.mark.parametrize(
    ("label", "can"),
    [("v2", True), ("before the move", True), ("v2=b", True), ("12", False), ("a/b", False), ("a@b", False)],
)
def test_which_labels_can_name(label: str, can: bool) -> None:
    assert (unnameable(label) is None) is can
    assert (StateAddress.parse(f"sp@{label}") == StateAddress(f"sp@{label}", "sp", label=label)) is can


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
    assert StateAddress.resolve("sp@first").text == first
    assert StateAddress.resolve(f"{kept.place}@other").text == second
    assert StateAddress.resolve(f"file://{kept.place}@other").text == second
    kept.label(second, "before the move")
    kept.label(first, None)
    assert StateAddress.resolve("sp@before the move").text == second
    for gone in ("first", "other", "First", "before"):
        with pytest.raises(NotFound, match="has the label") as caught:
            StateAddress.resolve(f"sp@{gone}")
        assert caught.value.found == "the labels 'before the move'"
    kept.label(first, "other")
    assert StateAddress.resolve("sp@other").text == first


def test_a_label_that_several_have_names_none(kept: Kept) -> None:
    first, other, third = kept.take("twice"), kept.take("once"), kept.take("twice")
    with pytest.raises(Invalid, match="2 savepoints have this label") as caught:
        StateAddress.resolve("sp@twice")
    assert caught.value.found == ", ".join(uri.rpartition("/")[2] for uri in (third, first))
    assert StateAddress.resolve("sp@once").text == other
    kept.label(first, "the older one")
    assert StateAddress.resolve("sp@twice").text == third


def test_what_is_no_catalog_has_no_labels(kept: Kept, tmp_path: Path) -> None:
    (tmp_path / "ck@v2").mkdir()
    (tmp_path / "ck").mkdir()
    assert StateAddress.resolve("ck@v2").text == "ck@v2"
    assert StateAddress.resolve("nowhere@v2").text == "nowhere@v2"
    with pytest.raises(Invalid, match="invalid savepoint address") as caught:
        hf.savepoints.show("ck@v2")
    assert "DIR@LABEL" in str(caught.value)


def test_digits_are_a_batch(kept: Kept) -> None:
    uri = kept.take("12")
    assert StateAddress.resolve("sp@12").text == "sp@12"
    with pytest.raises(Invalid, match="digits after @ are a batch"):
        hf.savepoints.show("sp@12")
    assert hf.savepoints.show(uri).label == "12"


def test_a_damaged_manifest_has_no_label(kept: Kept) -> None:
    first, second = kept.take("same"), kept.take("same")
    path = kept.place / manifest_path(second.rpartition("/")[2])
    path.write_bytes(path.read_bytes()[:-20])
    assert StateAddress.resolve("sp@same").text == first
    with pytest.raises(NotFound) as caught:
        StateAddress.resolve("sp@other")
    assert caught.value.found == "the labels 'same'"


def test_a_short_id(kept: Kept) -> None:
    first, second = kept.take(), kept.take()
    one, two = (uri.rpartition("/")[2] for uri in (first, second))
    assert StateAddress.resolve(f"sp/{one[:19]}").text == first
    assert StateAddress.resolve(f"sp/savepoints/{two[:19]}").text == second
    assert StateAddress.resolve(f"sp/{two}").text == second
    with pytest.raises(Invalid, match="the savepoint id is ambiguous") as caught:
        StateAddress.resolve(f"sp/{one[:13]}")
    assert caught.value.found == f"{one}, {two}"
    assert StateAddress.resolve("sp/19990101").text == "sp/19990101"


def test_a_catalog_that_is_called_savepoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path / "savepoints")
    uri = kept.take("first")
    savepoint_id = uri.rpartition("/")[2]
    monkeypatch.chdir(tmp_path)
    for folder in ("savepoints", "./savepoints", str(kept.place), "savepoints/savepoints"):
        for name in (savepoint_id, savepoint_id[:19]):
            assert hf.savepoints.show(f"{folder}/{name}").savepoint_id == savepoint_id, (folder, name)
    assert StateAddress.resolve("savepoints@first").text == uri
    monkeypatch.chdir(kept.place)
    assert StateAddress.resolve(f"savepoints/{savepoint_id[:19]}").text == uri


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


def test_what_an_address_opens(kept: Kept) -> None:
    uri = kept.take("first")
    savepoint_id = uri.rpartition("/")[2]
    for text in ("sp@first", f"sp/{savepoint_id[:19]}", f"./sp/../sp/savepoints/{savepoint_id}/", uri):
        address = StateAddress.resolve(text)
        assert (address.uri, address.catalog) == (uri, kept.storage.uri), text
        catalog, opened = address.open_savepoint()
        assert (catalog.uri, opened) == (kept.storage.uri, savepoint_id), text
        assert address.open_state().name == uri, text
    nothing = StateAddress.resolve("sp/19990101")
    assert nothing == StateAddress("sp/19990101", "sp/19990101")
    with pytest.raises(Invalid, match="invalid savepoint address"):
        nothing.open_savepoint()
    assert StateAddress.resolve("sp@12").open_state().name == f"{kept.storage.uri}@12"
    with pytest.raises(Invalid, match="two different batches"):
        StateAddress.resolve("sp@12").open_state(11)


def test_a_claim_looks_a_label_up_once(kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.take("first")
    looked_up: list[str] = []
    find = StateAddress.find

    def counted(address: StateAddress) -> StateAddress | None:
        looked_up.append(address.text)
        return find(address)

    monkeypatch.setattr(StateAddress, "find", counted)
    hf.savepoints.restore("sp@first", tmp_path / "restored", claim=True)
    assert looked_up == ["sp@first"]
    assert hf.savepoints.list("sp") == ()
