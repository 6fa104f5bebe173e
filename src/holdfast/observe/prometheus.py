"""Metrics and alert rules in Prometheus's formats.

The rule file has no thresholds: each job exports its own as metrics, so that jobs with different thresholds
or disabled rules can share one file.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Unavailable
from holdfast.extras import require_package
from holdfast.observe.metrics import COUNTER, METRICS, MetricSample, by_metric
from holdfast.observe.rules import RULES, AlertRule

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# The time limit for closing.
_POLL_S = 0.1

Measure = Callable[[], Iterable[MetricSample]]


class Collector:
    """A `prometheus_client` collector of the samples.

    Args:
        measure: The function that returns the samples.
    """

    def __init__(self, measure: Measure) -> None:
        self._measure = measure

    def collect(self) -> Iterator[Family]:
        """Yield the families that have samples, in the order of the list of metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        numbers = by_metric(self._measure())
        for metric in METRICS:
            if metric.name not in numbers:
                continue
            kind: Any = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
            family = kind(metric.name, metric.meaning, labels=metric.labels)
            for number in numbers[metric.name]:
                family.add_metric(number.labels, number.value)
            yield family


def as_text(samples: Iterable[MetricSample]) -> str:
    """Return samples in Prometheus's text format, whose content type is `CONTENT_TYPE`."""
    from prometheus_client import CollectorRegistry, generate_latest

    listed = list(samples)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(lambda: listed))
    return generate_latest(registry).decode()


class MetricsServer:
    """An HTTP server of `/metrics` on its own threads, until it is closed.

    Any client that reaches the address is answered; by default, only clients on this machine can reach it.
    Clients do not block each other: each connection has its own thread and a time limit. If there are too
    many connections, the one that has been idle longest is closed.

    Args:
        measure: The function that returns the samples.
        port: The port; 0 for a free one.
        host: The address to listen on.
        within: The limits on the number and duration of connections.

    Raises:
        Unavailable: The port is in use.
        Unsupported: The extra `server` is not installed.
    """

    def __init__(
        self, measure: Measure, port: int, host: str = "127.0.0.1", within: ScrapeBounds | None = None
    ) -> None:
        require_package("prometheus_client")
        try:
            self._server = _Listener((host, port), measure, within or ScrapeBounds())
        except (OSError, OverflowError) as error:
            raise Unavailable(
                "cannot open the metrics endpoint for Prometheus",
                code="HF-E5031",
                where=f"{host}:{port}",
                found=str(error),
                hint="choose a different port, or 0 for any free port",
            ) from error
        self.port: int = self._server.server_port
        self.url = f"http://{host}:{self.port}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="holdfast-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class ScrapeBounds:
    """The limits on the number and duration of a metrics server's connections.

    Attributes:
        connections: The maximum number of simultaneous connections.
        head_s: The time limit for receiving a request's line and headers, in seconds.
        answer_s: The time limit for the rest of the request, until the client has read the answer, in
            seconds.
    """

    connections: int = 32
    head_s: float = 10.0
    answer_s: float = 60.0


class _Listener(ThreadingHTTPServer):
    """An HTTP server that gives each connection a thread and closes slow connections."""

    request_queue_size = 64

    def __init__(self, address: tuple[str, int], measure: Measure, within: ScrapeBounds) -> None:
        self._measure = measure
        self._within = within
        self._measuring = threading.Lock()
        self._changing = threading.Lock()
        # By connection, oldest first: whether its request has arrived, and its time limit.
        self._open: dict[socket.socket, tuple[bool, float]] = {}
        super().__init__(address, _Scrape)

    def text(self) -> bytes:
        """Return the metrics as text; concurrent calls measure one after the other."""
        with self._measuring:
            return as_text(self._measure()).encode()

    def note_request(self, connection: socket.socket) -> None:
        """Record that a connection has sent its request."""
        with self._changing:
            if connection in self._open:
                self._open[connection] = (True, time.monotonic() + self._within.answer_s)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Accept a connection; at the limit, close the oldest one, preferring those without a request."""
        with self._changing:
            if len(self._open) >= self._within.connections:
                waiting = (connection for connection, (asked, _) in self._open.items() if not asked)
                self._cut(next(waiting, next(iter(self._open))))
            self._open[request] = (False, time.monotonic() + self._within.head_s)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._changing:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close connections that have exceeded a time limit."""
        now = time.monotonic()
        with self._changing:
            for connection, (_, until) in list(self._open.items()):
                if now > until:
                    self._cut(connection)

    def server_close(self) -> None:
        """Stop listening, and close all connections."""
        super().server_close()
        with self._changing:
            for connection in list(self._open):
                self._cut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, except a disconnected client."""
        if not isinstance(sys.exc_info()[1], OSError):
            self.report(request, client_address)

    def report(self, request: Any, client_address: Any) -> None:
        """Write the current exception with its traceback to standard error."""
        super().handle_error(request, client_address)

    def _cut(self, connection: socket.socket) -> None:
        """Shut down a connection, so that its thread reads the end."""
        self._open.pop(connection, None)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class _Scrape(BaseHTTPRequestHandler):
    """The handler of one connection, with one request and its answer."""

    server: _Listener
    server_version = "holdfast"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer with all metrics."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer with the headers only."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        self.server.note_request(self.connection)
        kind, status, body = "text/plain; charset=utf-8", HTTPStatus.NOT_FOUND, b"see /metrics\n"
        if self.path.partition("?")[0] == "/metrics":
            try:
                kind, status, body = CONTENT_TYPE, HTTPStatus.OK, self.server.text()
            except Exception:
                # Before the answer, so that a client that has the answer finds the report.
                self.server.report(self.connection, self.client_address)
                self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
                return
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing for a scrape."""


RULE_FILE: Final = "holdfast-rules.yml"
HEAD: Final = "# Written by `holdfast alerts export`; thresholds come from each job's own settings.\n"


def rule_file(rules: Iterable[AlertRule] = RULES) -> str:
    """Return the rules for Prometheus's `rule_files`, with values as JSON, which is valid YAML."""
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


def expression(rule: AlertRule) -> str:
    """Return a rule in PromQL: the sum over other labels, compared with the job's threshold."""
    by = ", ".join(rule.by)
    sign = ">" if rule.above else "<"
    threshold = f'holdfast_alert_threshold{{rule="{rule.name}"}}'
    return f"sum by ({by}) ({rule.metric}) {sign} on (job_name) group_left () max by (job_name) ({threshold})"


def _annotations(rule: AlertRule) -> dict[str, str]:
    """Return the annotations `summary` and `description` with Prometheus's templates."""
    value = "{{ $value | humanize }}"
    if rule.unit == "bytes":
        value = "{{ $value | humanize1024 }}B"
    elif rule.unit == "seconds":
        value = "{{ $value | humanizeDuration }}"
    elif rule.metric == "holdfast_late_rows_ratio":
        value = "{{ $value | humanizePercentage }}"
    labels = {name: f"{{{{ $labels.{name} }}}}" for name in rule.by}
    # Prometheus passes the value to a template, but not the threshold.
    summary = rule.says.format(**labels, value=value, threshold="its threshold")
    return {"summary": summary, "description": rule.advice}


def _prometheus_duration(ms: int) -> str:
    return f"{ms // 1000}s"
