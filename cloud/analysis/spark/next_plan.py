"""How Spark is to plan the next batch of a lane: as it would have suited the last one."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from edgewake.cloud.analysis.spark import code_generation, grouping


def apply_settings(
    batch: DataFrame, groups: int, readings: int, *, before: Mapping[str, str]
) -> Mapping[str, str]:
    """Set Spark's options for the batches after `batch`, and return them.

    `groups` and `readings` are those of `batch`; `before`: the options set so far, {} for Spark's
    own.
    """
    after = grouping.settings(groups, readings) | code_generation.settings(readings)
    for name, value in after.items():
        if before.get(name) != value:
            batch.sparkSession.conf.set(name, value)
    return after
