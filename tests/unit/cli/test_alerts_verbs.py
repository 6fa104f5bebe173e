"""`holdfast alerts`, `holdfast status --watch`, and the numbers of `holdfast watch`."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from command import PROGRAM, Holdfast

from golden import golden_on_disk
from holdfast.cli.status import sparkline
from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.model import BatchProgress, JobState, OperatorProgress, QueryStarted
from holdfast.observe.alerting import CLEARED, FIRING, Alert, AlertEvent, AlertStore
from holdfast.observe.grafana import DASHBOARD_FILE, PANELS
from holdfast.observe.metrics import BY_NAME, COUNTER
from holdfast.observe.prometheus import RULE_FILE, rule_file

MORNING = 1_772_697_600_000  # 2026-03-05T08:00:00Z


class Shop:
    """A home with a job that runs, as far as anybody can tell."""

    def __init__(self, home: Path) -> None:
        home.mkdir(exist_ok=True)
        self.home = StateHome(home.resolve())
        self.registry = Registry(self.home.registry)
        record = JobRecord(
            "shop",
            job_id("shop"),
            "job.py",
            "file:/c",
            "retain",
            JobState.RUNNING,
            None,
            MORNING,
            MORNING,
            None,
            1,
        )
        self.registry.start_job(record)
        self.registry.start_attempt("shop", 1, MORNING, recovers=False)
        self.registry.queries_started(
            "shop", 1, [QueryStarted("visits", "id", "r", "file:/c", "none: x")], MORNING
        )
        self.alert = Alert("state_size", ("shop", "visits"), FIRING, MORNING, None, 12.0, 10.0)

    def batch(self, number: int, took_ms: int = 400) -> None:
        operator = OperatorProgress("dedupe", 30, 1, 0, 2, 2048, 5, 4)
        at = MORNING + number
        self.registry.add_batch(
            "shop", 1, BatchProgress("visits", number, at, 100, took_ms, None, (operator,))
        )

    def tell(self) -> None:
        former = Alert("watermark_stuck", ("shop", "visits"), FIRING, MORNING - 9, MORNING, 700.0, 600.0)
        events = [
            AlertEvent(FIRING, MORNING - 9, former),
            AlertEvent(CLEARED, MORNING, former),
            AlertEvent(FIRING, MORNING, self.alert),
        ]
        standing = {self.alert.key: self.alert}
        AlertStore(self.home.path).save(
            "shop", MORNING, samples=(), totals={}, standing=standing, events=events
        )


@pytest.fixture
def shop(home: Path) -> Shop:
    return Shop(home)


def test_alerts_that_stand_and_those_that_are_over(shop: Shop, holdfast: Holdfast) -> None:
    empty = holdfast("alerts", "list")
    assert empty.stdout.splitlines() == ["JOB  ALERT  SEVERITY  STATE  SINCE  SUMMARY"]
    shop.tell()
    shown = holdfast("alerts", "list", "shop", "--last", "2").stdout
    assert "the state of query visits has grown to 12 B, over 10 B" in shown
    assert "cleared" in shown
    found = json.loads(holdfast("alerts", "list", "--json").stdout)
    assert [each["rule"] for each in found["alerts"]] == ["state_size"]
    assert [each["event"] for each in found["events"]] == ["firing", "cleared", "firing"]
    assert found["alerts"][0]["advice"]
    assert holdfast("alerts", "list", "none").returncode == 3
    assert "ALERT" in holdfast("status", "shop").stdout
    assert json.loads(holdfast("status", "shop", "--json").stdout)["alerts"][0]["rule"] == "state_size"


def test_rules_and_dashboard_are_exported(holdfast: Holdfast, tmp_path: Path) -> None:
    assert holdfast("alerts", "export").stdout == rule_file()
    to = tmp_path / "out"
    assert "would write" in holdfast("alerts", "export", "--output", "out", "--dry-run").stdout
    assert not to.exists()
    for _ in range(2):
        found = json.loads(holdfast("alerts", "export", "--output", "out", "--json").stdout)
        assert found["files"] == [f"out/{RULE_FILE}", f"out/{DASHBOARD_FILE}"]
    assert (to / RULE_FILE).read_text() == rule_file()
    (to / RULE_FILE).write_text("groups: []\n")
    refused = holdfast("alerts", "export", "--output", "out")
    assert (refused.returncode, (to / RULE_FILE).read_text()) == (4, "groups: []\n")


def test_every_panel_of_the_dashboard_shows_a_metric(holdfast: Holdfast, tmp_path: Path) -> None:
    holdfast("alerts", "export", "--output", ".")
    made = json.loads((tmp_path / DASHBOARD_FILE).read_text())
    assert [each["title"] for each in made["panels"]] == [each.title for each in PANELS]
    for panel in PANELS:
        metric = BY_NAME[panel.metric]
        assert set(panel.by) <= set(metric.labels)
        assert panel.rate == (metric.kind == COUNTER)
    places = [each["gridPos"] for each in made["panels"]]
    assert all(each["x"] + each["w"] <= 24 for each in places)
    cells = {
        (x, y)
        for each in places
        for x in range(each["x"], each["x"] + each["w"])
        for y in range(each["y"], each["y"] + each["h"])
    }
    assert len(cells) == sum(each["w"] * each["h"] for each in places)


def started(folder: Path, home: Path, *words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PROGRAM, *words],
        cwd=folder,
        env={**os.environ, "HOLDFAST_HOME": str(home), "TERM": "xterm", "COLUMNS": "100"},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_pipe_gets_a_line_for_each_batch_until_the_job_ends(shop: Shop, tmp_path: Path) -> None:
    lock = SupervisorLock(shop.home, "shop")
    assert lock.take()
    shop.batch(0)
    process = started(tmp_path, shop.home.path, "status", "shop", "--watch")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "shop: RUNNING\n"
        line = "visits batch 0: 100 rows in 400 ms, state 30 rows, 2 KiB, 2 late\n"
        assert process.stdout.readline() == line
        shop.batch(1)
        shop.batch(2)
        assert process.stdout.readline().startswith("visits batch 1:")
        assert process.stdout.readline().startswith("visits batch 2:")
        shop.tell()
        assert process.stdout.readline().startswith("shop: alert: the state of query visits")
        shop.registry.set_state("shop", JobState.FINISHED, MORNING)
        assert process.stdout.readline() == "shop: FINISHED\n"
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_json_lines_and_the_end_by_a_signal(shop: Shop, tmp_path: Path) -> None:
    shop.batch(7)
    process = started(tmp_path, shop.home.path, "status", "shop", "-w", "--json")
    try:
        assert process.stdout is not None
        lines: list[dict[str, Any]] = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [each["event"] for each in lines] == ["state", "batch"]
        assert (lines[1]["batch_id"], lines[1]["duration_ms"]) == (7, 400)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_terminal_gets_bars(shop: Shop, tmp_path: Path) -> None:
    for number, took in enumerate([100, 200, 400, 800]):
        shop.batch(number, took)
    shop.tell()
    shop.registry.set_state("shop", JobState.FINISHED, MORNING)
    own, other = pty.openpty()
    process = started(tmp_path, shop.home.path, "status", "shop", "--watch", stdout=other)
    os.close(other)
    seen = b""
    try:
        while part := _read(own):
            seen += part
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()
        os.close(own)
    text = seen.decode()
    assert "▂▃▅█" in text
    assert "alert" in text
    assert "state rows" in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's word for the other end being closed
        return b""


@pytest.mark.parametrize(
    ("values", "width", "bars"),
    [
        ([], 5, ""),
        ([0, 0], 5, "▁▁"),
        ([0, 50, 100], 5, "▁▅█"),
        ([1, 2, 3, 4], 2, "▇█"),
        ([5, None, 10], 5, "▅ █"),
        ([7], 0, ""),
    ],
)
def test_bars_reach_from_nothing_to_the_largest(values: list[float | None], width: int, bars: str) -> None:
    assert sparkline(values, width) == bars


@pytest.mark.slow
def test_a_query_that_runs_elsewhere_is_measured_by_its_files(tmp_path: Path, home: Path) -> None:
    golden_on_disk("4.2/aggregate-changelog", tmp_path / "ck")
    words = ("watch", "./ck", "--metrics-port", "0", "--alert", "state_size=1b", "--every", "10ms", "--json")
    process = started(tmp_path, home, *words)
    try:
        assert process.stdout is not None
        events = [json.loads(process.stdout.readline()) for _ in range(4)]
        assert [each["event"] for each in events] == ["noted", "serving", "firing", "firing"]
        assert {each["alert"]["rule"] for each in events[2:]} == {"state_size", "format_version"}
        with urllib.request.urlopen(events[1]["url"]) as answer:
            text = answer.read().decode()
        assert 'holdfast_batch_id{job_name="ck",query="ck"} 11.0' in text
        assert 'holdfast_partition_bytes{job_name="ck",operator="0 aggregate"' in text
        process.send_signal(signal.SIGTERM)
        ended = [json.loads(line) for line in process.stdout]
        assert process.wait(timeout=30) == 0
        assert {each["event"] for each in ended} == {"cleared"}
    finally:
        process.kill()
        process.communicate()


def test_an_alert_that_does_not_exist_is_refused(tmp_path: Path, holdfast: Holdfast) -> None:
    golden_on_disk("4.2/aggregate-memory", tmp_path / "ck")
    refused = holdfast("watch", "./ck", "--once", "--alert", "nothing=1")
    assert (refused.returncode, "state_size" in refused.stderr) == (2, True)
