"""The small checkpoints in which Spark is asked, made of real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from catalogs import Hands

from golden import golden, golden_on_disk
from holdfast import layout
from holdfast.checkpoints.state.states import shapes
from holdfast.errors import Corrupt, NotFound
from holdfast.formats.logs.batch_logs import parse_offsets
from holdfast.formats.logs.operator_metadata import parse_operator
from holdfast.layout import SharedSstFile, StoreFile
from holdfast.savepoints.dry_run_checkpoint import lay_out, lay_out_first, open_saved
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage


def test_a_sandbox_has_all_that_spark_plans_with_and_no_state(tmp_path: Path) -> None:
    saved = open_saved(str(golden_on_disk("4.2/state-format2", tmp_path / "checkpoint")))
    before = {path: path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()}
    sandbox = MemoryStorage(uri="memory://sandbox")
    lay_out(saved, sandbox)
    assert saved.batch_id == 11
    logs = sorted(path for path in sandbox.files if path.startswith(("offsets", "commits", "sources")))
    assert logs == ["commits/11", "offsets/11", "offsets/12"]
    places = [layout.parse(path) for path in sandbox.files]
    assert not [each for each in places if isinstance(each, (StoreFile, SharedSstFile))]
    offsets = parse_offsets(sandbox.files["offsets/12"], "offsets/12")
    assert dict(offsets.offsets) == {"0": None}
    assert offsets.confs == saved.found.confs
    assert shapes(sandbox, 11) == shapes(saved.storage, 11)
    # What Spark writes beside a schema must not land in the checkpoint that was looked at.
    (noted,) = [path for path in sandbox.files if "_metadata/v2" in path]
    for store in parse_operator(sandbox.files[noted], noted).stores:
        assert all(path.startswith("memory://sandbox/state/0/") for path in store.schema_paths)
    assert {path: path.read_bytes() for path in before} == before


def test_a_first_batch_has_the_new_sources_and_the_settings_of_old(tmp_path: Path) -> None:
    saved = open_saved(str(golden_on_disk("4.2/aggregate-memory", tmp_path / "checkpoint")))
    sandbox = MemoryStorage(uri="memory://sandbox")
    lay_out_first(saved, sandbox, ["0", "1", "2"])
    assert sorted(sandbox.files) == ["metadata", "offsets/0"]
    offsets = parse_offsets(sandbox.files["offsets/0"], "offsets/0")
    assert list(offsets.offsets) == ["0", "1", "2"]
    assert offsets.confs == saved.found.confs


def test_a_savepoint_is_opened_at_its_batch_and_proved(tmp_path: Path) -> None:
    hands = Hands()
    catalog = LocalStorage(tmp_path / "catalog")
    taken = hands.take(golden("4.2/aggregate-format2"), catalog, 10)
    saved = open_saved(taken.uri)
    assert (saved.batch_id, saved.uri, saved.note) == (10, taken.uri, None)
    assert saved.state_format == 2
    # Entry 10 of its log, which is the one that batch 10 took, names this file.
    assert [path.rpartition("/")[2] for path in saved.last_files("0")] == ["005.json"]
    (schema,) = [file for file in taken.manifest.files if file.path.endswith("_metadata/schema")]
    damaged = tmp_path / "catalog" / "objects" / schema.sha256[:1] / schema.sha256
    damaged.chmod(0o644)
    damaged.write_bytes(damaged.read_bytes().replace(b"string", b"strinG"))
    with pytest.raises(Corrupt, match="savepoint is damaged"):
        lay_out(saved, MemoryStorage(uri="memory://sandbox"))


def test_one_of_several_checkpoints_of_a_job(tmp_path: Path) -> None:
    golden_on_disk("4.2/aggregate-memory", tmp_path / "job" / "totals")
    assert open_saved(str(tmp_path / "job"), "totals").batch_id == 11
    assert open_saved(str(tmp_path / "job" / "totals"), "totals").batch_id == 11
    with pytest.raises(NotFound):
        open_saved(str(tmp_path / "job"))


def test_before_the_first_commit_there_is_nothing_to_keep(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"7d7a1b9e-9dda-47b2-8f49-4073fd4a7361"}')
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n-")
    with pytest.raises(NotFound, match="no committed batch"):
        open_saved(str(tmp_path))


def test_the_shapes_of_operators() -> None:
    join = shapes(golden("4.2/join-format2"), 12)
    assert [(each.label, each.variables) for each in join] == [("0 symmetricHashJoin", {})]
    assert [store.name for store in join[0].stores] == [
        "left-keyToNumValues",
        "left-keyWithIndexToValue",
        "right-keyToNumValues",
        "right-keyWithIndexToValue",
    ]
    assert all(len(store.families) == 1 for store in join[0].stores)
    (state,) = shapes(golden("4.2/state-format2"), 11)
    assert sorted(state.variables) == ["amounts", "count"]
    assert state.properties["timeMode"] == "NoTime"
    files = dict(golden("4.2/aggregate-memory").files)
    del files["state/0/0/_metadata/schema"]
    (bare,) = shapes(MemoryStorage(files, uri="memory://bare"), 11)
    assert [(store.name, store.families) for store in bare.stores] == [("default", ())]
