"""Documents cannot lie: their blocks run, their links lead somewhere, their pages are up to date."""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pyspark
import pytest
from command import PROGRAM, Holdfast, environment
from error_catalogue import BY_NAME, raised_errors
from flink_client import FlinkClient
from loopback import free_ports
from shown_commands import FILE
from spark_directory import work_in
from state_databases import CassandraState
from typer import main as typer_main

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
COFFEE_SHOP = ROOT / "docs" / "guides" / "coffee-shop.md"
WIDTH = 120
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# Its examples run one by one, in a test of their own, and its lines are made from docstrings.
OF_DOCSTRINGS = ROOT / "docs" / "reference" / "python.md"
# What is saved as a file is run by another test, from an installed wheel.
GUIDES = [
    page
    for page in PAGES
    if page != OF_DOCSTRINGS and "```python" in FILE.sub("", page.read_text(encoding="utf-8"))
]

HAND_WRITTEN = [page for page in PAGES if page.name == "README.md" or page.is_relative_to(ROOT / "docs")]

# What runs: the blocks a reader sees, and between them comments that only a test sees.
PYTHON = re.compile(r"^```python\n(.*?)^```$|^<!-- python\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
NOT_PROSE = re.compile(r"^ *```.*?^ *```$|^<!--.*?^-->$|^\|.*?$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]+)?\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Servers of the examples, with the fixture of one of the same kind that runs here.
SERVERS = {"redis.example:6379": "redis_server"}
# One that not everybody has: without it, blocks with its address are not run.
CASSANDRA = "cassandra.example:9042"


@pytest.mark.spark
@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_every_block_of_python_runs(
    page: Path,
    spark: SparkSession,
    settings: Callable[[dict[str, str]], None],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    # A block that loads a job's file puts its directory there.
    monkeypatch.setattr(sys, "path", list(sys.path))
    work_in(spark, tmp_path)
    names: dict[str, object] = {"spark": spark, "__name__": "__main__"}
    text = FILE.sub(lambda file: "\n" * file[0].count("\n"), page.read_text(encoding="utf-8"))
    for address, fixture in SERVERS.items():
        # A block may open it, a table only names it.
        if any(address in (match[1] or match[2]) for match in PYTHON.finditer(text)):
            # As they are, so that what a block sets is put back.
            keys = {**hf.Redis().spark_conf(), **hf.Cassandra().spark_conf()}
            now = {key: spark.conf.get(key, None) for key in keys}
            settings({key: value for key, value in now.items() if value is not None})
            text = text.replace(address, request.getfixturevalue(fixture).address)
    cassandra = _cassandra(request) if any(CASSANDRA in match[0] for match in PYTHON.finditer(text)) else None
    text = text.replace(CASSANDRA, cassandra or CASSANDRA)
    blocks = list(PYTHON.finditer(text))
    # An indented fence, or one that nobody closed, would be shown and never run.
    assert len(blocks) == text.count("```python") + text.count("<!-- python")
    for match in blocks:
        line = text.count("\n", 0, match.start()) + 1
        block = match[1] if match[1] is not None else match[2]
        if CASSANDRA in block:
            continue
        exec(compile("\n" * line + block, str(page), "exec"), names)


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_a_block_that_is_pasted_has_its_imports(page: Path) -> None:
    """What a hidden block imports, a visible one imports too before it uses it."""
    hidden: set[str] = set()
    shown: set[str] = set()
    for match in PYTHON.finditer(page.read_text(encoding="utf-8")):
        nodes = list(ast.walk(ast.parse(match[1] or match[2])))
        names = {
            (alias.asname or alias.name).partition(".")[0]
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        if match[1] is None:
            hidden |= names
            continue
        shown |= names
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        assert not used & (hidden - shown)


def test_the_errors_of_the_guide_are_sparks_own() -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    (jar,) = [path for path in jars.glob("spark-common-utils*.jar") if "java" not in path.name]
    with zipfile.ZipFile(jar) as archive:
        conditions = json.loads(archive.read("error/error-conditions.json"))
    known = {*conditions, *(name for one in conditions.values() for name in one.get("subClass", ()))}
    page = (ROOT / "docs/guides/spark-errors.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([A-Z]+_[A-Z_]+)`", page)) <= known


def _cassandra(request: pytest.FixtureRequest) -> str | None:
    """The address of a Cassandra that has the keyspace of the examples; None where there is none."""
    try:
        return CassandraState(request.getfixturevalue("cassandra_server")).server.address
    except pytest.skip.Exception:
        return None


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{target} in {page}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor[1:] in {_anchor(heading) for heading in headings}, f"{anchor} in {page}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [page for page in HAND_WRITTEN if page != OF_DOCSTRINGS], ids=name)
def test_lines_of_prose_have_one_length(page: Path) -> None:
    prose = NOT_PROSE.sub("", page.read_text(encoding="utf-8"))
    assert [line for line in prose.splitlines() if len(line) > WIDTH] == []


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_pages_are_what_the_code_says(monkeypatch: pytest.MonkeyPatch) -> None:
    # A process makes the parser of all verbs once.
    monkeypatch.setattr(typer_main, "get_group", functools.cache(typer_main.get_group))
    generated = generator()
    for page, text in generated.pages().items():
        assert (generated.REFERENCE / page).read_text(encoding="utf-8") == text, "run `make docs`"


SOURCE_WITH_ERRORS = """
from holdfast.errors import Conflict, Corrupt, Invalid
_HINT = "look at " "the list"
def first(name, rows):
    raise Invalid(f"there is no {name!r}", expected=", ".join(sorted(rows)), hint=_HINT)
def second(owner):
    fact = "it is held" if owner else "it was held"
    return Conflict(fact, where=str(owner.place))
def third(text):
    raise Corrupt(text)
def fourth():
    third("half of it is gone")
    raise ValueError("not ours")
"""


def test_the_catalogue_of_errors_reads_them_from_the_source(tmp_path: Path) -> None:
    room = tmp_path / "holdfast" / "room"
    room.mkdir(parents=True)
    (room / "module.py").write_text(SOURCE_WITH_ERRORS, encoding="utf-8")
    found = raised_errors(room.parent)
    assert {error.room for error in found} == {"room/"}
    assert [(error.kind, error.fact, error.expected, error.hint, error.has_details) for error in found] == [
        ("Invalid", "there is no {name}", "{rows}", "look at the list", True),
        ("Conflict", "it is held / it was held", "", "", True),
        ("Corrupt", "half of it is gone", "", "", False),
    ]


def test_every_error_has_a_code_of_its_kind_and_errors_with_other_texts_have_others() -> None:
    """`make codes` gives a new error its code."""
    texts: dict[str, set[str]] = {}
    for error in raised_errors(ROOT / "src" / "holdfast"):
        passed_on = error.is_passed_on or "{fact}" in error.fact or error.code == "{code}"
        assert passed_on or error.code.startswith("HF-E"), error.place
        if error.code.startswith("HF-E"):
            exit_code = BY_NAME[error.kind].exit_code
            assert error.code[4] == ("9" if exit_code == 70 else str(exit_code)), error.place
            texts.setdefault(error.code, set()).add(error.kind)
    assert len(texts) > 900
    made = generator()
    assert made.CODES.read_text(encoding="utf-8") == made.codes()


def test_every_error_of_a_verb_says_more_than_its_fact() -> None:
    found = [error for error in raised_errors(ROOT / "src" / "holdfast") if error.room == "cli/"]
    assert len(found) > 20
    assert [error.place for error in found if not error.has_details] == []


def test_every_verb_is_documented_and_every_verb_shown_exists() -> None:
    from holdfast.cli import app

    verbs = {command.name for command in app.registered_commands}
    assert verbs == set(generator().VERBS)
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    assert {
        name: {command.name for command in group.registered_commands}
        for name, group in groups.items()
        if group is not None
    } == {name: set(words) for name, words in generator().GROUPS.items()}
    verbs |= set(groups)
    for page in PAGES:
        shown = re.findall(r"^(?:\$ )?holdfast ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(shown) <= verbs, page


def test_every_public_name_is_in_a_document() -> None:
    import holdfast

    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [each for each in holdfast.__all__ if not re.search(rf"\b{each}\b", text)]
    assert missing == []


def test_the_architecture_names_every_room_and_no_other() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.encode()) < 11_000, "an overview is short"
    rooms = {each.name for each in (ROOT / "src" / "holdfast").iterdir() if (each / "__init__.py").exists()}
    rows = re.findall(r"^\| (`\w+/`[^|]*) \|", text, re.MULTILINE)
    named = set(re.findall(r"`(\w+)/`", " ".join(rows)))
    assert named == rooms
    for path in re.findall(r"`([a-z_/\d]+\.py)`", text):
        assert (ROOT / "src" / "holdfast" / path).is_file() or (ROOT / path).is_file(), path
    for path in re.findall(r"`((?:tests|demo)/[a-z_/]+)`", text):
        assert (ROOT / path).exists() or (ROOT / "src" / "holdfast" / path).exists(), path


# What differs from run to run in what the demo prints.
NUMBER = re.compile(r"\d[\d,.]*")
VARIES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"^(batches\s+)\d+$", re.MULTILINE), r"\1N"),
    (re.compile(r"^((?:recovery|took)\s+).*$", re.MULTILINE), r"\1TIME"),
    (
        re.compile(r"^(?:savepoints|second savepoint|difference)  .*$", re.MULTILINE),
        lambda line: NUMBER.sub("N", line[0]),
    ),
    (re.compile(r"(^  .* spent\n)+", re.MULTILINE), "  CUSTOMERS\n"),
    (re.compile(r"^(state\s+)[\d,]+( rows at its largest, )[\d,]+", re.MULTILINE), r"\1N\2N"),
)


