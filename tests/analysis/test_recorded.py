"""A recorded day of three environmental sensors through a lane, against an oracle that reads the file itself."""

from __future__ import annotations

import gzip
import itertools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from edgewake.protocol.field_type import FieldType
from tests.analysis.support import Analysis, Feed, data_file, registered, results, sql, truth, windows

FIELDS = ("humidity", "smoke", "temp")
LINES = 12_000


def recorded() -> list[dict[str, Any]]:
    """The recorded messages, flat."""
    path = data_file("iot_env_telemetry", "raw_data.jsonl.gz")
    if not path.exists():
        pytest.skip("no recorded data at ../shared/data")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in itertools.islice(filter(str.strip, lines), LINES)]


def test_a_recorded_set_equals_the_oracle(analysis: Analysis, new_feed: Callable[[Mapping[str, FieldType]], Feed]) -> None:
    feed = new_feed(dict.fromkeys(FIELDS, FieldType.NUMBER))
    frames: dict[str, list[dict[str, Any]]] = {}
    for message in recorded():
        frames.setdefault(message["device"], []).append(message)
    for device, messages in frames.items():
        for start in range(0, len(messages), 50):
            part = messages[start : start + 50]
            columns = {field: [one["data"].get(field) for one in part] for field in FIELDS}
            feed.send([int(one["ts"] * 1000) for one in part], device=device, **columns)
    text = sql(
        f"{feed.name} UNPIVOT (value FOR metric IN ({', '.join(FIELDS)}))",
        "device, metric, count(value) AS n, avg(value) AS mean, min(value) AS low, max(value) AS high",
        "window(event_time, '10 minutes', '5 minutes'), device, metric",
        lateness="1 day",
    )
    (query,) = registered(text, streams=[feed.stream])

    analysis.run([query], feed)

    found = truth(results(feed.config, query.query.name), "device", "metric")
    flat = [{"t": r["t"], "device": r["device"], "metric": m, "value": r[m]} for r in feed.sent for m in FIELDS if m in r]
    expected = windows(flat, 600_000, 300_000, lambda r: (r["device"], r["metric"]), "value")
    assert set(found) == set(expected)
    assert len(found) > 100
    for place, values in expected.items():
        row = found[place]
        assert (row["n"], row["low"], row["high"]) == (len(values), min(values), max(values))
        assert math.isclose(row["mean"], math.fsum(values) / len(values), rel_tol=1e-12)
