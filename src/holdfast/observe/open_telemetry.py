"""The export of metrics to an OpenTelemetry collector, which needs the extra `holdfast[opentelemetry]`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from holdfast.errors import Unsupported
from holdfast.observe.metrics import COUNTER, METRICS, MetricSample, by_metric

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation


# OpenTelemetry's own variables; the second is only for metrics and is used unchanged.
ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
METRICS_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
EVERY_MS: Final = 15_000
_LAST_PUSH_MS: Final = 5_000

Measure = Callable[[], Iterable[MetricSample]]


def configured(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the collector address in OpenTelemetry's environment variables; None if they are not set."""
    given = os.environ if environ is None else environ
    if given.get(METRICS_ENDPOINT):
        return given[METRICS_ENDPOINT]
    base = given.get(ENDPOINT)
    return f"{base.rstrip('/')}/v1/metrics" if base else None


class Push:
    """A thread that sends metrics by OTLP over HTTP every fifteen seconds, until it is closed.

    If a collector does not answer, the next push tries again; no other work is delayed.

    Args:
        measure: The function that returns the newest samples; it must be fast.
        endpoint: The collector's address, with its path: `http://127.0.0.1:4318/v1/metrics`.
        every_ms: The time from one push to the next.

    Raises:
        Unsupported: The extra is not installed.
    """

    def __init__(self, measure: Measure, endpoint: str, every_ms: int = EVERY_MS) -> None:
        with _needs_extra():
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.metrics import Observation
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
        self._measure = measure
        exporter = OTLPMetricExporter(endpoint=endpoint)
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=every_ms)
        resource = Resource.create({"service.name": "holdfast"})
        self._provider = MeterProvider(metric_readers=[reader], resource=resource, shutdown_on_exit=False)
        self._observation = Observation
        self._seen: Iterable[MetricSample] = ()
        self._by_metric: dict[str, list[MetricSample]] = {}
        meter = self._provider.get_meter("holdfast")
        for metric in METRICS:
            counts = metric.kind == COUNTER
            create = meter.create_observable_counter if counts else meter.create_observable_gauge
            create(metric.name, [self._observer(metric.name)], metric.unit, metric.meaning)

    def close(self) -> None:
        """Send the newest samples one last time, and stop the thread."""
        self._provider.shutdown(timeout_millis=_LAST_PUSH_MS)

    def _observer(self, metric: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            numbers = self._sorted().get(metric, ())
            return [self._observation(number.value, number.named) for number in numbers]

        return observe

    def _sorted(self) -> dict[str, list[MetricSample]]:
        """Group the samples by metric, once for all metrics of a push."""
        samples = self._measure()
        if samples is not self._seen:
            self._seen, self._by_metric = samples, by_metric(samples)
        return self._by_metric


@contextmanager
def _needs_extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise Unsupported(
            "OpenTelemetry is not installed",
            code="HF-E7092",
            found=str(error),
            hint="run `pip install 'holdfast[opentelemetry]'`",
        ) from error
