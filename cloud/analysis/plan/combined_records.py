"""Records of several topics, with their partitions numbered as one topic's (combined_topics.py)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.protocol import topics


def numbered(records: DataFrame, streams: Sequence[str]) -> DataFrame:
    """Number the partitions of these streams' records (topic, partition, …) as CombinedTopics does.

    The records of a single stream are returned as they are.
    """
    if len(streams) == 1:
        return records
    names = F.array(*[F.lit(topics.stream_topic(stream)) for stream in streams])
    return _with_place(records, streams, F.array_position(names, F.col("topic")) - 1)


def numbered_of(frames: DataFrame, streams: Sequence[str], place: int) -> DataFrame:
    """One topic's records or frames, marked as those of the stream at this place."""
    return frames if len(streams) == 1 else _with_place(frames, streams, F.lit(place))


def _with_place(rows: DataFrame, streams: Sequence[str], place: Column) -> DataFrame:
    return rows.withColumn("partition", (F.col("partition") * len(streams) + place).cast("int"))
