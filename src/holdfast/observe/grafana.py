"""The Grafana dashboard of the metrics, for import."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from holdfast.observe.metrics import JOB, OPERATOR, QUERY, STORE

DASHBOARD_FILE: Final = "holdfast-grafana.json"
UID: Final = "holdfast-jobs"
_WIDTH: Final = 24
_HEIGHT: Final = 8
_CHOSEN: Final = 'job_name=~"$job_name"'


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the dashboard.

    Attributes:
        title: The title.
        metric: The name of the metric.
        by: The labels that distinguish the lines.
        unit: Grafana's name for the unit.
        fold: The aggregation of series with equal labels: `sum` or `max`.
        rate: Whether to show the rate of a counter.
        single: Whether to show a single value instead of a chart.
    """

    title: str
    metric: str
    by: tuple[str, ...]
    unit: str
    fold: str = "sum"
    rate: bool = False
    single: bool = False

    @property
    def expression(self) -> str:
        """Return the PromQL query of the panel."""
        series = f"{self.metric}{{{_CHOSEN}}}"
        inner = f"rate({series}[$__rate_interval])" if self.rate else series
        return f"{self.fold} by ({', '.join(self.by)}) ({inner})"


PANELS: Final[tuple[Panel, ...]] = (
    Panel("Up", "holdfast_up", JOB, "short", fold="max", single=True),
    Panel(
        "Failed batches, last 10 minutes", "holdfast_checkpoint_failures_lately", JOB, "short", single=True
    ),
    Panel("Last recovery", "holdfast_recovery_seconds", JOB, "s", fold="max", single=True),
    Panel("Savepoint age", "holdfast_savepoint_age_seconds", QUERY, "s", fold="max", single=True),
    Panel("Batch duration", "holdfast_checkpoint_duration_seconds", QUERY, "s", fold="max"),
    Panel("Batch phases", "holdfast_batch_phase_seconds", (*QUERY, "phase"), "s", fold="max"),
    Panel("Input rows", "holdfast_input_rows_total", QUERY, "rowsps", rate=True),
    Panel("Processed rows", "holdfast_processed_rows_per_second", QUERY, "rowsps"),
    Panel("State", "holdfast_state_bytes", OPERATOR, "bytes"),
    Panel("State rows", "holdfast_state_rows", OPERATOR, "short"),
    Panel("Time until state is full", "holdfast_state_full_seconds", QUERY, "s", fold="max"),
    Panel("Time until operator is full", "holdfast_operator_full_seconds", OPERATOR, "s", fold="max"),
    Panel("Shortest batch duration", "holdfast_critical_seconds", QUERY, "s", fold="max"),
    Panel("Partitions", "holdfast_partitions", QUERY, "short", fold="max"),
    Panel("Recommended partitions", "holdfast_recommended_partitions", QUERY, "short", fold="max"),
    Panel("Recommended cores", "holdfast_recommended_cores", QUERY, "short", fold="max"),
    Panel("Store memory", "holdfast_state_memory_bytes", OPERATOR, "bytes"),
    Panel("State access time", "holdfast_state_access_seconds", OPERATOR, "s", fold="max"),
    Panel(
        "State access time, quantiles",
        "holdfast_state_access_quantile_seconds",
        (*OPERATOR, "quantile"),
        "s",
        fold="max",
    ),
    Panel("Cache hit ratio", "holdfast_cache_hit_ratio", OPERATOR, "percentunit", fold="max"),
    Panel("Watermark lag", "holdfast_watermark_lag_seconds", QUERY, "s", fold="max"),
    Panel("Late rows", "holdfast_late_rows_total", QUERY, "rowsps", rate=True),
    Panel("Largest partition relative to the mean", "holdfast_skew_ratio", STORE, "short", fold="max"),
    Panel("Bytes read by a restart", "holdfast_checkpoint_bytes", QUERY, "bytes"),
    Panel("Bytes added by the newest batch", "holdfast_checkpoint_new_bytes", QUERY, "bytes"),
    Panel("Rebuilt snapshots", "holdfast_snapshots_repaired_lately", QUERY, "short"),
)


def dashboard() -> str:
    """Return the JSON of the dashboard for Grafana's import, which asks for the Prometheus data source."""
    return json.dumps(_dashboard(), indent=2) + "\n"


def _dashboard() -> dict[str, Any]:
    return {
        "uid": UID,
        "title": "Holdfast jobs",
        "description": "Written by `holdfast alerts export`.",
        "tags": ["holdfast", "streaming"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source_choice(), _job_choice()]},
        "annotations": {"list": [_alerts()]},
        "panels": _placed(),
    }


def _placed() -> list[dict[str, Any]]:
    """Lay out panels: single values four in a row, charts two in a row."""
    made = []
    x = y = 0
    for number, panel in enumerate(PANELS, start=1):
        width, height = (_WIDTH // 4, _HEIGHT // 2) if panel.single else (_WIDTH // 2, _HEIGHT)
        made.append(_panel(number, panel, {"x": x, "y": y, "w": width, "h": height}))
        x += width
        if x >= _WIDTH:
            x, y = 0, y + height
    return made


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "stat" if panel.single else "timeseries",
        "title": panel.title,
        "datasource": _source(),
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": "A",
                "datasource": _source(),
                "expr": panel.expression,
                "legendFormat": " ".join(f"{{{{{label}}}}}" for label in panel.by),
            }
        ],
    }


def _source() -> dict[str, str]:
    return {"type": "prometheus", "uid": "${source}"}


def _source_choice() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _job_choice() -> dict[str, Any]:
    return {
        "name": "job_name",
        "label": "Job",
        "type": "query",
        "datasource": _source(),
        "query": {"query": "label_values(holdfast_up, job_name)", "refId": "job_name"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
    }


def _alerts() -> dict[str, Any]:
    return {
        "name": "Alerts",
        "enable": True,
        "iconColor": "red",
        "datasource": _source(),
        "expr": f'ALERTS{{alertstate="firing", alertname=~"Holdfast.*", {_CHOSEN}}}',
        "titleFormat": "{{alertname}}",
    }
