"""What a supervisor measures and tells, and what others can ask of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.alert_settings import Alerts
from holdfast.errors import HoldfastError, NotFound
from holdfast.jobs import metrics_loop, reports
from holdfast.jobs.background import BackgroundWorker
from holdfast.jobs.metrics_loop import AlertDelivery, Observing, facts_of, newest_drills, recoveries
from holdfast.jobs.recovery import PHASES, RecoveryTimes
from holdfast.jobs.registry.registry import Attempt, JobRecord, Registry, job_id
from holdfast.jobs.reports import flink_metrics
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.model import BatchProgress, Failure, JobState, OperatorProgress, QueryStarted, SavepointNote
from holdfast.observe.alerting import CLEARED, FIRING, Alert, AlertEvent, AlertStore
from holdfast.observe.job_metrics import JobFacts
from holdfast.observe.metrics import sample
from holdfast.observe.routes import post_event, post_to_alertmanager
from holdfast.observe.watcher import Watcher
from holdfast.savepoints.catalog import Drill, note
from holdfast.storage.local import LocalStorage

MORNING = 1_772_697_600_000  # 2026-03-05T08:00:00Z


class Listener:
    """A real server that takes what it is sent, and answers as it is told to."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.answers: list[int] = []
        self.location: str | None = None
        self.arrived = threading.Condition()
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with listener.arrived:
                    listener.got.append((self.path, body))
                    listener.authorizations.append(self.headers["Authorization"])
                    code = listener.answers.pop(0) if listener.answers else 200
                    listener.arrived.notify_all()
                self.send_response(code)
                if 300 <= code < 400 and listener.location is not None:
                    self.send_header("Location", listener.location)
                self.end_headers()

            def do_GET(self) -> None:
                # As a page does that a POST was turned away to: it answers, and has heard of no alert.
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def wait_for(self, number: int) -> list[tuple[str, Any]]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.got) >= number, timeout=30)
            return list(self.got)


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.server.shutdown()
    made.server.server_close()


def alert(rule: str = "state_size", query: str = "visits") -> Alert:
    return Alert(rule, ("shop", query), FIRING, MORNING, None, 12.0, 10.0)


def event(kind: str = FIRING, at_ms: int = MORNING, **changed: Any) -> AlertEvent:
    return AlertEvent(kind, at_ms, alert(**changed))


def keep(diary: AlertStore, *events: AlertEvent) -> None:
    diary.save("shop", MORNING, samples=(), totals={}, standing={}, events=events, told=0)


def deliver(diary: AlertStore, **routes: str) -> AlertDelivery:
    return AlertDelivery("shop", Alerts(**routes), diary, lambda: MORNING, first_pause_s=0.01)  # type: ignore[arg-type]


def test_a_webhook_gets_each_event_in_order(listener: Listener, tmp_path: Path) -> None:
    diary = AlertStore(tmp_path)
    keep(diary, event(), event(CLEARED, MORNING + 1))
    delivery = deliver(diary, webhook=f"{listener.url}/hook")
    delivery.start()
    listener.wait_for(2)
    delivery.close()
    assert [(path, body["event"], body["at_ms"]) for path, body in listener.got] == [
        ("/hook", "firing", MORNING),
        ("/hook", "cleared", MORNING + 1),
    ]
    told = listener.got[0][1]["alert"]
    assert told["named"] == {"job_name": "shop", "query": "visits"}
    assert told["text"] == "the state of query visits has grown to 12 B, over 10 B"
    assert diary.waiting("shop", 0) == []


def test_a_user_and_password_in_an_address_are_sent_as_basic_authentication(listener: Listener) -> None:
    post_event(f"{listener.url.replace('//', '//till:p%40ss:w%2Ford@')}/hook?k=1", event())
    post_event(f"{listener.url}/hook", event())
    assert [path for path, _ in listener.got] == ["/hook?k=1", "/hook"]
    # `printf 'till:p@ss:w/ord' | base64`
    assert listener.authorizations == ["Basic dGlsbDpwQHNzOncvb3Jk", None]


