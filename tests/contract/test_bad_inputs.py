"""What a hurried person types: each is answered by one message and its exit code, and leaves nothing behind.

No traceback, no internal error, no file that was not there, none changed.
"""

from __future__ import annotations

import hashlib
import os
import random
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest
from cli_runner import cli_in
from command import PROGRAM, environment

from golden import golden_on_disk
from holdfast import savepoints

SEED: Final = os.environ.get("HOLDFAST_SEED", "bad inputs")
WRONG, MISSING, CONFLICT, FAILED, UNAVAILABLE, UNSUPPORTED = 2, 3, 4, 1, 5, 7

# A line is what is typed behind `holdfast`, with the exit codes that are right for it.
# CK is a checkpoint, SP a savepoint of it, CAT the directory of savepoints, FILE a file, JOB.py a job file.
CASES: Final = {
    MISSING: """
        checkpoint show nowhere
        checkpoint show CK/offsets
        checkpoint show CK/state/0
        checkpoint show FILE
        checkpoint history nowhere
        checkpoint verify nowhere
        doctor nowhere
        doctor CK nowhere
        checkpoint verify FILE
        savepoint take nowhere new
        savepoint take CK CAT --batch 77
        savepoint list nowhere
        savepoint list empty
        savepoint list FILE
        savepoint list CK
        savepoint verify CAT/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff
        savepoint show CAT/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff
        savepoint delete CAT/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff --yes
        savepoint diff SP nowhere
        restore CAT/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff new
        fork CAT/savepoints/20261124T015339.599Z-dc4ac6d3-b1-ffff new
        rescale nowhere --partitions 3 --to new
        state list nowhere
        state get nowhere aggregate c1
        state get CK nostate c1
        state get CK aggregate nobody
        state get CK '{nobody'
        state get CK aggregate '[1, 2]'
        state get CK nobody
        state get CK aggregate c1 --batch 77
        state get CK aggregate c1 --operator other
        state scan CK nostate
        state scan nowhere
        state explain CK aggregate nobody
        state diff SP nowhere
        state erase nobody --everywhere nowhere --yes
        state edit SP nostate --set count=1 --all --yes
        state migrate nowhere --backend rocksdb --to new
        ttl nowhere --what-if 1h
        skew nojob
        status nojob
        status ''
        stop nojob
        stop nojob --savepoint FILE
        cancel nojob
        watch nowhere
        check nofile.py --against CK
        check JOB.py --against nowhere
        check JOB.py:nope --against CK
        drill nowhere
        run nofile.py --no-rest
        demo tea-house
    """,
    CONFLICT: """
        savepoint take CK FILE
        savepoint take CK FILE/a/b
        savepoint take CK /dev/null
        restore SP CK
        restore SP FILE
        restore SP FILE/a
        fork SP CK
        fork SP FILE
        rescale CK --partitions 3 --to FILE --stopped
        rescale CK --partitions 3 --to CK --stopped
        state migrate CK --backend rocksdb --to CAT --stopped
    """,
    UNSUPPORTED: "state migrate CK --backend redis --to new",
    WRONG: """
        nonsense
        --nonsense
        checkpoint
        checkpoint nonsense
        checkpoint show
        checkpoint show CK CK
        checkpoint show ''
        checkpoint show CK --nonsense
        checkpoint show ftp://x/y
        checkpoint show http://127.0.0.1/x
        checkpoint history CK --last 0
        checkpoint history CK --last x
        savepoint
        savepoint take
        savepoint take CK CAT --batch -1
        savepoint take CK CAT --batch x
        savepoint take CK CAT --batch 1e3
        savepoint take CK CAT --label
        savepoint take CK ftp://x/y
        savepoint show CAT
        savepoint show SP/../x
        savepoint show CAT/savepoints/nope
        savepoint show ''
        savepoint verify FILE/x
        savepoint diff SP
        savepoint delete SP
        savepoint label SP
        savepoint gc CAT --older-than never
        savepoint gc CAT --older-than 5
        savepoint take CK CAT --every never
        savepoint take CK CAT --every -3s
        restore
        restore SP
        restore CK new
        restore '' new
        fork CK new
        rescale CK
        rescale CK --partitions 0
        rescale CK --partitions -3
        rescale CK --partitions many
        rescale CK --partitions 3.5
        rescale CK --partitions 99999999999 --stopped --to new
        state get
        state get CK
        state get CK aggregate
        state get CK aggregate '{"customer": "c1"'
        state get CK aggregate '{"customer": "c1", "x": 1}'
        state get CK aggregate '{"x": 1}'
        state get CK aggregate c1,c2 c3
        state get CK aggregate c1 --batch -1
        state get CK aggregate c1 --batch x
        state scan CK --where '('
        state scan CK --where 'nocolumn = 1'
        state scan CK --where '1; drop table x'
        state scan CK --where 'count = (select 1 from read_text("/etc/passwd"))'
        state scan CK --sql drop
        state scan CK --sql 'copy aggregate to "new"'
        state scan CK --sql 'select * from nothing'
        state scan CK aggregate --sql 'select 1'
        state scan CK --limit -1
        state scan CK --limit x
        state scan CK --to new.csv
        state scan CK --to ''
        state history CK
        state explain CK
        state diff SP
        state edit SP
        state edit SP --set count=1
        state edit SP --set count=1 --yes
        state edit SP --delete --yes
        state edit SP --set count --all --yes
        state edit SP --set nocolumn=1 --all --yes
        state edit SP --set count=abc --all --yes
        state edit SP --set customer=1 --all --yes
        state edit SP --set count=1 --all --where true --yes
        state edit SP --set count=1 --delete --all --yes
        state edit SP --set 'count=1/0' --all --yes
        state edit SP --set 'count=99999999999999999999' --all --yes
        state edit SP --insert '{bad' --yes
        state edit SP --insert '[]' --yes
        state edit SP --insert '{}' --yes
        state edit SP --delete --key c1
        state edit SP --delete --where 'count > 1' --to ftp://x/y --yes
        state undo SP --yes
        state erase nobody
        state erase c1 --everywhere CAT
        state migrate CK
        state migrate CK --to
        state bootstrap JOB.py
        ttl CK
        ttl CK --what-if 0
        ttl CK --what-if -5s
        ttl CK --what-if 5
        ttl CK --what-if soon
        ttl CK --what-if 99999999999999999999d
        ttl CK --watermark x
        skew CK --top x
        alerts
        alerts list --nonsense
        watch CK --every 0
        watch CK --every never
        check
        check JOB.py
        check FILE --against CK
        drill SP --max 0
        drill SP --max forever
        run
        run FILE --no-rest
        run JOB.py --no-rest --set x
        run JOB.py --no-rest --conf x
        run JOB.py --no-rest --conf =1
        run JOB.py --port 99999999
        run JOB.py --port x
        serve --port -1
        serve --port 99999999
        serve --tls-cert FILE
        serve --host 0.0.0.0 --port 0
        serve --home FILE
        list --nonsense
        status
        bench nope
        stop
    """,
}  # fmt: skip


