from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from audited import audited
from command import PROGRAM, Holdfast, environment
from verb_calls import leaves

import holdfast as package
from holdfast.cli import _called, app
from holdfast.cli.short_verbs import SHORT, find
from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
from holdfast.model import JobState

RECORD = JobRecord(
    "shop", job_id("shop"), "job.py", "file:///c", "delete", JobState.RUNNING, None, 0, 0, None, 1
)


@pytest.mark.slow
def test_a_verb_that_only_reads_starts_no_process_and_loads_no_spark(tmp_path: Path) -> None:
    expected = {
        ("--help",): 0,
        ("run", "--help"): 0,
        ("serve", "--help"): 0,
        ("list",): 0,
        ("status", "nothing"): 3,
        ("skew", "nothing"): 3,
        ("doctor",): 0,
        ("lint", "nothing.py"): 3,
        ("advise", "nothing"): 3,
        ("advise", "--rate", "5", "--keys", "5"): 0,
        ("doctor", "--json"): 0,
    }
    found = audited(list(expected), tmp_path)
    assert {command: audit.code for command, audit in zip(expected, found, strict=True)} == expected
    assert [(audit.started, audit.heavy) for audit in found] == [((), ())] * len(expected)


def test_help_names_every_verb(holdfast: Holdfast) -> None:
    said = holdfast("--help")
    assert said.returncode == 0
    listed = re.findall(r"^  ([a-z-]+(?: [a-z]+)?)  +\S", said.stdout.partition("Start:")[2], re.MULTILINE)
    assert len(listed) == len(set(listed))
    short = {words for meant in SHORT.values() for words in meant}
    # What a short verb stands for; `state diff` is `savepoint diff`.
    assert leaves() - set(listed) <= short | {"state diff"}
    assert set(listed) <= leaves() | SHORT.keys()


def test_a_command_that_is_built_alone_is_the_same() -> None:
    def told(command: Any) -> tuple[object, ...]:
        return (
            command.name,
            command.help,
            [(each.name, each.opts, each.help) for each in command.params if hasattr(each, "help")],
        )

    whole: Any = typer.main.get_command(app)
    for words in map(str.split, sorted(leaves())):
        alone: Any = typer.main.get_command(_called(words))
        assert words[0] in {*SHORT, "help", "completion", "demo", "tour"} or len(alone.commands) == 1
        assert told(find(alone, words)) == told(find(whole, words))
    for unclear in ([], ["nothing"], ["state"], ["state", "nothing"]):
        assert _called(unclear) is app


def test_ctrl_c_while_options_are_read_is_told_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken_off(*_given: object) -> None:
        raise KeyboardInterrupt

    group = typer.main.get_command(app)
    monkeypatch.setattr(type(group), "parse_args", broken_off)
    with pytest.raises(SystemExit) as ended:
        group(["list"])
    assert (ended.value.code, capsys.readouterr().err) == (130, "interrupted\n")


