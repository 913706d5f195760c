"""Sheds readings of a lane's queries: asks the policy after each batch, sets the plan's dials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, SparkSession

from edgewake.cloud.analysis.plan import shed_policy
from edgewake.cloud.analysis.plan.shed_columns import Dial
from edgewake.cloud.analysis.plan.shed_policy import Shedding, Zone
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.query import Registered


class Shedder:
    """Sheds readings of the queries of one lane while it runs."""

    def __init__(
        self, session: SparkSession, queries: Sequence[Registered], partitions: int
    ) -> None:
        self._registered_at = {one.label: one.registered_at for one in queries}
        self._above_ms = {
            one.label: one.query.shed.above_ms for one in queries if one.query.shed is not None
        }
        self._dials = {label: Dial(session, partitions) for label in self._above_ms}
        self.levels: Mapping[str, Column] = {
            label: dial.level() for label, dial in self._dials.items()
        }
        self._turned: dict[str, Sequence[Zone]] = {}

    def turn(self, record: LaneRecord) -> None:
        """Apply the record's decisions from the next batch on.

        Call it between two batches: Spark takes the values when it plans one.
        """
        for label, dial in self._dials.items():
            zones = record.shedding.get(label, Shedding()).zones
            if self._turned.get(label) != zones:
                dial.turn(zones)
                self._turned[label] = zones

    def decided(self, record: LaneRecord, topic: str, lag_ms: int, now_ms: int) -> LaneRecord:
        """The record with what is decided from its offsets on."""
        offsets = record.offsets.get(topic, {})
        after = {
            label: shed_policy.decided(
                record.shedding.get(label, Shedding()),
                lag_ms=lag_ms,
                above_ms=above_ms,
                now_ms=now_ms,
                offsets=offsets,
                registered_at=self._registered_at[label],
            )
            for label, above_ms in self._above_ms.items()
        }
        return record.model_copy(update={"shedding": after})


def counted(record: LaneRecord, windows: Mapping[str, Mapping[int, int]]) -> LaneRecord:
    """The record with what its windows lack: query (label) → window's start → readings."""
    found = {
        label: shed_policy.counted(record.shedding.get(label, Shedding()), counts)
        for label, counts in windows.items()
        if counts
    }
    return record.model_copy(update={"shedding": record.shedding | found})
