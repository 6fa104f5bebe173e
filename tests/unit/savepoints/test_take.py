"""A savepoint holds what a restart needs, and nothing of the checkpoint is touched for it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from catalogs import QUERY, Hands, catalog, file_query, manifests, target

from golden import NAMES, golden, golden_files, golden_on_disk, without_checksums
from holdfast.checkpoints.copy import How
from holdfast.checkpoints.state.contents import contents
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Corrupt, Invalid, NotFound, Unavailable
from holdfast.formats.logs.table_logs import parse_source
from holdfast.formats.manifest import SavedFile
from holdfast.savepoints import nesting, planning
from holdfast.savepoints.catalog import listed, object_path
from holdfast.savepoints.derived import store_object
from holdfast.savepoints.planning import named_for_life, plan_take
from holdfast.savepoints.proof import prove
from holdfast.storage import successors
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage


def numbers(files: dict[str, bytes], folder: str) -> list[int]:
    names = [path.rpartition("/")[2] for path in files if path.rpartition("/")[0] == folder]
    return sorted(int(name) for name in names if name.isdigit())


@pytest.mark.parametrize("name", NAMES)
def test_a_real_checkpoint_comes_back_as_it_was(name: str) -> None:
    hands, into, new = Hands(), catalog(), target()
    before = golden_files(name)
    source = golden(name)
    taken = hands.take(source, into)
    newest = max(numbers(before, "commits"))
    assert taken.manifest.batch_id == newest
    assert prove(into, taken.manifest.savepoint_id, workers=1).problems == ()
    hands.restore(into, taken.manifest.savepoint_id, new)
    after = new.files
    assert set(numbers(after, "offsets")) == {newest - 1, newest}
    assert max(numbers(after, "commits")) == newest
    relocated = {path for path in after if "/_metadata/v2/" in path}
    for path, data in after.items():
        if path == "_holdfast/origin.json":
            continue
        if path in relocated:
            assert b"memory://new/state" in data
        else:
            assert data == before[path], path
    assert source.files == before


@pytest.mark.parametrize("name", NAMES)
def test_an_older_batch_that_is_still_kept(name: str) -> None:
    hands, into, new = Hands(), catalog(), target()
    files = golden_files(name)
    older = max(numbers(files, "commits")) - 2
    taken = hands.take(golden(name), into, older)
    hands.restore(into, taken.manifest.savepoint_id, new)
    assert max(numbers(new.files, "commits")) == max(numbers(new.files, "offsets")) == older
    entry = json.loads(files[f"offsets/{older}"].decode().splitlines()[2])["logOffset"]
    seen = [
        each.entry
        for path, data in new.files.items()
        if path.startswith("sources/0/") and not path.endswith(".crc")
        for each in parse_source(data, path).list_files(path)
    ]
    assert max(seen) == entry
    assert set(seen) == set(range(entry + 1))


@pytest.mark.parametrize("name", NAMES)
def test_the_second_savepoint_stores_only_what_is_new(name: str) -> None:
    hands, into = Hands(), catalog()
    source = golden(name)
    newest = max(numbers(source.files, "commits"))
    first = hands.take(source, into, newest - 1)
    held = {path for path in into.files if path.startswith("objects/")}
    second = hands.take(source, into)
    added = {
        path: data for path, data in into.files.items() if path.startswith("objects/") and path not in held
    }
    assert second.manifest.new_bytes == sum(len(data) for data in added.values())
    assert second.new_files == len(added)
    third = hands.take(source, into)
    assert (third.manifest.new_bytes, third.new_files) == (0, 0)
    for each in (first, second, third):
        assert prove(into, each.manifest.savepoint_id, workers=1).ok


def test_what_a_manifest_says() -> None:
    hands, into = Hands(), catalog()
    taken = hands.take(MemoryStorage(file_query(3)), into, label="before the upgrade")
    fields = json.loads(into.read(f"savepoints/{taken.manifest.savepoint_id}/manifest.json"))
    listed_files = {each["path"]: each["size"] for each in fields.pop("files")}
    assert listed_files == {
        path: len(data)
        for path, data in file_query(3).items()
        if path not in ("offsets/0", "commits/0", "sources/0/3")
    }
    assert fields.pop("sha256")
    assert fields.pop("holdfast")
    assert fields == {
        "id": taken.manifest.savepoint_id,
        "label": "before the upgrade",
        "created_ms": taken.manifest.created_ms,
        "checkpoint": "memory://checkpoint",
        "format": 1,
        "query_id": QUERY,
        "batch": 2,
        "planned_ms": 2,
        "spark_at_least": None,
        "watermark_ms": None,
        "provider": None,
        "sources": [{"name": "0", "offset": '{"logOffset":2}'}],
        "operators": [],
        "keyed": [],
        "confs": {},
        "size_bytes": sum(listed_files.values()),
        "new_bytes": sum(listed_files.values()) - len(b'v1\n{"nextBatchWatermarkMs":0}'),  # two are alike
    }
    assert taken.manifest.savepoint_id.startswith("20260305T")
    assert taken.manifest.savepoint_id.split("-")[1:3] == ["7d7a1b9e", "b2"]


@pytest.mark.parametrize("name", [name for name in NAMES if "aggregate" in name])
def test_what_it_says_of_state(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SMALL_BYTES", 0)
    hands, into = Hands(), catalog()
    operators = hands.take(golden(name), into).manifest.fields["operators"]
    assert [(each["operator_id"], each["name"], each["partitions"]) for each in operators] == [
        (0, "stateStoreSave", 2)
    ]
    [store] = operators[0]["stores"]
    assert store["name"] == "default"
    assert store["content"] is None
    # Ten customers; only a snapshot that nothing follows tells.
    assert store["rows"] == (10 if name.endswith("rocksdb") else None)
    assert [field["name"] for field in json.loads(store["schema"][0]["key"])["fields"]] == ["customer"]


def test_on_one_disk_state_is_linked_and_nothing_else_is(tmp_path: Path) -> None:
    name = next(name for name in NAMES if name.endswith("aggregate-format2"))
    source = golden_on_disk(name, tmp_path / "ck")
    hands = Hands()
    checkpoint, into = LocalStorage(source), LocalStorage(tmp_path / "catalog")
    taken = hands.take(checkpoint, into)
    inodes = {path.stat().st_ino for path in source.rglob("*") if path.is_file()}
    for file in taken.manifest.files:
        kept = tmp_path / "catalog" / "objects" / file.sha256[:1] / file.sha256
        in_a_store = file.path.startswith(("state/0/0/", "state/0/1/")) and "_metadata" not in file.path
        assert (kept.stat().st_ino in inodes) == in_a_store, file.path
    assert sorted(each.name for each in (tmp_path / "catalog").iterdir()) == [
        "objects",
        "savepoints",
        "staging",
        "takes",
    ]
    assert list((tmp_path / "catalog" / "staging").iterdir()) == []
    assert list((tmp_path / "catalog" / "takes").iterdir()) == []


def test_a_linked_file_needs_no_second_hash(tmp_path: Path) -> None:
    name = next(name for name in NAMES if name.endswith("aggregate-rocksdb"))
    checkpoint = LocalStorage(golden_on_disk(name, tmp_path / "ck"))
    into, hands = LocalStorage(tmp_path / "catalog"), Hands()
    hands.take(checkpoint, into)
    state = [each for each in plan_take(checkpoint, into).files if each.file.path.startswith("state/0/1/")]
    assert state
    assert all(each.held for each in state)


def state_on_disk(tmp_path: Path) -> tuple[LocalStorage, Path]:
    """A checkpoint with data files that have checksums beside them, and one of those files."""
    name = next(name for name in NAMES if name.endswith("aggregate-rocksdb"))
    checkpoint = LocalStorage(golden_on_disk(name, tmp_path / "ck"))
    into = LocalStorage(tmp_path / "asked")
    needed = {each.file.path for each in plan_take(checkpoint, into).files}
    data_file = next(path for path in sorted(needed) if path.endswith(".sst"))
    return checkpoint, tmp_path / "ck" / data_file


def test_a_data_file_with_a_checksum_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, data_file = state_on_disk(tmp_path)
    sums = data_file.with_name(f".{data_file.name}.crc")
    assert sums.exists()
    size, whole = data_file.stat().st_size, 0
    read = LocalStorage.read

    def counted(self: LocalStorage, path: str, start: int = 0, length: int | None = None) -> bytes:
        nonlocal whole
        data = read(self, path, start, length)
        whole += length is None and len(data) == size
        return data

    monkeypatch.setattr(LocalStorage, "read", counted)
    Hands().take(checkpoint, LocalStorage(tmp_path / "catalog"))
    assert whole == 1
    sums.unlink()
    whole = 0
    Hands().take(checkpoint, LocalStorage(tmp_path / "other"))
    assert whole == 1  # nothing to compare it with: a look at its end is all the proof there is


@pytest.mark.parametrize("which", ["data", "sums"])
@pytest.mark.parametrize("workers", [1, 8])
def test_a_data_file_that_does_not_fit_its_checksum_is_damage(
    tmp_path: Path, which: str, workers: int
) -> None:
    checkpoint, data_file = state_on_disk(tmp_path)
    hit = data_file if which == "data" else data_file.with_name(f".{data_file.name}.crc")
    data = bytearray(hit.read_bytes())
    data[len(data) // 2] ^= 0x01
    hit.write_bytes(data)
    into = LocalStorage(tmp_path / "catalog")
    with pytest.raises(Corrupt, match="damaged") as error:
        Hands().take(checkpoint, into, workers=workers)
    assert data_file.name in (error.value.where or "")
    assert list(listed(into)) == []


def test_bytes_that_the_catalog_had_are_proved_though_those_of_the_checkpoint_fit(tmp_path: Path) -> None:
    checkpoint, data_file = state_on_disk(tmp_path)
    data = bytearray(data_file.read_bytes())
    sha256 = hashlib.sha256(data).hexdigest()
    data[len(data) // 2] ^= 0x01
    left = tmp_path / "catalog/objects" / sha256[:1] / sha256  # by a take that was killed, and damaged since
    left.parent.mkdir(parents=True)
    left.write_bytes(data)
    taken = Hands().take(checkpoint, LocalStorage(tmp_path / "catalog"))
    assert taken.replaced == (f"objects/{sha256[:1]}/{sha256}",)
    assert hashlib.sha256(left.read_bytes()).hexdigest() == sha256


@pytest.mark.parametrize("name", ["4.2/aggregate-memory", "4.2/aggregate-rocksdb"])
def test_bytes_that_were_damaged_in_the_catalog_do_not_count_as_damage_of_the_checkpoint(name: str) -> None:
    """The next take replaces what it reads anyway; for other objects the hint of a proof says what to do."""
    for damaged in sorted(hold(name).files):
        if not damaged.startswith("objects/"):
            continue
        hands, into = Hands(), catalog()
        first = hands.take(golden(name), into).manifest.savepoint_id
        data = bytearray(into.files[damaged])
        data[len(data) // 2] ^= 0x01
        into.write(damaged, bytes(data), replace=True)
        second = hands.take(golden(name), into)
        proof = prove(into, second.manifest.savepoint_id, workers=1)
        if proof.ok:
            assert second.replaced == (damaged,)
        else:
            [problem] = proof.problems
            assert (problem.file, second.replaced) == (damaged, ())
            assert problem.hint.startswith("delete this object")
            into.delete(damaged)
            third = hands.take(golden(name), into).manifest.savepoint_id
            assert prove(into, third, workers=1).ok
        assert prove(into, first, workers=1).ok


def test_a_changed_savepoint_replaces_damaged_objects_too() -> None:
    data = b"right"
    file = SavedFile("offsets/0", len(data), hashlib.sha256(data).hexdigest(), How.WHOLE.value)
    path = object_path(file.sha256)
    into, made = MemoryStorage({path: b"wrong"}), MemoryStorage({"offsets/0": data})
    assert store_object(into, file, made, "offsets/0")
    assert into.read(path) == data
    assert not store_object(into, file, made, "offsets/0")


def hold(name: str) -> MemoryStorage:
    """A catalog with one savepoint."""
    into = catalog()
    Hands().take(golden(name), into)
    return into


@pytest.mark.slow
def test_damage_done_to_a_linked_file_is_not_passed_on(tmp_path: Path) -> None:
    """Writing into a file that is linked is writing into the savepoint; the next take looks again."""
    for name in [name for name in NAMES if "4.2/aggregate" in name]:
        folder = tmp_path / name.replace("/", "-")
        checkpoint = LocalStorage(golden_on_disk(name, folder / "ck"))
        into, hands = LocalStorage(folder / "catalog"), Hands()
        first = hands.take(checkpoint, into).manifest
        file = max((file for file in first.files if file.modified_ns), key=lambda file: file.size_bytes)
        path = folder / "ck" / file.path
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        with path.open("r+b") as opened:
            opened.write(data)
        newest = first.batch_id
        if newest in verify(checkpoint).restorable:  # an older snapshot and the changes since do as well
            second = hands.take(checkpoint, into, newest)
            assert second.damaged
            assert file.path not in [each.path for each in second.manifest.files]
        else:
            with pytest.raises(Corrupt, match="damaged") as error:
                hands.take(checkpoint, into)
            assert file.path in (error.value.where or "")
        [problem] = prove(into, first.savepoint_id, workers=1).problems
        assert file.sha256 in problem.file


@pytest.mark.parametrize("bare", [False, True], ids=["with checksums", "without"])
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_checkpoint_gives_no_savepoint_and_names_the_file(name: str, bare: bool) -> None:
    files = without_checksums(golden_files(name)) if bare else golden_files(name)
    hands, into = Hands(), catalog()
    path = next(
        file.file.path
        for file in plan_take(MemoryStorage(files), into).files
        if file.file.path.endswith((".changelog", ".delta", ".zip"))
    )
    # An older snapshot and the changes since do as well as a damaged one.
    unread = {**files, path: b""}
    if verify(MemoryStorage(unread)).batch_id in verify(MemoryStorage(unread)).restorable:
        taken = hands.take(MemoryStorage(unread), into)
        assert path not in [file.path for file in taken.manifest.files]
        hands.restore(into, taken.manifest.savepoint_id, new := target())
        assert contents(new) == contents(MemoryStorage(files))
        return
    damaged = MemoryStorage({**files, path: files[path][: len(files[path]) // 2]})
    with pytest.raises(Corrupt) as error:
        hands.take(damaged, into)
    assert path in (error.value.where or "")
    assert manifests(into) == []
    assert [each for each in into.files if each.startswith(("takes/", "staging/"))] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_file_of_the_newest_batch_is_damage(name: str) -> None:
    files = golden_files(name)
    version = max(numbers(files, "commits")) + 1
    folder = (
        "state/0/1/" if f"state/0/1/{version}." in "".join(files) or "join" not in name else "state/0/1/left-"
    )
    lost = {
        path
        for path in files
        if path.startswith(folder) and path.rpartition("/")[2].startswith((f"{version}.", f"{version}_"))
    }
    assert lost
    left = {path: data for path, data in files.items() if path not in lost}
    with pytest.raises(Corrupt, match="a file of the checkpoint is missing") as error:
        plan_take(MemoryStorage(left), catalog())
    assert (error.value.where or "").removeprefix("memory://checkpoint/") in lost


class Busy(MemoryStorage):
    """A checkpoint whose query goes on while it is copied: each stage begins when a file is asked for."""

    def __init__(self, stages: list[tuple[str, dict[str, bytes]]]) -> None:
        super().__init__(stages[0][1], uri="memory://checkpoint")
        self._stages = stages

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        if len(self._stages) > 1 and path == self._stages[0][0]:
            del self._stages[0]
            for gone in self.files:
                self.delete(gone)
            for name, data in self._stages[0][1].items():
                self.write(name, data)
        return super().read(path, start, length)


def without(files: dict[str, bytes], batch: int) -> dict[str, bytes]:
    return {
        path: data for path, data in files.items() if path not in (f"offsets/{batch}", f"commits/{batch}")
    }


def test_a_query_that_goes_on_gives_a_savepoint_of_a_newer_batch() -> None:
    now, later = file_query(4), without(without(file_query(7), 2), 3)
    into, hands = catalog(), Hands()
    taken = hands.take(Busy([("commits/3", now), ("", later)]), into)
    assert taken.manifest.batch_id == 6
    assert prove(into, taken.manifest.savepoint_id, workers=1).ok


def test_a_batch_that_was_asked_for_is_not_replaced_by_another() -> None:
    now, later = file_query(4), without(without(file_query(7), 2), 3)
    into = catalog()
    with pytest.raises(NotFound, match="batch is not committed"):
        Hands().take(Busy([("commits/3", now), ("", later)]), into, 3)
    assert manifests(into) == []


def test_a_query_that_is_always_quicker_is_told_about() -> None:
    stages = [(f"commits/{number}", without(file_query(number + 1), number - 2)) for number in range(3, 20)]
    into = catalog()
    with pytest.raises(Unavailable, match="5 attempts") as error:
        Hands().take(Busy(stages), into)
    assert "minBatchesToRetain" in (error.value.hint or "")
    assert manifests(into) == []


def test_where_there_is_no_checkpoint() -> None:
    with pytest.raises(NotFound, match="no checkpoint in this directory"):
        Hands().take(target(), catalog())


def test_a_batch_that_was_never_committed() -> None:
    with pytest.raises(NotFound, match="batch is not committed"):
        Hands().take(MemoryStorage(file_query(3)), catalog(), 17)


@pytest.mark.parametrize(
    ("checkpoint", "into"),
    [("memory://a/ck", "memory://a/ck/sp"), ("memory://a/ck", "memory://a"), ("memory://a", "memory://a")],
)
def test_a_catalog_is_apart_from_the_checkpoint(checkpoint: str, into: str) -> None:
    with pytest.raises(Invalid, match="cannot contain one another"):
        Hands().take(MemoryStorage(file_query(3), uri=checkpoint), MemoryStorage(uri=into))


@pytest.mark.parametrize("label", ["", " ", "a\nb", "x" * 201])
def test_a_label_that_cannot_be_shown(label: str) -> None:
    with pytest.raises(Invalid, match="label"):
        Hands().take(MemoryStorage(file_query(3)), catalog(), label=label)


def test_the_list_is_in_the_order_of_time_and_tells_of_damage() -> None:
    hands, into = Hands(), catalog()
    checkpoint = MemoryStorage(file_query(5))
    taken = [hands.take(checkpoint, into, batch, f"at {batch}") for batch in (4, 2, 3)]
    assert [(each.manifest.batch_id, each.manifest.label) for each in listed(into) if each.manifest] == [
        (4, "at 4"),
        (2, "at 2"),
        (3, "at 3"),
    ]
    path = f"savepoints/{taken[1].manifest.savepoint_id}/manifest.json"
    into.write(path, into.read(path).replace(b"at 2", b"at 9"), replace=True)
    found = list(listed(into))
    assert [each.manifest is None for each in found] == [False, True, False]
    assert "damaged" in (found[1].problem or "")


def test_several_workers_do_what_one_does() -> None:
    name = NAMES[0]
    hands, one, many = Hands(), catalog(), catalog()
    hands.take(golden(name), one)
    from holdfast.savepoints.taking import take

    plan = plan_take(golden(name), many)
    take(golden(name), many, plan, clock=hands.clock, chance=hands.chance, workers=7)

    def objects(storage: MemoryStorage) -> dict[str, bytes]:
        return {path: data for path, data in storage.files.items() if path.startswith("objects/")}

    assert objects(one) == objects(many)


class ObjectStore(MemoryStorage):
    """Notes how files got there."""

    def __init__(self, uri: str, files: dict[str, bytes] | None = None) -> None:
        super().__init__(files, uri)
        self.written: list[str] = []
        self.copied: list[str] = []

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        self.written.append(path)
        super().write(path, data, replace=replace)

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:
        self.copied.append(target)
        MemoryStorage.write(self, target, (origin or self).read(source))


def test_in_one_object_store_state_is_copied_on_its_side(monkeypatch: pytest.MonkeyPatch) -> None:
    # The directories above are looked at, and nobody is asked over the network here.
    monkeypatch.setattr(nesting, "open_storage", lambda uri: MemoryStorage(uri=uri))
    monkeypatch.setattr(successors, "open_storage", lambda uri: MemoryStorage(uri=uri))
    name = next(name for name in NAMES if name.endswith("4.2/aggregate-format2"))
    hands = Hands()
    checkpoint, into = ObjectStore("s3a://data/ck", golden_files(name)), ObjectStore("s3a://safe/catalog")
    taken = hands.take(checkpoint, into).manifest
    state = {f"objects/{file.sha256[:1]}/{file.sha256}" for file in taken.files if named_for_life(file.path)}
    assert state
    assert set(into.copied) == state
    new = ObjectStore("s3a://data/new")
    hands.restore(into, taken.savepoint_id, new)
    assert {file.path for file in taken.files if named_for_life(file.path)} <= set(new.copied)
    assert not any(path.startswith(("offsets/", "metadata")) for path in new.copied)
    elsewhere = ObjectStore("gs://safe/catalog")
    hands.take(checkpoint, elsewhere)
    assert elsewhere.copied == []


def test_a_single_operator_of_ours_is_named() -> None:
    name = next(name for name in NAMES if "4.2/keyed" in name)
    note = b'{"key_groups":128,"current":"ab12","forms":{}}'
    checkpoint = MemoryStorage({**golden_files(name), "_holdfast/operator-visits.json": note})
    fields = Hands().take(checkpoint, catalog()).manifest.fields
    assert fields["keyed"] == [{"name": "visits", "key_groups": 128, "form": "ab12"}]
    assert [each["holdfast_name"] for each in fields["operators"]] == ["visits"]
    two = MemoryStorage({**checkpoint.files, "_holdfast/operator-orders.json": note})
    fields = Hands().take(two, catalog()).manifest.fields
    assert [each["name"] for each in fields["keyed"]] == ["orders", "visits"]
    assert [each["holdfast_name"] for each in fields["operators"]] == [None]
    # A note that cannot be read is not repeated, nor is another one in its place.
    damaged = MemoryStorage({**checkpoint.files, "_holdfast/operator-waits.json": b'{"key_groups":"many"}'})
    fields = Hands().take(damaged, catalog()).manifest.fields
    assert [each["name"] for each in fields["keyed"]] == ["visits"]
