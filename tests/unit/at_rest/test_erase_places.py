"""What an erasure says of places: of those that are none, of a key that is nowhere, of all other places."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from mended import leaks
from typer.testing import CliRunner, Result

import holdfast
import holdfast as hf
from golden import KEYED, golden_on_disk
from holdfast import savepoints
from holdfast.at_rest.keyed_reader import keyed_states
from holdfast.changes.erase.certificate import SearchReport
from holdfast.changes.erase.key_places import KEY_PLACES, Root, Treatment, WordSearch, place_at
from holdfast.changes.erase.keyed_erasing import unsearched_keyed
from holdfast.changes.erase.searching import subject, unsearched
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.record import Recorder, RecordFile, record_path
from holdfast.cli import app
from holdfast.errors import Corrupt, Invalid, NotFound
from holdfast.formats.rows.spark_types import Array, Atom, Struct
from holdfast.jobs.registry.operation_log import Operations, Verify
from holdfast.jobs.registry.registry import JobRecord, Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.model import JobState
from holdfast.observe.alerting import AlertStore
from holdfast.ownership.checkpoint_lock import lock_path
from holdfast.savepoints import catalog
from holdfast.savepoints import catalog as catalogs
from holdfast.savepoints.catalog import object_path
from holdfast.storage.local import LocalStorage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("guards_wait_no_time")]

NAME = "4.2/aggregate-changelog"
C3 = "c3\0\0\0\0\0\0"


@pytest.fixture
def saved(tmp_path: Path) -> str:
    golden_on_disk(NAME, tmp_path / "ck")
    return savepoints.take(tmp_path / "ck", tmp_path / "sp").uri


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["state", "erase", *words])


def content(folder: Path) -> dict[str, bytes]:
    """Every file but the locks, which stay empty beside what they are of."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and not file.name.endswith(".lock")
    }