def test_what_is_not_taken_is_tried_again_and_nothing_is_told_twice(
    listener: Listener, tmp_path: Path
) -> None:
    listener.answers = [503, 429, 200]
    diary = AlertStore(tmp_path)
    keep(diary, event())
    delivery = deliver(diary, webhook=listener.url)
    delivery.start()
    listener.wait_for(3)
    delivery.close()
    assert len(listener.got) == 3
    assert diary.waiting("shop", 0) == []
    assert delivery.heard() == []


def test_tries_are_bounded_and_the_next_event_is_told(listener: Listener, tmp_path: Path) -> None:
    listener.answers = [500] * 5
    diary = AlertStore(tmp_path)
    keep(diary, event(), event(query="sales"))
    delivery = deliver(diary, webhook=listener.url)
    delivery.start()
    got = listener.wait_for(6)
    delivery.close()
    assert [body["alert"]["named"]["query"] for _, body in got] == ["visits"] * 5 + ["sales"]
    [untold] = delivery.heard()
    assert (untold.kind, "HTTP 500" in untold.text) == ("untold", True)


def test_what_is_refused_is_not_sent_again(listener: Listener, tmp_path: Path) -> None:
    listener.answers = [404]
    diary = AlertStore(tmp_path)
    keep(diary, event(), event(query="sales"))
    delivery = deliver(diary, webhook=listener.url)
    delivery.start()
    listener.wait_for(2)
    delivery.close()
    assert len(listener.got) == 2


@pytest.mark.parametrize("code", [307, 308])
def test_a_redirect_on_the_same_server_carries_the_same_post(
    listener: Listener, tmp_path: Path, code: int
) -> None:
    listener.answers, listener.location = [code], "/moved"
    diary = AlertStore(tmp_path)
    keep(diary, event())
    delivery = deliver(diary, webhook=f"{listener.url}/hook")
    delivery.start()
    listener.wait_for(2)
    delivery.close()
    (first, sent), (second, again) = listener.got
    assert (first, second) == ("/hook", "/moved")
    assert sent == again
    assert again["event"] == "firing"
    assert (diary.waiting("shop", 0), delivery.heard()) == ([], [])


@pytest.mark.parametrize(
    ("code", "location"),
    [
        (301, "/moved"),
        (302, "/login"),
        (303, "/login"),
        (302, None),
        (307, "http://127.0.0.1:1/secret-of-the-other"),
        (308, "https://{host}/hook"),
        (307, "/hook"),
    ],
)
def test_a_redirect_that_loses_the_alert_is_told(
    listener: Listener, tmp_path: Path, code: int, location: str | None
) -> None:
    host = listener.url.removeprefix("http://")
    listener.location = None if location is None else location.format(host=host)
    listener.answers = [code] * 20
    diary = AlertStore(tmp_path)
    keep(diary, event())
    delivery = deliver(diary, webhook=f"{listener.url}/hook")
    delivery.start()
    listener.wait_for(1)
    delivery.close()
    [untold] = delivery.heard()
    assert untold.kind == "untold"
    assert f"HTTP {code}" in untold.text
    assert "secret-of-the-other" not in untold.text


@pytest.mark.parametrize(
    ("route", "answers"), [("webhook", [404]), ("webhook", [302]), ("alertmanager", [400]), ("nobody", [])]
)
def test_the_secret_in_an_address_is_in_no_message(
    listener: Listener, tmp_path: Path, route: str, answers: list[int]
) -> None:
    listener.answers, listener.location = answers, "/services/s3cret?sig=s3cret"
    host = listener.url.removeprefix("http://")
    url = f"http://user:s3cret@{host}/services/s3cret?sig=s3cret#s3cret"
    if route == "nobody":
        route, url = "webhook", "http://127.0.0.1:1/s3cret"
    diary = AlertStore(tmp_path)
    keep(diary, event())
    alerts = Alerts(**{route: url})  # type: ignore[arg-type]
    assert "s3cret" not in repr(alerts)
    assert not [knob for knob in alerts.knobs() if "s3cret" in repr(knob)]
    with pytest.raises(HoldfastError) as told:  # noqa: PT012 - one of two
        if route == "webhook":
            post_event(url, event())
        else:
            post_to_alertmanager(url, [alert()], [], MORNING)
    assert "s3cret" not in f"{told.value} {told.value.as_dict()}"
    assert told.value.__cause__ is None
    delivery = deliver(diary, **{route: url})
    delivery.now([alert()], [event()])
    delivery.start()
    delivery.close()
    assert not [word for word in delivery.heard() if "s3cret" in word.text]


