"""Columns that decide which readings a shedding query takes.

The level can change from batch to batch; the plan stays.

A reading is taken by a hash of its place (partition, offset, number in its frame), so it is taken
again whenever it is computed again, and of those that a level takes the next higher one takes half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan.columns import column
from edgewake.cloud.analysis.plan.decode import PLACE
from edgewake.cloud.analysis.plan.shed_policy import ZONES_MAX, Zone
from edgewake.cloud.analysis.spark.plan_values import PlanValues
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.terms.tree import Expression

_DRAW: Final = "$draw"
_NEVER: Final = 1 << 62
"""An offset that no record has."""


class Dial:
    """Zones in a plan that is running; `turn` changes them from the next batch that Spark plans."""

    def __init__(self, session: SparkSession, partitions: int) -> None:
        self._partitions = partitions
        self._values = PlanValues(session, 2 * ZONES_MAX * partitions)
        self.turn(())

    def turn(self, zones: Sequence[Zone]) -> None:
        """Apply these zones, oldest first. A partition that a zone does not name is not in it."""
        for place in range(ZONES_MAX):
            zone = zones[place] if place < len(zones) else None
            for partition in range(self._partitions):
                start = _NEVER if zone is None else zone.offsets.get(partition, _NEVER)
                self._values.set(self._at(place, 0) + partition, start)
                self._values.set(self._at(place, 1) + partition, 0 if zone is None else zone.level)

    def level(self) -> Column:
        """The level at a frame's place (columns partition and offset), int."""
        partition, offset = F.col("partition"), F.col("offset")
        found = F.lit(0).cast("bigint")
        for place in range(ZONES_MAX):
            start, level = (self._values.at(partition + self._at(place, half)) for half in (0, 1))
            found = F.when((partition < self._partitions) & (offset >= start), level).otherwise(
                found
            )
        return found.cast("int")

    def _at(self, place: int, half: int) -> int:
        return (2 * place + half) * self._partitions


@dataclass(frozen=True, slots=True)
class Taking:
    """Selects which readings one query takes."""

    is_taken: Column
    weight: Column
    """How many readings each that is taken stands for, bigint."""


def with_levels(frames: DataFrame, levels: Mapping[str, Column]) -> tuple[DataFrame, list[str]]:
    """Frames with a column for each query's level, and these columns' names.

    `levels`: query (label) → Dial.level().
    """
    made = {_name(label): level for label, level in levels.items()}
    return frames.withColumns(made) if made else frames, list(made)


def drawn(readings: DataFrame) -> DataFrame:
    """Readings with their draw; in: PLACE."""
    return readings.withColumn(_DRAW, F.xxhash64(*PLACE))


def takings(queries: Sequence[Registered], levels: Mapping[str, Column]) -> dict[int, Taking]:
    """Query's id → what is taken, over readings that are `drawn` and have their frame's levels."""
    return {
        one.id: _taking(_name(one.label), one.query.shed.unless)
        for one in queries
        if one.label in levels and one.query.shed
    }


def _taking(name: str, unless: Expression | None) -> Taking:
    weight = F.call_function("shiftleft", F.lit(1).cast("bigint"), F.col(f"`{name}`"))
    is_taken = F.col(_DRAW).bitwiseAND(weight - 1) == 0
    if unless is None:
        return Taking(is_taken, weight)
    always = F.coalesce(column(unless, F.col), F.lit(False))
    return Taking(always | is_taken, F.when(always, F.lit(1).cast("bigint")).otherwise(weight))


def _name(label: str) -> str:
    return f"$level_{label}"
