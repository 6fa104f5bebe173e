"""Verbs within the tests' process: what a process of their own would give, and nothing left behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import cli_runner
import pytest
from command import PROGRAM, Holdfast, command_in

from golden import golden_on_disk

JOB = """
import beside, holdfast as hf, logging, os, warnings
warnings.warn("a warning of the job file")
logging.getLogger("shop").warning("a line of its log")
os.write(2, b"straight to the descriptor\\n")
print("printed")
@hf.job(name=beside.NAME, checkpoint="c")
def shop(spark): ...
"""


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["nothing"],
        ["status"],
        ["status", "nothing", "--json"],
        ["cancel", "shop"],
        ["checkpoint", "show", "ck"],
        ["run", "job.py", "--dry-run", "--json"],
    ],
    ids=" ".join,
)
@pytest.mark.slow
def test_it_is_the_same_as_in_a_process(words: list[str], tmp_path: Path, home: Path) -> None:
    golden_on_disk("4.2/aggregate-format2", tmp_path / "ck")
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "beside.py").write_text("NAME = 'shop'")
    process, within = (runner(tmp_path, home)(*words) for runner in (command_in, cli_runner.cli_in))
    assert (within.returncode, within.stdout, within.stderr) == (
        process.returncode,
        process.stdout,
        process.stderr,
    )
    assert within.args == process.args


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Put another function in the place of the command's."""

    def use(main: Callable[[], object]) -> None:
        class Entry:
            def load(self) -> Callable[[], object]:
                return main

        monkeypatch.setattr(cli_runner, "_entry_point", Entry)

    return use


def test_the_function_is_the_one_that_the_installed_command_calls() -> None:
    entry = cli_runner._entry_point()
    assert isinstance(entry, EntryPoint)
    script = Path(PROGRAM).read_text()
    assert f"from {entry.module} import {entry.attr}\n" in script


def everything() -> dict[str, object]:
    """What a verb may change of a process."""
    mask = os.umask(0)
    os.umask(mask)
    return {
        "environment": dict(os.environ),
        "directory": Path.cwd(),
        "umask": mask,
        "arguments": list(sys.argv),
        "path": list(sys.path),
        "hook": sys.excepthook,
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "files": [os.fstat(number).st_ino for number in range(3)],
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - a Path opens one itself
        "handlers": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)],
        "filters": list(warnings.filters),
        "log": (logging.root.level, list(logging.root.handlers), logging.getLogger("loud").handlers),
        "threads": threading.enumerate(),
        "timezone": time.tzname,
    }


def test_nothing_is_left_behind(
    entry: Callable[[Callable[[], object]], None], holdfast: Holdfast, tmp_path: Path
) -> None:
    (tmp_path / "ours.py").touch()
    (tmp_path / "elsewhere").mkdir()

    def change_everything() -> None:
        os.environ.pop("PATH")
        os.environ["TZ"] = "Asia/Tokyo"
        time.tzset()
        os.chdir("elsewhere")
        os.umask(0o777)
        sys.argv.append("more")
        sys.path.insert(0, str(tmp_path))
        __import__("ours")
        sys.excepthook = print
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        warnings.simplefilter("ignore")
        logging.basicConfig(level=logging.DEBUG)
        logging.getLogger("loud").addHandler(logging.StreamHandler())
        threading.Thread(target=lambda: time.sleep(0.01)).start()
        sys.stdout = sys.stderr

    entry(change_everything)
    before = everything()
    assert holdfast().returncode == 0
    assert everything() == before
    assert "ours" not in sys.modules


@pytest.mark.parametrize(
    ("end", "code", "stderr"),
    [
        (0, 0, ""),
        (300, 44, ""),
        (None, 0, ""),
        ("a reason", 1, "a reason\n"),
        (KeyboardInterrupt(), -signal.SIGINT, ""),
        (ValueError("wrong"), 1, "ValueError: wrong\n"),
    ],
)
def test_it_ends_as_a_script_does(
    end: object,
    code: int,
    stderr: str,
    entry: Callable[[Callable[[], object]], None],
    holdfast: Holdfast,
) -> None:
    def main() -> None:
        if isinstance(end, BaseException):
            raise end
        sys.exit(end)  # type: ignore[arg-type] # as a script may

    entry(main)
    said = holdfast()
    assert (said.returncode, said.stdout) == (code, "")
    assert said.stderr.endswith(stderr) if stderr else not said.stderr


def test_what_stands_still_is_broken_off(
    entry: Callable[[Callable[[], object]], None], holdfast: Holdfast
) -> None:
    entry(signal.pause)
    with pytest.raises(subprocess.TimeoutExpired):
        holdfast(timeout=0.01)


def test_standard_input_and_the_umask_can_be_given(
    entry: Callable[[Callable[[], object]], None], holdfast: Holdfast, tmp_path: Path
) -> None:
    def main() -> None:
        Path("made").touch()
        sys.stdout.write(sys.stdin.read().upper())

    entry(main)
    assert holdfast(input="wörds", umask=0o077).stdout == "WÖRDS"
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o600
    assert holdfast().stdout == ""


def test_a_run_of_unit_tests_alone_loads_nothing_that_starts_servers(request: pytest.FixtureRequest) -> None:
    config = request.config
    alone = all("tests/unit" in str(Path(config.invocation_params.dir, word)) for word in config.args)
    assert config.pluginmanager.has_plugin("spark_settings")
    for name in ("kafka_broker", "postgres_server", "hdfs_cluster"):
        assert config.pluginmanager.has_plugin(name) != alone