def test_a_directory_that_is_no_catalog_is_an_error_and_makes_nothing(saved: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    before = content(tmp_path), sorted(each.name for each in tmp_path.iterdir())
    for place, code, said in (
        ("nothing/here", 3, "the savepoint catalog does not exist"),
        ("empty", 2, "an empty directory"),
        ("ck", 2, "--checkpoint"),
        ("sp/savepoints", 2, "name the directory above it"),
        (saved.removeprefix(f"file://{tmp_path}/"), 2, "a savepoint"),
    ):
        for more in (["--dry-run"], ["-y", "--certificate", str(tmp_path / "c.json")]):
            found = run(str(tmp_path / place), "c3", *more)
            assert (found.exit_code, said in found.stderr) == (code, True), (place, found.stderr)
    with pytest.raises(NotFound, match="the savepoint catalog does not exist"):
        hf.erase("c3", everywhere=tmp_path / "nothing", checkpoint=tmp_path / "ck")
    with pytest.raises(Invalid, match="not a savepoint catalog"):
        hf.plan_erase("c3", everywhere=tmp_path / "ck")
    assert (content(tmp_path), sorted(each.name for each in tmp_path.iterdir())) == before


def test_a_key_that_is_nowhere_is_certified_as_not_found(saved: str, tmp_path: Path) -> None:
    before = content(tmp_path)
    catalog, more = str(tmp_path / "sp"), ("--checkpoint", str(tmp_path / "ck"))
    looked = run(catalog, "nobody", *more, "--dry-run", "--json")
    assert (looked.exit_code, json.loads(looked.stdout)["outcome"]) == (3, "not found")
    made = run(catalog, "nobody", *more, "--confirm-stopped", "-y", "--certificate", str(tmp_path / "c.json"))
    assert made.exit_code == 3
    assert "key not found; nothing was erased" in made.stdout
    assert f"not found in {saved}" in made.stdout
    assert f"not found in file://{tmp_path}/ck" in made.stdout
    assert "erased by" not in made.stdout
    written = json.loads((tmp_path / "c.json").read_bytes())["certificate"]
    assert (written["outcome"], written["rows"], written["rewritten"]) == ("not found", 0, [])
    after = content(tmp_path)
    del after["c.json"]
    assert after == before


def test_a_key_that_was_erased_before_is_told_as_that(saved: str, tmp_path: Path) -> None:
    words = (str(tmp_path / "sp"), "c3", "-y")
    assert run(*words, "--reason", "c3 has asked").exit_code == 0
    again = run(*words)
    assert again.exit_code == 0
    assert f"not found in {saved}" in again.stdout
    assert "its manifest records an erasure of this key" in again.stdout
    # A reason that names the key is not kept with it.
    assert leaks(tmp_path / "sp", "c3 has") == []


@pytest.mark.parametrize("name", ["4.2/aggregate-changelog", "4.2/join-format2"])
def test_a_rehearsal_lists_what_a_real_run_touches(name: str, tmp_path: Path) -> None:
    checkpoint = golden_on_disk(name, tmp_path / "ck")
    savepoints.take(checkpoint, tmp_path / "sp")
    before = content(tmp_path)
    batches = Logs(LocalStorage(checkpoint)).committed
    plan = hf.plan_erase("c3", everywhere=tmp_path / "sp", checkpoint=checkpoint)
    assert content(tmp_path) == before
    first = plan.searched[0]
    assert (first.place, first.given_up > 0) == (f"file://{checkpoint}", True)
    done = hf.erase("c3", everywhere=tmp_path / "sp", checkpoint=checkpoint, stopped=True)
    assert [(each.place, each.rows, each.traces, each.given_up, each.strays) for each in plan.searched] == [
        (each.place, each.rows, each.traces, each.given_up, each.strays) for each in done.searched
    ]
    assert Logs(LocalStorage(checkpoint)).committed == batches[-2:]
    assert leaks(checkpoint, C3) == []


def test_a_file_of_no_batch_that_may_have_the_key_counts(tmp_path: Path) -> None:
    from holdfast.formats.files.compression import compressed

    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    savepoints.take(checkpoint, tmp_path / "sp")
    stray = checkpoint / "state/0/0/999.delta"
    stray.write_bytes(compressed(b"\0\0\0\x10" + b"zz7\0\0\0\0\0" * 2, "lz4"))
    found = hf.erase("zz7", everywhere=tmp_path / "sp", checkpoint=checkpoint, stopped=True)
    assert (found.outcome, found.searched[0].traces) == ("erased", 1)
    assert not stray.exists()


def test_an_empty_file_of_a_killed_task_holds_no_key(tmp_path: Path) -> None:
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    savepoints.take(checkpoint, tmp_path / "sp")
    left = checkpoint / "state/0/0/.2_6b47092a.changelog.db98ee03.tmp"
    left.write_bytes(b"")
    before = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    found = hf.erase("nobody", everywhere=tmp_path / "sp", checkpoint=checkpoint, stopped=True)
    assert (found.outcome, found.searched[0].traces, found.searched[0].given_up) == ("not found", 0, 0)
    assert {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("dry", [True, False])
def test_a_rehearsal_refuses_what_a_real_run_refuses(dry: bool, saved: str, tmp_path: Path) -> None:
    more = ["--dry-run"] if dry else ["--confirm-stopped", "-y"]
    places = [str(tmp_path / "sp"), "c3", "--checkpoint", str(tmp_path / "ck")]
    (tmp_path / "there.json").write_text("{}")
    for words, code, said in (
        (["--certificate", str(tmp_path / "there.json")], 4, "exists"),
        (["--certificate", str(tmp_path / "no" / "c.json")], 3, "does not exist"),
    ):
        found = run(*places, *words, *more)
        assert (found.exit_code, said in found.stderr) == (code, True), found.stderr
    note = tmp_path / "sp" / "takes" / "x.json"
    note.parent.mkdir(exist_ok=True)
    beat = hf.savepoints.show(saved).created_ms + 1_000_000_000_000
    note.write_text(json.dumps({"token": "x", "beat_ms": beat, "owner": "another"}))
    found = run(*places, *more)
    assert (found.exit_code, "being taken" in found.stderr) == (4, True), found.stderr
    note.unlink()
    lock = lock_path(f"file://{tmp_path}/ck", tmp_path)
    script = (
        f"import fcntl,os,sys; d=os.open({str(lock)!r}, os.O_RDWR|os.O_CREAT); fcntl.lockf(d, fcntl.LOCK_EX);"
        " print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        found = run(*places, *more)
        assert (found.exit_code, "in use" in found.stderr) == (4, True), found.stderr
        holder.communicate("")
    newest = Logs(LocalStorage(tmp_path / "ck")).committed[-1]
    (tmp_path / f"ck/commits/{newest}").unlink()
    (tmp_path / f"ck/commits/.{newest}.crc").unlink()
    found = run(*places, *more)
    assert (found.exit_code, "the checkpoint has an uncommitted batch" in found.stderr) == (4, True), (
        found.stderr
    )
    assert leaks(tmp_path / "ck", C3)
    assert leaks(tmp_path / "sp", C3)


def test_bytes_that_are_not_those_of_the_manifest_are_not_certified(saved: str, tmp_path: Path) -> None:
    catalog = LocalStorage(tmp_path / "sp")
    file = next(each for each in hf.savepoints.show(saved).files if each.path.endswith(".zip"))
    other = next(
        each
        for each in hf.savepoints.show(saved).files
        if each.path.endswith(".zip") and each.sha256 != file.sha256
    )
    catalog.write(object_path(file.sha256), catalog.read(object_path(other.sha256)), replace=True)
    for act in (hf.plan_erase, hf.erase):
        with pytest.raises(Corrupt, match="cannot be searched"):
            act("nobody", everywhere=tmp_path / "sp")


def test_holdfasts_other_places_are_searched_and_told(saved: str, tmp_path: Path, home: Path) -> None:
    key = "customer-bøb"
    place = StateHome(home)
    log = place.start_log("shop", 1)
    log.write_text(f"no such customer: {key}\n", encoding="utf-8")
    place.start_log("shop", 2).write_text("all is well\n")
    job = JobRecord("shop", "1", "x.py", "ck", "retain", JobState.FAILED, f"died of {key}", 1, 1, 1, 1)
    Registry(place.registry).start_job(job)
    Operations(place).ask("0" * 32, "verify", "shop", Verify(f"sp/… {key}"), 1)
    drill = catalog.Drill(1, saved, "q", 1, f"for {key}", False, {}, None)
    catalog.note(LocalStorage(tmp_path / "sp"), drill, b"1234")
    (home / "notes.txt").write_text("unlike it: customer-bø")
    (home / "savepoints").mkdir()
    made = hf.erase(key, everywhere=tmp_path / "sp")
    found = {each.name: each for each in made.left_in}
    assert set(found) == {"logs of drivers and rescales", "registry", "operations", "drills"}
    assert [Path(each).name for each in found["logs of drivers and rescales"].found] == ["driver-1.log"]
    assert log.exists()
    unsearched = {(each.name, each.where) for each in made.elsewhere if not each.searched}
    assert {
        ("checkpoint", f"file://{tmp_path}/ck"),
        ("savepoints of the state home", f"{home}/savepoints"),
        ("ledger", "address unknown"),
    } <= unsearched
    assert made.outcome == "not found"
    text = "\n".join(made.lines())
    assert "FOUND, not erased: registry" in text
    assert "NOT searched: ledger" in text
    # Nothing of it is in the certificate, not even as part of a path.
    assert key not in made.render().decode() + json.dumps(made.as_dict()) + text


def test_logs_and_notes_of_savepoints_are_searched(tmp_path: Path) -> None:
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    (checkpoint / "_holdfast").mkdir(exist_ok=True)
    (checkpoint / "_holdfast" / "split-x.json").write_text('{"plan": "Filter customer = \'nobody\'"}')
    savepoints.take(checkpoint, tmp_path / "sp")
    made = hf.erase("nobody", everywhere=tmp_path / "sp")
    (notes,) = made.left_in
    assert notes.name == "logs and notes of savepoints"
    assert [each.rpartition(": ")[2] for each in notes.found] == ["_holdfast/split-x.json"]


def test_columns_that_cannot_be_searched_are_named(tmp_path: Path) -> None:
    (keyed,) = keyed_states(LocalStorage(golden_on_disk(KEYED[0], tmp_path / "ck")))
    state, column = keyed.operator.states[0].name, keyed.operator.keys.names[0]
    assert unsearched_keyed(keyed, subject("c3")) == []
    assert unsearched_keyed(keyed, subject("c3", column)) == []
    assert unsearched_keyed(keyed, subject("c3", state)) == [state]
    # A list of a join's rows, or of what was collected, is not taken apart.
    tags = Array(Struct(("tag", "who"), (Atom("string"), Atom("string"))))
    codec = SimpleNamespace(
        key_type=Struct(("id", "ids"), (Atom("long"), Array(Atom("long")))),
        value_type=Struct(("who", "tags"), (Atom("string"), tags)),
    )
    assert unsearched(codec, subject("7")) == ("ids",)  # type: ignore[arg-type]
    assert unsearched(codec, subject("7", "who")) == ("tags",)  # type: ignore[arg-type]
    assert unsearched(codec, subject("7", "id")) == ()  # type: ignore[arg-type]


# The table


def test_what_holdfast_writes_into_a_state_home_has_a_row(tmp_path: Path, home: Path) -> None:
    place = StateHome(home)
    place.start_log("shop", 1).write_text("")
    job = JobRecord("shop", "1", "x.py", "ck", "retain", JobState.FAILED, None, 1, 1, 1, 1)
    Registry(place.registry).start_job(job)
    Operations(place).ask("0" * 32, "verify", "shop", Verify("sp/1"), 1)
    AlertStore(home).save("shop", 1, samples=(), totals={}, standing={})
    checkpoint = LocalStorage(golden_on_disk(NAME, tmp_path / "ck"))
    Recorder(checkpoint, RecordFile(record_path(home, checkpoint.uri))).look()
    lock = SupervisorLock(place, "shop")
    assert lock.take()
    written = [path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()]
    lock.release()
    assert len(written) > 5
    rows = {path: place_at(Root.HOME, path) for path in written}
    assert all(row is not None for row in rows.values())
    assert [path for path, row in rows.items() if row and row.name == "other files of the state home"] == []


def test_no_path_of_a_state_home_or_catalog_is_without_a_row() -> None:
    """Whatever the code joins to a state home, or calls a part of a catalog, is in the table."""
    root = Path(holdfast.__file__).parent
    joined = re.compile(r"(?:home(?:\.path)?|self\.path)\s*/\s*(?:\"([^\"]+)\"|([A-Z_]{3,}))")
    parts = set()
    for file in root.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        # These look into the homes of Java and Spark.
        if "home" not in text.lower() or file.name in (
            "installed_spark.py",
            "jars.py",
            "java.py",
            "session.py",
        ):
            continue
        constants = {
            target.id: node.value.value
            for node in ast.walk(ast.parse(text))
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Constant)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name) and isinstance(node.value.value, str)
        }
        for literal, constant in joined.findall(text):
            part = literal or constants.get(constant)
            if part is not None:
                parts.add(part)
    assert {"registry.db", "operations.db", "watching.db", "records", "leases", "jobs", "locks"} <= parts
    for part in parts:
        rows = [place_at(Root.HOME, path) for path in (part, f"{part}/x", f"{part}/x.log")]
        assert any(row and row.name != "other files of the state home" for row in rows), part
    # Files of a savepoint's own directory, and what is said of digests.
    elsewhere = {"MANIFEST", "CONTENT", "RECORDED", "PENDING"}
    folders = [
        value
        for name, value in {**vars(catalogs), **vars(catalog)}.items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str) and name not in elsewhere
    ]
    assert {"objects", "savepoints", "takes", "staging", "sweep.json", "drills"} <= set(folders)
    assert all(place_at(Root.CATALOG, each) or place_at(Root.CATALOG, f"{each}/x") for each in folders)


