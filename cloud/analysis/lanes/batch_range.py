"""A range of a lane's records, read once more without state."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from edgewake.cloud.analysis.lanes.kafka_source import FETCH_WAIT_MS
from edgewake.cloud.analysis.results.batch_commit import Offsets
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.security import spark_options

_EARLIEST: Final = -2
"""Kafka's way to say a partition's first offset."""


def records(
    session: SparkSession,
    kafka: KafkaConfig,
    start: Offsets,
    end: Offsets,
    *,
    group: str | None = None,
) -> DataFrame:
    """Read committed records from `start` to before `end`.

    A partition that is missing in `start` is read from its beginning.

    `group`: whose consumers are kept for the next range; without it each range has consumers of its
    own, idle for minutes afterwards.
    """
    starts = {
        topic: {p: start.get(topic, {}).get(p, _EARLIEST) for p in partitions}
        for topic, partitions in end.items()
    }
    return (
        session.read.format("kafka")
        .options(
            **spark_options(kafka.security), **({} if group is None else {"kafka.group.id": group})
        )
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .option(
            "assign", json.dumps({topic: sorted(partitions) for topic, partitions in end.items()})
        )
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.fetch.max.wait.ms", str(FETCH_WAIT_MS))
        .option("startingOffsets", _json(starts))
        .option("endingOffsets", _json(end))
        .load()
    )


def ranges(
    start: Mapping[int, int], end: Mapping[int, int], count: int
) -> Iterator[tuple[dict[int, int], dict[int, int]]]:
    """Cut a range of offsets into ranges of about `count` records.

    Each has its share of every partition. Pure.
    """
    total = sum(end[partition] - first for partition, first in start.items())
    steps = max(1, -(-total // count))
    edges = [
        {p: first + (end[p] - first) * step // steps for p, first in start.items()}
        for step in range(steps + 1)
    ]
    for before, after in itertools.pairwise(edges):
        moved = [partition for partition in start if after[partition] > before[partition]]
        if moved:
            yield {p: before[p] for p in moved}, {p: after[p] for p in moved}


def _json(offsets: Offsets) -> str:
    return json.dumps(
        {
            topic: {str(p): offset for p, offset in partitions.items()}
            for topic, partitions in offsets.items()
        }
    )


def as_text(offsets: Offsets) -> str:
    """Offsets for a person: `ew.s.host[0]=17 [1]=3`."""
    return ", ".join(
        f"{topic}{_partitions(partitions.items())}" for topic, partitions in sorted(offsets.items())
    )


def _partitions(items: Iterable[tuple[int, int]]) -> str:
    return " ".join(f"[{partition}]={offset}" for partition, offset in sorted(items))
