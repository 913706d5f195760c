"""Traces: where a reading spends its time, as spans for an OpenTelemetry collector."""
