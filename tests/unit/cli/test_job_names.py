"""A job's name wherever a checkpoint or a directory of savepoints may stand."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command import Holdfast

from golden import NAMES, golden_on_disk
from holdfast import savepoints
from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
from holdfast.jobs.state_home import StateHome
from holdfast.model import JobState, QueryStarted, SavepointNote

NAME = next(name for name in NAMES if "aggregate-format2" in name)


class Job:
    """The job `shop` of the state home, its checkpoint and a directory of its savepoints."""

    def __init__(self, home: Path, folder: Path) -> None:
        home.mkdir()
        self.folder = folder
        self.checkpoint = golden_on_disk(NAME, folder / "visits" / "ck")
        self.registry = Registry(StateHome(home).registry)
        place = f"file://{self.checkpoint}"
        record = JobRecord(
            "shop", job_id("shop"), "job.py", place, "retain", JobState.FINISHED, None, 0, 0, 1, 1
        )
        self.registry.start_job(record)
        self.started({"visits": place})

    def started(self, checkpoints: dict[str, str]) -> None:
        number = self.registry.start_attempt("shop", 1, 0, recovers=False)
        queries = [QueryStarted(name, "id", "run", place, "none") for name, place in checkpoints.items()]
        self.registry.queries_started("shop", number, queries, 0)

    def saved(self, place: str, label: str | None = None) -> str:
        """Take a savepoint, as the supervisor does."""
        taken = savepoints.take(self.checkpoint, self.folder / place, label=label)
        note = SavepointNote("visits", 1, 1, taken.uri, taken.manifest.batch_id, 1, 1, None)
        self.registry.add_savepoint("shop", note)
        return taken.uri


@pytest.fixture
def shop(home: Path, tmp_path: Path) -> Job:
    return Job(home, tmp_path)


def told(said: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    assert said.returncode == code, said.stderr
    return json.loads(said.stdout)


def asked(verb: str, name: str) -> Sequence[str]:
    return [name if word == "CK" else f"{name}@10" if word == "CK@10" else word for word in verb.split()]


# `--home` is where the name is known; it stands in the environment here.
@pytest.mark.parametrize(
    "verb",
    [
        "checkpoint show CK",
        "checkpoint history CK --last 2",
        "checkpoint verify CK",
        "savepoint take CK new --dry-run",
        "savepoint diff CK CK@10",
        "state diff CK@10 CK",
        "state list CK",
        "state get CK@10 aggregate c1",
        "state scan CK aggregate",
        "state history CK aggregate c1",
        "state explain CK aggregate c1 --no-rank",
        "state migrate CK --backend memory --dry-run",
        "rescale CK --partitions 3 --dry-run",
        "skew CK --top 2",
        "ttl CK --what-if 1h --by count",
        "lint CK",
        "advise CK",
        "watch CK --once",
        "doctor CK",
    ],
)
def test_a_job_stands_for_its_checkpoint(holdfast: Holdfast, shop: Job, verb: str) -> None:
    by_path = holdfast(*asked(verb, str(shop.checkpoint)), "--json")
    by_name = holdfast(*asked(verb, "shop"), "--json")
    assert by_name.returncode == by_path.returncode
    expected = by_path.stdout.replace(f'"{shop.checkpoint}', f'"file://{shop.checkpoint}')
    found = by_name.stdout.replace('"place": "shop"', f'"place": "file://{shop.checkpoint}"')
    if verb.startswith("watch"):  # it notes what it has not yet noted
        assert [json.loads(text)["checkpoint"] for text in (found, expected)] == [
            f"file://{shop.checkpoint}"
        ] * 2
        return
    assert without_times(json.loads(found)) == without_times(json.loads(expected))


def without_times(value: Any) -> Any:
    """The same without what goes on while two verbs run one after the other."""
    if isinstance(value, dict):
        return {
            name: without_times(inner)
            for name, inner in value.items()
            if not name.endswith("_age_ms") and name not in ("left_ms", "ages")
        }
    return [without_times(inner) for inner in value] if isinstance(value, list) else value


def test_new_code_is_checked_against_a_job(holdfast: Holdfast, shop: Job) -> None:
    """Without Spark: the file is missed only once the job is known."""
    unknown = holdfast("check", "job.py", "--against", "nothing")
    assert unknown.stderr.startswith("error: no directory or job is named 'nothing' [HF-E")
    assert "the job file does not exist" in holdfast("check", "job.py", "--against", "shop").stderr


def test_a_job_with_several_queries_needs_one_of_them(holdfast: Holdfast, shop: Job) -> None:
    shop.started({"visits": f"file://{shop.checkpoint}", "spending": "file:///elsewhere"})
    refused = told(holdfast("checkpoint", "show", "shop", "--json"), 2)
    assert refused["error"] == "job 'shop' does not identify one checkpoint, because it has 2 queries"
    assert str(shop.checkpoint) in refused["hint"]
    check = ("check", "job.py", "--against", "shop")
    assert "2 queries" in holdfast(*check).stderr
    assert "the job file does not exist" in holdfast(*check, "--query", "visits").stderr
    no_such = holdfast(*check, "--query", "nope")
    assert (no_such.returncode, "job 'shop' has no query 'nope'" in no_such.stderr) == (3, True)


def test_doctor_looks_at_all_checkpoints_of_a_job(holdfast: Holdfast, shop: Job, tmp_path: Path) -> None:
    other = golden_on_disk(NAME, tmp_path / "other")
    shop.started({"visits": f"file://{shop.checkpoint}", "other": f"file://{other}"})
    found = told(holdfast("doctor", "shop", "--json"))["checkpoints"]
    assert {f"file://{shop.checkpoint}", f"file://{other}"} <= {one["checkpoint"] for one in found}


@pytest.mark.slow
def test_the_savepoints_of_a_job_are_where_its_last_one_is(holdfast: Holdfast, shop: Job) -> None:
    beside = f"file://{shop.checkpoint}.savepoints"
    missed = told(holdfast("savepoint", "list", "shop", "--json"), 3)
    assert (missed["error"], missed["where"]) == ("the directory is not a savepoint catalog", beside)
    taken = told(holdfast("savepoint", "take", "shop", "--json"))
    assert taken["savepoint"].startswith(f"{beside}/savepoints/")
    [listed] = told(holdfast("savepoint", "list", "shop", "--json"))["savepoints"]
    assert listed["savepoint"] == taken["savepoint"]
    newer = shop.saved("elsewhere")
    [listed] = told(holdfast("savepoint", "list", "shop", "--json"))["savepoints"]
    assert listed["savepoint"] == newer
    assert told(holdfast("savepoint", "gc", "shop", "--json"))["catalog"] == f"file://{shop.folder}/elsewhere"
    assert told(holdfast("drill", "shop", "--json"))["savepoint"] == newer
    assert told(holdfast("savepoint", "digest", "shop", "--json"))["savepoints"] == []
    assert "elsewhere" in told(holdfast("savepoint", "take", "shop", "--json"))["savepoint"]


def test_a_take_without_a_directory_goes_beside_the_checkpoint(
    holdfast: Holdfast, shop: Job, tmp_path: Path
) -> None:
    golden_on_disk(NAME, tmp_path / "plain")
    planned = holdfast("savepoint", "take", "plain", "--dry-run")
    assert planned.returncode == 0
    taken = told(holdfast("savepoint", "take", "plain", "--json"))["savepoint"]
    assert taken.startswith(f"file://{tmp_path}/plain.savepoints/savepoints/")


def test_history_over_a_job_s_savepoints(holdfast: Holdfast, shop: Job) -> None:
    shop.saved("sp")
    for place in ("shop", "sp"):
        said = told(holdfast("state", "history", "shop", "aggregate", "c1", "--savepoints", place, "--json"))
        assert said["versions"]


@pytest.mark.slow
def test_state_of_a_job_is_edited_and_erased(holdfast: Holdfast, shop: Job) -> None:
    shop.saved("sp")
    edited = told(
        holdfast("state", "edit", "shop", "--delete", "--key", "c1", "--catalog", "sp", "--dry-run", "--json")
    )
    assert edited["savepoint"] == f"file://{shop.checkpoint}"
    planned = told(holdfast("state", "erase", "shop", "c1", "--checkpoint", "shop", "--dry-run", "--json"))
    places = [searched["place"] for searched in planned["searched"]]
    assert places[0] == f"file://{shop.checkpoint}"
    assert [str(shop.folder / "sp") in place for place in places] == [False, True]


def test_a_directory_of_the_same_name_is_meant(holdfast: Holdfast, shop: Job, tmp_path: Path) -> None:
    golden_on_disk(NAME, tmp_path / "shop")
    assert told(holdfast("checkpoint", "show", "shop", "--json"))["checkpoint"] == f"file://{tmp_path}/shop"
