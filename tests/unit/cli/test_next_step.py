"""What people do next: the call that a verb names has real values, and does what it says."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import written_state
from command import Holdfast
from example_place import HOME, make_place
from typer.core import TyperGroup
from written_state import JOB

import holdfast as hf
from holdfast.cli import app, next_step, output
from holdfast.cli.help_text import verbs
from holdfast.cli.state import key_words
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.model import Effect, JobState, PlanChange, StateVerdict, Try, UpgradeReport, Verdict
from holdfast.observe.alerting import AlertStore, evaluate
from holdfast.observe.metrics import sample
from holdfast.savepoints.verdicts import OTHER_VALUE

TAKEN, EDITED = "savepoints/20260305T080000", "savepoints/20260306T080000"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The directory of the examples, and a copy of it as it was."""
    folder = tmp_path_factory.mktemp("next")
    make_place(folder / "made")
    shutil.copytree(folder / "made", folder / "as it was")
    return folder / "made", folder / "as it was"


@pytest.fixture
def tmp_path(made: tuple[Path, Path]) -> Path:
    """Each test has it as it was, and in its place: savepoints and jobs name their checkpoints in full."""
    place, before = made
    shutil.rmtree(place)
    shutil.copytree(before, place)
    return place


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person reads what is printed."""
    monkeypatch.setattr(next_step, "on_terminal", lambda: True)


@pytest.fixture
def home() -> Path:
    """That of the directory: relative, as people have it."""
    return Path(HOME)


@pytest.fixture
def supervised(place: Path) -> Iterator[None]:
    lock = SupervisorLock(StateHome(place / HOME), "visits")
    assert lock.take()
    yield
    lock.release()


def hint(holdfast: Holdfast, line: str, code: int = 0) -> str:
    """What a call names as the next."""
    done = holdfast(*shlex.split(line))
    assert done.returncode == code, done.stderr
    hints = [said for said in done.stderr.splitlines() if said.startswith("next: ")]
    assert len(hints) <= 1
    assert not hints or done.stderr.endswith(f"{hints[0]}\n")
    return hints[0].removeprefix("next: ") if hints else ""


# A call, and the next one; `*` is a savepoint that it has made, PLACE the directory.
AFTER = {
    "init mine --dry-run": "holdfast init mine",
    "list": "holdfast status visits",
    "checkpoint show checkpoints/visits": "holdfast state list checkpoints/visits",
    "checkpoint history checkpoints/visits": "holdfast state diff checkpoints/visits@1 checkpoints/visits@2",
    "checkpoint verify checkpoints/visits": "holdfast savepoint take checkpoints/visits savepoints",
    "checkpoint release checkpoints/visits": "holdfast checkpoint verify checkpoints/visits",
    "savepoint take checkpoints/visits savepoints --dry-run": (
        "holdfast savepoint take checkpoints/visits savepoints"
    ),
    "savepoint take checkpoints/visits savepoints": "holdfast savepoint verify savepoints/*",
    "savepoint list savepoints": f"holdfast savepoint show {EDITED}",
    f"savepoint show {TAKEN}": f"holdfast savepoint verify {TAKEN}",
    f"savepoint show {EDITED}": f"holdfast savepoint verify {EDITED}",
    f"savepoint verify {TAKEN}": f"holdfast restore {TAKEN} checkpoints/visits-restored --dry-run",
    f"savepoint diff {TAKEN} {EDITED} --files": f"holdfast savepoint diff {TAKEN} {EDITED}",
    f"savepoint diff {TAKEN} {EDITED}": f"holdfast state explain {EDITED} bob",
    f"state diff {TAKEN} {TAKEN}": "",
    "state diff checkpoints/visits@0 checkpoints/visits@1": "holdfast state explain checkpoints/visits@1 ann",
    "savepoint digest savepoints --dry-run": "",
    f"savepoint digest {TAKEN}": f"holdfast savepoint verify {TAKEN} --deep",
    f"savepoint label {TAKEN} 'before the upgrade' --dry-run": (
        f"holdfast savepoint label {TAKEN} 'before the upgrade'"
    ),
    f"savepoint label {TAKEN} nightly": "holdfast savepoint list savepoints",
    f"savepoint delete {TAKEN} --dry-run": f"holdfast savepoint delete {TAKEN}",
    f"savepoint delete {TAKEN} --yes": "holdfast savepoint list savepoints",
    "savepoint gc savepoints --dry-run": "",
    "savepoint gc savepoints --yes": "holdfast savepoint list savepoints",
    "state list checkpoints/visits": "holdfast state scan checkpoints/visits --limit 10",
    f"state list {TAKEN}": f"holdfast state scan {TAKEN} --limit 10",
    "state scan checkpoints/visits --where \"customer = 'ann'\"": (
        "holdfast state get checkpoints/visits ann"
    ),
    "state scan checkpoints/visits --where 'count > 100'": "",
    "state get checkpoints/visits ann --batch 1": ("holdfast state explain checkpoints/visits ann --batch 1"),
    "state explain checkpoints/visits@1 aggregate ann": (
        "holdfast state history checkpoints/visits@1 aggregate ann"
    ),
    "state history checkpoints/visits bob": ("holdfast state diff checkpoints/visits@0 checkpoints/visits@1"),
    "state history checkpoints/visits cid": "",  # of batch 0, with nothing before it
    f"state edit {TAKEN} --set count=7 --key ann --dry-run": (
        f"holdfast state edit {TAKEN} --set count=7 --key ann"
    ),
    f"state edit {TAKEN} --set count=7 --key ann --yes": (
        "holdfast restore savepoints/* checkpoints/visits-restored --dry-run"
    ),
    f"state undo {EDITED} --yes": "holdfast restore savepoints/* checkpoints/visits-restored --dry-run",
    "state erase savepoints ann --dry-run": "holdfast state erase savepoints ann",
    "offsets set checkpoints/orders moved --at orders:0:12 --confirm-stopped --dry-run": (
        "holdfast offsets set checkpoints/orders moved --at orders:0:12 --confirm-stopped"
    ),
    "offsets skip checkpoints/orders moved --rows orders:1:1 --confirm-stopped": (
        'start the query with .option("checkpointLocation", "PLACE/moved")'
    ),
    "offsets translate checkpoints/orders moved --topic orders=o2 --dry-run": "",  # nobody said it is stopped
    "offsets translate checkpoints/orders moved --topic orders=o2 --confirm-stopped": (
        'start the query with .option("checkpointLocation", "PLACE/moved")'
    ),
    f"restore {TAKEN} checkpoints/again --dry-run": f"holdfast restore {TAKEN} checkpoints/again",
    f"restore {TAKEN} checkpoints/again": (
        "holdfast run visits.py --set checkpoint.storage=checkpoints/again"
    ),
    f"fork {TAKEN} 'an experiment' --dry-run": f"holdfast fork {TAKEN} 'an experiment'",
    f"rescale {TAKEN} wider --partitions 3 --dry-run": (f"holdfast rescale {TAKEN} wider --partitions 3"),
    "rescale checkpoints/visits --partitions 3 --dry-run": "",  # nobody has said that no query uses it
    f"rescale {TAKEN} wider --partitions 3": ("holdfast run visits.py --set checkpoint.storage=wider"),
    f"state migrate {TAKEN} rocks --backend rocksdb": (
        "holdfast run visits.py --set checkpoint.storage=rocks"
    ),
    "skew checkpoints/visits": "holdfast skew checkpoints/visits --top 10",
    "skew visits": "holdfast skew checkpoints/visits --top 10",
    "mirror checkpoints/visits mirrored --once": "holdfast savepoint list mirrored",
    "watch checkpoints/visits --once": "holdfast checkpoint verify checkpoints/visits",
    "doctor --job visits.py": "holdfast run visits.py",
    "run visits.py --set trigger='5 seconds' --dry-run": "holdfast run visits.py --set 'trigger=5 seconds'",
    # What follows is no call, or nothing.
    "ttl checkpoints/visits --what-if 24h": "",
    "alerts list": "",
    "alerts export": "",
    "state scan checkpoints/visits --sql 'select 1'": "",
}
# These start Spark, a job, or what goes on; the last is no call.
NOT_RUN = ("holdfast run ", "holdfast stop ", "start the query ")

# Nothing sensible follows: the answer is for another program, or for a person's own thought.
NOTHING_FOLLOWS = {
    "completion", "serve", "lint", "advise", "cost", "ttl", "drill", "bench", "alerts export", "offsets show",
    "explain", "help", "version", "check-spark", "restart",
}  # fmt: skip
# What follows these is looked at where they can run: Spark or a supervisor is a process there.
ELSEWHERE = {
    "demo": "starts Spark",
    "tour": "below",
    "status": "below",
    "stop": "tests/fault/test_next_steps_of_jobs.py",
    "cancel": "tests/fault/test_next_steps_of_jobs.py",
    "upgrade": "starts Spark",
    "apply": "tests/fault/test_apply.py",
    "check": "below, and tests/fault/test_init_job.py",
    "state bootstrap": "tests/spark/test_bootstrap.py",
    "evolve": "it calls `state migrate --code`",
    "compare": "it calls `fork --compare`",
}


def test_every_verb_names_a_next_call_or_none_on_purpose() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    words = [words.removeprefix("holdfast ") for words, _ in verbs("holdfast", group.commands.values())]
    named = {
        word for word in words for line, then in AFTER.items() if f"{line} ".startswith(f"{word} ") and then
    }
    assert not named & NOTHING_FOLLOWS
    assert set(words) - named - NOTHING_FOLLOWS - ELSEWHERE.keys() == {"alerts list"}  # below


@pytest.mark.usefixtures("looked_at")
@pytest.mark.parametrize("line", AFTER)
def test_a_verb_names_the_next_call_and_that_one_works(
    line: str, place: Path, holdfast_at_once: Holdfast
) -> None:
    before = savepoints_in(place)
    said = hint(holdfast_at_once, line)
    expected = AFTER[line].replace("PLACE", str(place))
    if "*" in expected:
        (new,) = savepoints_in(place) - before
        expected = expected.replace("*", new[: len("20260305T080000")])
    assert said == expected
    if said and not said.startswith(NOT_RUN):
        words = shlex.split(said)[1:]
        asks = any(word in words for word in ("delete", "edit", "erase")) and "--dry-run" not in words
        assert holdfast_at_once(*words, *(["--yes"] if asks else [])).returncode == 0


def savepoints_in(place: Path) -> set[str]:
    return {path.name for path in (place / "savepoints" / "savepoints").iterdir()}


@pytest.mark.usefixtures("looked_at")
def test_digests_that_are_pending_are_made_next(place: Path, holdfast: Holdfast) -> None:
    before = savepoints_in(place)
    with written_state.counted_later():
        said = hint(holdfast, "savepoint take checkpoints/visits savepoints --no-digest")
    (new,) = savepoints_in(place) - before
    short = f"savepoints/{new[: len('20260305T080000')]}"
    assert said == f"holdfast savepoint digest {short}"
    assert hint(holdfast, f"savepoint show {short}") == said
    dry_run = "savepoint digest savepoints --dry-run"
    assert hint(holdfast, dry_run) == "holdfast savepoint digest savepoints"
    assert hint(holdfast, "savepoint digest savepoints") == f"holdfast savepoint verify {short} --deep"


@pytest.mark.usefixtures("looked_at")
def test_of_the_largest_key_the_next_is_what_it_holds(place: Path, holdfast: Holdfast) -> None:
    said = hint(holdfast, "skew checkpoints/visits --top 1")
    words = shlex.split(said)
    assert words[:-1] == ["holdfast", "state", "get", "checkpoints/visits", "aggregate"]
    assert json.loads(holdfast(*words[1:], "--json").stdout)["key"] == {"customer": words[-1]}


@pytest.mark.usefixtures("looked_at")
def test_a_damaged_checkpoint_is_kept_as_far_as_it_can_be(place: Path, holdfast: Holdfast) -> None:
    (newest,) = (place / "checkpoints/visits/state/0/0").glob("3.delta")
    newest.write_bytes(newest.read_bytes()[:-4])
    said = hint(holdfast, "checkpoint verify checkpoints/visits", code=6)
    assert said == "holdfast savepoint take checkpoints/visits savepoints --batch 1"
    assert holdfast(*shlex.split(said)[1:]).returncode == 0


@pytest.mark.usefixtures("looked_at")
def test_of_a_damaged_savepoint_the_others_are_listed(place: Path, holdfast: Holdfast) -> None:
    stored = [path for path in (place / "savepoints" / "objects").rglob("*") if path.is_file()]
    for path in stored:
        path.write_bytes(b"")
    assert stored
    said = hint(holdfast, f"savepoint verify {TAKEN}", code=6)
    assert said == "holdfast savepoint list savepoints"


@pytest.mark.usefixtures("looked_at")
def test_a_directory_that_is_there_is_not_named_for_a_restore(place: Path, holdfast: Holdfast) -> None:
    (place / "checkpoints" / "visits-restored").mkdir()
    said = hint(holdfast, f"savepoint verify {TAKEN}")
    assert said == f"holdfast restore {TAKEN} checkpoints/visits-restored-2 --dry-run"


@pytest.mark.usefixtures("looked_at")
def test_a_query_that_is_no_job_starts_with_an_option(place: Path, holdfast: Holdfast) -> None:
    shutil.rmtree(place / HOME)
    for line in (f"restore {TAKEN} again", f"fork {TAKEN} 'the other'"):
        said = hint(holdfast, line)
        folder = shlex.split(line)[-1]
        assert said == f'start the query with .option("checkpointLocation", "{place}/{folder}")'


@pytest.mark.usefixtures("looked_at", "supervised")
def test_what_is_restored_beside_a_job_that_runs_is_not_its_next_start(
    place: Path, holdfast: Holdfast
) -> None:
    assert hint(holdfast, f"restore {TAKEN} again").startswith("start the query with .option(")


@pytest.mark.usefixtures("looked_at", "supervised")
def test_a_job_that_runs_can_be_saved(place: Path, holdfast: Holdfast) -> None:
    assert hint(holdfast, "status visits") == "holdfast savepoint take visits checkpoints/visits.savepoints"
    assert hint(holdfast, "stop visits --dry-run") == "holdfast stop visits"
    assert hint(holdfast, "cancel visits --dry-run") == "holdfast cancel visits"
    assert hint(holdfast, "restart visits --dry-run") == "holdfast restart visits"
    hint(holdfast, "savepoint take visits backups")
    assert hint(holdfast, "status visits") == "holdfast savepoint take visits backups"
    assert hint(holdfast, "checkpoint verify checkpoints/visits").endswith(" backups")


@pytest.mark.usefixtures("looked_at")
@pytest.mark.parametrize(
    ("state", "then"),
    [
        (JobState.RUNNING, "holdfast run visits.py"),  # its supervisor is gone
        (JobState.FINISHED, "holdfast run visits.py"),
        (JobState.CANCELED, "holdfast run visits.py"),
        (JobState.FAILED, "holdfast checkpoint verify checkpoints/visits"),
    ],
)
def test_a_job_that_does_not_run_is_started_or_looked_at(
    state: JobState, then: str, place: Path, holdfast: Holdfast
) -> None:
    Registry(StateHome(place / HOME).registry).set_state("visits", state, JOB.updated_ms, None)
    assert hint(holdfast, "status visits") == then


@pytest.mark.usefixtures("looked_at")
def test_a_file_that_is_elsewhere_is_not_started(place: Path, holdfast: Holdfast) -> None:
    (place / "visits.py").unlink()
    assert hint(holdfast, "status visits") == ""


STATE = StateVerdict("0 stateStoreSave", "default", Verdict.MAP, operator_id=0, state_name="aggregate")
FILTER = PlanChange("filter", None, "(amount > 0)", Effect.MEANING, "it is before the state")


@pytest.mark.usefixtures("looked_at")
@pytest.mark.parametrize(
    ("verdict", "changes", "given", "then"),
    [
        (Verdict.MAP, (), [TAKEN], "holdfast run visits.py"),
        (Verdict.MAP, (), [TAKEN, "--set", "size=1 day"], "holdfast run visits.py --set 'size=1 day'"),
        (Verdict.INCOMPATIBLE, (), [TAKEN], f"holdfast state list {TAKEN}"),
        (
            Verdict.DROP,
            (),
            [TAKEN],
            f"holdfast state scan {TAKEN} aggregate --operator 0 --limit 10",
        ),
        (Verdict.MAP, (FILTER,), [TAKEN], ""),
        (
            Verdict.MAP,
            (FILTER,),
            [TAKEN, "--old", "visits.py"],
            f"holdfast fork {TAKEN} --compare visits.py --original visits.py",
        ),
        (
            Verdict.MAP,
            (FILTER,),
            ["checkpoints/visits"],
            "holdfast savepoint take checkpoints/visits savepoints",
        ),
    ],
)
def test_the_verdict_on_new_code_says_what_to_do(
    verdict: Verdict,
    changes: tuple[PlanChange, ...],
    given: list[str],
    then: str,
    place: Path,
    holdfast: Holdfast,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's part is left out: it is in `tests/spark/test_upgrade_check.py`, and what it finds is given."""
    states = (dataclasses.replace(STATE, verdict=verdict),)
    report = UpgradeReport(
        "visits.py", given[0], None, 1, states, changes, Try(ran=True, accepted=True), "note"
    )
    monkeypatch.setattr(hf, "check", lambda *_args, **_given: report)
    line = shlex.join(["check", "visits.py", "--against", *given])
    assert hint(holdfast, line, code=report.exit_code) == then
    if then.startswith("holdfast state"):
        assert holdfast(*shlex.split(then)[1:]).returncode == 0


