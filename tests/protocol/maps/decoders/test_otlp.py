"""Metrics of OpenTelemetry."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from edgewake.protocol.errors import Rejected
from edgewake.protocol.maps.decoders.otlp import readings

T_NS = 1_790_000_000_000_000_000


def text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def of(*metrics: dict[str, Any], resource: list[Any] | None = None) -> list[dict[str, Any]]:
    request = {
        "resourceMetrics": [
            {
                "resource": {"attributes": resource or []},
                "scopeMetrics": [{"scope": {"name": "meter"}, "metrics": metrics}],
            }
        ]
    }
    return readings(orjson.dumps(request), is_json=True)


def gauge(name: str, value: float, *attributes: dict[str, Any], t: int = T_NS) -> dict[str, Any]:
    point = {"asDouble": value, "timeUnixNano": str(t), "attributes": attributes}
    return {"name": name, "unit": "Cel", "gauge": {"dataPoints": [point]}}


def test_points_of_one_moment_and_one_set_of_attributes_are_one_reading() -> None:
    room = text("room", "hall")
    found = of(
        gauge("a", 1.5, room), gauge("b", 2.5, room), gauge("a", 9),
        resource=[text("service.name", "heating"), text("device.id", "boiler-7")],
    )  # fmt: skip
    head = {"scope": "meter", "time": T_NS, "device": "boiler-7",
            "resource": {"service.name": "heating", "device.id": "boiler-7"}}  # fmt: skip
    assert found == [
        {**head, "fields": {"a": 1.5, "b": 2.5}, "attributes": {"room": "hall"},
         "units": {"a": "Cel", "b": "Cel"}},
        {**head, "fields": {"a": 9.0}, "attributes": {}, "units": {"a": "Cel"}},
    ]  # fmt: skip


def test_without_a_word_about_the_thing_the_device_is_missing() -> None:
    (reading,) = of(gauge("a", 1))
    assert "device" not in reading


def test_a_sum_of_differences_is_told_by_its_name() -> None:
    points = [{"asInt": "3", "timeUnixNano": str(T_NS)}]
    delta = {"name": "n", "sum": {"aggregationTemporality": 1, "dataPoints": points}}
    total = {"name": "n", "sum": {"aggregationTemporality": 2, "dataPoints": points}}
    (reading,) = of(delta, total)
    assert reading["fields"] == {"n_delta": 3, "n": 3}


def test_of_a_distribution_only_what_was_measured_has_the_unit() -> None:
    """How many requests there were was shown in seconds."""
    point = {"timeUnixNano": str(T_NS), "count": "3", "sum": 1.5}
    buckets = {"bucketCounts": ["1", "2"], "explicitBounds": [0.5], "min": 0.1, "max": 0.9}
    spread = {"scale": 1, "zeroCount": "1", "positive": {"offset": 2, "bucketCounts": ["1", "2"]}}
    parts = {"quantileValues": [{"quantile": 0.99, "value": 0.8}, {"quantile": 1, "value": 0.9},
                                {"quantile": 1e-7, "value": 0.1}]}  # fmt: skip
    kinds = {"histogram": buckets, "exponentialHistogram": spread, "summary": parts}
    metrics = [
        {
            "name": name,
            "unit": "s",
            name: {"aggregationTemporality": 2, "dataPoints": [point | own]},
        }
        for name, own in kinds.items()
    ]
    (reading,) = of(*metrics, {**gauge("a_count", 1.5), "unit": "By"})
    assert reading["units"] == {
        "histogram_sum": "s", "histogram_min": "s", "histogram_max": "s", "histogram_bounds": "s",
        "exponentialHistogram_sum": "s",
        "summary_sum": "s", "summary_q0_99": "s", "summary_q1": "s", "summary_q1e-07": "s",
        "a_count": "By",
    }  # fmt: skip


def test_a_point_that_was_not_recorded_is_left_out() -> None:
    point = {"asDouble": 1, "timeUnixNano": str(T_NS), "flags": 1}
    assert of({"name": "a", "gauge": {"dataPoints": [point]}}) == []


@pytest.mark.parametrize(
    ("payload", "is_json"),
    [(b"{", True), (b"[]", True), (b" [1]", True), (b"null", True), (b"\xff", False)],
)
def test_what_is_no_request_is_refused(payload: bytes, is_json: bool) -> None:
    with pytest.raises(Rejected, match="expected metrics of OTLP"):
        readings(payload, is_json=is_json)
