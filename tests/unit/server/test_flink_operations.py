from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from served import NOW_MS, SHOP, Served

from holdfast import savepoints
from holdfast.formats.files.compression import modified_utf8
from holdfast.jobs.operation_executor import OperationExecutor
from holdfast.jobs.registry.operation_log import Operations, OperationState, Rescale
from holdfast.model import JobState
from holdfast.ownership.election import Leader
from holdfast.server.flink.calls import serialized, vertex_id

OURS = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """For requests that are refused: it stays as it is, so one does for all."""
    served = Served(tmp_path_factory.mktemp("untouched"))
    served.job(checkpoint=served.checkpoint())
    return served


@pytest.fixture
def shop(tmp_path: Path) -> Served:
    served = Served(tmp_path)
    served.job(checkpoint=served.checkpoint())
    return served


def work(served: Served, until: Callable[[], bool] = lambda: True) -> None:
    """Do all that was asked for."""
    operating = OperationExecutor(served.home, lambda: NOW_MS)
    while operating.do_one():
        pass
    operating.recover()
    assert until()


def ask(served: Served, path: str, body: Any = None, expected: int = 202) -> str:
    answer = served.client().post(path, json=body)
    assert answer.status_code == expected, answer.text
    return str(answer.json()["request-id"])


def status(served: Served, path: str) -> Any:
    answer = served.client().get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_savepoint_is_asked_for_taken_and_found(shop: Served) -> None:
    catalog = shop.folder / "checkpoints" / "sp"
    with shop.supervised():
        asked = ask(shop, f"/v1/jobs/{SHOP}/savepoints", {"target-directory": str(catalog), "bogus": 1})
        place = f"/v1/jobs/{SHOP}/savepoints/{asked}"
        assert status(shop, place) == {"status": {"id": "IN_PROGRESS"}, "operation": None}
        work(shop)
    done = status(shop, place)
    assert done["status"] == {"id": "COMPLETED"}
    location = done["operation"]["location"]
    assert savepoints.show(location).batch_id == 11
    assert savepoints.verify(location, deep=True).ok
    history = status(shop, f"/jobs/{SHOP}/checkpoints")
    assert history["latest"]["savepoint"]["external_path"] == location
    # The next one needs no directory: there is one that the job uses.
    with shop.supervised():
        ask(shop, f"/jobs/{SHOP}/savepoints")
        work(shop)
    assert len(savepoints.list(catalog)) == 2


@pytest.mark.slow
def test_asked_twice_under_one_id_there_is_one(shop: Served) -> None:
    catalog = shop.folder / "checkpoints" / "sp"
    body = {"target-directory": str(catalog), "triggerId": OURS}
    with shop.supervised():
        for _ in range(3):
            assert ask(shop, f"/jobs/{SHOP}/savepoints", body) == OURS
            work(shop)
    assert len(savepoints.list(catalog)) == 1


def test_a_failure_is_one_that_java_reads(shop: Served) -> None:
    catalog = shop.folder / "checkpoints" / "sp"
    asked = ask(shop, f"/jobs/{SHOP}/savepoints", {"target-directory": str(catalog)})
    work(shop)  # nobody supervises the job
    found = status(shop, f"/jobs/{SHOP}/savepoints/{asked}")
    assert found["status"] == {"id": "COMPLETED"}
    cause = found["operation"]["failure-cause"]
    assert "job 'shop' has no supervisor" in cause["stack-trace"]
    data = base64.b64decode(cause["serialized-throwable"])
    assert data.startswith(b"\xac\xed\x00\x05sr\x00\x29org.apache.flink.util.SerializedThrowable")
    assert b"job 'shop' has no supervisor" in data
    assert not catalog.exists()


def test_the_message_is_written_as_java_writes_it() -> None:
    assert modified_utf8("aé€𝄞\0") == b"a\xc3\xa9\xe2\x82\xac\xed\xa0\xb4\xed\xb4\x9e\xc0\x80"
    short, long = serialized("x"), serialized("x" * 1001)
    assert len(long) - len(short) == 3 * 1000
    assert len(serialized("x" * 100_000)) < 30_000


def test_an_unknown_job_is_told_in_the_status(shop: Served) -> None:
    asked = ask(shop, f"/jobs/{OURS}/savepoints", {"target-directory": "/anywhere"})
    work(shop)
    found = status(shop, f"/jobs/{OURS}/savepoints/{asked}")
    assert "unknown job" in found["operation"]["failure-cause"]["stack-trace"]
    other = shop.client().get(f"/jobs/{SHOP}/savepoints/{asked}")
    assert other.status_code == 404


