"""Decodes OpenTelemetry's metrics (OTLP 1.x, protobuf or JSON): `payload = "otlp"`. Pure.

Points of one resource, scope, time and set of attributes become one reading:

    {"device": "boiler-7", "scope": "meter", "time": 1790000000000000000,
     "fields": {"temperature": 21.5, "requests_count": 3, "requests_sum": 0.4},
     "attributes": {"room": "hall"}, "resource": {"service.name": "heating"},
     "units": {"temperature": "Cel"}}

`device` is the first of DEVICE_ATTRIBUTES that the resource has; without one it is missing. A sum
whose points are differences gets `_delta` behind its name. Buckets are one text, because their
number varies, and have no unit, as counts have none. Points flagged as not recorded are left out.
Needs `opentelemetry-proto`, which the extra `formats` installs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Metric,
    ResourceMetrics,
)

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.json_text import is_meant_as_json
from edgewake.protocol.maps.rule import READINGS_MAX, Map

DEVICE_ATTRIBUTES: Final = (
    "device.id", "service.instance.id", "host.name", "host.id", "service.name",
)  # fmt: skip
"""Attributes of a resource that name a thing, the most specific first (semantic conventions)."""
_NOTHING: Final = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_DELTA: Final = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA


def decode(payload: bytes, _of: Map, _now_ms: int) -> list[Any]:
    """Decodes a payload for maps. Raises Rejected."""
    return readings(payload, is_json=is_meant_as_json(payload))


def readings(
    payload: bytes, *, is_json: bool, most: int = READINGS_MAX + 1
) -> list[dict[str, Any]]:
    """Decodes the first `most` readings of an ExportMetricsServiceRequest. Raises Rejected."""
    request = ExportMetricsServiceRequest()
    try:
        if is_json:
            if payload.lstrip()[:1] == b"[":  # an empty list would pass for an empty request
                raise ParseError("expected an object, found a list")
            Parse(payload, request, ignore_unknown_fields=True, max_recursion_depth=50)
        else:
            request.ParseFromString(payload)
    except (ParseError, DecodeError, ValueError, RecursionError) as error:
        raise Rejected(
            RejectReason.ENCODING, f"expected metrics of OTLP: {str(error)[:200]}"
        ) from error
    found: list[dict[str, Any]] = []
    for one in request.resource_metrics:
        for reading in _of_resource(one):
            if len(found) >= most:
                return found
            found.append(reading)
    return found


def _of_resource(one: ResourceMetrics) -> Iterable[dict[str, Any]]:
    resource = _attributes(one.resource.attributes)
    device = next((str(resource[key]) for key in DEVICE_ATTRIBUTES if resource.get(key)), None)
    for scoped in one.scope_metrics:
        by_key: dict[tuple[int, bytes], dict[str, Any]] = {}
        for metric in scoped.metrics:
            for point, fields, measured in _points(metric):
                attributes = _attributes(point.attributes)
                key = (point.time_unix_nano, orjson.dumps(attributes, option=orjson.OPT_SORT_KEYS))
                reading = by_key.get(key)
                if reading is None:
                    reading = by_key[key] = {
                        "scope": scoped.scope.name or "otlp",
                        "fields": {},
                        "attributes": attributes,
                        "resource": resource,
                        "units": {},
                    }
                    if device is not None:
                        reading["device"] = device
                    if point.time_unix_nano:
                        reading["time"] = point.time_unix_nano
                reading["fields"] |= fields
                if metric.unit:
                    reading["units"] |= dict.fromkeys(measured, metric.unit)
        yield from by_key.values()


def _points(metric: Metric) -> Iterable[tuple[Any, Mapping[str, Any], Iterable[str]]]:
    """Yields the points of a metric, the fields that each gives, and which have its unit."""
    kind = metric.WhichOneof("data")
    if kind is None:
        return
    data = getattr(metric, kind)
    is_delta = getattr(data, "aggregation_temporality", 0) == _DELTA
    name = f"{metric.name}_delta" if is_delta else metric.name
    counts = {f"{name}_{one}" for one in _COUNTS}
    for point in data.data_points:
        if not point.flags & _NOTHING:
            fields = _FIELDS[kind](name, point)
            yield point, fields, [one for one in fields if one not in counts]


def _number(name: str, point: Any) -> dict[str, Any]:
    kind = point.WhichOneof("value")
    return {name: None if kind is None else getattr(point, kind)}


def _counted(name: str, point: Any) -> dict[str, Any]:
    found = {f"{name}_count": point.count}
    for part in ("sum", "min", "max"):
        if point.HasField(part):
            found[f"{name}_{part}"] = getattr(point, part)
    return found


def _histogram(name: str, point: Any) -> dict[str, Any]:
    buckets = {
        f"{name}_buckets": _text(point.bucket_counts),
        f"{name}_bounds": _text(point.explicit_bounds),
    }
    return _counted(name, point) | (buckets if point.bucket_counts else {})


def _exponential(name: str, point: Any) -> dict[str, Any]:
    found = _counted(name, point) | {
        f"{name}_scale": point.scale,
        f"{name}_zero_count": point.zero_count,
    }
    for sign, side in (("positive", point.positive), ("negative", point.negative)):
        if side.bucket_counts:
            found[f"{name}_{sign}_offset"] = side.offset
            found[f"{name}_{sign}_buckets"] = _text(side.bucket_counts)
    return found


def _summary(name: str, point: Any) -> dict[str, Any]:
    found = {f"{name}_count": point.count, f"{name}_sum": point.sum}
    for one in point.quantile_values:
        found[f"{name}_q{one.quantile:g}".replace(".", "_")] = one.value
    return found


_FIELDS: Final = {
    "gauge": _number,
    "sum": _number,
    "histogram": _histogram,
    "exponential_histogram": _exponential,
    "summary": _summary,
}


_COUNTS: Final = (
    "count", "buckets", "scale", "zero_count", "positive_offset", "positive_buckets",
    "negative_offset", "negative_buckets",
)  # fmt: skip
"""Ends of the names of a distribution's fields that are not in the unit of what was measured."""


def _text(values: Sequence[float]) -> str:
    return orjson.dumps(list(values)).decode()


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    """Converts a value to what JSON can express: lists, maps and bytes too."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(value.kvlist_value.values)
    if kind == "bytes_value":
        return value.bytes_value.hex()
    found = getattr(value, kind)
    return None if isinstance(found, float) and not math.isfinite(found) else found
