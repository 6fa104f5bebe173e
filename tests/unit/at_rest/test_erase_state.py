"""A key that is erased: out of every savepoint and every byte of a catalog, and nothing else with it."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections import Counter
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from catalogs import Hands
from grid import one_in
from mended import all_rows, leaks, view_of

from golden import KEYED, golden_on_disk
from holdfast.changes.erase.erasing import erase, plan_erase
from holdfast.changes.erase.searching import subject
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.state.rows import store_chunks
from holdfast.checkpoints.state.states import OperatorStates, operator_states
from holdfast.errors import Conflict, Corrupt, Invalid, NotFound
from holdfast.formats.files.checksums import spark_checksum
from holdfast.formats.files.snapshot import METADATA
from holdfast.formats.files.sst import sst_entries
from holdfast.formats.rows.spark_types import parse_struct
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.layout import FileKind, SparkChecksumFile, StoreFile, StoreId
from holdfast.savepoints import planning
from holdfast.savepoints.catalog import ids, load, manifest_path, object_path
from holdfast.savepoints.digests import digest, recorded
from holdfast.savepoints.labels import label_changes, set_label
from holdfast.savepoints.proof import prove
from holdfast.savepoints.restoring import RestoreKind
from holdfast.savepoints.stores import OpenStore
from holdfast.storage.local import LocalStorage

pytestmark = pytest.mark.slow

# As a row of state has it: what is behind the words is filled up with zeros.
C3 = "c3\0\0\0\0\0\0"
NAMES = [
    "4.2/aggregate-memory",
    "4.2/aggregate-rocksdb",
    "4.2/aggregate-changelog",
    "4.2/aggregate-format2",
    "4.2/dedupe-changelog",
    "4.2/join-memory",
    "4.2/join-format2",
    "4.2/session-rocksdb",
    "4.2/state-format2",
    "4.2/windowed-memory",
    "4.3/join-format2",
]


def catalog_of(folder: Path, name: str, hands: Hands) -> LocalStorage:
    """Savepoints of three batches, which share files."""
    checkpoint = LocalStorage(golden_on_disk(name, folder / "ck"))
    catalog = LocalStorage(folder / "catalog")
    newest = read(checkpoint).batch_id
    assert newest is not None
    for batch in (newest - 2, newest - 1, newest):
        hands.take(checkpoint, catalog, batch, deep=True)
    return catalog


def erased(catalog: LocalStorage, hands: Hands, folder: Path, key: str, column: str | None = None):  # type: ignore[no-untyped-def]
    return erase(
        catalog,
        subject(key, column),
        folder / hands.token(),
        who="ada@desk",
        why="asked for",
        clock=hands.clock,
        chance=hands.chance,
    )


def without(rows: Counter[str], word: str) -> Counter[str]:
    return Counter({row: count for row, count in rows.items() if not re.search(rf"'{word}'", row)})


@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_nothing_of_a_key_is_left_in_any_byte(name: str, tmp_path: Path) -> None:
    hands = Hands()
    catalog = catalog_of(tmp_path, name, hands)
    before = {each: all_rows(view_of(catalog, each)) for each in ids(catalog)}
    assert leaks(tmp_path / "catalog", C3)
    looked = plan_erase(catalog, subject("c3"), clock=hands.clock)
    found = erased(catalog, hands, tmp_path, "c3")
    assert found.proved
    assert looked.rows == found.rows > 0
    assert leaks(tmp_path / "catalog", C3) == []
    assert sorted(before) == ids(catalog)
    for each, rows in before.items():
        assert all_rows(view_of(catalog, each)) == without(rows, "c3")
        assert prove(catalog, each, deep=True).problems == ()
        # A savepoint that is restored goes on as it would have.
        target = LocalStorage(tmp_path / f"restored-{each}")
        hands.make(catalog, each, target, RestoreKind.RESTORE)
        assert all_rows(target) == without(rows, "c3")
    assert "c3" not in found.render().decode().replace(found.key_sha256, "").split('"')
    again = erased(catalog, hands, tmp_path, "c3")
    assert again.rows == 0


def forgotten(
    checkpoint: LocalStorage, operator: OperatorStates, store: StoreId, gone: str, key: bytes, work: Path
) -> None:
    """As Spark leaves a store whose processor has a state no more: rows deleted, a number without a name.

    Args:
        checkpoint: The checkpoint.
        operator: The operator.
        store: The store.
        gone: The state, a list.
        key: A key that it alone has had.
        work: A directory for it.
    """
    last = operator.chain(checkpoint, store)[-1]
    file = StoreFile(store, last.version, FileKind.ZIP, last.unique_id)
    sums = SparkChecksumFile(file.render()).render()
    work.mkdir()
    families = (gone, f"$rowCounter_{gone}")
    with OpenStore(checkpoint, operator, store, work / "with") as opened:
        opened.put([key], [b"\0" * 16], gone)
        opened.write(checkpoint, file, 0)
    forgotten_rows = [
        (codec.name.family, [each for each, _ in pairs])
        for codec, pairs in store_chunks(checkpoint, operator, store)
        if codec.name.family in families
    ]
    with OpenStore(checkpoint, operator, store, work / "without") as opened:
        for family, keys in forgotten_rows:
            opened.delete(keys, family)
        checkpoint.delete(file.render())
        checkpoint.delete(sums)
        opened.write(checkpoint, file, 0)
    made = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(checkpoint.read(file.render()))) as old,
        zipfile.ZipFile(made, "w") as new,
    ):
        for name in old.namelist():
            data = old.read(name)
            if name == METADATA:
                head, text = data.decode().split("\n", 1)
                fields = json.loads(text)
                for family in families:
                    del fields["columnFamilyMapping"][family]
                    del fields["columnFamilyTypeMap"][family]
                data = f"{head}\n{json.dumps(fields)}".encode()
            new.writestr(name, data)
    checkpoint.write(sums, spark_checksum(made.getvalue(), 0).render(), replace=True)
    checkpoint.write(file.render(), made.getvalue(), replace=True)


@pytest.mark.parametrize("key", ["c3", "zz"])
def test_nothing_is_left_of_what_a_state_had_that_is_no_more(key: str, tmp_path: Path) -> None:
    hands = Hands()
    checkpoint = LocalStorage(golden_on_disk("4.2/state-format2", tmp_path / "ck"))
    (operator,) = operator_states(checkpoint)
    (counts,) = (each for each in operator.declared_codecs() if each.name.family == "count")
    assert counts.schema is not None
    row = RowCodec(parse_struct(counts.schema.key_schema, "")).encode({"customer": "zz"})
    for partition in range(operator.partitions):
        store = StoreId(0, partition, "default")
        only = counts.stored_key(row)
        forgotten(checkpoint, operator, store, "amounts", only, tmp_path / f"work-{partition}")
    catalog = LocalStorage(tmp_path / "catalog")
    hands.take(checkpoint, catalog, deep=True)
    (taken,) = ids(catalog)
    before = all_rows(view_of(catalog, taken))
    assert not any("amounts" in each for each in before)
    trace = f"{key}\0\0\0\0\0\0"
    assert leaks(tmp_path / "catalog", trace)
    found = erased(catalog, hands, tmp_path, key)
    assert found.proved
    assert found.rows == sum(without(before, "nobody").values()) - sum(without(before, key).values())
    assert leaks(tmp_path / "catalog", trace) == []
    assert all_rows(view_of(catalog, taken)) == without(before, key)
    assert prove(catalog, taken, deep=True).problems == ()


def test_savepoints_go_on_sharing_what_they_shared(tmp_path: Path) -> None:
    hands = Hands()
    catalog = catalog_of(tmp_path, "4.2/aggregate-changelog", hands)

    def objects() -> int:
        return len({file.sha256 for each in ids(catalog) for file in load(catalog, each).files})

    before = objects()
    erased(catalog, hands, tmp_path, "c3")
    assert objects() <= before + 2
    stored = [
        name for folder in catalog.list("objects").names for name in catalog.list(f"objects/{folder}").names
    ]
    assert len(stored) == objects()


@pytest.mark.parametrize("name", ["4.2/join-memory", "4.2/join-format2"])
def test_rows_of_a_join_go_by_a_column_of_their_value(name: str, tmp_path: Path) -> None:
    hands = Hands()
    catalog = catalog_of(tmp_path, name, hands)
    before = {each: all_rows(view_of(catalog, each)) for each in ids(catalog)}
    one = erased(catalog, hands, tmp_path, "c3", "customer")
    other = erased(catalog, hands, tmp_path, '{"who": "c3"}')
    assert min(one.rows, other.rows) > 0
    for each, rows in before.items():
        assert all_rows(view_of(catalog, each)) == without(rows, "c3")
    assert leaks(tmp_path / "catalog", C3) == []
    with pytest.raises(NotFound, match="no state in the catalog has a key column"):
        erased(catalog, hands, tmp_path, "c3", "nobody")


@pytest.mark.parametrize("name", KEYED)
def test_keyed_state_goes_by_its_users_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from holdfast.at_rest.keyed_reader import keyed_states
    from holdfast.changes.keyed import group_blobs as made_anew

    # A token by chance may have the two bytes that are looked for.
    tokens = count(1)
    unlike = SimpleNamespace(urandom=lambda size: next(tokens).to_bytes(size, "big"))
    monkeypatch.setattr(made_anew, "os", unlike)
    hands = Hands()
    catalog = catalog_of(tmp_path, name, hands)

    def rows(savepoint_id: str) -> dict[str, str]:
        (state,) = keyed_states(view_of(catalog, savepoint_id))
        return {row.key[0]: repr(dict(row.values)) for row in state.rows()}

    before = {each: rows(each) for each in ids(catalog)}
    found = erased(catalog, hands, tmp_path, "c3")
    assert found.rows == 3
    for each, keys in before.items():
        assert rows(each) == {key: value for key, value in keys.items() if key != "c3"}
        assert prove(catalog, each, deep=True).problems == ()
    blobs = [
        value
        for each in ids(catalog)
        for file in load(catalog, each).files
        if file.path.endswith(".sst")
        for _, value in sst_entries(catalog.read(object_path(file.sha256)), file.path)
    ]
    # The names of columns and types are kept as text in Base64.
    assert [blob for blob in blobs if b"c3" in blob and b"tables" not in blob] == []
    assert [blob for blob in blobs if b"c4" in blob and b"tables" not in blob] != []


def test_what_people_wrote_about_it_goes_too(tmp_path: Path) -> None:
    from holdfast.changes.edit.editing import edit, plan_edit
    from holdfast.changes.edit.request import Edit

    hands = Hands()
    catalog = catalog_of(tmp_path, "4.2/aggregate-memory", hands)
    plan = plan_edit(catalog, ids(catalog)[-1], catalog, Edit("aggregate", key="c3", delete=True))
    made = edit(
        catalog,
        catalog,
        plan,
        tmp_path / "work",
        who="ada@desk",
        why="c3 has asked",
        label="without c3",
        clock=hands.clock,
        chance=hands.chance,
    )
    erased(catalog, hands, tmp_path, "c3")
    manifest = load(catalog, made.taken.manifest.savepoint_id)
    assert manifest.label == "without [erased]"
    assert manifest.change is not None
    assert (manifest.change["statement"], manifest.change["why"]) == (
        "delete with key [erased]",
        "[erased] has asked",
    )
    (record,) = manifest.erasures
    assert record["who"] == "ada@desk"
    assert record["why"] == "asked for"


def test_a_later_label_and_the_digests_of_before_go_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of all rows before and after would tell the hash of the rows between them."""
    monkeypatch.setattr(planning, "SMALL_BYTES", 0)
    hands = Hands()
    checkpoint = LocalStorage(golden_on_disk("4.2/aggregate-changelog", tmp_path / "ck"))
    catalog = LocalStorage(tmp_path / "catalog")
    savepoint_id = hands.take(checkpoint, catalog).manifest.savepoint_id
    digest(catalog, savepoint_id, clock=hands.clock)
    set_label(catalog, savepoint_id, "before c3 left", who="ada@desk", when_ms=1)
    set_label(catalog, savepoint_id, "kept", who="ada@desk", when_ms=2)
    before = recorded(catalog, savepoint_id)
    erased(catalog, hands, tmp_path, "c3")
    after = recorded(catalog, savepoint_id)
    assert before is not None
    assert after is not None
    assert (before.rows, after.rows) == (10, 9)
    totals = {family.total for store in before.stores for family in store.families}
    left = {family.total for store in after.stores for family in store.families}
    assert len(totals - left) == 1  # of the partition with the key; the other one was not read again
    gone = (totals - left).pop().encode()
    assert not [
        file for file in (tmp_path / "catalog").rglob("*") if file.is_file() and gone in file.read_bytes()
    ]
    assert [each.label for each in label_changes(catalog, savepoint_id)] == ["before [erased] left", "kept"]
    proof = prove(catalog, savepoint_id, deep=True)
    assert (proof.problems, proof.content) == ((), "compared")