@pytest.mark.usefixtures("looked_at", "supervised")
def test_new_code_that_keeps_the_state_of_a_job_that_runs_takes_its_place(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = UpgradeReport("visits.py", TAKEN, None, 1, (STATE,), (), Try(ran=True, accepted=True), "note")
    monkeypatch.setattr(hf, "check", lambda *_args, **_given: report)
    said = hint(holdfast, f"check visits.py --against {TAKEN}")
    assert said == "holdfast stop visits --savepoint"


@pytest.mark.usefixtures("looked_at")
def test_the_state_home_that_was_named_is_named_again(place: Path, holdfast: Holdfast) -> None:
    (place / HOME).rename(place / "at home")
    said = hint(holdfast, "list --home 'at home'")
    assert said == "holdfast status visits --home 'at home'"
    assert hint(holdfast, said.removeprefix("holdfast ")) == "holdfast run visits.py --home 'at home'"


@pytest.mark.usefixtures("looked_at")
def test_an_alert_leads_to_its_job(place: Path, holdfast: Holdfast) -> None:
    for job in ("elsewhere", "visits"):
        numbers = [
            sample("holdfast_alert_threshold", 10.0, job, "state_size"),
            sample("holdfast_state_bytes", 12.0, job, "visits", "0 dedupe"),
        ]
        standing, events = evaluate(numbers, {}, 1_772_700_100_000)
        store = AlertStore(place / HOME)
        store.save(job, 1_772_700_100_000, samples=(), totals={}, standing=standing, events=events)
    assert hint(holdfast, "alerts list visits") == "holdfast status visits"
    assert hint(holdfast, "alerts list elsewhere") == ""  # a query that is only watched


def test_a_key_that_begins_with_a_dash_is_no_option() -> None:
    words = key_words("get", "ck", None, ["-5"], None, 3, None)
    assert shlex.join(words) == "state get ck --batch 3 -- -5"


@pytest.mark.usefixtures("looked_at")
def test_init_names_several_calls(tmp_path: Path, holdfast: Holdfast) -> None:
    said = holdfast("init", "my jobs", "--name", "totals").stderr
    assert f"\nnext:\n  cd '{tmp_path}/my jobs'\n" in said
    assert "  holdfast run totals.py  " in said
    assert holdfast("init", "other", "--quiet").stderr == ""


@pytest.mark.usefixtures("looked_at")
@pytest.mark.slow
def test_the_tour_names_its_own_next_step_alone(holdfast: Holdfast) -> None:
    said = holdfast("tour", "shop")
    assert said.returncode == 0, said.stderr
    assert [line for line in said.stderr.splitlines() if line.startswith("next:")] == ["next: holdfast init"]


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("reads", "more"), [(False, []), (True, ["--json"]), (True, ["-q"])], ids=["pipe", "json", "quiet"]
)
def test_nobody_is_told_who_does_not_look_on(
    reads: bool, more: list[str], holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_step, "on_terminal", lambda: reads)
    for line in (
        "checkpoint verify checkpoints/visits",
        "state get checkpoints/visits ann",
        f"restore {TAKEN} again",
        f"restore {TAKEN} elsewhere --dry-run",
        "list",
        "init mine",
    ):
        done = holdfast(*line.split(), *more)
        assert done.returncode == 0, done.stderr
        assert "next:" not in done.stdout + done.stderr