def _steady(text: str) -> str:
    for pattern, replacement in VARIES:
        text = pattern.sub(replacement, text)
    return text


@pytest.mark.spark
@pytest.mark.fault
def test_the_block_of_the_demo_is_what_the_command_prints(holdfast: Holdfast) -> None:
    block = re.search(
        r"^```console\n\$ holdfast (demo [^\n]*)\n(.*?)^```$",
        COFFEE_SHOP.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert block is not None
    said = holdfast(*block[1].split(), timeout=400)
    assert said.returncode == 0, said.stderr
    assert _steady(said.stdout) == _steady(block[2])
    assert "killed with SIGKILL, recovering" in said.stderr


def _the_job_of_the_readme(folder: Path) -> str:
    """Put it and what it reads into a folder: ann comes twice on a day, bob once."""
    [text] = [found["text"] for found in FILE.finditer(README.read_text()) if found["name"] == "visits.py"]
    (folder / "visits.py").write_text(text)
    (folder / "arrivals").mkdir()
    rows = [("ann", "08:00"), ("bob", "08:05"), ("ann", "09:30")]
    lines = [f'{{"customer": "{who}", "ts": "2026-03-05T{at}:00Z"}}\n' for who, at in rows]
    (folder / "arrivals" / "0.json").write_text("".join(lines))
    return text


@pytest.mark.spark
def test_the_ten_lines_of_the_readme_run_and_run_again(holdfast: Holdfast, tmp_path: Path) -> None:
    text = _the_job_of_the_readme(tmp_path)
    assert len([line for line in text.splitlines() if line.strip()]) <= 10
    for _ in range(2):
        said = holdfast("run", "visits.py", "--conf", "spark.ui.enabled=false")
        assert said.returncode == 0, said.stderr
        with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
            found = db.execute("SELECT customer, visits FROM visits ORDER BY customer").fetchall()
        assert found == [("ann", 2), ("bob", 1)]
    assert "FINISHED" in holdfast("list").stdout


BASH = re.compile(r"^```bash\n(.*?)^```$|^<!-- bash\n(.*?)^-->$", re.MULTILINE | re.DOTALL)


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.fault
def test_the_guide_for_flinks_client_works_as_it_stands(
    flink_client: type[FlinkClient], tmp_path: Path
) -> None:
    text = (ROOT / "docs" / "guides" / "from-flinks-rest.md").read_text(encoding="utf-8")
    start, *blocks = [shown or hidden for shown, hidden in BASH.findall(text)]
    _the_job_of_the_readme(tmp_path)
    (port,) = free_ports(1)
    flink = flink_client(tmp_path, port).installed()
    around = {
        **environment(tmp_path / ".holdfast"),
        "PATH": f"{Path(PROGRAM).parent}:{flink}:{os.environ['PATH']}",
    }
    with (tmp_path / "run.txt").open("w+", encoding="utf-8") as said:
        job = subprocess.Popen(
            ["bash", "-c", f"exec {start.strip()} --port {port}"],
            cwd=tmp_path,
            env=around,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            while " batch 0:" not in (tmp_path / "run.txt").read_text(encoding="utf-8"):
                assert job.poll() is None, (tmp_path / "run.txt").read_text(encoding="utf-8")
                time.sleep(0.05)
            # A refusal is an error of curl's, and the error of a line that of the whole.
            script = 'set -euo pipefail\ncurl() { command curl -fsS "$@"; }\n' + "".join(blocks)
            done = subprocess.run(
                ["bash", "-c", script.replace(":8081", f":{port}")],
                cwd=tmp_path,
                env=around,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, done.stdout
            assert job.wait(60) == 0
        finally:
            if job.poll() is None:
                job.terminate()
                job.wait(60)
    assert " : visits (RUNNING)" in done.stdout
    taken = re.findall(r"Path: file:(?://)?(\S+)/savepoints/\S+", done.stdout)
    assert [Path(catalog).relative_to(tmp_path) for catalog in taken] == [
        Path("checkpoints/visits.savepoints"),
        Path("backups"),
    ]
    assert len(list((tmp_path / "backups" / "savepoints").iterdir())) == 2
    assert '"value":{"count":2}' in done.stdout
    assert '"rows": [{"customer":' in done.stdout