@pytest.mark.slow
def test_an_operation_is_asked_for_and_found_under_the_name_of_the_job(shop: Served) -> None:
    catalog = shop.folder / "checkpoints" / "sp"
    name = "shop"
    with shop.supervised():
        asked = ask(shop, f"/jobs/{name}/savepoints", {"target-directory": str(catalog)})
        work(shop)
    for job in (name, SHOP):
        done = status(shop, f"/jobs/{job}/savepoints/{asked}")
        assert savepoints.show(done["operation"]["location"]).batch_id == 11


def test_a_job_is_stopped_with_a_savepoint(shop: Served) -> None:
    catalog = shop.folder / "checkpoints" / "sp"
    with shop.supervised():
        asked = ask(shop, f"/jobs/{SHOP}/stop", {"targetDirectory": str(catalog), "drain": False})
        operating = OperationExecutor(shop.home, lambda: NOW_MS)
        operating.start()
        try:
            while not shop.registry.was_asked("shop", "stop", NOW_MS):
                pass
            shop.registry.set_state("shop", JobState.FINISHED, NOW_MS)
            operations = Operations(shop.home)
            while not operations.get(asked).state.ended:
                pass
        finally:
            operating.close()
    found = status(shop, f"/jobs/{SHOP}/savepoints/{asked}")
    assert savepoints.verify(found["operation"]["location"]).ok
    assert status(shop, f"/jobs/{SHOP}/status") == {"status": "FINISHED"}


@pytest.mark.slow
def test_a_savepoint_is_disposed_of(shop: Served) -> None:
    taken = savepoints.take(shop.checkpoint(), shop.folder / "checkpoints" / "sp")
    asked = ask(shop, "/savepoint-disposal", {"savepoint-path": taken.uri}, 200)
    place = f"/savepoint-disposal/{asked}"
    work(shop)
    assert status(shop, place) == {"status": {"id": "COMPLETED"}, "operation": {}}
    assert savepoints.list(shop.folder / "checkpoints" / "sp") == ()
    again = ask(shop, "/savepoint-disposal", {"savepoint-path": taken.uri}, 200)
    work(shop)
    assert "failure-cause" in status(shop, f"/savepoint-disposal/{again}")["operation"]


def test_a_checkpoint_is_the_newest_batch_where_none_runs(shop: Served) -> None:
    with shop.supervised():
        asked = ask(shop, f"/jobs/{SHOP}/checkpoints", {"checkpointType": "FULL"})
        work(shop)
    found = status(shop, f"/jobs/{SHOP}/checkpoints/{asked}")
    assert found["operation"] == {"checkpointId": 11}


@pytest.mark.slow
def test_requirements_are_partitions(shop: Served) -> None:
    vertex = vertex_id(SHOP, "visits")
    place = f"/jobs/{SHOP}/resource-requirements"
    now = status(shop, place)
    assert now == {vertex: {"parallelism": {"lowerBound": 1, "upperBound": 2}}}
    client = shop.client()
    assert (client.put(place, json=now).status_code, client.put(place, json=now).json()) == (200, {})
    assert Operations(shop.home).newest() == []  # nothing had to be done
    with shop.supervised():
        answer = client.put(f"/v1{place}", json={vertex: {"parallelism": {"upperBound": 4}}})
        assert (answer.status_code, answer.json()) == (200, {})
    (asked,) = Operations(shop.home).waiting("rescale", "shop")
    assert asked.arguments == {"partitions": {"visits": 4}, "before": {"visits": 2}}
    assert shop.registry.take_requests("shop", 0) == ["rescale"]
    assert status(shop, f"/jobs/{SHOP}/rescales/overview")["rescalesCounts"]["inProgress"] == 1
    work(shop)  # its supervisor is gone, so nobody will
    (brief,) = status(shop, f"/jobs/{SHOP}/rescales/history")
    assert (brief["terminalState"], brief["rescaleUuid"]) == ("FAILED", asked.operation_id)
    full = status(shop, f"/jobs/{SHOP}/rescales/details/{asked.operation_id}")
    assert full["vertices"][vertex]["desiredParallelism"] == 4
    assert status(shop, f"/jobs/{SHOP}/rescales/summary")["rescalesCounts"]["failed"] == 1


