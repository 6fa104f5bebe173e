"""Queries that nobody has changed, served from their checkpoints: every resource, page and refusal."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from served import AGGREGATE, Served, TestClient

from golden import golden_on_disk
from holdfast.jobs.operation_executor import OperationExecutor
from holdfast.jobs.plain_watch import PlainWatch
from holdfast.jobs.registry.registry import job_id
from holdfast.jobs.registry.served_addresses import ServedAddresses
from holdfast.savepoints.savepoint_api import verify
from holdfast.server.control_plane import ControlPlane

API = "/api/v1"
# Long after the last batch of every golden checkpoint.
LATER_MS = 1_900_000_000_000
JOIN, STATELESS = "3.5/join-memory", "3.5/stateless-memory"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Three queries of different Sparks, and no job."""
    served = Served(tmp_path_factory.mktemp("plain"))
    for name in (AGGREGATE, JOIN, STATELESS):
        served.checkpoint(name)
    served.settings = replace(served.settings, checkpoints=(str(served.folder / "checkpoints"),))
    return served


NAMES = ("aggregate-changelog", "join-memory", "stateless-memory")


def client(served: Served) -> TestClient:
    return served.client(now_ms=LATER_MS)


def get(served: Served, path: str) -> Any:
    answer = client(served).get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def done(served: Served, operation: str) -> Any:
    """Carry out what was asked for, as the server of these addresses does."""
    addresses = ServedAddresses(served.home.path, served.settings.checkpoints)
    addresses.publish()
    operating = OperationExecutor(served.home, lambda: LATER_MS)
    while operating.do_one():
        pass
    addresses.withdraw()
    return get(served, f"{API}/operations/{operation}")


def test_they_are_listed_with_what_can_be_asked_of_them(plain: Served) -> None:
    jobs = get(plain, f"{API}/jobs")["jobs"]
    assert [job["name"] for job in jobs] == list(NAMES)
    assert {(job["kind"], job["supervised"], tuple(job["accepts"])) for job in jobs} == {
        ("checkpoint", False, ("savepoint",))
    }
    assert jobs[0]["job_id"] == job_id(jobs[0]["checkpoint"])
    assert get(plain, f"{API}/jobs/{jobs[0]['job_id']}")["name"] == NAMES[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "path",
    ["", "/batches", "/checkpoint", "/checkpoints", "/lag", "/sizing", "/recovery"],
)
def test_every_resource_answers_for_each(plain: Served, name: str, path: str) -> None:
    assert get(plain, f"{API}/jobs/{name}{path}")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", ["", "/checkpoints", "/savepoints", "/state"])
def test_every_page_answers_for_each(plain: Served, name: str, path: str) -> None:
    page = client(plain).get(f"/ui/jobs/{name}{path}", headers={"accept": "text/html"})
    assert page.status_code == 200
    assert name in page.text
    assert 'value="stop"' not in page.text
    assert 'value="cancel"' not in page.text


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "path",
    [
        "",
        "/status",
        "/config",
        "/plan",
        "/exceptions",
        "/checkpoints",
        "/checkpoints/config",
        "/metrics",
        "/resource-requirements",
        "/rescales/overview",
    ],
)
def test_flink_s_paths_answer_by_name_for_each(plain: Served, name: str, path: str) -> None:
    assert get(plain, f"/jobs/{name}{path}")


def test_flink_s_overviews_have_them(plain: Served) -> None:
    overview = get(plain, "/jobs/overview")["jobs"]
    assert [(job["name"], job["state"]) for job in overview] == [(name, "FINISHED") for name in NAMES]
    assert get(plain, "/overview")["jobs-finished"] == 3


def test_state_is_read_by_key_and_with_sql(plain: Served) -> None:
    of = f"{API}/jobs/aggregate-changelog"
    states = get(plain, f"{of}/state")
    assert (states["batch_id"], len(states["operators"])) == (11, 1)
    rows = get(plain, f"{of}/state/aggregate/rows")["rows"]
    assert len(rows) == 10
    (column, value), *_ = rows[0]["key"].items()
    one = get(plain, f"{of}/state/aggregate?key={column}={value}")
    assert one["value"] == rows[0]["value"]
    answer = client(plain).post(f"{of}/sql", json={"sql": "SELECT count(*) AS keys FROM aggregate"})
    assert answer.json()["rows"] == [{"keys": 10}]


@pytest.mark.parametrize("verb", ["stop", "cancel", "restart", "checkpoints", "stop-with-savepoint"])
def test_what_only_its_process_can_do_is_refused(plain: Served, verb: str) -> None:
    answer = client(plain).post(f"{API}/jobs/join-memory/{verb}", json={})
    assert answer.status_code == 501
    assert "known from its checkpoint alone" in answer.json()["error"]
    assert "stop it where it was started" in answer.json()["hint"]
    assert get(plain, f"{API}/operations")["operations"] == []


