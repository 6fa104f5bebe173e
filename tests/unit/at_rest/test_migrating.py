"""State moved from any backend to any other, from files alone; what cannot be, and what goes wrong."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from catalogs import Hands, catalog, file_query, target
from command import Holdfast

import holdfast as hf
from golden import KEYED, golden, golden_files, golden_on_disk, golden_with_confs
from holdfast.at_rest.keyed_operators import keyed_operators
from holdfast.changes.reshaping import Migrated, apply_migration, planned_migration
from holdfast.checkpoints.checkpoint import read, state_format
from holdfast.checkpoints.state.contents import contents
from holdfast.checkpoints.verification.verifying import verify
from holdfast.config.backend import Memory
from holdfast.errors import Conflict, HoldfastError, Invalid, NotFound, Unsupported
from holdfast.savepoints.access import ChangeSource
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage
from holdfast.testing.failing_storage import FaultyStorage, Killed

pytestmark = pytest.mark.slow

JOIN = "4.2/join-memory"


def do(
    source: ChangeSource,
    into: Storage,
    folder: Path,
    backend: str | None = None,
    partitions: int | None = None,
    state: int | None = None,
    key_groups: int | None = None,
) -> Migrated:
    plan = planned_migration(source, into, backend, partitions, state, key_groups)
    folder.mkdir(exist_ok=True)
    return apply_migration(source, into, plan, folder)


@pytest.mark.parametrize("name", [JOIN, "4.2/session-rocksdb", "4.3/state-format2"])
def test_everything_at_once(name: str, tmp_path: Path) -> None:
    old, new = golden(name), target()
    made = do(ChangeSource(old), new, tmp_path / "w", "rocksdb", 5, 2)
    assert old.files == golden_files(name)
    assert made.before == made.after == contents(old) == contents(new)
    assert made.rows > 0
    assert state_format(new) == 2
    assert verify(new).problems == ()
    found = read(new)
    assert {operator.partitions for operator in found.operators} == {5}
    assert (found.query_id, found.watermark_ms, found.sources) == (
        read(old).query_id,
        read(old).watermark_ms,
        read(old).sources,
    )
    # Only what the new batch needs is there: no file of another backend, none of an older batch.
    assert not [path for path in new.files if path.endswith((".delta", ".snapshot", ".changelog"))]
    assert made.size_bytes == found.size_bytes


def test_what_is_not_said_stays() -> None:
    for name, formats in ((JOIN, (1, 2)), ("4.2/aggregate-rocksdb", (1, 1)), ("4.2/join-format2", (2, 2))):
        plan = planned_migration(ChangeSource(golden(name)), target(), backend="rocksdb")
        assert (plan.before.state_format, plan.after.state_format) == formats
        assert plan.after.partitions == plan.before.partitions == 2
    plan = planned_migration(ChangeSource(golden("4.2/join-format2")), target(), backend="HashMap")
    assert (plan.after.rocksdb, plan.after.state_format) == (False, 1)
    assert planned_migration(ChangeSource(golden(JOIN)), target(), partitions=3).after.rocksdb is False


def test_a_savepoint(tmp_path: Path) -> None:
    into = catalog()
    taken = Hands().take(golden(JOIN), into)
    made = do(ChangeSource(into, taken.manifest.savepoint_id), target(), tmp_path / "w", "rocksdb")
    assert (made.plan.source, made.plan.original) == (taken.uri, golden(JOIN).uri)
    assert made.batch_id == taken.manifest.batch_id


@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("name", KEYED)
def test_key_groups(name: str, partitions: int | None, tmp_path: Path) -> None:
    old, new = golden(name), target()
    [before] = keyed_operators(old)
    made = do(ChangeSource(old), new, tmp_path / "w", None, partitions, None, before.key_groups + 3)
    [after] = keyed_operators(new)
    assert after.key_groups == before.key_groups + 3
    assert made.plan.key_groups_before == {before.name: before.key_groups}
    [content] = made.keyed
    assert content.keys > 0
    assert verify(new).problems == ()
    back = target()
    do(ChangeSource(new), back, tmp_path / "v", None, None, None, before.key_groups)
    from holdfast.at_rest.keyed_reader import keyed_contents

    assert keyed_contents(back) == keyed_contents(old) == made.keyed


@pytest.mark.parametrize(
    ("name", "wanted", "error", "fact"),
    [
        (JOIN, {"backend": "tikv"}, Unsupported, "cannot be moved to the backend 'tikv'"),
        (JOIN, {"backend": Memory()}, Unsupported, "cannot be moved to the backend"),
        (JOIN, {"backend": "redis"}, Invalid, "the address of the Redis database"),
        (JOIN, {"backend": "cassandra"}, Invalid, "the address of the Cassandra database"),
        (
            JOIN,
            {"backend": "memory", "state_format": 2},
            Invalid,
            "does not support the requested state-checkpoint",
        ),
        (
            JOIN,
            {"backend": "rocksdb", "state_format": 3},
            Invalid,
            "does not support the requested state-checkpoint",
        ),
        ("4.2/state-format2", {"backend": "memory"}, Unsupported, "needs RocksDB"),
        (KEYED[1], {"backend": "memory"}, Unsupported, "keyed state uses, needs RocksDB"),
        (JOIN, {"key_groups": 4}, Invalid, "so no key groups"),
    ],
)
def test_what_cannot_be(name: str, wanted: dict[str, object], error: type[HoldfastError], fact: str) -> None:
    with pytest.raises(error, match=fact):
        planned_migration(ChangeSource(golden(name)), target(), **wanted)  # type: ignore[arg-type]


def test_what_is_not_known_of_a_checkpoint_is_refused() -> None:
    strict = {"statefulOperator.useStrictDistribution": "false"}
    loose = golden_with_confs(JOIN, **strict)
    with pytest.raises(Unsupported, match="cannot be computed with the settings"):
        planned_migration(ChangeSource(loose), target(), partitions=3)
    assert planned_migration(ChangeSource(loose), target(), backend="rocksdb").after.rocksdb
    avro = golden_with_confs("4.2/aggregate-rocksdb", **{"stateStore.encodingFormat": "avro"})
    with pytest.raises(Unsupported, match="Avro"):
        planned_migration(ChangeSource(avro), target(), backend="memory")
    with pytest.raises(Unsupported, match="Avro"):
        planned_migration(ChangeSource(avro), target(), partitions=3)
    assert planned_migration(ChangeSource(avro), target(), state_format=2).after.state_format == 2
    foreign = golden_with_confs(JOIN, **{"stateStore.providerClass": "com.example.Provider"})
    with pytest.raises(Unsupported, match="unknown state store provider") as unknown:
        planned_migration(ChangeSource(foreign), target(), backend="rocksdb")
    assert unknown.value.found == "com.example.Provider"
    with pytest.raises(Invalid, match="no state to move"):
        planned_migration(ChangeSource(MemoryStorage(file_query(3))), target(), backend="rocksdb")
    with pytest.raises(NotFound, match="no checkpoint"):
        planned_migration(ChangeSource(MemoryStorage({})), target(), backend="rocksdb")


def test_the_target_has_to_be_free_and_the_source_at_rest(tmp_path: Path) -> None:
    taken = MemoryStorage({"notes.txt": b"mine"})
    with pytest.raises(Conflict):
        planned_migration(ChangeSource(golden(JOIN)), taken, backend="rocksdb")
    new = target()
    do(ChangeSource(golden(JOIN)), new, tmp_path / "w", "rocksdb")
    with pytest.raises(Conflict):
        planned_migration(ChangeSource(golden(JOIN)), new, backend="rocksdb")
    files = dict(golden_files(JOIN))
    newest = read(golden(JOIN)).batch_id or 0
    files[f"offsets/{newest + 1}"] = files[f"offsets/{newest}"]
    with pytest.raises(Conflict, match="the checkpoint has an uncommitted batch"):
        planned_migration(ChangeSource(MemoryStorage(files)), target(), backend="rocksdb")


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "failed"])
def test_old_or_new_whatever_step_fails(kill: bool, tmp_path: Path) -> None:
    """The target's storage fails at each step in turn; then a second try makes what the first would have."""
    old = golden("4.2/aggregate-memory")
    whole = target()
    do(ChangeSource(old), whole, tmp_path / "whole", "rocksdb")
    counting = FaultyStorage(target())
    do(ChangeSource(old), counting, tmp_path / "counted", "rocksdb")
    for at in range(1, counting.steps + 1, 9):
        into = target()
        failing = FaultyStorage(into, at, kill=kill, late=at % 2 == 0)
        with suppress(Killed, HoldfastError):
            do(ChangeSource(old), failing, tmp_path / f"try{at}", "rocksdb")
        assert old.files == golden_files("4.2/aggregate-memory")
        if "metadata" not in into.files:
            do(ChangeSource(old), into, tmp_path / f"again{at}", "rocksdb")
        assert verify(into).problems == ()
        assert contents(into) == contents(old)


