"""`pip install holdfast` without an extra: the commands over files, with any PySpark or none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from verb_calls import WORKING, furnished, leaves, lines_of, words_of

from golden import golden_on_disk

SOURCE = Path(__file__).parents[2] / "src"
MOST_MEGABYTES = 150
JOB = "import holdfast as hf\n@hf.job(name='shop', checkpoint='new')\ndef shop(spark): ...\n"


def base_distributions() -> list[metadata.Distribution]:
    """What comes with the package, directly or not, where no extra is asked for."""
    found: dict[str, metadata.Distribution] = {}
    waiting = ["holdfast"]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        for text in found[name].requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return list(found.values())


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has these distributions, and nothing else."""
    place = tmp_path_factory.mktemp("base")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, timeout=60)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    for distribution in base_distributions():
        for name in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
            if not name.endswith(".pth") and not (packages / name).exists():
                (packages / name).symlink_to(Path(str(distribution.locate_file(name))))
    (packages / "source.pth").write_text(f"{SOURCE}\n")
    return place / "bin" / "python"


class Base:
    """The command line of that Python, in a directory of its own."""

    def __init__(self, python: Path, folder: Path) -> None:
        self._python = python
        self.folder = folder

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        kept = ("PATH", "LANG", "TMPDIR")
        environ = {name: os.environ[name] for name in kept if name in os.environ} | {"COLUMNS": "200"} | more
        return subprocess.run(
            [str(self._python), "-m", "holdfast", *words],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def json(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return json.loads(done.stdout)


@pytest.fixture
def base(python: Path, tmp_path: Path) -> Base:
    return Base(python, tmp_path)


def test_it_is_small() -> None:
    files = {
        Path(str(distribution.locate_file(file)))
        for distribution in base_distributions()
        for file in distribution.files or ()
        if distribution.name != "holdfast" and file.suffix != ".pyc"
    }
    own = [file for file in (SOURCE / "holdfast").rglob("*") if file.suffix != ".pyc"]
    size = sum(file.stat().st_size for file in (*files, *own) if file.is_file())
    assert size < MOST_MEGABYTES << 20


@pytest.mark.parametrize("name", ["3.5/aggregate-memory", "3.5/aggregate-rocksdb", "4.2/aggregate-format2"])
def test_verbs_over_files_need_no_extra(name: str, base: Base) -> None:
    golden_on_disk(name, base.folder / "ck")

    assert base.json("checkpoint", "verify", "ck")["ok"]
    assert base.json("checkpoint", "show", "ck")["batch_id"] == 11
    taken = base.json("savepoint", "take", "ck", "sps")
    # The tenth customer of a file is one on: of the golden input, c1 comes in each of the 12 files.
    found = base.json("state", "get", "ck", "c1")
    amounts = [file * 10 + each for file in range(12) for each in range(10) if (file + each) % 10 == 1]
    expected = dict(zip(("visits", "spend"), (12, sum(amounts)), strict=True))
    assert list(found["value"].values()) == list(expected.values())

    savepoint = taken["savepoint"]
    assert base.json("savepoint", "verify", savepoint, "--deep")["problems"] == []
    assert base.json("state", "diff", savepoint, "ck")["same"]
    base.json("restore", savepoint, "restored")
    assert base.json("state", "get", "restored", "c1")["value"] == found["value"]
    base.json("fork", savepoint, "forked")
    assert base.json("state", "history", "ck", "c1")
    assert base.json("state", "explain", "ck", "c1")
    assert base.json("lint", "ck")
    assert base.json("cost", "ck", "--interval", "1min")
    base.json("rescale", savepoint, "rescaled", "--partitions", "5")
    assert base.json("state", "get", "rescaled", "c1")["value"] == found["value"]
    base.json("state", "erase", "sps", "c1", "--yes")
    assert base.run("state", "get", savepoint, "c1").returncode == 3


def test_the_tour_leaves_out_what_needs_an_extra(base: Base) -> None:
    toured = base.json("tour", "shop")

    assert toured["left_out"] == 5  # the scan in SQL, the edit with its diff, the undo with its diff
    assert [step["exit_code"] for step in toured["steps"]] == [0] * 10 + [6]
    assert "pip install 'holdfast[sql]'" in base.run("tour", "again").stdout


def test_the_doctor_finds_the_verbs_over_files_ready(base: Base) -> None:
    said = base.run("doctor", PATH="/nowhere")

    files, _, jobs = said.stdout.partition("jobs: not installed; what they need in addition:\n")
    assert (said.returncode, said.stderr, "MISSING" in said.stdout) == (0, "", False)
    assert files.startswith("commands over files: ready\n")
    assert [line[:17] for line in jobs.splitlines() if line.startswith("–")][:2] == [
        "–        spark: p",
        "–        java: no",
    ]
    found = base.json("doctor")
    assert (found["ok"], found["files_ready"], found["jobs_ready"], found["with_jobs"]) == (
        True,
        True,
        False,
        False,
    )
    golden_on_disk("4.2/aggregate-format2", base.folder / "ck")
    assert base.run("doctor", "ck").returncode == 0


@pytest.mark.parametrize("asked", [("--deep",), ("--job", "job.py"), ("--master", "spark://nowhere:7077")])
def test_the_doctor_fails_for_who_asks_for_jobs(asked: tuple[str, ...], base: Base) -> None:
    (base.folder / "job.py").write_text(JOB)

    said = base.run("doctor", *asked)

    assert said.returncode == 1
    assert "jobs: not ready, see MISSING below\n" in said.stdout
    assert "MISSING  spark: " in said.stdout
    assert "Traceback" not in said.stderr


def test_the_doctor_fails_where_what_is_installed_does_not_work(base: Base) -> None:
    (base.folder / "taken").write_text("a file, no directory")

    assert base.run("doctor", "--home", "taken/home").returncode == 1


def test_init_says_what_its_job_needs(base: Base) -> None:
    command = "pip install 'holdfast[java,spark]' pytest"

    planned = base.run("init", "mine", "--dry-run", PATH="/nowhere")
    assert (planned.returncode, list(base.folder.iterdir())) == (0, [])
    assert command in planned.stderr
    made = base.run("init", "mine", PATH="/nowhere")
    assert (made.returncode, (base.folder / "mine" / "shop.py").is_file()) == (0, True)
    assert made.stderr == f"wrote 5 files:\nto install what the job needs: {command}\n"
    other = base.run("init", "other", "--json", PATH="/nowhere")
    assert json.loads(other.stdout)["install"] == command


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("state", "scan", "ck", "--sql", "select 1"), "sql"),
        (("serve",), "server"),
        (("demo",), "spark"),
        (("ttl", "ck", "--what-if", "1h"), "sql"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_a_verb_that_needs_an_extra_says_which(words: tuple[str, ...], extra: str, base: Base) -> None:
    golden_on_disk("4.2/aggregate-format2", base.folder / "ck")

    done = base.run(*words)

    assert done.returncode == 7
    assert f"pip install 'holdfast[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_is_refused_before_anything_begins(base: Base) -> None:
    (base.folder / "shop.py").write_text("import holdfast as hf\n")

    done = base.run("run", "shop.py")

    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr == (
        "error: the package pyspark is not installed [HF-E7062]\nhint: run `pip install 'holdfast[spark]'`\n"
    )
    assert not list(base.folder.glob(".holdfast/*"))


def said_by(python: Path, program: str, *words: str, folder: Path | None = None) -> str:
    """What a program prints there; it has to end well, with no warning and no error."""
    done = subprocess.run(
        [str(python), "-W", "error", "-c", program, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    "program",
    [
        "import holdfast",
        "import holdfast, pydoc; assert 'needs pyarrow' in pydoc.render_doc(holdfast)",
        "import holdfast, inspect; assert len(inspect.getmembers(holdfast)) == len(dir(holdfast))",
        "import holdfast; [(repr(each), dir(each)) for each in map(holdfast.__getattr__, dir(holdfast))]",
        "from holdfast import *; state, lint, verify = savepoints, value, checkpoints.verify",
        "from holdfast import value, Ttl, state",
        "import holdfast as hf; assert hasattr(hf, 'value') and not hasattr(hf, 'valeu')",
        'import holdfast as hf, pydoc; assert "holdfast[spark]" in pydoc.render_doc(hf.value)',
        "import inspect, holdfast as hf; inspect.unwrap(hf.value); inspect.isclass(hf.Ttl)",
        "import copy, holdfast as hf; copy.copy(hf.value)",
    ],
)
def test_names_without_their_extra_can_be_listed_shown_and_imported(program: str, python: Path) -> None:
    assert said_by(python, program) == ""


# What needs a package of an extra, by how it is used.
USES = {
    "hf.value(int)": "spark",
    "hf.list": None,
    "hf.list(str)": "spark",
    "hf.Ttl.never": "spark",
    "hf.value[int]": "spark",
    "hf.Ttl | None": "spark",
    "None | hf.Ttl": "spark",
    "isinstance(1, hf.Ttl)": "spark",
    "issubclass(int, hf.Ttl)": "spark",
    "exec('class Own(hf.BufferedSink): pass')": "spark",
    "hf.drop_expired('sps')": "sql",
    "hf.session()": "spark",
    "hf.check('job.py', against='ck')": "spark",
    "hf.plan_evolve('ck', 'new', to='job.py')": "spark",
    "hf.evolve('ck', 'new', to='job.py')": "spark",
    "hf.bootstrap('job.py', 'new')": "spark",
    "hf.lint('job.py', plan=True)": "spark",
    "hf.guard('ck')": "spark",
    "hf.watch('ck')": "spark",
    "hf.adopt('ck')": "spark",
    "hf.edit('ck', 'aggregate', key='c1', delete=True)": "sql",
    "hf.plan_edit('ck', 'aggregate', key='c1', delete=True)": "sql",
    "hf.state('ck').arrow('aggregate')": "sql",
    "hf.state('ck').sql('select 1')": "sql",
    "hf.state('ck').frame('aggregate')": "spark",
    "hf.state('ck').what_if(ttl='1h')": "sql",
    "__import__('holdfast.testing')": "spark",
    "importlib.import_module('holdfast.testing').Harness": "spark",
}


def test_what_needs_an_extra_says_which_when_it_is_used(python: Path, tmp_path: Path) -> None:
    golden_on_disk("4.2/aggregate-format2", tmp_path / "ck")
    (tmp_path / "job.py").write_text(JOB)
    program = """
import importlib, json, sys
import holdfast as hf
said = {}
for use in json.loads(sys.argv[1]):
    try:
        eval(use)
    except hf.Unsupported as error:
        said[use] = error.hint
    except hf.HoldfastError:
        said[use] = None
    except BaseException as error:
        said[use] = repr(error)
    else:
        said[use] = None
print(json.dumps(said))
"""
    said = json.loads(said_by(python, program, json.dumps(list(USES)), folder=tmp_path))

    assert said == {
        use: None if extra is None else f"run `pip install 'holdfast[{extra}]'`"
        for use, extra in USES.items()
    }


def test_a_missing_extra_is_an_import_error_too(python: Path) -> None:
    program = "try: import holdfast.testing\nexcept ImportError as error: print(error)"

    assert said_by(python, program) == (
        "the package pyarrow is not installed [HF-E7062]\n"
        "  in holdfast.testing\n"
        "hint: run `pip install 'holdfast[spark]'`\n"
    )


# Of verbs that need an extra for a part of what they do, or for all of it.
MORE = """
    bench
    check JOB.py --against CK
    demo
    doctor --job JOB.py
    drill SP --job JOB.py
    lint JOB.py --plan
    run JOB.py
    serve --port 0
    state bootstrap JOB.py made --from HISTORY.py
    state migrate CK made --code JOB.py --confirm-stopped
    state scan CK --output made.parquet
    state scan windows --sql 'select 1'
    checkpoint show s3a://bucket/checkpoint
    restore SP hdfs://host/checkpoint
"""


def test_no_verb_ends_in_a_traceback(python: Path, tmp_path: Path) -> None:
    base = Base(python, tmp_path)
    for verb in sorted(leaves()):
        shown = base.run(*verb.split(), "--help")
        assert (shown.returncode, shown.stderr) == (0, ""), verb
    with furnished(tmp_path):
        for number, line in enumerate(lines_of(WORKING + MORE)):
            done = base.run(*words_of(line, tmp_path, f"made-{number}"))
            assert "Traceback" not in done.stderr, line
            if done.returncode not in (0, 1, 2):
                assert (done.returncode, "hint: " in done.stderr) == (7, True), (line, done.stderr)