def typed() -> list[tuple[str, int]]:
    return [
        (line.strip(), code) for code, lines in CASES.items() for line in lines.splitlines() if line.strip()
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the cases are typed beside: a checkpoint, a savepoint, a file, a job; none may change it."""
    folder = tmp_path_factory.mktemp("typed")
    golden_on_disk("4.2/aggregate-memory", folder / "CK")
    taken = savepoints.take(folder / "CK", folder / "CAT", deep=True)
    (folder / "SP").write_text(taken.uri)
    (folder / "FILE").write_text("a file\n")
    (folder / "empty").mkdir()
    (folder / "JOB.py").write_text(
        "import holdfast as hf\n\n\n@hf.job(name='typed', checkpoint='new')\n"
        "def typed(spark):\n    raise AssertionError('nothing is to be run')\n"
    )
    return folder


def words_of(line: str, place: Path) -> list[str]:
    uri = (place / "SP").read_text()
    return [word.replace("SP", uri) if word.startswith("SP") else word for word in shlex.split(line)]


def below(folder: Path) -> dict[str, str]:
    """Every file and directory, and the bytes of each file."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
        # A lock is a file that may stay, and so is what Python makes of a job file that it has loaded.
        if not path.name.endswith(".lock") and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize(("line", "code"), typed(), ids=[line for line, _ in typed()])
def test_what_is_wrong_is_told_in_one_message(line: str, code: int, place: Path, tmp_path: Path) -> None:
    before = below(place)
    said = cli_in(place, tmp_path / "home")(*words_of(line, place))
    assert said.returncode == code, said.stderr
    assert said.stdout == ""
    told = said.stderr
    assert "Traceback" not in told
    assert "inside Holdfast" not in told
    assert told.count("error: ") + told.count("Error: ") + told.count("Usage: ") >= 1
    assert below(place) == before


@pytest.mark.parametrize("columns", ["40", "80", "200"])
@pytest.mark.parametrize(
    "variables", [{}, {"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "latin-1"}]
)
def test_any_terminal_will_do(columns: str, variables: dict[str, str], place: Path, tmp_path: Path) -> None:
    uri = (place / "SP").read_text()
    for words in (
        ["checkpoint", "show", "CK"],
        ["savepoint", "show", uri],
        ["state", "scan", "CK"],
        ["--help"],
    ):
        said = subprocess.run(
            [PROGRAM, *words],
            cwd=place,
            env={**environment(tmp_path / "home"), "COLUMNS": columns, **variables},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert said.returncode == 0, said.stderr
        assert said.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_ends_it_quietly(number: signal.Signals, place: Path, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    before = below(place)
    for attempt in range(12):
        after_s = rng.uniform(0.03, 0.35)
        with subprocess.Popen(
            [PROGRAM, "savepoint", "verify", (place / "SP").read_text()],
            cwd=place,
            env=environment(tmp_path / "home"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            try:
                running.communicate(timeout=after_s)
            except subprocess.TimeoutExpired:
                running.send_signal(number)
            _, words = running.communicate(timeout=60)
        context = f"seed {SEED!r}, attempt {attempt}, {after_s:.3f} s: {words}"
        # While Python itself starts, its own words are all that can be said.
        if "holdfast/__main__.py" in words or "Traceback" not in words:
            assert running.returncode in (0, 130, -number), context
            assert "Traceback" not in words, context
        assert below(place) == before, context