def test_a_job_with_several_supervisors_is_rescaled_by_its_leader(shop: Served) -> None:
    leader = Leader(7, "machine-2 pid 9", "file:///leases", 10_000, NOW_MS - 60_000, NOW_MS)
    shop.registry.lead("shop", leader)
    client, vertex = shop.client(), vertex_id(SHOP, "visits")
    body = {vertex: {"parallelism": {"upperBound": 4}}}
    assert client.put(f"/jobs/{SHOP}/resource-requirements", json=body).status_code == 200
    ours = client.post("/api/v1/jobs/shop/rescale", json={"partitions": {"visits": 4}})
    assert ours.status_code == 202
    assert shop.registry.take_requests("shop", 0) == ["rescale", "rescale"]
    work(shop)  # a server leaves it to the leader, on whatever machine that is
    asked = Operations(shop.home).newest()
    assert [each.state for each in asked] == [OperationState.ASKED] * 2


def test_a_checkpoint_that_cannot_be_replaced_is_not_rescaled_and_the_job_goes_on(
    shop: Served,
) -> None:
    (query,) = shop.registry.queries("shop")
    attempt = shop.registry.attempts("shop")[-1].number
    on_hdfs = replace(query, checkpoint="hdfs://host/checkpoints/visits")
    shop.registry.queries_started("shop", attempt, [on_hdfs], NOW_MS)
    client, vertex = shop.client(), vertex_id(SHOP, "visits")
    with shop.supervised():
        body = {vertex: {"parallelism": {"upperBound": 4}}}
        flink = client.put(f"/jobs/{SHOP}/resource-requirements", json=body)
        ours = client.post("/api/v1/jobs/shop/rescale", json={"partitions": {"visits": 4}})
    assert (flink.status_code, ours.status_code) == (501, 501)
    assert "storage that cannot replace it" in flink.text
    assert "holdfast rescale CHECKPOINT --partitions N --confirm-stopped" in ours.json()["hint"]
    assert Operations(shop.home).newest() == []
    assert shop.registry.take_requests("shop", 0) == []


