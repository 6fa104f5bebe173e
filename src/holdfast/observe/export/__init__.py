"""Metrics and alerts for other systems: Prometheus, OpenTelemetry, Grafana."""
