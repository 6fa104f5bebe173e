"""Whatever happens to a catalog, verify finds it and names the file. Seeded."""

from __future__ import annotations

import random

import pytest
from catalogs import Hands, catalog, manifests, target
from damages import DAMAGES
from grid import one_in

from golden import NAMES, golden
from holdfast.errors import Corrupt, NotFound
from holdfast.savepoints.proof import prove
from holdfast.storage.memory import MemoryStorage


def filled(name: str) -> tuple[MemoryStorage, str]:
    into = catalog()
    return into, Hands().take(golden(name), into).manifest.savepoint_id


@pytest.mark.parametrize("fault", DAMAGES)
@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_damaged_bytes_are_found_and_named(name: str, fault: str) -> None:
    into, savepoint_id = filled(name)
    rng = random.Random(f"{name} {fault}")
    objects = [path for path in sorted(into.files) if path.startswith("objects/") and into.files[path]]
    for path in rng.sample(objects, 4):
        data = into.read(path)
        changed = DAMAGES[fault](data, rng)
        if changed == data:
            continue
        into.write(path, changed, replace=True)
        proof = prove(into, savepoint_id, workers=1)
        assert [problem.file for problem in proof.problems] == [path]
        into.write(path, data, replace=True)
    assert prove(into, savepoint_id, workers=1).ok


@pytest.mark.parametrize("name", NAMES)
def test_lost_and_exchanged_bytes_are_found_and_named(name: str) -> None:
    into, savepoint_id = filled(name)
    rng = random.Random(name)
    objects = [path for path in sorted(into.files) if path.startswith("objects/")]
    one, other = rng.sample(objects, 2)
    before = into.files
    into.write(one, before[other], replace=True)
    into.write(other, before[one], replace=True)
    assert {problem.file for problem in prove(into, savepoint_id, workers=1).problems} == {one, other}
    lost = MemoryStorage({path: data for path, data in before.items() if path != one}, into.uri)
    [problem] = prove(lost, savepoint_id, workers=1).problems
    assert problem.file == one
    assert "is missing" in problem.what


@pytest.mark.parametrize("name", NAMES)
def test_stale_bytes_and_exchanged_directories_are_found_and_named(name: str) -> None:
    hands, into, checkpoint = Hands(), catalog(), golden(name)
    newest = hands.take(checkpoint, into).manifest
    older = hands.take(checkpoint, into, newest.batch_id - 3).manifest
    before = into.files
    stale = {file.path: file.sha256 for file in older.files}
    replaced = [file for file in newest.files if stale.get(file.path, file.sha256) != file.sha256]
    pairs = [(file.sha256, stale[file.path]) for file in replaced]
    # Where names are given once, the newest commit is the nearest thing to a file of two ages.
    logs = {file.path: file.sha256 for file in (*newest.files, *older.files)}
    pairs.append((logs[f"offsets/{newest.batch_id}"], logs[f"offsets/{older.batch_id}"]))
    for new, old in pairs:
        path = f"objects/{new[:1]}/{new}"
        into.write(path, before[f"objects/{old[:1]}/{old}"], replace=True)
        assert [problem.file for problem in prove(into, newest.savepoint_id, workers=1).problems] == [path]
        into.write(path, before[path], replace=True)
    one, other = random.Random(name).sample(sorted({file.sha256[:1] for file in newest.files}), 2)
    exchanged = {_moved(path, one, other): data for path, data in before.items()}
    damaged = prove(MemoryStorage(exchanged, into.uri), newest.savepoint_id, workers=1)
    lost = {file.sha256 for file in newest.files if file.sha256[:1] in (one, other)}
    assert {problem.file.rpartition("/")[2] for problem in damaged.problems} == lost


def _moved(path: str, one: str, other: str) -> str:
    for each, place in ((one, other), (other, one)):
        if path.startswith(f"objects/{each}/"):
            return f"objects/{place}/{path.rpartition('/')[2]}"
    return path


@pytest.mark.parametrize("fault", DAMAGES)
def test_a_damaged_manifest_is_found_and_named(fault: str) -> None:
    into, savepoint_id = filled(NAMES[0])
    path = f"savepoints/{savepoint_id}/manifest.json"
    rng = random.Random(fault)
    into.write(path, DAMAGES[fault](into.read(path), rng), replace=True)
    proof = prove(into, savepoint_id, workers=1)
    assert not proof.ok
    assert [problem.file for problem in proof.problems] == [path]
    with pytest.raises(Corrupt, match="nothing was done"):
        Hands().restore(into, savepoint_id, target())


@pytest.mark.parametrize(
    ("old", "new"),
    [('"batch":', '"batch":1'), ('"size":', '"size":1'), ("metadata", "metadate"), ('"whole"', '"hole"')],
)
def test_an_edited_manifest_is_found(old: str, new: str) -> None:
    into, savepoint_id = filled(NAMES[0])
    path = f"savepoints/{savepoint_id}/manifest.json"
    text = into.read(path).decode()
    assert old in text
    into.write(path, text.replace(old, new, 1).encode(), replace=True)
    assert [problem.file for problem in prove(into, savepoint_id, workers=1).problems] == [path]


def test_a_manifest_put_in_the_place_of_another_is_found() -> None:
    hands, into = Hands(), catalog()
    one, other = (hands.take(golden(name), into).manifest.savepoint_id for name in NAMES[:2])
    into.write(
        f"savepoints/{one}/manifest.json", into.read(f"savepoints/{other}/manifest.json"), replace=True
    )
    [problem] = prove(into, one, workers=1).problems
    assert problem.file == f"savepoints/{one}/manifest.json"
    assert prove(into, other, workers=1).ok


def test_a_lost_manifest_is_no_savepoint() -> None:
    into, savepoint_id = filled(NAMES[0])
    into.delete(f"savepoints/{savepoint_id}/manifest.json")
    with pytest.raises(NotFound, match="the savepoint does not exist"):
        prove(into, savepoint_id)


def test_bytes_that_never_fitted_together_are_found() -> None:
    """A manifest that is right in itself, written over files that make no checkpoint."""
    from holdfast.formats.manifest import SavedFile, manifest_of, parse_manifest

    into, savepoint_id = filled(next(name for name in NAMES if "aggregate-changelog" in name))
    path = f"savepoints/{savepoint_id}/manifest.json"
    manifest = parse_manifest(into.read(path), path)
    version = manifest.batch_id + 1
    lost = f"state/0/0/{version}.changelog"
    files: list[SavedFile] = [file for file in manifest.files if file.path != lost]
    assert len(files) < len(manifest.files)
    into.write(path, manifest_of(manifest.fields, files).render(), replace=True)
    assert [problem.file for problem in prove(into, savepoint_id, workers=1).problems] == [lost]


@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_whole_savepoints_give_no_false_alarm(name: str) -> None:
    hands, into, checkpoint = Hands(), catalog(), golden(name)
    newest = hands.take(checkpoint, into).manifest.batch_id
    for batch_id in range(newest - 5, newest):
        hands.take(checkpoint, into, batch_id)
    assert len(manifests(into)) == 6
    for each in manifests(into):
        assert prove(into, each, workers=1).problems == ()
