"""What a TAB offers: by parameter, from the files at hand, quietly, and without touching anything."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main
from command import Holdfast

from golden import NAMES, golden_on_disk
from holdfast import savepoints
from holdfast.cli import app, candidates
from holdfast.cli.completion import SCRIPTS, Shell
from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
from holdfast.jobs.state_home import StateHome
from holdfast.model import JobState, QueryStarted

pytestmark = pytest.mark.slow

NAME = next(name for name in NAMES if "aggregate-format2" in name)
JOINED = next(name for name in NAMES if "join-format2" in name)
# The words that a TAB offers; a trailing slash stands for the shell's own directories, `FILES` for all files.
Tab = Callable[..., list[str]]


@pytest.fixture
def tab(holdfast: Holdfast) -> Tab:
    """What is offered for a line that is typed up to its end."""

    def call(line: str, shell: str = "fish", **variables: str) -> list[str]:
        asked = {"_HOLDFAST_COMPLETE": shell, "COMP_LINE": f"holdfast {line}", **variables}
        said = holdfast(environ=asked)
        assert (said.returncode, said.stderr) == (0, "")
        offered = []
        for text in said.stdout.splitlines():
            kind, value, _ = text.split("\t")
            offered.append({"plain": value, "dir": "/", "file": "FILES"}[kind])
        return offered

    return call


@pytest.fixture
def shop(home: Path, tmp_path: Path) -> Path:
    """Two jobs, their checkpoints, and a directory of savepoints."""
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    home.mkdir()
    registry = Registry(StateHome(home).registry)
    for name, place in (("shop", f"file://{checkpoint}"), ("sums", "s3a://bucket/sums")):
        record = JobRecord(
            name, job_id(name), "job.py", place, "retain", JobState.RUNNING, None, 0, 0, None, 1
        )
        registry.start_job(record)
        number = registry.start_attempt(name, 1, 0, recovers=False)
        registry.queries_started(name, number, [QueryStarted("q", "id", "run", place, "none")], 0)
    savepoints.take(checkpoint, tmp_path / "sp", label="first")
    savepoints.take(checkpoint, tmp_path / "sp", batch=9, label="before the move")
    for _ in range(2):
        savepoints.take(checkpoint, tmp_path / "sp", batch=8, label="twice")
    savepoints.take(checkpoint, tmp_path / "sp", batch=7, label="12")
    return tmp_path


def short_ids(folder: Path) -> list[str]:
    """The ids of a catalog, newest first: to the second, or as much more as tells them apart."""
    ids = [listed.savepoint_id for listed in reversed(savepoints.list(folder))]
    length = next(length for length in range(15, 40) if len({one[:length] for one in ids}) == len(ids))
    return [one[:length] for one in ids]


def test_verbs(tab: Tab) -> None:
    assert tab("resc") == ["rescale"]
    assert {"run", "state", "savepoint", "completion"} <= set(tab(""))
    assert tab("savepoint l") == ["list", "label"]
    assert tab("nothing like this") == []


def test_options(tab: Tab) -> None:
    assert tab("state get ck --op") == ["--operator"]
    assert {"--batch", "--home", "--json"} <= set(tab("state get ck --"))
    assert "--batch" not in tab("state get ck --batch 3 --b")
    assert tab("rescale ck --t") == []  # a former spelling is not offered
    assert tab("state erase sp --every") == []


def test_releases_of_spark(tab: Tab) -> None:
    assert tab("check sp/one --spark 4.") == ["4.0", "4.1", "4.2", "4.3"]


@pytest.mark.usefixtures("shop")
def test_jobs(tab: Tab) -> None:
    assert set(tab("status ")) == {"shop", "sums"}
    assert tab("stop sh") == ["shop"]
    assert set(tab("alerts list s")) == {"shop", "sums"}
    assert set(tab("checkpoint show s")) == {"shop", "sums", "/"}
    assert set(tab("savepoint list ")) == {"shop", "sums", "/"}
    assert tab("status ./") == []
    assert tab("status --home elsewhere ") == []
    assert tab("status --home=home sh") == ["shop"]


def test_savepoints(tab: Tab, shop: Path) -> None:
    ids = short_ids(shop / "sp")
    assert tab("restore ") == tab("restore s") == ["/"]
    assert tab("restore sp/") == [f"sp/{name}" for name in ids]
    assert tab(f"restore sp/{ids[0][:8]}") == [f"sp/{name}" for name in ids]
    assert tab(f"fork ./sp/{ids[2]}") == [f"./sp/{ids[2]}"]
    assert tab(f"savepoint show {shop}/sp/savepoints/2")[0] == f"{shop}/sp/savepoints/{ids[0]}"
    [whole] = [
        one.savepoint_id for one in savepoints.list(shop / "sp") if one.savepoint_id.startswith(ids[1])
    ]
    assert tab(f"savepoint delete sp/{whole[:30]}") == [f"sp/{whole}"]
    assert tab("restore sp/x") == ["/"]
    assert tab("state get sp/")[0] == f"sp/{ids[0]}"
    assert tab("run job.py -s sp/")[0] == f"sp/{ids[0]}"
    assert tab("run job.py -s q=sp/")[0] == f"q=sp/{ids[0]}"
    assert tab("check job.py --against sp/")[0] == f"sp/{ids[0]}"
    assert tab("savepoint diff sp/x sp/")[0] == f"sp/{ids[0]}"


def test_labels(tab: Tab, shop: Path) -> None:
    # One that several savepoints have names none, and neither do digits.
    assert set(tab("restore sp@")) == {"sp@first", "sp@before the move"}
    assert tab("restore sp@f") == ["sp@first"]
    assert tab("state get ./sp@b") == ["./sp@before the move"]
    assert tab("run job.py -s q=sp@f") == ["q=sp@first"]
    assert tab("restore sp@before\\ t") == tab('restore "sp@before t') == ["sp@before the move"]
    savepoints.label(f"{shop}/sp@first", "second")
    assert tab("restore sp@s") == ["sp@second"]
    assert tab("restore nowhere@") == ["/"]


@pytest.mark.usefixtures("shop")
def test_batches(tab: Tab) -> None:
    kept = ["11", "10", "9", "8", "7", "6", "5"]
    assert tab("state get ck --batch ") == kept
    assert tab("state scan shop --batch=1") == ["--batch=11", "--batch=10"]
    assert tab("state get ck@") == [f"ck@{batch}" for batch in kept]
    assert tab("state get shop@1") == ["shop@11", "shop@10"]
    assert tab("savepoint diff ck@9 ck@1") == ["ck@11", "ck@10"]
    # These take no batch in the checkpoint's name.
    assert tab("rescale ck@") == tab("savepoint take ck@") == tab("watch ck@") == ["/"]


def test_states(tab: Tab, shop: Path) -> None:
    for place in ("ck", "./ck", "shop", "ck@9", "sp@first", f"sp/{short_ids(shop / 'sp')[0]}"):
        assert tab(f"state get {place} ") == ["aggregate"], place
    assert tab("ttl ck --state a") == ["aggregate"]
    assert tab("state get --operator 0 ck ") == ["aggregate"]
    assert tab("state get --operator nope ck ") == []
    assert tab("state scan ck --operator ") == ["aggregate"]
    golden_on_disk(JOINED, shop / "joined")
    assert tab("state get joined ") == ["left", "right"]
    assert tab("state get joined r") == ["right"]
    assert tab("state get nowhere ") == tab("state get sums ") == []


def test_choices(tab: Tab) -> None:
    assert tab("completion ") == ["bash", "zsh", "fish"]
    assert tab("run job.py --on-damage ") == ["batch", "savepoint"]
    assert tab("run job.py --on-damage=s") == ["--on-damage=savepoint"]
    assert tab("state migrate ck --backend r") == ["rocksdb", "redis"]
    assert tab("state migrate ck --backend c") == ["cassandra"]
    assert tab("state migrate ck --state-format ") == ["1", "2"]
    assert tab("demo c") == ["coffee-shop"]


def test_directories_and_files_are_left_to_the_shell(tab: Tab) -> None:
    assert tab("restore sp/x ") == tab("list --home ") == tab("tour ") == ["/"]
    assert tab("run ") == tab("doctor --job ") == tab("run job.py --token-file ") == ["FILES"]
    assert tab("state bootstrap job.py --from ") == ["FILES"]
    assert tab("state get ck aggregate ") == tab("savepoint take ck sp --label ") == []


def test_bash_gets_the_part_that_it_replaces(tab: Tab, shop: Path) -> None:
    """It breaks words at `@`, `=` and `:`, and puts in what is no file as it stands."""
    assert tab("restore sp@f", "bash", COMP_WORD="@f") == ["@first"]
    assert tab("restore sp@f", "bash", COMP_WORD="f") == ["first"]
    assert tab("run job.py --on-damage=s", "bash", COMP_WORD="s") == ["savepoint"]
    assert tab("run job.py --on-damage=", "bash", COMP_WORD="") == ["batch", "savepoint"]
    assert tab(f"restore file://{shop}/sp@f", "bash", COMP_WORD="@f") == ["@first"]
    assert tab("sta", "bash", COMP_WORD="sta") == ["status", "state"]
    (shop / "my dir").mkdir()
    savepoints.take(shop / "ck", shop / "my dir" / "sp", label="v1")
    assert tab("restore my\\ dir/sp@", "bash", COMP_WORD="@") == ["@v1"]
    assert tab('restore "my dir/sp@', "bash", COMP_WORD="my dir/sp@") == ["my dir/sp@v1"]


def test_every_parameter_is_known() -> None:
    """What help shows of a parameter is what may be typed there: files, choices, or what nobody can know."""
    unknown = set()
    for verb in verbs(typer.main.get_command(app)):
        for parameter in verb.params:
            for kind in candidates.kinds(parameter.metavar) if parameter.metavar else ():
                if (
                    kind not in candidates.KINDS
                    and kind not in candidates.FREE
                    and not re.fullmatch("[a-z0-9-]+", kind)
                ):
                    unknown.add((verb.name, kind))
    assert unknown == set()


def verbs(command: Any) -> list[Any]:
    inner = getattr(command, "commands", {})
    return [verb for one in inner.values() for verb in verbs(one)] if inner else [command]


def contents(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


LINES = (
    "status ",
    "checkpoint show ",
    "restore sp/",
    "restore sp@",
    "state get shop ",
    "state get ck ",
    "state get ck@",
    "state get ck --batch ",
    "state get sp@first ",
)


def test_nothing_is_written(tab: Tab, shop: Path, home: Path) -> None:
    (home / "registry.db").chmod(0o640)
    before = contents(shop)
    for line in LINES:
        assert tab(line)
    assert contents(shop) == before
    for path in home.iterdir():
        path.unlink()
    home.rmdir()
    assert tab("status ") == []
    assert not home.exists()


def broken_registry(folder: Path) -> None:
    (folder / "home" / "registry.db").write_bytes(b"no database at all" * 100)


def former_registry(folder: Path) -> None:
    with sqlite3.connect(folder / "home" / "registry.db") as db:
        db.execute("PRAGMA user_version = 1")


def locked_registry(folder: Path) -> None:
    """Somebody writes, and does not come to an end."""
    db = sqlite3.connect(folder / "home" / "registry.db", isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    HELD.append(db)


HELD: list[sqlite3.Connection] = []


def broken_manifests(folder: Path) -> None:
    for manifest in (folder / "sp" / "savepoints").glob("*/manifest.json"):
        manifest.write_bytes(b"{")


def broken_checkpoint(folder: Path) -> None:
    for file in (folder / "ck").rglob("*"):
        if file.is_file():
            file.write_bytes(b"\xff\x00")


def files_in_place_of_directories(folder: Path) -> None:
    for name in ("ck", "sp", "home"):
        (folder / name).rename(folder / f"{name}-away")
        (folder / name).write_text("a file")


def broken_settings(folder: Path) -> None:
    (folder / "holdfast.toml").write_text("= nonsense")


@pytest.mark.parametrize(
    "damage",
    [
        broken_registry,
        former_registry,
        locked_registry,
        broken_manifests,
        broken_checkpoint,
        files_in_place_of_directories,
        broken_settings,
    ],
)
def test_what_is_broken_has_no_candidates_and_says_nothing(
    tab: Tab, shop: Path, damage: Callable[[Path], None]
) -> None:
    damage(shop)
    before = contents(shop)
    try:
        for line in LINES:  # the fixture sees that nothing is said
            tab(line)
        if "registry" in damage.__name__:
            assert tab("status ") == tab("state get shop ") == []
            assert tab("restore sp@f") == ["sp@first"]
        assert tab("checkpoint ver") == ["verify"]
        assert contents(shop) == before
    finally:
        while HELD:
            HELD.pop().close()


@pytest.mark.parametrize(
    "line", ["", "'", '"', "\\", "a\\ 'b", "--", "-", "--=", "state get --batch=", "@", "/", "sp@ -"]
)
def test_no_line_is_an_error(tab: Tab, line: str) -> None:
    tab(line)


@pytest.mark.parametrize(
    "variables",
    [
        {"_HOLDFAST_COMPLETE": ""},
        {"_HOLDFAST_COMPLETE": "powershell", "COMP_LINE": "holdfast sta"},
        {"_HOLDFAST_COMPLETE": "bash"},
        {"_HOLDFAST_COMPLETE": "bash", "COMP_LINE": "", "COMP_WORD": "x"},
    ],
)
def test_variables_that_no_script_sets_are_no_error(holdfast: Holdfast, variables: dict[str, str]) -> None:
    said = holdfast(environ=variables)
    assert (said.returncode, said.stderr) == (0, "")


def test_no_other_machine_is_asked(tab: Tab, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.storage import remote

    monkeypatch.setattr(remote, "RemoteStorage", pytest.fail)
    for line in (
        "restore s3a://bucket/sp/",
        "restore s3a://bucket/sp@",
        "state get s3a://bucket/ck ",
        "state get s3a://bucket/ck@",
        "state get sums ",
        "state get sums@",
        "state get s3a://bucket/sp@label ",
        "state get s3a://bucket/ck --batch ",
    ):
        assert [word for word in tab(line) if word != "/"] == [], line


_LOADED = """
import json, sys
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in (
    "subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system", "socket.connect") else None)
