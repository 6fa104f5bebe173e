"""`holdfast init`: all files or none, and never over one that is there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command import Holdfast

from holdfast.cli import next_step
from holdfast.demo.starter import writing
from holdfast.demo.starter.writing import plan_starter, write_starter
from holdfast.errors import Unavailable
from holdfast.storage.local import LocalStorage

FILES = {"visits.py", "test_visits.py", "holdfast.toml", "orders/1.json", "orders/2.json"}


@pytest.fixture(autouse=True)
def no_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have loaded a job file of this name, or shipped one with Spark."""
    monkeypatch.delitem(sys.modules, "visits", raising=False)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not Path(place, "visits.py").exists()])


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_dry_run_lists_what_is_written(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = json.loads(holdfast("init", "mine", "--name", "visits", "--dry-run", "--json").stdout)
    assert (planned["dry_run"], set(planned["files"]), planned["install"]) == (True, FILES, None)
    assert not (tmp_path / "mine").exists()
    monkeypatch.setattr(next_step, "on_terminal", lambda: True)
    made = holdfast("init", "mine", "--name", "visits")
    assert made.returncode == 0, made.stderr
    assert {line.removeprefix(f"{tmp_path}/mine/") for line in made.stdout.split()} == FILES
    assert files_below(tmp_path / "mine") == FILES
    assert "holdfast run visits.py" in made.stderr
    assert f"cd {tmp_path}/mine" in made.stderr


def test_the_settings_are_read_and_the_job_is_found(holdfast: Holdfast, tmp_path: Path) -> None:
    holdfast("init")
    said = holdfast("run", "shop.py", "--dry-run", "--json", environ={"HOLDFAST_HOME": ""})
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    settings = {setting["name"]: (setting["value"], setting["source"]) for setting in found["settings"]}
    file = f"file {tmp_path}/holdfast.toml"
    assert settings == {
        "home": (f"{tmp_path}/.holdfast", file),
        "ha": ("none", "default"),
        "port": ("8081", file),
    }
    shown = holdfast("run", "shop.py", "--dry-run", "--port", "0").stdout
    assert "flag --port" in shown
    assert "environment HOLDFAST_HOME" in shown
    (tmp_path / "holdfast.toml").write_text("[holdfast]\nprot = 1\n")
    refused = holdfast("list")
    assert refused.returncode == 2
    assert "did you mean port?" in refused.stderr


def test_a_file_that_is_there_is_named_and_nothing_is_written(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("mine")
    said = holdfast("init", "--name", "visits")
    assert (said.returncode, said.stdout) == (4, "")
    assert "found holdfast.toml\n" in said.stderr
    assert files_below(tmp_path) == {"holdfast.toml"}
    assert (tmp_path / "holdfast.toml").read_text() == "mine"


@pytest.mark.parametrize("error", [Unavailable("no space left"), KeyboardInterrupt()])
def test_what_is_half_written_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    write = LocalStorage.write

    def failing(storage: LocalStorage, path: str, data: bytes, *, replace: bool = False) -> None:
        if path == "orders/2.json":
            raise error
        write(storage, path, data, replace=replace)

    monkeypatch.setattr(LocalStorage, "write", failing)
    with pytest.raises(type(error)):
        write_starter(plan_starter(tmp_path / "a" / "b", "visits"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["my-job", "Shop", "1st", "", "class", "json", "pyspark", "hf", "café"])
def test_a_name_that_no_module_can_have_is_answered_with_one(
    holdfast: Holdfast, tmp_path: Path, name: str
) -> None:
    said = holdfast("init", "mine", "--name", name, "--json")
    assert said.returncode == 2
    hint = json.loads(said.stdout)["hint"]
    assert not (tmp_path / "mine").exists()
    assert holdfast("init", "mine", "--name", hint.split()[-1], "--dry-run").returncode == 0


def test_what_is_missing_for_the_job_is_installed_first(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_step, "on_terminal", lambda: True)
    command = "pip install 'holdfast[java,spark]' pytest"
    monkeypatch.setattr(writing, "install_for_jobs", lambda *_packages, **_needs: command)
    said = holdfast("init", "mine").stderr
    assert 0 < said.find(command) < said.find(f"cd {tmp_path}/mine") < said.find("python -m pytest")
