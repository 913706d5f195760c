"""How long a stream is kept: what a topic's settings say, and which settings a wish becomes."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.lookups.retention import (
    HOUR_MS,
    KEPT_MS_MAX,
    KEPT_MS_MIN,
    SEGMENT_MS,
    retention_of,
    settings_of,
)
from edgewake.cloud.ops.services.catalogue_editor import StreamChange

DAY_MS = 24 * HOUR_MS


def test_what_kafka_calls_minus_one_is_no_bound() -> None:
    config = KafkaConfig(bootstrap="k:9092", retention_hours=48)
    found = retention_of({"retention.ms": "-1", "retention.bytes": "-1"}, config)
    assert (found.kept_ms, found.bytes_max, found.default_ms) == (None, None, 2 * DAY_MS)
    bound = retention_of({"retention.ms": "3600000", "retention.bytes": "5"}, config)
    assert (bound.kept_ms, bound.bytes_max) == (HOUR_MS, 5)


def test_what_is_not_wished_stays_as_it_is() -> None:
    assert settings_of(None, None) == {}
    assert settings_of(None, 1 << 30) == {"retention.bytes": str(1 << 30)}
    assert set(settings_of(DAY_MS, None)) == {"retention.ms", "segment.ms"}


@pytest.mark.parametrize("kept_ms", [KEPT_MS_MIN, DAY_MS, 30 * DAY_MS, KEPT_MS_MAX])
def test_readings_go_soon_after_their_time_since_kafka_removes_whole_segments(kept_ms: int) -> None:
    settings = settings_of(kept_ms, None)
    shortest, longest = SEGMENT_MS
    segment_ms = int(settings["segment.ms"])
    assert settings["retention.ms"] == str(kept_ms)
    assert shortest <= segment_ms <= longest
    assert segment_ms <= max(kept_ms / 8, shortest)


@pytest.mark.parametrize("kept_ms", [0, -1, KEPT_MS_MIN - 1, KEPT_MS_MAX + 1])
def test_a_time_beyond_its_bounds_is_refused(kept_ms: int) -> None:
    with pytest.raises(ValidationError, match="retention_ms"):
        StreamChange(retention_ms=kept_ms)


def test_the_catalogue_is_not_written_for_a_retention_alone() -> None:
    assert not StreamChange(retention_ms=DAY_MS).is_of_the_catalogue
    assert StreamChange(description="", retention_ms=DAY_MS).is_of_the_catalogue
