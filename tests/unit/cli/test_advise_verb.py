"""`holdfast advise`: what it prints of checkpoints, jobs and plans."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command import Holdfast

import holdfast as hf
from golden import golden_on_disk
from holdfast.errors import Invalid, NotFound
from holdfast.jobs.advise_api import remembered
from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
from holdfast.jobs.state_home import StateHome
from holdfast.model import BatchProgress, JobState, OperatorProgress, QueryStarted


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    golden_on_disk("4.2/aggregate-rocksdb", tmp_path / "ck")


def told(said: subprocess.CompletedProcess[str]) -> Any:
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def job_of(home: Path, checkpoint: Path, batches: int) -> None:
    """A job that falls behind: of a hundred rows a second it works off ninety."""
    home.mkdir(exist_ok=True)
    registry = Registry(StateHome(home).registry)
    place = f"file://{checkpoint}"
    state = JobState.RUNNING
    registry.start_job(
        JobRecord("shop", job_id("shop"), "job.py", place, "retain", state, None, 0, 0, None, 1)
    )
    number = registry.start_attempt("shop", 1, 0, recovers=False)
    registry.queries_started("shop", number, [QueryStarted("visits", "id", "run", place, "none")], 0)
    operator = OperatorProgress("stateStoreSave", 10, 1, 0, 0, 0, 10, 2)
    for batch_id in range(batches):
        registry.add_batch(
            "shop",
            number,
            BatchProgress(
                "visits", batch_id, batch_id * 1000, 100, 900, None, (operator,),
                input_rate=100.0, processed_rate=90.0,
            ),
        )  # fmt: skip


def test_advice_has_what_was_seen_what_it_costs_and_what_to_do(holdfast: Holdfast) -> None:
    said = holdfast("advise", "ck", "--topic", "checkpoint")
    assert said.returncode == 0
    lines = said.stdout.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("AD203 changelog-off, warning"))
    assert lines[at].endswith("certain: operator 0 aggregate has 8 snapshots and no changelog")
    # 11,377 bytes in each of 86,400,000 / 722.5 batches a day.
    assert lines[at + 1] == "  costs: each batch uploads 11.1 KiB, 1.3 GiB a day, however little has changed"
    assert lines[at + 3].strip() == (
        'spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")'
    )


def test_json_has_every_fact(holdfast: Holdfast) -> None:
    found = told(holdfast("advise", "ck", "--json"))
    assert (found["batch_id"], found["lint"]) == (11, ["HF310"])
    assert found["topics"] == ["backend", "checkpoint", "partitions", "memory"]
    advice = {each["id"]: each for each in found["advice"]}
    assert advice["AD203"]["rule"] == "HF308"
    assert (advice["AD203"]["severity"], advice["AD203"]["sureness"]) == ("warning", "certain")
    assert {each["name"] for each in found["backends"]} == {"memory", "rocksdb", "redis", "cassandra"}
    assert {each["name"] for each in found["places"]} == {"local", "efs", "hdfs", "s3"}
    assert found["forecast"] is None


def test_several_topics_stand_with_commas_or_apart(holdfast: Holdfast) -> None:
    together = told(holdfast("advise", "ck", "--topic", "backend,memory", "--json"))
    apart = told(holdfast("advise", "ck", "--topic", "memory", "--topic", "backend", "--json"))
    assert together == apart
    assert together["topics"] == ["backend", "memory"]
    assert together["places"] == []


def test_a_plan_needs_no_checkpoint(holdfast: Holdfast) -> None:
    words = ("advise", "--rate", "5000", "--keys", "1000000", "--value-bytes", "200", "--latency", "30s")
    found = told(holdfast(*words, "--json"))
    assert (found["place"], found["batch_id"]) == (None, None)
    assert found["forecast"]["plan"]["interval_ms"] == 15_000
    said = holdfast(*words)
    assert 'spark.conf.set("spark.sql.shuffle.partitions", "2")' in said.stdout.splitlines()


def test_figures_of_this_machine_stand_in_for_the_guides(holdfast: Holdfast) -> None:
    side = {
        "batch_s": [1], "recovery_s": {"10000": [9], "1000000": [99]}, "state_bytes": 10, "rows": 1,
        "get_us": {"p50": 1, "p99": 2},
    }  # fmt: skip
    content = {"backends": {"sizes": {"rows": 7}, "sides": {"rocksdb": side}}}
    Path("own.json").write_text(json.dumps(content))
    found = told(holdfast("advise", "ck", "--topic", "backend", "--measured", "own.json", "--json"))
    rocksdb = next(each for each in found["backends"] if each["name"] == "rocksdb")
    assert (rocksdb["rows_a_second"], rocksdb["recovery_ms"]) == (7, 9_000)
    assert found["figures"].startswith("your measurements, own.json")


def test_prices_give_requests_a_cost(holdfast: Holdfast) -> None:
    Path("prices.toml").write_text('currency = "EUR"\nwrites = { price = 5, per = "1000 requests" }\n')
    free, paid = (
        told(holdfast("advise", "ck", "--topic", "checkpoint", "--json", *more))
        for more in ((), ("--prices", "prices.toml"))
    )
    cost_free, cost_paid = (
        next(each["money_a_month"] for each in found["places"] if each["name"] == "s3")
        for found in (free, paid)
    )
    assert paid["currency"] == "EUR"
    assert cost_paid > cost_free
    assert [any("--prices" in what for what in found["not_told"]) for found in (free, paid)] == [True, False]


@pytest.mark.parametrize(("batches", "behind"), [(10, True), (9, False)])
def test_a_job_tells_more(holdfast: Holdfast, home: Path, tmp_path: Path, batches: int, behind: bool) -> None:
    job_of(home, tmp_path / "ck", batches)
    by_name, by_path = (told(holdfast("advise", which, "--json")) for which in ("shop", "ck"))
    assert ("AD306" in {each["id"] for each in by_name["advice"]}) == behind
    assert by_name == by_path


def test_another_checkpoint_has_no_part_in_what_a_job_tells(home: Path, tmp_path: Path) -> None:
    job_of(home, tmp_path / "ck", 12)
    assert len(remembered("ck", home)) == 12
    assert remembered(f"file://{tmp_path}/ck", home) == remembered(tmp_path / "ck", home) != ()
    assert remembered("other", home) == ()
    assert remembered("ck", tmp_path / "nowhere") == ()


def test_a_state_home_that_cannot_be_read_tells_nothing(home: Path) -> None:
    home.mkdir(exist_ok=True)
    StateHome(home).registry.write_bytes(b"no database" * 100)
    assert remembered("ck", home) == ()
    assert hf.advise("ck", home=home).batch_id == 11


def test_nothing_is_written(holdfast: Holdfast, tmp_path: Path) -> None:
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    assert holdfast("advise", "ck").returncode == 0
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_lines_are_broken_on_a_narrow_terminal(holdfast: Holdfast) -> None:
    lines = holdfast("advise", "ck", environ={"COLUMNS": "60"}).stdout.splitlines()
    assert all(
        len(line) <= 60 or line.startswith("    ") or "`" in line or " " not in line.strip() for line in lines
    )


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({}, "advice needs either a checkpoint or a planned job"),
        ({"checkpoint": "ck", "rate": 1, "keys": 1}, "advice needs either a checkpoint or a planned job"),
        ({"rate": 1}, "advice for a planned job needs both a rate and a number of keys"),
        ({"rate": True, "keys": 1}, "invalid value for rate"),
        ({"checkpoint": "ck", "topics": "memory,backend"}, "unknown advice topic"),
    ],
)
def test_what_means_nothing_is_refused(given: dict[str, Any], fact: str) -> None:
    with pytest.raises(Invalid, match=fact):
        hf.advise(**given)


def test_one_topic_may_stand_alone() -> None:
    assert [topic.value for topic in hf.advise("ck", topics="memory").topics] == ["memory"]


def test_a_checkpoint_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound):
        hf.advise("nowhere")


def test_the_sum_of_a_plan_says_what_it_leaves_out(holdfast: Holdfast) -> None:
    plan = ("--rate", "5000", "--keys", "1000000")
    shown = holdfast("advise", *plan).stdout
    assert re.search(
        r"^per month +\S+ USD without requests and memory \(no price given\)$", shown, re.MULTILINE
    )
    assert re.search(r"^LOCATION .* USD/MONTH ", shown, re.MULTILINE)
    assert re.search(r"^s3 .*[0-9] \+  ", shown, re.MULTILINE)
    assert "\n+ without requests (no price given)\n" in shown
    assert "unknown: the cost of requests and memory" in shown


def test_advice_and_cost_have_one_sum_for_one_plan(holdfast: Holdfast) -> None:
    Path("prices.toml").write_text(
        'writes = { price = 0.005, per = "1000 requests" }\n'
        'reads = { price = 0.0004, per = "1000 requests" }\n'
        'memory = { price = 3.5, per = "GiB-month" }\n'
    )
    plan = ("--rate", "5000", "--keys", "1000000", "--prices", "prices.toml", "--json")
    advised = told(holdfast("advise", *plan))["forecast"]
    shape = {name: str(advised["plan"][name]) for name in ("partitions", "interval_ms", "medium")}
    costs = told(
        holdfast(
            "cost", *plan, "--partitions", shape["partitions"], "--interval", f"{shape['interval_ms']}ms",
            "--on", shape["medium"],
        )
    )  # fmt: skip
    assert advised["money"] == costs["money"]
    assert advised["money"]["unpriced"] == []
    # By hand from what is printed beside it: bytes, requests of 730 / 24 days, and memory.
    a_day = advised["requests"]["total"]
    requests = (a_day["writes"] + a_day["lists"]) * 5e-6 + a_day["reads"] * 4e-7
    expected = (
        advised["local_bytes"] * 0.10 / 1e9
        + advised["checkpoint_bytes"] * 0.023 / 1e9
        + requests * 730 / 24
        + advised["memory_bytes"] * 3.5 / 2**30
    )
    assert advised["money"]["total"] == pytest.approx(expected)
