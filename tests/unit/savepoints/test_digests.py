"""Counts and digests of a savepoint's rows: recorded later, once, and compared by `verify --deep`."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest
from catalogs import Hands, catalog, file_query
from golden_model import aggregate, taken
from large_state import (
    NAME,
    ROWS,
    Row,
    digest_by_definition,
    digests_by_definition,
    large_checkpoint,
    large_rows,
)
from state_rows import StateRow, state_rows

from golden import GATHERED, NAMES, REPARTITIONED, golden, golden_files, golden_on_disk
from holdfast import savepoints
from holdfast.changes.edit_api import edit
from holdfast.errors import Conflict, Corrupt, HoldfastError, NotFound, Unsupported
from holdfast.formats.manifest import Manifest, manifest_of
from holdfast.savepoints import planning
from holdfast.savepoints.catalog import PENDING, RECORDED, content_path, load, manifest_path, object_path
from holdfast.savepoints.digests import Digested, PendingDigests, digest, pending, recorded
from holdfast.savepoints.proof import COMPARED, prove
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage
from holdfast.testing.failing_storage import FaultyStorage, Killed

pytestmark = pytest.mark.slow


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a state is, a take does not read its rows."""
    monkeypatch.setattr(planning, "SMALL_BYTES", 0)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return large_rows()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> Path:
    """Never changed."""
    return large_checkpoint(tmp_path_factory.mktemp("large") / "ck", rows)


def make(hands: Hands, into: Storage, savepoint_id: str) -> Digested:
    return digest(into, savepoint_id, clock=hands.clock)


def rewritten(into: Storage, savepoint_id: str, other: Manifest) -> None:
    """Give a savepoint the files of another one, with all hashes right."""
    manifest = manifest_of(load(into, savepoint_id).fields, other.files)
    into.write(manifest_path(savepoint_id), manifest.render(), replace=True)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("name", [*NAMES, REPARTITIONED, *GATHERED])
def test_rows_are_counted_and_hashed_after_the_take(name: str) -> None:
    hands, into = Hands(), catalog()
    savepoint_id = hands.take(golden(name), into).manifest.savepoint_id
    before = prove(into, savepoint_id, deep=True, workers=1)
    assert (before.ok, before.content, before.compared, before.recorded) == (True, PENDING, 0, None)
    assert prove(into, savepoint_id, workers=1).content == PENDING
    manifest = into.files[manifest_path(savepoint_id)]
    assert pending(into) == [savepoint_id]

    made = make(hands, into, savepoint_id)

    assert (made.made, made.content, made.read) == (True, RECORDED, made.stores)
    told = {
        (each.operator_id, each.store, each.family): (each.rows, each.digest) for each in made.states or ()
    }
    expected = digests_by_definition(golden(name))
    assert {key: value for key, value in told.items() if value[0]} == expected
    assert into.files[manifest_path(savepoint_id)] == manifest
    assert pending(into) == []
    after = prove(into, savepoint_id, deep=True, workers=1)
    assert (after.problems, after.content, after.compared) == ((), COMPARED, len(told))
    quick = prove(into, savepoint_id, workers=1)
    assert (quick.ok, quick.content, quick.compared) == (True, RECORDED, 0)


@pytest.mark.usefixtures("unread")
def test_the_rows_are_those_that_the_query_has_made() -> None:
    name = "4.2/aggregate-memory"
    hands, into = Hands(), catalog()
    made = make(hands, into, hands.take(golden(name), into).manifest.savepoint_id)
    [state] = made.states or ()
    assert state.rows == len(aggregate(taken(golden_files(name)))) == 10


