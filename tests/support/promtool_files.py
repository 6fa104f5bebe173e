"""Files for `promtool test rules`: series of one value a minute, and the minutes at which an alert fires."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.observe.metrics import BY_NAME
from holdfast.observe.prometheus import RULE_FILE
from holdfast.observe.rules import AlertRule

TEST_FILE = "holdfast-rules-test.yml"
# What the job is called, and each of its other labels.
LABELS = {
    "job_name": "shop",
    "query": "visits",
    "operator": "0 aggregate",
    "store": "default",
    "partition": "0",
    "cause": "source",
    "operation": "get",
}


@dataclass(frozen=True)
class Course:
    """One rule over some minutes; None stands for a number that is gone, as a scrape finds it."""

    rule: AlertRule
    threshold: float
    values: Sequence[float | None]
    firing: Sequence[bool]


def test_file(courses: Sequence[Course]) -> str:
    tests = json.dumps([_test(each) for each in courses], indent=1)
    return f"rule_files: [{RULE_FILE}]\nevaluation_interval: 1m\ntests: {tests}\n"


def metric_labels(rule: AlertRule) -> dict[str, str]:
    return {name: LABELS[name] for name in BY_NAME[rule.metric].labels}


def _test(course: Course) -> dict[str, Any]:
    rule = course.rule
    fired = {"alertname": rule.alert, "alertstate": "firing", "severity": rule.severity}
    fired |= {name: LABELS[name] for name in rule.by}
    alert = f'ALERTS{{alertname="{rule.alert}", alertstate="firing"}}'
    return {
        "interval": "1m",
        "name": rule.name,
        "input_series": [
            {
                "series": _series(rule.metric, metric_labels(rule)),
                "values": " ".join("stale" if each is None else repr(each) for each in course.values),
            },
            {
                "series": _series("holdfast_alert_threshold", {"job_name": "shop", "rule": rule.name}),
                "values": f"{course.threshold!r}x{len(course.values)}",
            },
        ],
        "promql_expr_test": [
            {
                "expr": alert,
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": _series("ALERTS", fired), "value": 1}] if firing else [],
            }
            for minute, firing in enumerate(course.firing)
        ],
    }


def _series(metric: str, labels: dict[str, str]) -> str:
    return f"{metric}{{{', '.join(f'{name}={json.dumps(value)}' for name, value in labels.items())}}}"
