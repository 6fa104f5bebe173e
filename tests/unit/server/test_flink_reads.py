from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from served import NOW_MS, SHOP, TILL, Served

from holdfast.model import JobState
from holdfast.server.flink.calls import stats, vertex_id

# Flink's words, as its own server answers them.
JOB = {
    "jid", "application-id", "name", "isStoppable", "state", "job-type", "schedulerType", "start-time",
    "end-time", "duration", "maxParallelism", "now", "timestamps", "vertices", "status-counts", "plan",
    "pending-operators",
}  # fmt: skip
VERTEX = {
    "id", "slotSharingGroupId", "name", "maxParallelism", "parallelism", "status", "start-time", "end-time",
    "duration", "tasks", "metrics",
}  # fmt: skip
CHECKPOINT = {
    "className", "id", "status", "is_savepoint", "savepointFormat", "trigger_timestamp",
    "latest_ack_timestamp", "checkpointed_size", "state_size", "end_to_end_duration", "alignment_buffered",
    "processed_data", "persisted_data", "num_subtasks", "num_acknowledged_subtasks", "checkpoint_type",
    "tasks", "external_path", "discarded",
}  # fmt: skip
STATS = {"min", "max", "avg", "p50", "p90", "p95", "p99", "p999"}


@pytest.fixture
def shop(tmp_path: Path) -> Served:
    served = Served(tmp_path)
    served.job(checkpoint=served.checkpoint())
    return served


def get(served: Served, path: str) -> Any:
    """An answer, which has to be the same below /v1."""
    client = served.client()
    bare, versioned = client.get(path), client.get(f"/v1{path}")
    assert (bare.status_code, bare.json()) == (versioned.status_code, versioned.json())
    assert bare.headers["content-type"] == "application/json; charset=UTF-8"
    assert bare.status_code == 200, bare.text
    return bare.json()


def test_the_percentiles_are_flinks() -> None:
    # The end-to-end durations and sizes of a live cluster's fifteen checkpoints give these.
    values = [61, 76, 80, 90, 95, 100, 110, 117, 120, 125, 130, 140, 150, 239, 262]
    found = stats(values)
    assert (found["min"], found["max"], found["p50"]) == (61, 262, 117.0)
    assert found["p90"] == pytest.approx(239 + 0.4 * (262 - 239))
    assert found["p95"] == found["p99"] == found["p999"] == 262.0
    assert stats([]) == {"min": 0, "max": 0, "avg": 0, **dict.fromkeys(STATS - {"min", "max", "avg"}, "NaN")}
    assert stats([7])["p50"] == 7.0


def test_a_running_job_is_listed_and_overviewed(shop: Served) -> None:
    with shop.supervised():
        assert get(shop, "/jobs") == {"jobs": [{"id": SHOP, "status": "RUNNING"}]}
        (line,) = get(shop, "/jobs/overview")["jobs"]
        assert get(shop, f"/jobs/{SHOP}/status") == {"status": "RUNNING"}
        overview = get(shop, "/overview")
    assert (line["jid"], line["name"], line["state"]) == (SHOP, "shop", "RUNNING")
    assert (line["start-time"], line["end-time"], line["duration"]) == (NOW_MS - 90_000, -1, 90_000)
    assert (line["tasks"]["running"], line["tasks"]["total"]) == (2, 2)
    assert (overview["jobs-running"], overview["slots-total"]) == (1, 2)


def test_a_job_whose_supervisor_died_is_suspended(shop: Served) -> None:
    assert get(shop, f"/jobs/{SHOP}/status") == {"status": "SUSPENDED"}


def test_a_job_in_full(shop: Served) -> None:
    with shop.supervised():
        job = get(shop, f"/jobs/{SHOP}")
    assert set(job) == JOB
    (vertex,) = job["vertices"]
    assert set(vertex) == VERTEX
    assert (vertex["id"], vertex["name"]) == (vertex_id(SHOP, "visits"), "visits -> aggregate -> Sink")
    assert (vertex["parallelism"], vertex["status"], vertex["tasks"]["RUNNING"]) == (2, "RUNNING", 2)
    assert vertex["metrics"]["read-records"] == 30
    assert vertex["metrics"]["read-records-complete"] is True
    assert vertex["metrics"]["accumulated-busy-time"] == 150.0
    assert job["status-counts"]["RUNNING"] == 2
    assert job["timestamps"]["RUNNING"] == NOW_MS - 82_000
    assert job["timestamps"]["RESTARTING"] == NOW_MS - 84_000
    assert job["plan"]["nodes"][0]["id"] == vertex["id"]