def test_the_command(holdfast: Holdfast, holdfast_at_once: Holdfast, tmp_path: Path) -> None:
    golden_on_disk(JOIN, tmp_path / "ck")
    words = ("state", "migrate", "./ck", "--backend", "rocksdb", "--partitions", "3")
    planned = json.loads(holdfast(*words, "--dry-run", "--json").stdout)
    assert planned["dry_run"] is True
    assert (planned["backend_before"], planned["backend"]) == ("memory", "rocksdb")
    assert not (tmp_path / "ck-migrated").exists()
    unsaid = holdfast(*words)
    assert (unsaid.returncode, unsaid.stdout) == (4, "")
    assert "a query may still be using the checkpoint" in unsaid.stderr
    said = holdfast_at_once(*words, "--confirm-stopped")
    assert said.stdout.strip() == f"file://{tmp_path}/ck-migrated"
    assert "backend memory to rocksdb, partitions 2 to 3, format 1 to 2" in said.stderr
    made = json.loads(holdfast_at_once(*words, "./other", "--confirm-stopped", "--json").stdout)
    assert made["states"] == made["states_before"]
    assert made["rows"] == sum(each["rows"] for each in made["states"]) > 0
    refused = holdfast("state", "migrate", "./ck", "--backend", "tikv")
    assert refused.returncode == 7
    assert "rocksdb, memory (hashmap), redis or cassandra" in refused.stderr
    unsaid = holdfast("state", "migrate", "./ck")
    assert unsaid.returncode == 2
    assert "no change was requested" in unsaid.stderr


@pytest.mark.usefixtures("guards_wait_no_time")
def test_in_python(tmp_path: Path) -> None:
    ck = golden_on_disk(JOIN, tmp_path / "ck")
    assert hf.plan_migrate(ck, backend="rocksdb").checkpoint.endswith("/ck-migrated")
    made = hf.migrate(ck, tmp_path / "new", backend="rocksdb", stopped=True)
    assert made.checkpoint == f"file://{tmp_path}/new"
    assert sorted(each.name for each in tmp_path.iterdir()) == [".ck.holdfast.lock", "ck", "new"]