def test_a_webhook_that_is_not_there_leaves_events_to_the_next_supervisor(
    listener: Listener, tmp_path: Path
) -> None:
    diary = AlertStore(tmp_path)
    keep(diary, event())
    delivery = AlertDelivery(
        "shop", Alerts(webhook="http://127.0.0.1:1"), diary, lambda: MORNING, first_pause_s=1000
    )
    delivery.start()
    delivery.close()
    assert len(diary.waiting("shop", 0)) == 1
    again = deliver(diary, webhook=listener.url)
    again.start()
    listener.wait_for(1)
    again.close()
    assert diary.waiting("shop", 0) == []


def test_alertmanager_gets_what_stands_and_what_is_over(listener: Listener, tmp_path: Path) -> None:
    delivery = deliver(AlertStore(tmp_path), alertmanager=listener.url)
    delivery.start()
    delivery.now([alert()], [event()])
    listener.wait_for(1)
    delivery.now([], [event(CLEARED, MORNING + 500)])
    listener.wait_for(2)
    delivery.close()
    (path, [firing]), (_, [over]) = listener.got[:2]
    assert path == "/api/v2/alerts"
    assert firing["labels"] == {
        "alertname": "HoldfastStateSize",
        "severity": "warning",
        "job_name": "shop",
        "query": "visits",
    }
    assert (firing["startsAt"], firing["endsAt"]) == (
        "2026-03-05T08:00:00.000+00:00",
        "2026-03-05T08:04:00.000+00:00",
    )
    assert over["labels"] == firing["labels"]
    assert over["endsAt"] == "2026-03-05T08:00:00.500+00:00"