def test_a_job_that_has_ended(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.job("till", state=JobState.FINISHED)
    job = get(served, f"/jobs/{TILL}")
    assert (job["state"], job["end-time"], job["duration"]) == ("FINISHED", NOW_MS - 1000, 89_000)
    assert job["vertices"][0]["tasks"]["FINISHED"] == 2
    assert job["timestamps"]["FINISHED"] == NOW_MS - 1000


def test_why_drivers_ended(shop: Served) -> None:
    history = get(shop, f"/jobs/{SHOP}/exceptions")["exceptionHistory"]
    (entry,) = history["entries"]
    assert entry["exceptionName"] == "ZeroDivisionError"
    assert (entry["taskName"], entry["timestamp"]) == ("visits", NOW_MS - 85_000)
    assert history["truncated"] is False
    assert get(shop, f"/jobs/{SHOP}/exceptions?maxExceptions=0")["exceptionHistory"]["truncated"] is True
    assert (
        get(shop, f"/jobs/{SHOP}/exceptions?failureLabelFilter=where:source")["exceptionHistory"]["entries"]
        == []
    )


def test_checkpoints_are_committed_batches(shop: Served) -> None:
    found = get(shop, f"/jobs/{SHOP}/checkpoints")
    kept = [each["id"] for each in found["history"]]
    assert kept == sorted(kept, reverse=True)
    newest = found["latest"]["completed"]
    assert set(newest) == CHECKPOINT
    assert (newest["className"], newest["status"], newest["checkpoint_type"]) == (
        "completed",
        "COMPLETED",
        "CHECKPOINT",
    )
    assert newest["external_path"].endswith(f"/aggregate-changelog@{newest['id']}")
    assert newest["state_size"] >= newest["checkpointed_size"] > 0
    assert all(set(each) == STATS for each in found["summary"].values())
    assert set(found["counts"]) == {"restored", "total", "in_progress", "completed", "failed"}
    assert (found["counts"]["failed"], found["latest"]["savepoint"]) == (0, None)


@pytest.mark.slow
def test_a_checkpoint_in_detail(shop: Served) -> None:
    newest = get(shop, f"/jobs/{SHOP}/checkpoints")["latest"]["completed"]
    vertex = vertex_id(SHOP, "visits")
    one = get(shop, f"/jobs/{SHOP}/checkpoints/details/{newest['id']}")
    assert one == {**newest, "tasks": one["tasks"]}
    assert one["tasks"][vertex]["state_size"] == newest["state_size"]
    parts = get(shop, f"/jobs/{SHOP}/checkpoints/details/{newest['id']}/subtasks/{vertex}")
    assert [each["index"] for each in parts["subtasks"]] == [0, 1]
    assert sum(each["state_size"] for each in parts["subtasks"]) == newest["state_size"]
    assert parts["summary"]["state_size"]["p50"] == "NaN"


def test_a_savepoint_is_in_the_history(shop: Served) -> None:
    shop.savepoint("file:///sp/savepoints/20260305T080000.000Z-1f0c33aa-b1-9d2e", 1)
    found = get(shop, f"/jobs/{SHOP}/checkpoints")
    saved = found["latest"]["savepoint"]
    assert (saved["id"], saved["is_savepoint"], saved["checkpoint_type"]) == (1, True, "SAVEPOINT")
    assert saved["external_path"].startswith("file:///sp/")
    assert saved == next(each for each in found["history"] if each["is_savepoint"])


def test_how_checkpoints_are_taken(shop: Served) -> None:
    found = get(shop, f"/jobs/{SHOP}/checkpoints/config")
    assert (found["mode"], found["interval"]) == ("exactly_once", 1000)
    assert found["state_backend"] == "EmbeddedRocksDBStateBackend"
    assert found["externalization"] == {"enabled": True, "delete_on_cancellation": False}


def test_metrics_are_texts(shop: Served) -> None:
    names = {each["id"] for each in get(shop, f"/jobs/{SHOP}/metrics")}
    assert {"lastCheckpointSize", "numberOfCompletedCheckpoints", "numRestarts"} <= names
    found = get(shop, f"/jobs/{SHOP}/metrics?get=numberOfCompletedCheckpoints,numRestarts,unknown")
    assert found == [
        {"id": "numberOfCompletedCheckpoints", "value": "3"},
        {"id": "numRestarts", "value": "1"},
    ]
    vertex = vertex_id(SHOP, "visits")
    parts = get(shop, f"/jobs/{SHOP}/vertices/{vertex}/metrics?get=0.numRecordsIn,1.numRecordsIn")
    assert parts == [{"id": "0.numRecordsIn", "value": "15"}, {"id": "1.numRecordsIn", "value": "15"}]
    path = f"/jobs/{SHOP}/vertices/{vertex}/subtasks/metrics?get=numRecordsIn&agg=min,sum,skew&subtasks=0-1"
    assert get(shop, path) == [{"id": "numRecordsIn", "min": 15.0, "sum": 30.0, "skew": 0.0}]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/jobs/" + "f" * 32, 404, "NotFoundException: Job " + "f" * 32 + " not found"),
        ("/jobs/zzz", 400, 'Cannot resolve path parameter (jobid) from value "zzz".'),
        ("/jobs/" + SHOP.upper(), 400, "Cannot resolve path parameter (jobid)"),
        ("/nosuch", 404, "Unable to load requested file /nosuch."),
        (f"/jobs/{SHOP}/checkpoints/details/99999", 404, "Could not find checkpointing statistics"),
        (f"/jobs/{SHOP}/checkpoints/details/x", 400, "(checkpointid)"),
        (f"/jobs/{SHOP}/vertices/{'a' * 32}", 404, "not found"),
        (f"/jobs/{SHOP}/exceptions?maxExceptions=-1", 400, "(maxExceptions)"),
        ("/jobs/metrics?get=numRestarts&agg=median", 400, "(agg)"),
    ],
)
@pytest.mark.slow
def test_what_is_not_there_is_refused_in_flinks_words(
    shop: Served, path: str, status: int, text: str
) -> None:
    for place in (path, f"/v1{path}" if path != "/nosuch" else path):
        answer = shop.client().get(place)
        assert answer.status_code == status
        (told,) = answer.json()["errors"]
        assert text in told
        assert "Traceback" not in told


