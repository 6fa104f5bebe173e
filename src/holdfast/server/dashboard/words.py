"""Rendering of views as plain text for a terminal: jobs, states, and addresses of further pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast._version import __version__
from holdfast.model import JobState
from holdfast.server.dashboard.figures import ago, count, duration, exact, size
from holdfast.server.dashboard.views import (
    AlertLine,
    AlertsView,
    JobLine,
    JobsView,
    JobView,
)

_JOB_COLUMNS: Final = ("JOB", "STATE", "BATCH", "COMMITTED", "TOOK", "STATE ROWS", "STATE SIZE")
_GAP: Final = "  "


def words_of(view: Any, address: str, base: str) -> str:
    """Render a view as text.

    Args:
        view: The view of a page.
        address: The address of the page.
        base: The address of the server, with a trailing slash.
    """
    path, _, query = address.partition("?")
    as_json = f"{base}ui/jobs.json" if isinstance(view, JobsView) else f"{path}.json"
    more = {"as JSON": f"{as_json}?{query}" if query else as_json}
    if isinstance(view, JobsView):
        lines = [f"Holdfast {__version__}, state home {view.home}", "", *_jobs(view)]
        more |= _where(base)
    elif isinstance(view, AlertsView):
        lines = _alerts(view.standing, view.now_ms) or ["no open alerts"]
    elif hasattr(view, "job"):
        lines = [*_job(view.job, view.now_ms), *(_details(view) if isinstance(view, JobView) else ())]
    else:
        operation = view.operation
        outcome = error_words(operation.error).rstrip() if operation.error else operation.outcome
        lines = [f"{operation.verb_words}: {operation.state}", *([outcome] if outcome else [])]
    more["in a browser"] = address
    width = max(map(len, more))
    addresses = [f"{name:<{width}}{_GAP}{where}" for name, where in more.items()]
    return "\n".join([*lines, "", *addresses, ""])


def error_words(error: Mapping[str, Any]) -> str:
    """Render an error as on the command line."""
    code = f" [{error['code']}]" if error.get("code") else ""
    lines = [f"error: {error['error']}{code}"]
    if error.get("where"):
        lines.append(f"  in {error['where']}")
    facts = [f"{name} {error[name]}" for name in ("found", "expected") if error.get(name)]
    if facts:
        lines.append(f"  {', '.join(facts)}")
    if error.get("hint"):
        lines.append(f"hint: {error['hint']}")
    return "\n".join([*lines, ""])


def _where(base: str) -> dict[str, str]:
    return {
        "REST": f"{base}api/v1/jobs, described by {base}api/v1/openapi.json",
        "Flink's REST": f"{base}jobs/overview",
        "metrics": f"{base}metrics",
    }


def _jobs(view: JobsView) -> list[str]:
    if not view.jobs and view.all_jobs:
        return ["no job matches the filter"]
    if not view.jobs:
        return [f"no job has run here yet: holdfast run JOB.py --home {view.home}"]
    rows = [
        (
            job.name,
            job.state_words,
            exact(job.batch),
            ago(job.committed_ms, view.now_ms),
            duration(job.duration_ms),
            count(job.state_rows),
            size(job.state_bytes),
        )
        for job in view.jobs
    ]
    return _table([_JOB_COLUMNS, *rows], names=2)


def _job(job: JobLine, now_ms: int) -> list[str]:
    batch = "" if job.batch is None else f", batch {job.batch} committed {ago(job.committed_ms, now_ms)}"
    failure = [job.failure or job.reason] if job.failure or job.reason else []
    if job.state == JobState.RUNNING.value:
        failure = [f"last failure: {job.failure}"] if job.failure else []
    return [f"{job.name}: {job.state_words}{batch}", *(f"  {line}" for line in failure)]


def _details(view: JobView) -> list[str]:
    lines = _alerts(view.alerts, view.now_ms)
    if view.query is None:
        return lines
    rows = [
        (operator.display_name, count(operator.rows), size(operator.size_bytes))
        for operator in view.query.operators
    ]
    table = ["", *_table([("OPERATOR", "ROWS", "SIZE"), *rows])] if rows else []
    return [*lines, *table]


def _alerts(alerts: Iterable[AlertLine], now_ms: int) -> list[str]:
    return [
        f"{alert.severity}: job {alert.job}: {alert.text}, {ago(alert.at_ms, now_ms)}" for alert in alerts
    ]


def _table(rows: Sequence[Sequence[str]], names: int = 1) -> list[str]:
    """Return the lines of a table whose first `names` columns are text and the others numbers."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        _GAP.join(
            f"{text:<{width}}" if column < names else f"{text:>{width}}"
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
