"""Numbers as Prometheus reads them: as text, and served on a port of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from holdfast.errors import Unavailable
from holdfast.observe.metrics import COUNTER, METRICS, Sample, by_metric

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# How long closing may take.
_POLL_S = 0.1

Measure = Callable[[], Iterable[Sample]]


class Collector:
    """Hands numbers to a `prometheus_client` registry, each time that one is collected.

    Args:
        measure: Gives the numbers.
    """

    def __init__(self, measure: Measure) -> None:
        self._measure = measure

    def collect(self) -> Iterator[Family]:
        """The families that have numbers, in the order of the list."""
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


def as_text(samples: Iterable[Sample]) -> str:
    """Numbers in Prometheus's text format, as `CONTENT_TYPE` names it."""
    from prometheus_client import CollectorRegistry, generate_latest

    listed = list(samples)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(lambda: listed))
    return generate_latest(registry).decode()


class MetricsServer:
    """Answers `/metrics` on a port, on a thread of its own, until it is closed.

    It answers everybody who reaches the address; by default that is this machine alone.

    Args:
        measure: Gives the numbers.
        port: The port; 0 for one that is free.
        host: The address to listen at.

    Raises:
        Unavailable: Somebody else listens there.
    """

    def __init__(self, measure: Measure, port: int, host: str = "127.0.0.1") -> None:
        try:
            self._server = make_server(host, port, _Application(measure), handler_class=_Quiet)
        except (OSError, OverflowError) as error:
            raise Unavailable(
                "cannot listen for Prometheus",
                where=f"{host}:{port}",
                found=str(error),
                hint="name another port, or 0 for one that is free",
            ) from error
        self.port: int = self._server.server_port
        self.url = f"http://{host}:{self.port}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="holdfast-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Application:
    """The smallest thing that answers a scrape."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD") or environ.get("PATH_INFO") != "/metrics":
            start("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"see /metrics\n"]
        body = as_text(self._measure()).encode()
        start("200 OK", [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(body)))])
        return [body] if environ["REQUEST_METHOD"] == "GET" else []


class _Quiet(WSGIRequestHandler):
    timeout = 10  # a client that says nothing must not keep others waiting

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """A scrape is not worth a line in anybody's log."""