def test_numbers_are_keys_too(tmp_path: Path) -> None:
    hands = Hands()
    catalog = catalog_of(tmp_path, "4.2/state-format2", hands)
    before = {each: all_rows(view_of(catalog, each)) for each in ids(catalog)}
    amount = next(
        int(match[1])
        for rows in before.values()
        for row in rows
        if (match := re.search(r"'amount': (\d+)", row))
    )
    found = erased(catalog, hands, tmp_path, str(amount), "amount")
    assert found.rows > 0
    for each in before:
        assert not any(re.search(rf"'amount': {amount}\b", row) for row in all_rows(view_of(catalog, each)))
        assert prove(catalog, each, deep=True).problems == ()


def test_an_erasure_waits_for_nobody_and_disturbs_nobody(tmp_path: Path) -> None:
    hands = Hands()
    catalog = catalog_of(tmp_path, "4.2/aggregate-memory", hands)
    catalog.write(
        "takes/x.json", json.dumps({"token": "x", "beat_ms": hands.now_ms, "owner": "one"}).encode()
    )
    with pytest.raises(Conflict, match="being taken"):
        erased(catalog, hands, tmp_path, "c3")
    assert leaks(tmp_path / "catalog", C3)


def test_what_cannot_be_searched_is_not_certified(tmp_path: Path) -> None:
    hands = Hands()
    catalog = catalog_of(tmp_path, "4.2/aggregate-memory", hands)
    catalog.write(manifest_path(ids(catalog)[0]), b"{}", replace=True)
    before = sorted(each.name for each in (tmp_path / "catalog").rglob("*"))
    with pytest.raises(Corrupt):
        erased(catalog, hands, tmp_path, "c3")
    assert sorted(each.name for each in (tmp_path / "catalog").rglob("*")) == before


@pytest.mark.parametrize("key", ["", "{", '{"a": null}', "customer="])
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(Invalid):
        subject(key)