def test_a_rescale_that_was_asked_before_the_job_got_several_supervisors_waits(shop: Served) -> None:
    operations = Operations(shop.home)
    operations.ask(OURS, "rescale", "shop", Rescale({"visits": 4}), NOW_MS)
    shop.registry.lead("shop", Leader(7, "machine-2 pid 9", "file:///leases", 10_000, NOW_MS, NOW_MS))
    with shop.supervised():
        work(shop)
    assert operations.get(OURS).state is OperationState.ASKED


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "text"),
    [
        ("POST", f"/jobs/{SHOP}/savepoints", {"formatType": "FOO"}, 400, "[CANONICAL, NATIVE]"),
        ("POST", f"/jobs/{SHOP}/savepoints", {"target-directory": 7}, 400, "expected text"),
        ("POST", f"/jobs/{SHOP}/savepoints", {"cancel-job": "yes"}, 400, "true or false"),
        (
            "POST",
            f"/jobs/{SHOP}/savepoints",
            {"target-directory": "{folder}/checkpoints/sp", "triggerId": "x"},
            400,
            "triggerId",
        ),
        ("POST", f"/jobs/{SHOP}/savepoints", {"target-directory": "/etc"}, 400, "is not allowed"),
        ("POST", f"/jobs/{SHOP}/savepoints", {"target-directory": "sp"}, 400, "must be absolute"),
        ("POST", f"/jobs/{SHOP}/savepoints", {"target-directory": "ftp://x/y"}, 400, "ftp://x/y"),
        ("POST", f"/jobs/{SHOP}/savepoints", {"target-directory": ""}, 400, "path"),
        ("POST", f"/jobs/{SHOP}/savepoints", {"target-directory": "a\0b"}, 400, "control"),
        ("POST", f"/jobs/{SHOP}/savepoints", {"target-directory": "s3://b/../c"}, 400, "contains `..`"),
        ("POST", f"/jobs/{SHOP}/savepoints", [1], 400, "expected an object"),
        ("POST", "/jobs/zzz/savepoints", {}, 400, "(jobid)"),
        ("POST", f"/jobs/{SHOP}/stop", {"formatType": "native"}, 400, "[CANONICAL, NATIVE]"),
        ("POST", f"/jobs/{SHOP}/stop", {"drain": 1}, 400, "true or false"),
        ("POST", f"/jobs/{SHOP}/stop", {"targetDirectory": "/etc/x"}, 400, "the directory is not allowed"),
        ("POST", f"/jobs/{SHOP}/checkpoints", {"checkpointType": "SOME"}, 400, "CONFIGURED"),
        ("POST", "/savepoint-disposal", {}, 400, "Field savepoint-path must not be omitted or be null."),
        ("POST", "/savepoint-disposal", {"savepoint-path": "/etc/passwd"}, 400, "is not allowed"),
        (
            "POST",
            "/savepoint-disposal",
            {"savepoint-path": "{folder}/checkpoints/x"},
            400,
            "invalid savepoint address",
        ),
        ("GET", f"/jobs/{SHOP}/savepoints/{OURS}", None, 404, f"triggerId={OURS} for job {SHOP}."),
        ("GET", f"/jobs/{SHOP}/savepoints/x", None, 400, "(triggerid)"),
        ("GET", f"/jobs/{SHOP}/checkpoints/{OURS}", None, 404, "checkpoint operation"),
        ("GET", f"/savepoint-disposal/{OURS}", None, 404, "triggerId"),
        ("PUT", f"/jobs/{SHOP}/resource-requirements", {}, 400, "missing job vertex"),
        (
            "PUT",
            f"/jobs/{SHOP}/resource-requirements",
            {vertex_id(SHOP, "visits"): {"parallelism": {"upperBound": 40_000}}},
            400,
            "exceeds its maximum parallelism 32768.",
        ),
        (
            "PUT",
            f"/jobs/{SHOP}/resource-requirements",
            {vertex_id(SHOP, "visits"): {"parallelism": {"upperBound": 0}}},
            400,
            "no range",
        ),
        (
            "PUT",
            f"/jobs/{SHOP}/resource-requirements",
            {vertex_id(SHOP, "visits"): {"parallelism": {"upperBound": "4"}}},
            400,
            "needs lowerBound and upperBound",
        ),
        (
            "PUT",
            f"/jobs/{SHOP}/resource-requirements",
            {vertex_id(SHOP, "visits"): 4},
            400,
            "needs lowerBound and upperBound",
        ),
        (
            "PUT",
            f"/jobs/{SHOP}/resource-requirements",
            {vertex_id(SHOP, "visits"): {"parallelism": {"upperBound": 4}}, "f" * 32: {}},
            400,
            "not found in the job graph",
        ),
        ("GET", f"/jobs/{SHOP}/rescales/details/{OURS}", None, 404, "There is no rescale"),
        ("PATCH", f"/jobs/{SHOP}?mode=kill", None, 400, "(mode)"),
        ("DELETE", f"/jobs/{SHOP}", None, 405, "Method Not Allowed"),
        ("GET", f"/jobs/{SHOP}/nosuch", None, 404, "Unable to load requested file"),
    ],
)
@pytest.mark.slow
def test_bad_requests_are_refused_and_change_nothing(
    untouched: Served, method: str, path: str, body: Any, code: int, text: str
) -> None:
    if isinstance(body, dict):
        body = {
            key: value.replace("{folder}", str(untouched.folder)) if isinstance(value, str) else value
            for key, value in body.items()
        }
    before = tree(untouched.folder)
    with untouched.supervised():
        before = tree(untouched.folder)
        answer = untouched.client().request(method, path, json=body)
    assert answer.status_code == code, answer.text
    assert text in "\n".join(answer.json()["errors"])
    assert "Traceback" not in answer.text
    assert untouched.registry.take_requests("shop", 0) == []
    assert Operations(untouched.home).newest() == []
    assert tree(untouched.folder) == before


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[" * 2000, b'"x"', b"nul"])
def test_what_is_no_json_is_refused(shop: Served, body: bytes) -> None:
    answer = shop.client().post(f"/jobs/{SHOP}/savepoints", content=body)
    assert answer.status_code == 400
    assert "Request did not match expected format SavepointTriggerRequestBody." in answer.json()["errors"][0]


@pytest.mark.slow
def test_a_link_leads_nowhere_that_is_not_allowed(shop: Served) -> None:
    (shop.folder / "checkpoints" / "way-out").symlink_to("/etc")
    for path in ("way-out", "../../etc", "sp/../../../etc"):
        place = f"{shop.folder}/checkpoints/{path}"
        answer = shop.client().post(f"/jobs/{SHOP}/savepoints", json={"target-directory": place})
        assert answer.status_code == 400, path


@pytest.mark.slow
def test_flink_refuses_incremental_ones_by_its_own_fault(shop: Served) -> None:
    answer = shop.client().post(f"/jobs/{SHOP}/checkpoints", json={"checkpointType": "INCREMENTAL"})
    assert (answer.status_code, len(answer.json()["errors"])) == (500, 2)


def tree(folder: Path) -> set[tuple[str, int]]:
    """Every file with its size, but for what SQLite keeps beside its files."""
    return {
        (str(each), each.stat().st_size)
        for each in folder.rglob("*")
        if each.is_file() and "-journal" not in each.name
    }