def test_cancelling(shop: Served) -> None:
    client = shop.client()
    assert client.patch(f"/jobs/{'0' * 32}?mode=cancel").status_code == 404
    stopped = client.patch(f"/jobs/{SHOP}?mode=stop")
    assert (stopped.status_code, "has been removed" in stopped.text) == (308, True)
    assert client.patch(f"/jobs/{SHOP}").status_code == 409  # nobody supervises it
    with shop.supervised():
        asked = client.patch(f"/v1/jobs/{SHOP}")
        assert (asked.status_code, asked.json()) == (202, {})
    assert shop.registry.take_requests("shop", 0) == ["cancel"]
    shop.job("till", state=JobState.FINISHED)
    ended = shop.client().patch(f"/jobs/{TILL}?mode=cancel")
    assert ended.status_code == 409
    assert "already reached another terminal state (FINISHED)." in ended.json()["errors"][0]


def test_a_home_without_jobs(tmp_path: Path) -> None:
    served = Served(tmp_path)
    assert get(served, "/jobs") == {"jobs": []}
    assert get(served, "/jobs/overview") == {"jobs": []}
    assert get(served, "/config")["flink-version"] == "2.3.0"
    assert get(served, "/overview")["jobs-running"] == 0
    assert not served.home.registry.exists()


@pytest.mark.slow
def test_several_queries_share_the_numbers_out(tmp_path: Path) -> None:
    served = Served(tmp_path)
    place = served.checkpoint()
    (place.parent / "visits").mkdir(parents=True)
    for query in ("visits", "spent"):
        place.parent.joinpath("both").mkdir(exist_ok=True)
        place.parent.joinpath("both", query).symlink_to(place)
    served.job(checkpoint=place.parent / "both", queries=("visits", "spent"))
    found = get(served, f"/jobs/{SHOP}/checkpoints")
    numbers = [each["id"] for each in found["history"]]
    assert len(set(numbers)) == len(numbers)
    newest = max(numbers)
    tasks = get(served, f"/jobs/{SHOP}/checkpoints/details/{newest}")["tasks"]
    assert list(tasks) == [vertex_id(SHOP, "spent")]


@pytest.mark.parametrize(
    "path",
    ["", "/status", "/config", "/plan", "/exceptions", "/checkpoints", "/metrics", "/resource-requirements"],
)
def test_a_path_takes_the_name_of_a_job_where_flink_has_an_id(shop: Served, path: str) -> None:
    name = "shop"
    by_id, by_name = get(shop, f"/jobs/{SHOP}{path}"), get(shop, f"/jobs/{name}{path}")
    for found in (by_id, by_name):
        if isinstance(found, dict):
            found.pop("now", None)
    assert by_name == by_id
    answer = shop.client().get(f"/jobs/no-such-job{path}")
    assert answer.status_code == 400
    assert "Cannot resolve path parameter (jobid)" in answer.json()["errors"][0]
