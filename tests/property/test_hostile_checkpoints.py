"""Checkpoints of strangers: whatever is in their files, looking at one ends well. Seeded."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path

import open_snapshots
import pytest
from damages import Files
from hostile import INPUTS, SEED, Format, entry_of, hostile, require_answered, with_entry
from state_rows import state_rows

from golden import UNNAMED, golden_files, without_checksums
from holdfast import layout
from holdfast.checkpoints.checkpoint import history, read
from holdfast.checkpoints.copy import cut
from holdfast.checkpoints.state.rocksdb import laid_out
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Corrupt, HoldfastError
from holdfast.formats.files.snapshot import METADATA
from holdfast.layout import StoreFile
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage

SOME = ("4.2/aggregate-memory", "4.2/join-format2", "4.2/state-format2", "4.2/keyed-format2", UNNAMED[0])
ROCKSDB = "4.2/aggregate-rocksdb"
SCRIPT = Path(open_snapshots.__file__)
# RocksDB has hung on a manifest; the long form takes minutes.
HANGS_S = 3600


@pytest.mark.parametrize("name", SOME)
def test_looking_at_a_strangers_checkpoint_ends_well(name: str) -> None:
    """One file of it is changed, or bears another name; those of RocksDB are read in a process of its own."""
    files = without_checksums(golden_files(name))
    paths = sorted(path for path in files if not path.endswith(".sst"))
    rng = random.Random(f"{SEED} {name}")
    changes = {path: hostile([files[path]], f"{name} {path}", INPUTS) for path in paths}

    def look(path: str, _data: bytes) -> None:
        renamed = rng.random() < 0.2
        changed = {**files, path: next(changes[path])}
        if renamed:
            changed = {_renamed(each, rng) if each == path else each: data for each, data in files.items()}
        storage = MemoryStorage(changed, "memory://stranger")
        for ask in (verify, read, cut, history):
            with suppress(HoldfastError):
                ask(storage)
        if not any(each.endswith(".zip") for each in changed):
            deque((row.key for row in state_rows(storage)), maxlen=0)

    for _ in range(INPUTS // 10):
        path = rng.choice(paths)
        require_answered(Format(f"{name} {path}", partial(look, path), [files[path]]), 1)


def _renamed(path: str, rng: random.Random) -> str:
    folder, name = layout.split(path)
    number = rng.choice(("99999999999", "9223372036854775807", "0", "123456789012345678901234567890"))
    suffix = name[name.index(".") :] if "." in name else ""
    return layout.join(folder, number + suffix)


def snapshots(files: Files) -> list[str]:
    return sorted(path for path in files if path.endswith(".zip"))


@pytest.mark.parametrize("field", ["localFileName", "dfsSstFileName"])
@pytest.mark.parametrize("name", ["../../../../secret", "/etc/passwd", "..", ".", "", "a/b", "a\\u0000b"])
def test_a_name_that_leads_elsewhere_is_refused(field: str, name: str, tmp_path: Path) -> None:
    """Of a snapshot's data files: nothing outside is linked, and nothing is written outside."""
    files = without_checksums(golden_files(ROCKSDB))
    path = snapshots(files)[-1]
    head, text = entry_of(files[path], METADATA).decode().split("\n")
    fields = json.loads(text)
    fields["sstFiles"][0][field] = json.loads(f'"{name}"')
    changed = with_entry(files[path], METADATA, f"{head}\n{json.dumps(fields)}".encode())
    place = tmp_path / "outer" / "ck"
    for each, data in {**files, path: changed}.items():
        (place / each).parent.mkdir(parents=True, exist_ok=True)
        (place / each).write_bytes(data)
    (tmp_path / "secret").write_bytes(b"not yours")
    file = layout.parse(path)
    assert isinstance(file, StoreFile)
    before = {each for each in tmp_path.rglob("*") if not each.is_relative_to(place)}
    with pytest.raises(Corrupt) as error:
        laid_out(LocalStorage(place), file, tmp_path / "outer" / "db")
    assert path in str(error.value.where)
    after = {each for each in tmp_path.rglob("*") if not each.is_relative_to(place)}
    assert {each.name for each in after - before} <= {"db"}
    assert path in [each.file for each in verify(LocalStorage(place)).problems]


@pytest.mark.parametrize("name", ["../1", "a/b", "..", "/abs"])
def test_names_of_stores_and_versions_lead_nowhere_else(name: str) -> None:
    files = without_checksums(golden_files("4.2/aggregate-format2"))
    stores = dict(files)
    stores["state/0/_metadata/metadata"] = files["state/0/_metadata/metadata"].replace(
        b'"storeName":"default"', b'"storeName":"%b"' % name.encode()
    )
    ids = dict(files)
    newest = cut(MemoryStorage(files)).batch_id
    commit = f"commits/{newest}"
    first = files[commit].split(b'[["')[1].split(b'"')[0]
    ids[commit] = files[commit].replace(first, name.encode())
    for changed, path in ((stores, "state/0/_metadata/metadata"), (ids, commit)):
        assert changed != files
        assert path in [each.file for each in verify(MemoryStorage(changed)).problems]
        with pytest.raises(Corrupt) as error:
            cut(MemoryStorage(changed))
        assert error.value.where is not None
        assert path in error.value.where


@pytest.mark.parametrize("name", [ROCKSDB, "4.2/session-rocksdb", "3.5/aggregate-rocksdb"])
def test_rocksdb_is_opened_on_nothing_that_kills_it(name: str, tmp_path: Path) -> None:
    """In a process of its own, since what kills RocksDB would kill the test."""
    support = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name, SEED, str(INPUTS // 5)],
        env={**os.environ, "PYTHONPATH": support, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert done.returncode == 0, (SEED, done.returncode, done.stdout, done.stderr[-3000:])