def test_it_is_not_rescaled_in_place(plain: Served) -> None:
    answer = client(plain).post(f"{API}/jobs/join-memory/rescale", json={"partitions": {"join-memory": 4}})
    assert answer.status_code == 501
    (vertex,) = get(plain, "/jobs/join-memory/resource-requirements")
    wanted = {vertex: {"parallelism": {"lowerBound": 1, "upperBound": 7}}}
    answer = client(plain).put("/jobs/join-memory/resource-requirements", json=wanted)
    assert (answer.status_code, "known from its checkpoint" in answer.text) == (501, True)


def test_flink_s_cancel_and_the_dashboard_s_buttons_are_refused(plain: Served) -> None:
    answer = client(plain).patch("/jobs/join-memory")
    assert (answer.status_code, "known from its checkpoint" in answer.text) == (409, True)
    form = {"verb": "stop"}
    origin = {"origin": "http://127.0.0.1:8081"}
    answer = client(plain).post("/ui/jobs/join-memory/ask", data=form, headers=origin)
    assert (answer.status_code, "known from its checkpoint" in answer.text) == (501, True)


def test_a_savepoint_needs_a_directory_that_the_request_or_an_option_names(tmp_path: Path) -> None:
    served = Served(tmp_path)
    checkpoint = served.checkpoint()
    served.settings = replace(served.settings, checkpoints=(str(checkpoint),))
    before = {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")}
    of = f"{API}/jobs/aggregate-changelog/savepoints"
    answer = client(served).post(of, json={})
    assert (answer.status_code, "no default directory" in answer.json()["error"]) == (400, True)
    answer = client(served).post(of, json={"directory": f"{checkpoint}.savepoints", "label": "first"})
    assert answer.status_code == 202, answer.text
    (taken,) = done(served, answer.json()["operation_id"])["result"]["savepoints"]
    assert (taken["batch"], verify(taken["savepoint"]).ok) == (11, True)
    listed = get(served, f"{API}/savepoints?job=aggregate-changelog")["catalogs"]
    assert [saved["label"] for saved in listed[f"file://{checkpoint}.savepoints"]] == ["first"]
    # A second one needs no directory any more.
    answer = client(served).post("/jobs/aggregate-changelog/savepoints", json={})
    assert done(served, answer.json()["request-id"])["state"] == "completed"
    assert {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")} == before


def test_flink_s_stop_with_a_savepoint_fails_and_takes_none(tmp_path: Path) -> None:
    served = Served(tmp_path)
    checkpoint = served.checkpoint()
    served.settings = replace(served.settings, checkpoints=(str(checkpoint),))
    where = {"targetDirectory": f"{checkpoint}.savepoints"}
    answer = client(served).post("/jobs/aggregate-changelog/stop", json=where)
    operation = done(served, answer.json()["request-id"])
    assert (operation["state"], operation["error"]["kind"]) == ("failed", "unsupported")
    assert not (tmp_path / "checkpoints" / "aggregate-changelog.savepoints").exists()


def test_a_new_checkpoint_appears_without_a_restart(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.settings = replace(served.settings, checkpoints=(str(tmp_path / "checkpoints"),))
    assert get(served, f"{API}/jobs")["jobs"] == []
    asking = client(served)
    served.checkpoint()
    until = time.monotonic() + 30
    while not (jobs := asking.get(f"{API}/jobs").json()["jobs"]):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert [job["name"] for job in jobs] == ["aggregate-changelog"]


def test_alerts_and_metrics_come_from_the_files(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.checkpoint(JOIN)
    golden_on_disk("3.5/aggregate-rocksdb", tmp_path / "checkpoints" / "counts")
    served.settings = replace(served.settings, checkpoints=(str(tmp_path / "checkpoints"),))
    plane = ControlPlane(served.home, served.settings, lambda: LATER_MS)
    watch = PlainWatch(plane.control, served.home.path, lambda: LATER_MS)
    for _ in range(2):
        watch.step()
    alerts = get(served, f"{API}/alerts?job=counts")["alerts"]
    assert [(alert["rule"], alert["phase"]) for alert in alerts] == [("format_version", "firing")]
    metrics = get(served, f"{API}/metrics?job=join-memory")["samples"]
    assert {sample["value"] for sample in metrics if sample["metric"] == "holdfast_up"} == {0.0}
    page = client(served).get("/", headers={"accept": "text/html"}).text
    assert "alerts firing" in page


def test_a_page_of_two_hundred_reads_each_log_once_and_no_state(tmp_path: Path) -> None:
    served = Served(tmp_path)
    for number in range(200):
        golden_on_disk(STATELESS, tmp_path / "checkpoints" / f"q{number:03}")
    served.settings = replace(served.settings, checkpoints=(str(tmp_path / "checkpoints"),))
    jobs = get(served, f"{API}/jobs")["jobs"]
    assert [job["name"] for job in jobs] == [f"q{number:03}" for number in range(200)]
    page = client(served).get("/", headers={"accept": "text/html"})
    assert page.text.count("/ui/jobs/q") == 200
