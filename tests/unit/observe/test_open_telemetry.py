"""Numbers pushed to a collector: a real server that reads the protocol."""

from __future__ import annotations

import builtins
import gzip
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from holdfast.errors import Unsupported
from holdfast.observe.metrics import METRICS, sample
from holdfast.observe.open_telemetry import Push, configured

SAMPLES = (
    sample("holdfast_state_rows", 42, "shop", "visits", "0 dedupe"),
    sample("holdfast_batches_total", 7, "shop", "visits"),
)


def test_a_collector_gets_the_numbers() -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            got.append((self.path, ExportMetricsServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        push = Push(lambda: SAMPLES, f"http://127.0.0.1:{server.server_port}/v1/metrics", every_ms=3_600_000)
        push.close()
    finally:
        server.shutdown()
        server.server_close()
    [(path, request)] = got
    assert path == "/v1/metrics"
    metrics = {
        each.name: each
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for each in scope.metrics
    }
    assert set(metrics) == {"holdfast_state_rows", "holdfast_batches_total"}
    [point] = metrics["holdfast_state_rows"].gauge.data_points
    assert point.as_double == 42
    assert {each.key: each.value.string_value for each in point.attributes} == {
        "job_name": "shop",
        "query": "visits",
        "operator": "0 dedupe",
    }
    counter = metrics["holdfast_batches_total"].sum
    assert (counter.is_monotonic, counter.data_points[0].as_double) == (True, 7)
    assert len(METRICS) > len(metrics)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Unsupported, match="not installed"):
        Push(lambda: SAMPLES, "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/metrics"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318",
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m",
            },
            "http://m",
        ),
    ],
)
def test_the_collector_is_the_one_that_the_standard_names(
    environ: dict[str, str], address: str | None
) -> None:
    assert configured(environ) == address
