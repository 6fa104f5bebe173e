"""A person who has the wheel, an empty directory and the documents gets what they show."""

from __future__ import annotations

import email
import re
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from email.message import Message
from pathlib import Path

import pytest
from installed_wheel import ROOT, build_wheel, install, readers_environment
from loopback import free_ports
from shown_commands import FILE
from terminals import follow

from golden import golden_on_disk

pytestmark = pytest.mark.docs

README = ROOT / "README.md"
EXISTING_QUERY = ROOT / "docs" / "guides" / "existing-query.md"
# A person's patience: from nothing but the wheel to a savepoint, and to new code that was checked.
SAVED_S, CHECKED_S = 300, 600

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_string(archive.read(name).decode("utf-8"))


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("installed"))


@pytest.fixture
def environ(programs: Path) -> Mapping[str, str]:
    [port] = free_ports(1)
    return readers_environment(programs, port)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty directory with a short path: where a line of a table ends depends on it."""
    with tempfile.TemporaryDirectory(prefix="shop-", dir="/tmp", ignore_cleanup_errors=True) as place:
        yield Path(place).resolve()


def output_of(command: str, folder: Path, environ: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_installed_is_the_wheel_alone(
    programs: Path, folder: Path, environ: Mapping[str, str]
) -> None:
    script = (
        "import importlib.util, holdfast; "
        "print(holdfast.__file__, *map(importlib.util.find_spec, ('holdfast_bench', 'hatchling')), sep='\\n')"
    )
    module, *others = output_of(f'python -c "{script}"', folder, environ).splitlines()
    assert Path(module).is_relative_to(programs.parent)
    assert others == ["None", "None"]
    assert Path(output_of("command -v holdfast", folder, environ).strip()) == programs / "holdfast"
    refused = subprocess.run(["holdfast", "bench"], cwd=folder, env=environ, capture_output=True, check=False)
    assert refused.returncode == 7


def test_the_wheel_brings_exactly_one_jar(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        jars = [name for name in archive.namelist() if name.endswith(".jar")]
    assert jars == ["holdfast/engine/session/holdfast-state.jar"]


@pytest.mark.spark
@pytest.mark.fault
def test_the_readme_works_from_top_to_bottom(
    folder: Path, environ: Mapping[str, str], tmp_path: Path
) -> None:
    # What comes below is not for who has only the package; the demo is run by a test of its own.
    told, _, _ = README.read_text(encoding="utf-8").partition("\n## Two commands\n")
    follow(told, folder, environ, tmp_path)


@pytest.mark.spark
@pytest.mark.fault
def test_from_the_wheel_to_a_savepoint_in_five_minutes_and_to_checked_code_in_ten(
    wheel: Path, folder: Path, tmp_path: Path, record_testsuite_property: Callable[[str, object], None]
) -> None:
    begun = time.monotonic()
    programs = install(wheel, tmp_path / "installed")
    installed = time.monotonic()
    [port] = free_ports(1)
    told = EXISTING_QUERY.read_text(encoding="utf-8")
    ended = follow(told, folder, readers_environment(programs, port), tmp_path)
    saved = next(at for command, at in ended.items() if command.startswith("holdfast savepoint take "))
    checked = next(at for command, at in ended.items() if command.startswith("holdfast check changed.py "))
    for name, at in (("installed_s", installed), ("saved_s", saved), ("checked_s", checked)):
        record_testsuite_property(name, round(at - begun, 1))
    assert saved - begun < SAVED_S
    assert checked - begun < CHECKED_S


def test_the_guide_for_spark_3_5_works_on_a_checkpoint_of_it(
    folder: Path, environ: Mapping[str, str], tmp_path: Path
) -> None:
    golden_on_disk("3.5/aggregate-rocksdb", folder / "checkpoints" / "visits")
    follow((ROOT / "docs" / "guides" / "spark-3.5.md").read_text(encoding="utf-8"), folder, environ, tmp_path)


def test_each_file_of_a_document_is_saved_and_run() -> None:
    """By the test of tutorials, or by one of the page's own."""
    documents = (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
    pages = {page for page in documents if FILE.search(page.read_text(encoding="utf-8"))}
    assert pages == {README, EXISTING_QUERY, ROOT / "docs" / "guides" / "any-query.md"}


@pytest.mark.spark
def test_the_job_that_init_writes_runs_as_init_says(folder: Path, environ: Mapping[str, str]) -> None:
    # It says what comes next on a terminal alone; a wide one has each command beside what it is for.
    said = output_of("COLUMNS=120 script -qec 'holdfast init' /dev/null", folder, environ).replace("\r", "")
    commands = re.findall(r"^  (\S.*?)  +\S", said, re.MULTILINE)
    assert [command.split()[:2] for command in commands] == [
        ["python", "-m"],
        ["holdfast", "run"],
        ["holdfast", "state"],
        ["holdfast", "check"],
    ]
    answers = [output_of(command, folder, environ) for command in commands]
    assert "2 passed" in answers[0]
    # Three orders of ann, two of bob, one of cho, in the two files that init wrote.
    orders = {line.split()[0]: line.split()[1:3] for line in answers[2].splitlines()[1:]}
    assert orders == {"ann": ["3", "9.0"], "bob": ["2", "6.0"], "cho": ["1", "2.5"]}
    assert "all state is kept" in answers[3]


def test_the_tour_goes_to_its_end(folder: Path, environ: Mapping[str, str]) -> None:
    shown = output_of("holdfast tour --yes", folder, environ)
    assert shown.count("$ holdfast ") >= 8


def test_the_readme_on_an_index_has_links_that_lead_somewhere(metadata: Message) -> None:
    assert metadata.get_content_type() == "text/plain"
    assert metadata["Description-Content-Type"] == "text/markdown"
    shown = FENCED.sub("", long_description(metadata))
    base = f"{addresses(metadata)['Repository']}/"
    tag = f"v{metadata['Version']}"
    there = [
        f"{mark}{base}{'raw' if mark else 'blob'}/{tag}/{target}"
        for mark, target in LINK.findall(FENCED.sub("", README.read_text(encoding="utf-8")))
    ]
    assert len(there) > 20
    assert [f"{mark}{target}" for mark, target in LINK.findall(shown)] == there
    # Nothing else that a browser would follow from the page of an index.
    assert not re.search(r"^\[[^\]]+\]:|<(a|img)\b", shown, re.MULTILINE)


def test_the_readme_on_an_index_is_that_of_the_repository_otherwise(metadata: Message) -> None:
    def bare(text: str) -> str:
        return LINK.sub("LINK", text).strip()

    assert bare(long_description(metadata)) == bare(README.read_text(encoding="utf-8"))


def long_description(metadata: Message) -> str:
    text = metadata.get_payload()
    assert isinstance(text, str)
    return text


def addresses(metadata: Message) -> Mapping[str, str]:
    return dict(line.split(", ") for line in metadata.get_all("Project-URL", []))


def test_the_addresses_of_the_project_are_made_from_one(metadata: Message) -> None:
    known = addresses(metadata)
    assert set(known) == {"Repository", "Documentation", "Changelog", "Issues", "Security"}
    base = known["Repository"]
    assert base.startswith("https://")
    assert (ROOT / "pyproject.toml").read_text(encoding="utf-8").count(base) == 1
    files = f"{base}/blob/v{metadata['Version']}/"
    for name in ("Documentation", "Changelog", "Security"):
        assert known[name].startswith(files)
        assert (ROOT / known[name].removeprefix(files)).is_file()


def test_an_index_can_sort_the_package(metadata: Message) -> None:
    """Hatchling refuses to build with a classifier that is not on the official list."""
    classifiers = metadata.get_all("Classifier", [])
    assert len(set(classifiers)) == len(classifiers)
    assert "Operating System :: POSIX :: Linux" in classifiers
    pythons = [name.rpartition(" ")[2] for name in classifiers if re.search(r":: 3\.\d+$", name)]
    assert metadata["Requires-Python"] == f">={pythons[0]}"
    assert metadata["License-Expression"] == "Apache-2.0"
    readme = README.read_text(encoding="utf-8")
    assert metadata["Summary"] in " ".join(readme.split())
    assert {"spark", "state", "checkpoint", "savepoint"} <= set(metadata["Keywords"].split(","))
