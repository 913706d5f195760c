"""Reads back from Kafka what a program computed, ours or a rival's, and compares it with what is
right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from tests.bench.analysis_traffic import END, Window

DISTINCT_ERROR: Final = 0.05
"""Of a sketch of a few hundred values."""


def read(config: KafkaConfig, topic: str) -> dict[tuple[str, int], dict[str, Any]]:
    """(device, begin of the minute) → the last committed row; a `diff` of -1 (Pathway's) only takes
    an earlier one back.
    """
    consumer = clients.consumer(config, "bench-results", **{"enable.partition.eof": True})
    try:
        left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in left])
        found: dict[tuple[str, int], dict[str, Any]] = {}
        while left:
            for message in consumer.consume(10_000, 1.0):
                if message.error() is not None:
                    left.discard(message.partition())
                    continue
                row = orjson.loads(message.value())
                if "device" in row and row["device"] != END and row.get("diff", 1) > 0:
                    place = row["device"], row["window_start"]
                    if place not in found or row.get("revision", 0) >= found[place].get(
                        "revision", 0
                    ):
                        found[place] = row
        return found
    finally:
        consumer.close()


def check(
    found: Mapping[tuple[str, int], Mapping[str, Any]],
    right: Mapping[tuple[str, int], Window],
    who: str,
) -> None:
    """AssertionError with the first difference: counts and maxima are equal, means to the 9th
    digit, distinct values to DISTINCT_ERROR.
    """
    assert found.keys() == right.keys(), (
        who,
        len(found),
        len(right),
        sorted(found.keys() ^ right.keys())[:3],
    )
    for place, row in found.items():
        window = right[place]
        mean = window.total / window.n
        is_right = (
            row["n"] == window.n
            and abs(row["mean"] - mean) <= 1e-9 * max(1.0, mean)
            and row["high"] == window.high
        )
        assert is_right, (who, place, dict(row), window)
        if "levels" in row:
            assert abs(row["levels"] - len(window.levels)) <= max(
                1, DISTINCT_ERROR * len(window.levels)
            ), (who, place, dict(row), window)
