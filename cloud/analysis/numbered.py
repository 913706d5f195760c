"""Records of several topics, with their partitions numbered as one topic's (sources.py)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.protocol import topics


def numbered(records: DataFrame, streams: Sequence[str]) -> DataFrame:
    """In: topic, partition …, of the topics of these streams. Out: the same with `partition` as Sources numbers it; of one as it is."""
    if len(streams) == 1:
        return records
    names = F.array(*[F.lit(topics.stream_topic(stream)) for stream in streams])
    number = F.col("partition") * len(streams) + F.array_position(names, F.col("topic")) - 1
    return records.withColumn("partition", number.cast("int"))