def test_both_streams_have_to_be_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = os.openpty()
    with os.fdopen(other, "w") as terminal, Path(os.devnull).open("w") as pipe:
        for out, err, expected in (
            (terminal, terminal, True),
            (pipe, terminal, False),
            (terminal, pipe, False),
        ):
            monkeypatch.setattr(sys, "stdout", out)
            monkeypatch.setattr(sys, "stderr", err)
            assert next_step.on_terminal() is expected
    os.close(own)


def test_a_hint_that_cannot_be_made_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(next_step, "on_terminal", lambda: True)
    output.be_quiet(False)

    def refused() -> tuple[str, ...]:
        raise FileNotFoundError

    next_step.say_looked_up(False, refused)
    next_step.say(False)
    assert capsys.readouterr().err == ""
    next_step.say(False, "status", "a job")
    assert capsys.readouterr().err == "next: holdfast status 'a job'\n"


MIGRATE = f"holdfast state migrate {TAKEN} --code visits.py --set size=2 --dry-run"


@pytest.mark.parametrize(
    ("migration", "more"),
    [
        ("", "fix: convert the state to the schema of the new code"),
        (
            "give --initial n=0",
            "fix: convert the state to the schema of the new code; also needed: give --initial n=0",
        ),
    ],
)
def test_what_fixes_a_refusal_is_a_part_of_the_answer(
    migration: str, more: str, holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe, with --quiet and in JSON too."""
    _check_finds(monkeypatch, migration)
    line = ("check", "visits.py", "--against", TAKEN, "--set", "size=2")
    for words in (line, (*line, "-q")):
        said = holdfast(*words)
        assert said.returncode == 2
        assert said.stdout.splitlines()[-2:] == [more, f"  {MIGRATE}"]
    found = json.loads(holdfast(*line, "--json").stdout)
    assert (found["next"], found["migration"]) == (MIGRATE, migration)


@pytest.mark.usefixtures("looked_at")
def test_a_refusal_that_no_migration_fixes_names_the_columns(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check_finds(monkeypatch, None)
    line = ("check", "visits.py", "--against", TAKEN, "--set", "size=2")
    assert hint(holdfast, shlex.join(line), code=2) == f"holdfast state list {TAKEN}"
    said = holdfast(*line)
    assert "migrate" not in said.stdout
    assert json.loads(holdfast(*line, "--json").stdout)["next"] is None


def _check_finds(monkeypatch: pytest.MonkeyPatch, migration: str | None) -> None:
    refused = dataclasses.replace(STATE, verdict=Verdict.INCOMPATIBLE, spark_error=OTHER_VALUE)
    tried = Try(ran=True, accepted=False)
    report = UpgradeReport("visits.py", TAKEN, None, 1, (refused,), (FILTER,), tried, "note", (), migration)
    monkeypatch.setattr(hf, "check", lambda *_args, **_given: report)
