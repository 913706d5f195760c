"""The queries of "How do I …" in docs/queries.md, run on Spark over readings from Kafka: each gives
what its question asks for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgewake.cloud.analysis.repair.preview import preview
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frames.field_type import FieldType
from tests.analysis.support import T0, Analysis, Feed, registered, results

NUMBER, STRING, BOOLEAN = FieldType.NUMBER, FieldType.STRING, FieldType.BOOLEAN
MINUTE = 60_000
SECTION = re.search(
    r"\n## How do I …\n(.*?)\n## ", Path("docs/queries.md").read_text("utf-8"), re.DOTALL
)
assert SECTION is not None
TEXTS = {
    re.findall(r"name: (\w+)", text)[0]: text
    for text in re.findall(r"```sql\n(.*?)```", SECTION[1], re.DOTALL)
}
FIELDS = {
    "vehicle_position": {
        "lat": NUMBER,
        "lon": NUMBER,
        "speed_kmh": NUMBER,
        "battery_percent": NUMBER,
        "charging": BOOLEAN,
    },
    "meter": {"kwh": NUMBER},
    "host_metrics": {"cpu_percent": NUMBER, "load_1m": NUMBER},
    "fares": {"zone": STRING},
    "tariffs": {"zone": STRING, "price": NUMBER},
    "tank": {"level": NUMBER, "level_odd": STRING},
}
NewFeed = Callable[[Mapping[str, FieldType]], Feed]


@pytest.fixture
def feeds(new_feed: NewFeed) -> dict[str, Feed]:
    """The streams of the document, filled: two devices, whose readings come in turn."""
    made = {name: new_feed(types) for name, types in FIELDS.items()}
    for device, back in (("a", 0.0), ("b", 100.0)):
        times = [T0 + i * 1000 for i in range(6)]
        made["vehicle_position"].send(
            times, device=device, lat=[53.0, 53.0, 53.1, 53.1, 53.1, 53.2],
            lon=[-6.0, -6.1, -6.1, -6.1, -6.1, -6.2],
            speed_kmh=[10.0, 20.0, 30.0, 40.0, 50.0, 60.0 + back],
            battery_percent=[50.0, 49.0, 47.0, 47.0, 60.0, 61.0],
            charging=[False, False, True, True, True, False],
        )  # fmt: skip
        made["meter"].send(times[:4], device=device, kwh=[1000.0 + back, 1002.5 + back, 3.0, 3.5])
        made["host_metrics"].send(
            times,
            device=device,
            cpu_percent=[95.0, 91.0, 80.0, 92.0, 99.0, 93.0 - back],
            load_1m=[1.0, 2.0] * 3,
        )
    made["tariffs"].send([T0, T0 + 2000], device="office", zone=["z1", "z1"], price=[1.5, 2.0])
    made["fares"].send([T0 - 1000, T0 + 1000, T0 + 3000], device="bus", zone=["z1", "z1", "z1"])
    made["tank"].send(
        [T0 + i * 1000 for i in range(4)],
        device="a",
        level=[None, 2.0, None, 6.0],
        level_odd=["1.0", None, "calibrating", None],
    )
    for feed in made.values():
        feed.flush()
    return made


def text_of(name: str, feeds: Mapping[str, Feed]) -> str:
    """The query, over the streams of this test."""
    text: str = TEXTS[name]
    for stream, feed in feeds.items():
        text = re.sub(rf"\b{stream}\b", feed.name, text)
    return text


def told(
    analysis: Analysis, feeds: Mapping[str, Feed], name: str, device: str, *columns: str
) -> list[tuple[Any, ...]]:
    now_ms = SystemClock().now_ms()
    streams = {feed.name: feed.stream for feed in feeds.values()}
    found = preview(
        analysis.session,
        analysis.config.kafka,
        text_of(name, feeds),
        streams,
        since_ms=now_ms - 600_000,
        now_ms=now_ms,
    )
    rows = [row for row in found if row["device"] == device]
    return [
        tuple(row[column] for column in columns)
        for row in sorted(rows, key=lambda row: row["window_start"])
    ]


def test_the_document_asks_what_is_tried_here() -> None:
    assert set(TEXTS) == {
        "battery_steps", "energy_used", "way_driven", "speed_smooth", "hot_three_times",
        "charging_changed", "fares_at_price", "level_of_all",
        "load_per_minute",
    }  # fmt: skip


def test_each_question_is_answered(analysis: Analysis, feeds: dict[str, Feed]) -> None:
    """One test: the readings are sent once."""
    steps = told(analysis, feeds, "battery_steps", "a", "before", "now", "step")
    assert steps == [(50, 49, -1), (49, 47, -2), (47, 47, 0), (47, 60, 13), (60, 61, 1)]
    assert told(analysis, feeds, "energy_used", "b", "used", "seconds") == [
        (2.5, 1),
        (3, 1),
        (0.5, 1),
    ]
    ways = [km for (km,) in told(analysis, feeds, "way_driven", "a", "km")]
    assert ways == pytest.approx(
        [
            km((53.0, -6.0), (53.0, -6.1)),
            km((53.0, -6.1), (53.1, -6.1)),
            0,
            0,
            km((53.1, -6.1), (53.2, -6.2)),
        ]
    )
    assert told(analysis, feeds, "speed_smooth", "b", "mean", "now") == [(30, 50), (60, 160)]
    assert told(analysis, feeds, "hot_three_times", "a", "least") == [(92,)]
    assert told(analysis, feeds, "hot_three_times", "b", "least") == []
    assert told(analysis, feeds, "charging_changed", "a", "charging") == [(True,), (False,)]
    assert told(analysis, feeds, "fares_at_price", "bus", "price") == [(None,), (1.5,), (2,)]
    assert told(analysis, feeds, "level_of_all", "a", "level") == [(3.0,)]


@pytest.mark.long
def test_a_window_is_told_once_when_it_is_final(analysis: Analysis, feeds: dict[str, Feed]) -> None:
    feed = feeds["host_metrics"]
    queries = registered(text_of("load_per_minute", feeds), streams=[feed.stream])
    for device in ("a", "b"):
        feed.send(
            [T0 + 3 * MINUTE],
            device=device,
            cpu_percent=[1.0],
            load_1m=[9.0],
            received_at=T0 + 3 * MINUTE,
        )
    analysis.run(queries, feed)
    rows = results(feed.config, "load_per_minute")
    told_of = [(row["window_start"], row["device"], row["mean"], row["final"]) for row in rows]
    assert sorted(told_of) == [(T0, "a", 1.5, True), (T0, "b", 1.5, True)]


def km(one: tuple[float, float], other: tuple[float, float]) -> float:
    """By the law of cosines on unit vectors: another formula than the document's."""
    (a, b), (c, d) = (tuple(map(math.radians, place)) for place in (one, other))
    return 6371 * math.acos(math.sin(a) * math.sin(c) + math.cos(a) * math.cos(c) * math.cos(b - d))
