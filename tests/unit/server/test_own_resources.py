from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from served import AGGREGATE, NOW_MS, SHOP, Served

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.checkpoints.state.contents import contents
from holdfast.jobs.operation_executor import OperationExecutor
from holdfast.jobs.registry.operation_log import Operations
from holdfast.model import HeavyKey, SkewReport
from holdfast.savepoints import planning
from holdfast.savepoints.address import StateAddress
from holdfast.storage.local import LocalStorage

API = "/api/v1"
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


def get(served: Served, path: str) -> Any:
    answer = served.client().get(f"{API}{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def done(served: Served, path: str, body: Any) -> Any:
    """Ask for an operation, do it, and give what is told of it then."""
    answer = served.client().post(f"{API}{path}", json=body)
    assert answer.status_code == 202, answer.text
    operating = OperationExecutor(served.home, lambda: NOW_MS)
    while operating.do_one():
        pass
    return get(served, f"/operations/{answer.json()['operation_id']}")


@pytest.mark.slow
def test_jobs(shop: Served) -> None:
    with shop.supervised():
        (job,) = get(shop, "/jobs")["jobs"]
    assert (job["name"], job["job_id"], job["state"], job["supervised"]) == ("shop", SHOP, "RUNNING", True)
    full = get(shop, "/jobs/shop?batches=2")
    assert [each["batch_id"] for each in full["batches"]] == [1, 2]
    assert [each["ending"] for each in full["attempts"]] == ["failed", None]
    assert get(shop, f"/jobs/{SHOP}")["name"] == "shop"
    batches = get(shop, "/jobs/shop/batches?query=visits&limit=1")["batches"]
    assert [each["batch_id"] for each in batches] == [2]


def test_checkpoints(shop: Served) -> None:
    now = get(shop, "/jobs/shop/checkpoint")
    assert (now["batch_id"], now["provider"], now["uncommitted"]) == (11, "RocksDBStateStoreProvider", None)
    history = get(shop, "/jobs/shop/checkpoints?limit=3")["batches"]
    assert [each["batch_id"] for each in history] == [9, 10, 11]
    assert history[-1]["size_bytes"] == now["size_bytes"]
    assert history[-1]["new_bytes"] == now["new_bytes"]


def test_skew(shop: Served) -> None:
    assert shop.client().get(f"{API}/jobs/shop/skew").status_code == 404
    heavy = (HeavyKey(("ann",), 7, 0.7, 1),)
    report = SkewReport("customers", ("customer",), 10, 10, heavy, 0.0)
    from dataclasses import replace

    from served import batch

    shop.registry.add_batch("shop", 2, replace(batch(3), skew=(report,)))
    (found,) = get(shop, "/jobs/shop/skew")["reports"]
    assert (found["query"], found["name"], found["heavy"][0]["key"]) == ("visits", "customers", ["ann"])


def test_state_by_key_as_of_the_newest_commit(shop: Served) -> None:
    states = get(shop, "/jobs/shop/state")
    assert (states["batch_id"], states["query"]) == (11, "visits")
    assert [each["operator"] for each in states["operators"]] == ["aggregate"]
    found = get(shop, "/jobs/shop/state/aggregate?key=customer%3Dc1")
    assert (found["exists"], found["value"], found["key"]) == (
        True,
        {"count": 12, "sum": 706},
        {"customer": "c1"},
    )
    older = get(shop, "/jobs/shop/state/aggregate?key=c1&batch=9")
    assert (older["batch_id"], older["value"]["count"]) == (9, 10)
    assert get(shop, "/jobs/shop/state/aggregate?key=nobody")["exists"] is False


def test_the_age_of_state_is_told_where_the_commit_was_heard(shop: Served) -> None:
    from served import batch

    shop.registry.add_batch("shop", 2, batch(11))
    found = get(shop, "/jobs/shop/state")
    assert (found["committed_ms"], found["age_ms"]) == (NOW_MS - 49_000, 49_000)


@pytest.mark.slow
def test_rows_page_by_page(shop: Served) -> None:
    total = sum(each.rows for each in contents(LocalStorage(shop.checkpoint())))
    seen: list[str] = []
    while True:
        page = get(shop, f"/jobs/shop/state/aggregate/rows?batch=11&limit=3&skip={len(seen)}")
        seen += [each["key"]["customer"] for each in page["rows"]]
        if not page["more"]:
            break
    assert len(seen) == len(set(seen)) == total


@pytest.mark.slow
def test_a_savepoint_from_taking_to_deletion(shop: Served) -> None:
    catalog = shop.folder / "checkpoints" / "sp"
    taken = done(shop, "/jobs/shop/savepoints", {"directory": str(catalog), "label": "a", "deep": True})
    assert taken["state"] == "completed", taken["error"]
    (one,) = taken["result"]["savepoints"]
    uri = one["savepoint"]
    listed = get(shop, "/savepoints?job=shop")["catalogs"]
    assert [each["savepoint"] for each in listed[f"file://{catalog}"]] == [uri]
    manifest = get(shop, f"/savepoints/show?savepoint={uri}")["manifest"]
    assert (manifest["label"], manifest["operation"]) == ("a", taken["operation_id"])
    assert "files" not in manifest
    verified = done(shop, "/savepoints/verify", {"savepoint": uri, "deep": True})
    assert verified["result"]["ok"] is True
    assert get(shop, f"/jobs/shop/state/aggregate?key=c1&savepoint={uri}")["value"]["count"] == 12
    fork = shop.folder / "checkpoints" / "fork"
    forked = done(shop, "/savepoints/fork", {"savepoint": uri, "checkpoint": str(fork)})
    assert forked["state"] == "completed", forked["error"]
    assert contents(LocalStorage(fork)) == contents(LocalStorage(shop.checkpoint()))
    same = done(shop, "/savepoints/diff", {"first": uri, "second": f"file://{fork}"})
    assert same["state"] == "completed", same["error"]
    again = done(shop, "/savepoints/restore", {"savepoint": uri, "checkpoint": str(fork)})
    assert (again["state"], again["error"]["kind"]) == ("failed", "conflict")
    gone = done(shop, "/savepoints/delete", {"savepoints": [uri]})
    assert gone["state"] == "completed"
    assert savepoints.list(catalog) == ()


@pytest.mark.slow
def test_a_request_may_name_a_savepoint_by_its_label_or_a_short_id(shop: Served) -> None:
    catalog = shop.folder / "checkpoints" / "sp"
    uri = savepoints.take(shop.checkpoint(), catalog, label="before the move").uri
    other = savepoints.take(shop.checkpoint(), catalog, label="other").uri
    labelled = f"{catalog}@before the move"
    assert get(shop, f"/savepoints/show?savepoint={labelled}")["manifest"]["id"] == uri.rpartition("/")[2]
    assert get(shop, f"/jobs/shop/state/aggregate?key=c1&savepoint={labelled}")["place"] == uri
    asked = {"first": labelled, "second": f"{catalog}/{other.rpartition('/')[2][:19]}"}
    compared = done(shop, "/savepoints/diff", asked)
    assert (compared["state"], compared["arguments"]["first"]) == ("completed", uri)
    assert compared["arguments"]["second"] == other
    gone = done(shop, "/savepoints/delete", {"savepoints": [labelled]})
    assert gone["result"] == {"savepoints": [uri]}
    for name, code in ((labelled, 404), (f"{catalog}@12", 400)):
        answer = shop.client().get(f"{API}/savepoints/show", params={"savepoint": name})
        assert answer.status_code == code, answer.text


@pytest.mark.slow
def test_no_name_leads_out_of_where_a_request_may_look(
    shop: Served, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    taken = savepoints.take(golden_on_disk(AGGREGATE, elsewhere / "ck"), elsewhere / "sp", label="secret")
    link = shop.folder / "checkpoints" / "link"
    link.symlink_to(elsewhere / "sp")
    short = taken.uri.rpartition("/")[2][:19]
    with monkeypatch.context() as patched:
        patched.setattr(StateAddress, "find", pytest.fail)
        for name in (
            f"{place}{named}"
            for place in (elsewhere / "sp", link)
            for named in ("@secret", "@x", f"/{short}")
        ):
            for answer in (
                shop.client().get(f"{API}/savepoints/show", params={"savepoint": name}),
                shop.client().get(f"{API}/jobs/shop/state", params={"savepoint": name}),
            ):
                told = answer.text.replace(str(elsewhere), "")  # a random name, which may hold anything
                assert (answer.status_code, "c1" in told) == (400, False), name
    # As the name of a directory it is allowed, and stays one.
    own = shop.checkpoint()
    compared = done(shop, "/savepoints/diff", {"first": f"{link}@secret", "second": str(own)})
    assert (compared["state"], compared["error"]["kind"]) == ("failed", "not-found")


@pytest.mark.slow
def test_an_operation_is_asked_once_under_an_id_of_your_own(shop: Served) -> None:
    body = {"directory": str(shop.folder / "checkpoints" / "sp"), "operation": OURS}
    for _ in range(2):
        assert done(shop, "/jobs/shop/savepoints", body)["operation_id"] == OURS
    assert len(get(shop, "/operations?job=shop")["operations"]) == 1
    other = shop.client().post(f"{API}/savepoints/delete", json={"savepoints": ["x"], "operation": OURS})
    assert other.status_code == 400


CK = "{folder}/checkpoints/aggregate-changelog"


@pytest.mark.slow
def test_digests_of_what_was_taken_are_made_by_this_server_or_the_next(
    shop: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SMALL_BYTES", 0)
    catalog = shop.folder / "checkpoints" / "sp"
    taken = done(shop, "/jobs/shop/savepoints", {"directory": str(catalog), "label": "a"})
    uri = taken["result"]["savepoints"][0]["savepoint"]
    (line,) = get(shop, "/savepoints?job=shop")["catalogs"][f"file://{catalog}"]
    assert (line["content"], line["label"]) == ("pending", "a")
    shown = get(shop, f"/savepoints/show?savepoint={uri}")
    assert (shown["content"], shown["states"]) == ("pending", None)
    verified = done(shop, "/savepoints/verify", {"savepoint": uri, "deep": True})["result"]
    assert (verified["ok"], verified["content"], verified["compared"]) == (True, "pending", 0)

    # The server that took it has ended without them.
    OperationExecutor(shop.home, lambda: NOW_MS).digest()

    shown = get(shop, f"/savepoints/show?savepoint={uri}")
    assert (shown["content"], [each["rows"] for each in shown["states"]]) == ("recorded", [10])
    verified = done(shop, "/savepoints/verify", {"savepoint": uri, "deep": True})["result"]
    assert (verified["ok"], verified["content"], verified["compared"]) == (True, "compared", 1)
    savepoints.label(uri, "before the upgrade")
    (line,) = get(Served(shop.folder), f"/savepoints?catalog={catalog}")["catalogs"][f"file://{catalog}"]
    assert (line["content"], line["label"]) == ("recorded", "before the upgrade")
    assert get(shop, f"/savepoints/show?savepoint={uri}")["manifest"]["label"] == "before the upgrade"


SP = "{folder}/checkpoints/sp/savepoints/20260305T080000.000Z-1f0c33aa-b1-9d2e"


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/jobs/nobody", None, 404),
        ("GET", "/jobs/-bad-", None, 400),
        ("GET", "/jobs/shop?batches=0", None, 400),
        ("GET", "/jobs/shop?batches=1001", None, 400),
        ("GET", "/jobs/shop?batches=x", None, 400),
        ("GET", "/jobs/shop/batches?query=nothing", None, 404),
        ("GET", "/jobs/shop/checkpoint?query=nothing", None, 404),
        ("GET", "/jobs/shop/checkpoints?limit=-1", None, 400),
        ("GET", "/jobs/shop/state/nothing?key=1", None, 404),
        ("GET", "/jobs/shop/state/aggregate", None, 400),
        ("GET", "/jobs/shop/state/aggregate?key=a%3D1&key=b%3D2", None, 400),
        ("GET", "/jobs/shop/state/aggregate?key=1&batch=999", None, 404),
        ("GET", "/jobs/shop/state/aggregate?key=1&batch=-1", None, 400),
        ("GET", "/jobs/shop/state/aggregate/rows?limit=100000", None, 400),
        ("GET", "/jobs/shop/state/aggregate/rows?skip=999999999", None, 400),
        ("GET", "/jobs/shop/state?savepoint=/etc/passwd", None, 400),
        ("GET", "/savepoints?catalog=/etc", None, 400),
        ("GET", "/savepoints?catalog=../..", None, 400),
        ("GET", "/savepoints/show", None, 400),
        ("GET", "/savepoints/show?savepoint=/etc/passwd", None, 400),
        ("GET", f"/savepoints/show?savepoint={SP}", None, 404),
        ("GET", "/operations/xyz", None, 400),
        ("GET", f"/operations/{OURS}", None, 404),
        ("GET", "/operations?job=nobody", None, 404),
        ("GET", "/nothing", None, 404),
        ("DELETE", "/jobs", None, 405),
        ("POST", "/jobs/shop/savepoints", {"directory": "/etc"}, 400),
        ("POST", "/jobs/shop/savepoints", {"directory": "{folder}/checkpoints/../../../etc"}, 400),
        ("POST", "/jobs/shop/savepoints", {"directory": "{folder}/checkpoints/sp", "bogus": 1}, 400),
        ("POST", "/jobs/shop/savepoints", {"directory": "{folder}/checkpoints/sp", "label": "\n"}, 400),
        ("POST", "/jobs/shop/savepoints", {"directory": "{folder}/checkpoints/sp", "operation": "x"}, 400),
        ("POST", "/jobs/shop/savepoints", {"directory": "{folder}/checkpoints/sp", "queries": ["no"]}, 404),
        ("POST", "/jobs/shop/savepoints", [], 400),
        ("POST", "/jobs/shop/stop", None, 409),
        ("POST", "/jobs/shop/cancel", None, 409),
        ("POST", "/jobs/shop/stop-with-savepoint", {"directory": "{folder}/checkpoints/sp"}, 409),
        ("POST", "/jobs/shop/checkpoints", {}, 409),
        ("POST", "/jobs/shop/rescale", {"partitions": {"visits": 0}}, 400),
        ("POST", "/jobs/shop/rescale", {"partitions": {}}, 400),
        ("POST", "/jobs/shop/rescale", {"partitions": {"visits": 4}}, 409),
        ("POST", "/savepoints/verify", {"savepoint": "/etc/passwd"}, 400),
        ("POST", "/savepoints/verify", {}, 400),
        ("POST", "/savepoints/diff", {"first": "/etc", "second": "/etc"}, 400),
        ("POST", "/savepoints/diff", {"first": CK, "second": CK, "samples": -1}, 400),
        ("POST", "/savepoints/restore", {"savepoint": SP, "checkpoint": f"{CK}/inside"}, 400),
        ("POST", "/savepoints/restore", {"savepoint": SP, "checkpoint": "/etc/new"}, 400),
        ("POST", "/savepoints/fork", {"savepoint": "x", "checkpoint": "y"}, 400),
        ("POST", "/savepoints/delete", {"savepoints": []}, 400),
        ("POST", "/savepoints/delete", {"savepoints": ["/etc/passwd"]}, 400),
        ("POST", "/jobs/shop/sql", {"sql": ""}, 400),
        ("POST", "/jobs/shop/sql", {"sql": "select 1", "limit": 0}, 400),
        ("POST", "/jobs/shop/sql", {}, 400),
    ],
)
def test_bad_requests_are_structured_and_change_nothing(
    untouched: Served, method: str, path: str, body: Any, code: int
) -> None:
    path, body = filled(path, untouched.folder), filled(body, untouched.folder)
    before = tree(untouched.folder)
    answer = untouched.client().request(method, f"{API}{path}", json=body)
    assert answer.status_code == code, answer.text
    told = answer.json()
    assert set(told) == {"error", "kind", "exit_code", "code", "where", "found", "expected", "hint"}
    assert told["error"]
    assert "Traceback" not in answer.text
    assert Operations(untouched.home).newest() == []
    assert untouched.registry.take_requests("shop", 0) == []
    assert tree(untouched.folder) == before


@pytest.mark.slow
def test_a_root_that_is_allowed_may_be_named(shop: Served, tmp_path_factory: pytest.TempPathFactory) -> None:
    from holdfast.server.server_settings import ServerSettings

    elsewhere = tmp_path_factory.mktemp("elsewhere")
    taken = savepoints.take(golden_on_disk(AGGREGATE, elsewhere / "ck"), elsewhere / "sp")
    path = f"/savepoints/show?savepoint={taken.uri}"
    assert shop.client().get(f"{API}{path}").status_code == 400
    shop.settings = ServerSettings(roots=(f"file://{elsewhere}",))
    assert get(shop, path)["manifest"]["batch"] == 11


def filled(value: Any, folder: Path) -> Any:
    if isinstance(value, str):
        return value.replace("{folder}", str(folder))
    if isinstance(value, list):
        return [filled(each, folder) for each in value]
    if isinstance(value, dict):
        return {key: filled(each, folder) for key, each in value.items()}
    return value


def tree(folder: Path) -> set[tuple[str, int]]:
    return {
        (str(each), each.stat().st_size)
        for each in folder.rglob("*")
        if each.is_file() and "-journal" not in each.name
    }
