"""The rules as a file for Prometheus.

Thresholds are not in the file: each job's own are numbers that it measures, so that a job with other
thresholds, or with a rule turned off, needs no other file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from holdfast.observe.rules import RULES, Rule

RULE_FILE: Final = "holdfast-rules.yml"
HEAD: Final = "# Written by `holdfast alerts export`; thresholds come from each job's own settings.\n"


def rule_file(rules: Iterable[Rule] = RULES) -> str:
    """The rules for Prometheus's `rule_files`. YAML takes JSON for values, so each of them is written so."""
    lines = [HEAD, "groups:\n", "  - name: holdfast\n", "    rules:\n"]
    for rule in rules:
        lines += [
            f"      - alert: {rule.alert}\n",
            f"        expr: {json.dumps(expression(rule))}\n",
            f'        for: "{_prometheus_duration(rule.for_ms)}"\n',
            f'        keep_firing_for: "{_prometheus_duration(rule.keep_ms)}"\n',
            f"        labels: {json.dumps({'severity': rule.severity})}\n",
            f"        annotations: {json.dumps(_annotations(rule), ensure_ascii=False)}\n",
        ]
    return "".join(lines)


def expression(rule: Rule) -> str:
    """The rule in PromQL: a sum over the labels that it does not tell apart, against the job's threshold."""
    by = ", ".join(rule.by)
    sign = ">" if rule.above else "<"
    threshold = f'holdfast_alert_threshold{{rule="{rule.name}"}}'
    return f"sum by ({by}) ({rule.metric}) {sign} on (job_name) group_left () max by (job_name) ({threshold})"


def _annotations(rule: Rule) -> dict[str, str]:
    """Summary and description in Prometheus's templates."""
    value = "{{ $value | humanize }}"
    if rule.unit == "bytes":
        value = "{{ $value | humanize1024 }}B"
    elif rule.unit == "seconds":
        value = "{{ $value | humanizeDuration }}"
    elif rule.metric == "holdfast_late_rows_ratio":
        value = "{{ $value | humanizePercentage }}"
    labels = {name: f"{{{{ $labels.{name} }}}}" for name in rule.by}
    # Prometheus hands the value to a template and not the threshold.
    summary = rule.says.format(**labels, value=value, threshold="its threshold")
    return {"summary": summary, "description": rule.advice}


def _prometheus_duration(ms: int) -> str:
    return f"{ms // 1000}s"