def test_ctrl_c_that_an_import_has_made_an_error_of_its_own_of_is_told_too(home: Path) -> None:
    program = """
import signal
from typer.core import TyperGroup
from holdfast.__main__ import main

def broken_off(*given):
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        pass
    raise ImportError("PyCapsule_Import could not import module")

TyperGroup.parse_args = broken_off
main()
"""
    said = subprocess.run(
        [sys.executable, "-c", program, "list"],
        check=False,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (said.returncode, said.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("words", "fact", "verb"),
    [
        (("checkpoint", "history", "ck", "--last", "0"), "Invalid value for '--last'", "checkpoint history"),
        (("state", "get"), "Missing argument 'CHECKPOINT|JOB|SP'", "state get"),
        (("cost", "--no-such"), "No such option: --no-such", "cost"),
        (("no-such",), "No such command 'no-such'", ""),
    ],
)
def test_a_call_that_cannot_be_read_is_told_in_json_too(
    holdfast: Holdfast, words: tuple[str, ...], fact: str, verb: str
) -> None:
    plain, told = holdfast(*words), holdfast(*words, "--json")
    assert (plain.returncode, plain.stdout) == (2, "")
    assert plain.stderr.startswith(f"Usage: holdfast {verb}".rstrip())
    assert (told.returncode, told.stderr) == (2, plain.stderr)
    document = json.loads(told.stdout)
    assert document.pop("error").startswith(fact)
    assert document.pop("code").startswith("HF-E2")
    assert document == {
        "kind": "invalid",
        "exit_code": 2,
        "where": None,
        "found": None,
        "expected": None,
        "hint": f"see `{' '.join(filter(None, ('holdfast', verb, '--help')))}`",
    }


def test_ctrl_c_in_a_callback_of_an_import_is_not_lost(home: Path) -> None:
    """What such a callback raises is printed with a traceback, and passed over."""
    program = """
import signal, time
from typer.core import TyperGroup
from holdfast.__main__ import main

CALLBACK = '''
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("lost")
'''

def passed_over(*given):
    exec(compile(CALLBACK, "<frozen importlib._bootstrap>", "exec"), {"signal": signal})
    time.sleep(30)

TyperGroup.parse_args = passed_over
main()
"""
    said = subprocess.run(
        [sys.executable, "-c", program, "list"],
        check=False,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (said.returncode, said.stdout, said.stderr) == (130, "", "interrupted\n")


def test_the_version(holdfast: Holdfast) -> None:
    assert holdfast("--version").stdout == f"holdfast {package.__version__}\n"


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error(home: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [PROGRAM, "doctor", "--home", str(home)],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert done.stderr == ""


def test_an_empty_home_is_not_an_error(holdfast: Holdfast, home: Path) -> None:
    assert holdfast("list").stdout.split() == ["JOB", "STATE", "STARTED", "CHECKPOINT"]
    assert json.loads(holdfast("list", "--json").stdout) == {"jobs": []}
    assert not home.exists()


@pytest.mark.parametrize("verb", ["status", "stop", "cancel"])
def test_an_unknown_job_is(holdfast: Holdfast, verb: str) -> None:
    said = holdfast(verb, "nothing")
    assert said.returncode == 3
    assert said.stdout == ""
    assert said.stderr.startswith("error: unknown job 'nothing' in this state home [HF-E")
    assert "hint: list the jobs with `holdfast list`" in said.stderr


def test_an_error_in_json_has_one_shape(holdfast: Holdfast) -> None:
    said = holdfast("status", "nothing", "--json")
    error = json.loads(said.stdout)
    assert (error["kind"], error["exit_code"]) == ("not-found", 3)
    assert set(error) == {"error", "kind", "exit_code", "code", "where", "found", "expected", "hint"}


@pytest.fixture
def orphaned(home: Path) -> None:
    """A job whose registry says that it runs, though nobody supervises it."""
    home.mkdir()
    Registry(home / "registry.db").start_job(RECORD)


@pytest.mark.usefixtures("orphaned")
def test_a_job_without_a_supervisor_is_shown_as_such(holdfast: Holdfast) -> None:
    assert "RUNNING (no supervisor)" in holdfast("list").stdout
    assert json.loads(holdfast("status", "shop", "--json").stdout)["supervised"] is False


@pytest.mark.usefixtures("orphaned")
@pytest.mark.parametrize("verb", ["stop", "cancel"])
def test_nobody_can_be_asked_to_end_it(holdfast: Holdfast, verb: str) -> None:
    said = holdfast(verb, "shop", "--yes") if verb == "cancel" else holdfast(verb, "shop")
    assert said.returncode == 4
    assert "job 'shop' has no supervisor" in said.stderr
    assert "holdfast run job.py" in said.stderr


def write(tmp_path: Path, text: str) -> str:
    (tmp_path / "job.py").write_text(text)
    return "job.py"


ONE = "import holdfast as hf\n@hf.job(name='one', checkpoint='c')\ndef one(spark): ...\n"


@pytest.mark.parametrize(
    ("text", "target", "code", "fact"),
    [
        (None, "job.py", 3, "the job file does not exist"),
        ("x = (", "job.py", 2, "the job file does not compile"),
        ("x = 1", "job.py", 2, "the file has no job"),
        ("1 / 0", "job.py", 2, "the job file raised an error while it was loaded"),
        (ONE + ONE.replace("one", "two"), "job.py", 2, "the file has several jobs"),
        (ONE, "job.py:three", 3, "the file has no job 'three'"),
    ],
)
def test_a_bad_job_file_is_one_clear_error(
    holdfast: Holdfast, tmp_path: Path, text: str | None, target: str, code: int, fact: str
) -> None:
    if text is not None:
        write(tmp_path, text)
    said = holdfast("run", target, "--dry-run")
    assert said.returncode == code
    assert f"error: {fact} [HF-E" in said.stderr
    assert "Traceback" not in said.stderr


def test_a_job_file_that_imports_what_an_extra_brings_is_told_which(
    holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as where it is not installed
    said = holdfast("run", write(tmp_path, "import pyspark\n"), "--dry-run")
    assert said.returncode == 2
    assert "hint: run `pip install 'holdfast[spark]'`" in said.stderr


def test_a_home_that_cannot_be_written_is_named(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a directory")
    said = holdfast("run", write(tmp_path, ONE), "--home", "taken/home")
    assert said.returncode == 2
    assert "taken/home" in said.stderr
    assert "HOLDFAST_HOME" in said.stderr


def test_doctor_leaves_nothing_behind(holdfast: Holdfast, home: Path) -> None:
    said = holdfast("doctor")
    assert (said.returncode, said.stdout.splitlines()[:3]) == (
        0,
        ["commands over files: ready", "jobs: ready", ""],
    )
    assert not home.exists()


def test_doctor_sees_a_home_that_could_not_be_written(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a directory")
    said = holdfast("doctor", "--home", "taken/home")
    assert said.returncode == 1
    assert said.stdout.startswith("commands over files: not ready, see MISSING below\n")
    assert "MISSING  state home: the state home is not writable" in said.stdout


def test_doctor_fails_without_java(holdfast: Holdfast, tmp_path: Path) -> None:
    said = holdfast("doctor", "--json", environ={"JAVA_HOME": str(tmp_path)})
    assert said.returncode == 1
    found = json.loads(said.stdout)
    assert (found["ok"], found["files_ready"], found["jobs_ready"]) == (False, True, False)
    (java,) = [check for check in found["checks"] if check["name"] == "java"]
    assert java["ok"] is False
    assert "pip install 'holdfast[java]'" in java["hint"]


def test_doctor_shows_each_default_and_whose_it_is(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.sql.session.timeZone Europe/Rome\n")
    said = holdfast("doctor", "--json", environ={"SPARK_CONF_DIR": str(tmp_path / "conf")})
    assert said.returncode == 0
    defaults = {each["key"]: each for each in json.loads(said.stdout)["defaults"]}
    assert defaults["spark.sql.session.timeZone"]["value"] == "Europe/Rome"
    assert defaults["spark.sql.session.timeZone"]["given_by"].endswith("spark-defaults.conf")
    assert defaults["spark.sql.streaming.stateStore.checkpointFormatVersion"]["value"] == "2"
    assert all(each["reason"] for each in defaults.values())


def test_doctor_explains_what_a_micro_batch_has_no_use_for(holdfast: Holdfast, tmp_path: Path) -> None:
    text = ONE.replace(
        "checkpoint='c'", "checkpoint=hf.Checkpoint('c', unaligned=True, timeout='10 minutes')"
    )
    said = holdfast("doctor", "--json", "--job", write(tmp_path, text))
    assert said.returncode == 0
    knobs = {each["name"]: each for each in json.loads(said.stdout)["job"]["knobs"]}
    unaligned = next(each for name, each in knobs.items() if name.endswith("unaligned"))
    assert unaligned["outcome"] == "no-use"
    assert unaligned["why"]


def test_an_unknown_measurement_says_which_there_are(holdfast: Holdfast) -> None:
    said = holdfast("bench", "nothing")
    assert said.returncode == 2
    assert "expected startup, defaults" in said.stderr


def test_a_demo_folder_that_is_not_empty_is_refused(holdfast: Holdfast, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert holdfast("demo", "--keep", "full").returncode == 4
    assert holdfast("demo", "tea-house").returncode == 3