def test_every_place_outside_is_named_in_every_certificate(saved: str, tmp_path: Path) -> None:
    made = hf.erase("nobody", everywhere=tmp_path / "sp")
    outside = {each.name for each in KEY_PLACES if each.root is Root.OUTSIDE}
    assert outside <= {each.name for each in made.elsewhere if not each.searched}
    assert all(each.treatment is Treatment.NOT_SEARCHED for each in KEY_PLACES if each.root is Root.OUTSIDE)


def test_a_rehearsal_says_what_it_does_not_search(saved: str, tmp_path: Path) -> None:
    found = run(str(tmp_path / "sp"), "nobody", "--dry-run")
    assert found.exit_code == 3, found.stderr
    said = [line for line in found.stdout.splitlines() if line.startswith("NOT searched: ")]
    outside = [each for each in KEY_PLACES if each.root is Root.OUTSIDE]
    assert outside
    for place in outside:
        assert any(line.startswith(f"NOT searched: {place.name}, ") for line in said), place.name


def test_a_column_that_cannot_be_searched_is_said() -> None:
    place = SearchReport(
        "file:///sp/savepoints/1", 12, (), 0, 0, "before", None, unsearched=("visits", "tags")
    )
    for planned in (True, False):
        assert place.words(planned=planned) == (
            "not found in file:///sp/savepoints/1, 12 files of state; NOT searched: visits, tags"
        )