class Home:
    """A state home with one job."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.home = StateHome(folder)
        self.registry = Registry(self.home.registry)
        self.now = MORNING

    def start(self, state: JobState = JobState.RUNNING) -> None:
        ended = self.now if state.terminal else None
        record = JobRecord(
            "shop",
            job_id("shop"),
            "job.py",
            "file:/c",
            "retain",
            state,
            None,
            MORNING - 60_000,
            MORNING,
            ended,
            1,
        )
        self.registry.start_job(record)
        number = self.registry.start_attempt("shop", 1, MORNING - 50_000, recovers=False)
        query = QueryStarted("visits", "id-1", "run", "file:/nothing/there", "none: x")
        self.registry.queries_started("shop", number, [query], MORNING - 40_000)

    def batch(self, number: int, size: int = 5) -> BatchProgress:
        made = OperatorProgress("dedupe", 3, 1, 0, 0, size, 1, 2)
        found = BatchProgress("visits", number, self.now, 10, 700, None, (made,))
        self.registry.add_batch("shop", 1, found)
        return found

    def tick(self) -> int:
        self.now += 1
        return self.now

    def observing(self, alerts: Alerts, catalog: str | None = None) -> Observing:
        return Observing("shop", alerts, self.home.path, self.registry, catalog=catalog, clock=self.tick)


@pytest.fixture
def shop(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_a_job_that_ends_has_told_what_was_wrong_and_that_it_is_over(shop: Home, listener: Listener) -> None:
    shop.start()
    observing = shop.observing(Alerts(state_size=100, webhook=listener.url))
    observing.started({"visits": "file:/nothing/there"})
    observing.busy("visits", busy=True)
    observing.committed(shop.batch(0, size=500))
    listener.wait_for(1)
    assert [each.rule for each in reports.alerts(shop.home)] == ["state_size"]
    observing.close()
    assert [body["event"] for _, body in listener.got] == ["firing", "cleared"]
    assert [each.kind for each in observing.heard()] == ["alert", "cleared"]
    assert reports.alerts(shop.home) == ()
    assert [each.event.kind for each in reports.alert_events(shop.home, "shop")] == [
        "firing",
        "cleared",
    ]


def test_a_job_that_fails_while_it_is_looked_at_is_reported_as_failed(
    shop: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.start()
    read, closing = threading.Event(), threading.Event()

    class Slow(Registry):
        def savepoints(self, job: str) -> list[SavepointNote]:
            read.set()  # the state of the job has been read by now
            assert closing.wait(30)
            return super().savepoints(job)

    class Closing(BackgroundWorker):
        def close(self, timeout_s: float) -> None:
            closing.set()
            super().close(timeout_s)

    monkeypatch.setattr(metrics_loop, "BackgroundWorker", Closing)
    shop.registry = Slow(shop.home.registry)
    observing = shop.observing(Alerts())
    observing.started({"visits": "file:/nothing/there"})
    assert read.wait(30)
    shop.registry.set_state("shop", JobState.FAILED, shop.tick(), "it failed")
    observing.close()
    assert [each.rule for each in reports.alerts(shop.home)] == ["job_failed"]


def test_observing_that_cannot_begin_is_told_and_hurts_nobody(shop: Home) -> None:
    shop.start()
    (shop.home.path / "watching.db").mkdir()
    observing = shop.observing(Alerts())
    observing.started({"visits": "file:/nothing/there"})
    observing.committed(shop.batch(0))
    observing.busy("visits", busy=False)
    assert [each.kind for each in observing.heard()] == ["unwatched"]
    observing.close()


def test_numbers_of_jobs_that_run_and_of_those_that_do_not(shop: Home) -> None:
    shop.start()
    lock = SupervisorLock(shop.home, "shop")
    assert lock.take()
    observing = shop.observing(Alerts())
    observing.started({"visits": "file:/nothing/there"})
    observing.committed(shop.batch(0))
    observing.close()
    AlertStore(shop.home.path).save(
        "elsewhere",
        MORNING,
        samples=[sample("holdfast_up", 1, "elsewhere")],
        totals={},
        standing={},
    )
    samples = reports.samples(shop.home, MORNING + 1)
    up = {each.labels: each.value for each in samples if each.metric == "holdfast_up"}
    assert up == {("shop",): 1, ("elsewhere",): 1}
    assert any(each.metric == "holdfast_state_rows" for each in samples)
    lock.release()
    samples = reports.samples(shop.home, MORNING + 100_000)
    up = {each.labels: each.value for each in samples if each.metric == "holdfast_up"}
    assert up == {("shop",): 0, ("elsewhere",): 0}
    kinds = {each.metric for each in samples}
    assert "holdfast_batches_total" in kinds
    assert "holdfast_state_rows" not in kinds
    only = reports.metrics_json(shop.home, MORNING, "elsewhere")
    assert [each["labels"] for each in only["samples"]] == [{"job_name": "elsewhere"}]
    assert [each["name"] for each in only["metrics"]] == ["holdfast_up"]
    assert 'holdfast_up{job_name="shop"} 0.0' in reports.metrics_text(shop.home, MORNING)
    assert reports.metrics_text(StateHome(shop.home.path / "none"), MORNING) == ""


def attempt(
    number: int, began: int, first: int | None, ended: int | None, *, recovers: bool, failed: bool = True
) -> Attempt:
    failure = Failure("query", "Error", "x") if failed else None
    return Attempt("shop", number, 1, began, began, first, ended, None, failure, recovers)


def test_a_recovery_lasts_from_the_failure_to_the_commit_whatever_it_takes() -> None:
    plain = [
        attempt(1, 0, 10, 100, recovers=False),
        attempt(2, 110, 130, 200, recovers=True),
        attempt(3, 210, None, 220, recovers=True),
        attempt(4, 230, None, 240, recovers=True),
    ]
    assert recoveries(plain[:1]) == (None, 100)
    assert recoveries(plain[:2]) == (30, 200)
    assert recoveries(plain) == (30, 200)
    done = [*plain, attempt(5, 250, 275, None, recovers=True, failed=False)]
    assert recoveries(done) == (75, None)
    by_hand = [*plain, attempt(5, 9_000, None, None, recovers=False, failed=False)]
    assert recoveries(by_hand) == (30, None)
    assert recoveries([]) == (None, None)


def test_an_alert_of_a_slow_recovery_ends_and_does_not_come_again(shop: Home) -> None:
    shop.start()
    took = dict(zip(PHASES, (0, 0, 0, 360_000, 0, 0, 0), strict=True))
    shop.registry.add_recovery("shop", RecoveryTimes(1, MORNING, "source: it was away", took, idle_ms=40_000))
    watcher = Watcher("shop", Alerts(), None)

    def told(at_ms: int) -> list[tuple[str, str]]:
        facts = facts_of(shop.registry, "shop", saved=False, drills_ms={})
        return [(each.kind, each.alert.rule) for each in watcher.evaluate(facts, at_ms)]

    assert told(MORNING + 400_001) == [("firing", "recovery_time")]
    assert told(MORNING + 400_000 + 599_999) == []
    assert told(MORNING + 400_000 + 600_000) == [("cleared", "recovery_time")]


def test_a_dead_driver_is_not_at_work(shop: Home) -> None:
    shop.start()
    watcher = Watcher("shop", Alerts(), None)
    failed = JobFacts("shop", running_ms=MORNING + 20_000, recovering_since_ms=MORNING + 10_000)
    watcher.busy("visits", MORNING)
    watcher.idle()
    measured = {each.metric: each.value for each in watcher.measure(failed, MORNING + 500_000)}
    assert measured["holdfast_recovery_lately_seconds"] == 10


def test_the_registry_and_the_catalog_tell_the_rest(shop: Home, tmp_path: Path) -> None:
    shop.start()
    taken = SavepointNote("visits", MORNING - 5_000, 300, "file:/sp/1", 3, 77, 7, None)
    failed = SavepointNote("visits", MORNING - 1_000, None, None, None, None, None, "no space")
    for each in (taken, failed):
        shop.registry.add_savepoint("shop", each)
    facts = facts_of(shop.registry, "shop", saved=True, drills_ms={"visits": 5})
    assert facts.savepoints["visits"] is not None
    assert facts.savepoints["visits"].at_ms == MORNING - 5_000
    assert (facts.up, facts.failed, facts.running_ms) == (True, False, MORNING - 40_000)
    assert facts_of(shop.registry, "shop", saved=False, drills_ms={}).savepoints == {}
    catalog = LocalStorage(tmp_path / "catalog")
    for at_ms, job, took in ((1, "j", 10), (2, "j", 20), (3, None, 30)):
        note(catalog, Drill(at_ms, "sp", "id-1", 5, job, False, {"copy": took}, None), b"abcd")
    note(catalog, Drill(4, "sp", "id-2", 5, "j", False, {"copy": 40}, None), b"abcd")
    assert newest_drills(catalog.uri, {"id-1": "visits"}) == {"visits": 20}


def test_flink_has_other_names_for_the_same(shop: Home) -> None:
    with pytest.raises(NotFound):
        flink_metrics(shop.home, "shop", MORNING)
    shop.start()
    before = flink_metrics(shop.home, "shop", MORNING)
    assert before["lastCheckpointDuration"] == before["numberOfCompletedCheckpoints"] == "-1"
    shop.batch(41)
    observing = shop.observing(Alerts())
    observing.started({"visits": "file:/nothing/there"})
    observing.committed(shop.batch(42))
    observing.close()
    found = flink_metrics(shop.home, job_id("shop"), MORNING)
    assert found == {
        "lastCheckpointDuration": "700",
        "lastCheckpointSize": "-1",
        "lastCheckpointFullSize": "-1",
        "lastCompletedCheckpointId": "42",
        "lastCheckpointExternalPath": "file:/c",
        "lastCheckpointRestoreTimestamp": "-1",
        "numberOfCompletedCheckpoints": "1",
        "numberOfFailedCheckpoints": "0",
        "numberOfInProgressCheckpoints": "0",
        "totalNumberOfCheckpoints": "1",
        "numRestarts": "0",
        "fullRestarts": "0",
        "uptime": "40000",
        "downtime": "0",
        "createdTime": "60000",
    }