def test_large_state(large: Path, rows: list[Row], tmp_path: Path) -> None:
    """More than a take reads by itself, through RocksDB's own files."""
    said = savepoints.take(large, tmp_path / "catalog", digest=False)
    assert said.manifest.size_bytes > planning.SMALL_BYTES
    [listed] = savepoints.list(tmp_path / "catalog")
    assert listed.content == PENDING
    told = savepoints.digest(said.uri)
    others = [(row.key_row, row.value_rows[0]) for row in rows_of(large) if row.partition != 0]
    [state] = told.states or ()
    assert (state.rows, state.digest) == digest_by_definition([*rows, *others])
    assert state.rows == ROWS + len(others)
    proof = savepoints.verify(said.uri, deep=True)
    assert (proof.ok, proof.content, proof.compared) == (True, COMPARED, 1)
    [listed] = savepoints.list(tmp_path / "catalog")
    assert listed.content == RECORDED


def test_a_take_in_python_has_digests(large: Path, tmp_path: Path) -> None:
    said = savepoints.take(large, tmp_path / "catalog", gentle=False)
    assert not said.manifest.has_content
    assert savepoints.verify(said.uri, deep=True).content == COMPARED


def test_a_flipped_row_is_seen_though_every_hash_is_right(
    large: Path, rows: list[Row], tmp_path: Path
) -> None:
    (key, value), *rest = rows
    flipped = large_checkpoint(tmp_path / "flipped", [(key, value[:-1] + bytes([value[-1] ^ 1])), *rest])
    into = tmp_path / "catalog"
    right = savepoints.take(large, into)
    wrong = savepoints.take(flipped, into, digest=False)
    storage = LocalStorage(into)
    rewritten(storage, right.manifest.savepoint_id, wrong.manifest)
    for deep in (False, True):
        proof = savepoints.verify(right.uri, deep=deep)
        assert [each.file for each in proof.problems] == [
            content_path(right.manifest.savepoint_id),
            *(["state/0/0"] if deep else []),
        ]
    assert "rows with digest" in proof.problems[1].what
    with pytest.raises(Corrupt, match="the savepoint is damaged"):
        savepoints.restore(right.uri, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_a_flipped_row_of_small_state_is_seen_too(tmp_path: Path) -> None:
    """Its digest is in the manifest, whose list of files and hash of itself were made right again."""
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    right = savepoints.take(checkpoint, tmp_path / "catalog")
    wrong = edit(right.uri, "aggregate", key="c0", set={"sum": 7}).taken
    assert right.manifest.has_content
    rewritten(LocalStorage(tmp_path / "catalog"), right.manifest.savepoint_id, wrong.manifest)
    assert savepoints.verify(right.uri).ok
    proof = savepoints.verify(right.uri, deep=True)
    assert (proof.content, [each.file for each in proof.problems]) == (COMPARED, ["state/0/0"])
    assert "10 rows with digest" in proof.problems[0].what


@pytest.mark.usefixtures("unread")
def test_recorded_once(tmp_path: Path) -> None:
    hands, into = Hands(), catalog()
    savepoint_id = hands.take(golden(NAME), into).manifest.savepoint_id
    made = make(hands, into, savepoint_id)
    written = into.files[content_path(savepoint_id)]
    again = make(hands, into, savepoint_id)
    assert (again.made, again.states, again.read) == (False, made.states, 0)
    assert into.files[content_path(savepoint_id)] == written


@pytest.mark.usefixtures("unread")
def test_two_passes_at_once_record_it_once() -> None:
    hands, into = Hands(), catalog()
    savepoint_id = hands.take(golden(NAME), into).manifest.savepoint_id
    quicker: list[Digested] = []

    def other() -> None:
        if not quicker:
            quicker.append(make(hands, into, savepoint_id))

    made = digest(into, savepoint_id, clock=hands.clock, step=other)
    assert (quicker[0].made, made.made, made.states) == (True, False, quicker[0].states)


@pytest.mark.usefixtures("unread")
def test_stores_with_the_same_files_are_not_read_again() -> None:
    hands, into = Hands(), catalog()
    first = make(hands, into, hands.take(golden(NAME), into).manifest.savepoint_id)
    second = make(hands, into, hands.take(golden(NAME), into).manifest.savepoint_id)
    assert (first.read, second.read, second.stores) == (first.stores, 0, first.stores)
    assert second.states == first.states
    older = make(hands, into, hands.take(golden(NAME), into, 9).manifest.savepoint_id)
    assert older.read == older.stores


def test_an_edit_reads_what_it_has_changed(large: Path, tmp_path: Path) -> None:
    source = savepoints.take(large, tmp_path / "catalog")
    key = next(each.key["customer"] for each in rows_of(large) if each.partition != 0)
    made = edit(source.uri, "aggregate", key=key, set={"sum": 7})
    content = recorded(LocalStorage(tmp_path / "catalog"), made.taken.manifest.savepoint_id)
    before = recorded(LocalStorage(tmp_path / "catalog"), source.manifest.savepoint_id)
    assert content is not None
    assert before is not None
    changed = [new.partition for old, new in zip(before.stores, content.stores, strict=True) if old != new]
    assert len(changed) == 1
    assert 0 not in changed
    assert savepoints.verify(made.taken.uri, deep=True).content == COMPARED


@pytest.mark.usefixtures("unread")
def test_damaged_bytes_get_no_digest() -> None:
    hands, into = Hands(), catalog()
    manifest = hands.take(golden(NAME), into).manifest
    file = next(each for each in manifest.files if each.path.endswith(".changelog"))
    path = object_path(file.sha256)
    data = into.read(path)
    into.write(path, data[:-1] + bytes([data[-1] ^ 1]), replace=True)
    with pytest.raises(Corrupt, match="the digests were not recorded"):
        make(hands, into, manifest.savepoint_id)
    assert content_path(manifest.savepoint_id) not in into.files


@pytest.mark.usefixtures("unread")
def test_a_savepoint_that_goes_meanwhile_leaves_nothing() -> None:
    hands, into = Hands(), catalog()
    savepoint_id = hands.take(golden(NAME), into).manifest.savepoint_id

    with pytest.raises(NotFound):
        digest(into, savepoint_id, clock=hands.clock, step=lambda: into.delete(manifest_path(savepoint_id)))
    assert content_path(savepoint_id) not in into.files


@pytest.mark.usefixtures("unread")
def test_a_savepoint_that_is_rewritten_meanwhile_gets_no_digest_of_before() -> None:
    hands, into = Hands(), catalog()
    savepoint_id = hands.take(golden(NAME), into).manifest.savepoint_id
    before = load(into, savepoint_id)

    def rewrite() -> None:
        other = manifest_of({**before.fields, "erasures": [{"rows": 1}]}, before.files)
        into.write(manifest_path(savepoint_id), other.render(), replace=True)

    with pytest.raises(Conflict, match="changed while its rows were read"):
        digest(into, savepoint_id, clock=hands.clock, step=rewrite)
    assert content_path(savepoint_id) not in into.files


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kill", [False, True])
def test_killed_at_any_change_it_is_pending_or_recorded(kill: bool, late: bool) -> None:
    hands, start = Hands(), catalog()
    savepoint_id = hands.take(golden(NAME), start).manifest.savepoint_id
    counting = FaultyStorage(MemoryStorage(start.files, start.uri))
    whole = make(hands, counting, savepoint_id)
    assert counting.steps == 1
    into = MemoryStorage(start.files, start.uri)
    with pytest.raises((Killed, HoldfastError)):
        make(hands, FaultyStorage(into, 1, kill=kill, late=late), savepoint_id)
    assert (content_path(savepoint_id) in into.files) is late
    assert make(hands, into, savepoint_id).states == whole.states
    assert prove(into, savepoint_id, deep=True, workers=1).content == COMPARED


@pytest.mark.usefixtures("unread")
def test_a_damaged_record_is_named() -> None:
    hands, into = Hands(), catalog()
    savepoint_id = hands.take(golden(NAME), into).manifest.savepoint_id
    make(hands, into, savepoint_id)
    path = content_path(savepoint_id)
    right = into.read(path)
    for at in range(0, len(right), max(len(right) // 40, 1)):
        into.write(path, right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :], replace=True)
        proof = prove(into, savepoint_id, workers=1)
        assert ([each.file for each in proof.problems], proof.content) == ([path], None)
    into.write(path, right[:50], replace=True)
    assert not prove(into, savepoint_id, workers=1).ok
    into.delete(path)  # as the hint says
    assert make(hands, into, savepoint_id).made
    assert into.read(path).splitlines()[5:-2] == right.splitlines()[5:-2]


@pytest.mark.usefixtures("unread")
def test_removals_know_the_record() -> None:
    hands, into = Hands(), catalog()
    kept, gone = (hands.take(golden(NAME), into).manifest.savepoint_id for _ in range(2))
    for each in (kept, gone):
        make(hands, into, each)
    hands.sweep(into)
    assert {content_path(kept), content_path(gone)} <= set(into.files)
    hands.delete(into, gone)
    assert not [path for path in into.files if gone in path]
    make_nobodys = content_path(gone)
    into.write(make_nobodys, b"left by a pass that was killed")
    assert pending(into) == []
    hands.sweep(into)
    assert make_nobodys not in into.files
    assert prove(into, kept, deep=True, workers=1).content == COMPARED


@pytest.mark.usefixtures("unread")
def test_pending_ones_the_newest_first_until_stopped() -> None:
    hands, into = Hands(), catalog()
    taken_ids = [hands.take(golden(NAME), into, batch).manifest.savepoint_id for batch in (9, 10, 11)]
    query = load(into, taken_ids[0]).query_id
    steps = 0

    def go_on() -> bool:
        nonlocal steps
        steps += 1
        return steps < 3

    stopped = PendingDigests(hands.clock, go_on)
    assert stopped.newest(into, [query]) is None
    assert pending(into) == taken_ids[::-1]
    digests = PendingDigests(hands.clock, lambda: True, pause=lambda _: None)
    made = [digests.newest(into, [query]) for _ in range(4)]
    assert [None if each is None else each.uri.rpartition("/")[2] for each in made] == [
        *taken_ids[::-1],
        None,
    ]
    assert digests.newest(into, ["0c9c4a52-1111-4222-8333-444455556666"]) is None


def test_one_that_cannot_be_read_is_told_once() -> None:
    files = {
        path: data.replace(b'mergeOperatorVersion":"2"', b'mergeOperatorVersion":"9"')
        for path, data in golden_files("4.2/aggregate-memory").items()
        if not path.endswith(".crc")
    }
    hands, into = Hands(), catalog()
    manifest = hands.take(MemoryStorage(files, uri="memory://own"), into).manifest
    digests = PendingDigests(hands.clock, lambda: True)
    with pytest.raises(Unsupported, match="merge operator"):
        digests.newest(into, [manifest.query_id])
    assert digests.newest(into, [manifest.query_id]) is None
    assert pending(into) == [manifest.savepoint_id]


def test_no_host_is_connected_to_that_only_a_manifest_names() -> None:
    """The pass looks whether the query runs, in order to be gentle, but not on another host."""
    connected = threading.Event()

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                listener.accept()[0].close()
                connected.set()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        hands, into = Hands(), catalog()
        uri = f"webhdfs://127.0.0.1:{listener.getsockname()[1]}/checkpoint"
        taken = hands.take(MemoryStorage(golden_files("4.2/aggregate-memory"), uri=uri), into)
        PendingDigests(hands.clock, lambda: True, pause=lambda _: None).one(into, taken.manifest.savepoint_id)
    assert not connected.is_set()


def test_a_query_without_state_has_nothing_pending() -> None:
    hands, into = Hands(), catalog()
    savepoint_id = hands.take(MemoryStorage(file_query(3)), into).manifest.savepoint_id
    assert pending(into) == []
    assert make(hands, into, savepoint_id).states == ()
    proof = prove(into, savepoint_id, deep=True, workers=1)
    assert (proof.ok, proof.content, json.loads(json.dumps(proof.as_dict()))["recorded"]) == (
        True,
        COMPARED,
        [],
    )


def rows_of(checkpoint: Path) -> list[StateRow]:
    return list(state_rows(LocalStorage(checkpoint)))