from holdfast.cli import main
try:
    main()
finally:
    names = ("pyspark", "py4j", "pandas", "pyarrow", "duckdb", "fastapi")
    heavy = [name for name in names if name in sys.modules]
    print("LOADED", started, heavy, file=sys.stderr)
"""


@pytest.mark.parametrize("line", ["sta", "status ", "restore sp@", "state get ck ", "state get ck --batch "])
def test_a_tab_starts_nothing_and_loads_nothing_heavy(shop: Path, home: Path, line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED],
        cwd=shop,
        env={
            **os.environ,
            "HOLDFAST_HOME": str(home),
            "_HOLDFAST_COMPLETE": "fish",
            "COMP_LINE": f"holdfast {line}",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("plain\t")
    assert done.stderr == "LOADED [] []\n"


@pytest.mark.parametrize("shell", list(Shell))
def test_the_script_is_printed(holdfast: Holdfast, shell: Shell) -> None:
    said = holdfast("completion", shell.value)
    assert (said.returncode, said.stdout, said.stderr) == (0, SCRIPTS[shell], "")
    assert f"_HOLDFAST_COMPLETE={shell.value}" in said.stdout


def test_another_shell_has_none(holdfast: Holdfast) -> None:
    said = holdfast("completion", "tcsh")
    assert said.returncode == 2
    assert "'bash', 'zsh', 'fish'" in said.stderr


def test_version_is_not_printed_into_a_line(tab: Tab) -> None:
    assert "status" in tab("--version sta")