# The search for text


@pytest.mark.parametrize(
    ("key", "text", "there"),
    [
        ("bob-7", b"xbob-7y", True),
        ("7", b"17 and 70", False),
        ("7", b"is 7.", True),
        ("bo", rb'{"failure": "one\nbo left"}', True),
        ("bo", b"elbow", False),
        ("jürg-1", json.dumps("an jürg-1").encode(), True),
        ("jürg-1", "an jürg-1".encode(), True),
    ],
)
def test_text_is_found_as_logs_and_json_have_it(key: str, text: bytes, there: bool) -> None:
    assert WordSearch(subject(key)).is_in(text) is there


def test_text_across_the_pieces_of_a_large_file_and_pages_of_a_database_is_found(tmp_path: Path) -> None:
    search = WordSearch(subject("customer-bob"))
    for at in ((1 << 20) - 6, (2 << 20) - 1, 3 << 20):
        file = tmp_path / f"{at}.log"
        file.write_bytes(b"." * at + b"customer-bob" + b"." * 100)
        assert search.is_in_file(file), at
    file.write_bytes(b"." * (3 << 20))
    assert not search.is_in_file(file)
    database = sqlite3.connect(tmp_path / "x.db")
    database.execute("CREATE TABLE t (body TEXT)")
    # Its pages have 4,096 bytes: a long value is torn apart somewhere, wherever it begins.
    database.executemany(
        "INSERT INTO t VALUES (?)",
        [("." * (4080 - shift) + "customer-bob" + "." * 9000,) for shift in range(12)],
    )
    database.commit()
    database.close()
    assert search.is_in_file(tmp_path / "x.db")
    # A reader makes no files beside a database.
    assert sorted(each.name for each in tmp_path.glob("x.db*")) == ["x.db"]


def test_a_catalog_without_savepoints_is_one_all_the_same(saved: str, tmp_path: Path) -> None:
    savepoints.delete(saved)
    made = hf.erase("c3", everywhere=tmp_path / "sp")
    assert (made.outcome, made.searched) == ("not found", ())
