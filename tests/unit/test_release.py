"""A release: its bill of materials is that of the lock file, and two builds have the same bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import release

ROOT = Path(__file__).parents[2]


def test_the_bill_of_materials_has_all_that_an_install_brings(tmp_path: Path) -> None:
    wheel = tmp_path / "holdfast-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    bill = release.bill_of_materials("0.1.0", [wheel])
    versions = {component["name"]: component["version"] for component in bill["components"]}
    assert {"rocksdict", "typer", "pyspark", "duckdb", "fastapi", "s3fs"} <= set(versions)
    assert versions["pyspark"].startswith("4.2.")
    # Tools of developers are not installed with the package.
    assert not {"pytest", "ruff", "sphinx", "mypy"} & set(versions)
    assert all(component["hashes"] for component in bill["components"])
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": release.sha256(wheel)}]
    assert bill == release.bill_of_materials("0.1.0", [wheel])


def test_windows_is_answered_with_one_message() -> None:
    code = "import sys; sys.platform = 'win32'; from holdfast.__main__ import main; main()"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.returncode == 7
    assert "Windows Subsystem for Linux" in said.stderr
    assert "Traceback" not in said.stderr


def test_the_version_is_that_of_the_source_distribution() -> None:
    files = [Path("dist/holdfast-0.1.0-py3-none-any.whl"), Path("dist/holdfast-0.1.0.tar.gz")]
    assert release.version_of(files) == "0.1.0"


@pytest.mark.slow
def test_two_builds_have_the_same_bytes(tmp_path: Path) -> None:
    """From two copies with other times, in other folders."""
    digests = []
    for number, name in enumerate(("first", "the second")):
        source = tmp_path / name / "holdfast"
        for part in ("src", "scripts"):
            shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
        for page in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / page, source / page)
        for file in source.rglob("*"):
            os.utime(file, (1_000_000_000 + number * 86_400,) * 2)
        target = tmp_path / name / "dist"
        digests.append({file.name: release.sha256(file) for file in release.build(source, target)})
    assert len(digests[0]) == 2
    assert digests[0] == digests[1]
