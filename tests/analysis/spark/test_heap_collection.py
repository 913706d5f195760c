"""The heap is collected between windows' ends, and no more often than it must be."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.lanes.schedule import SECOND_LOOK_MS, SETTLE_MS_MAX
from edgewake.cloud.analysis.spark import java_classes
from edgewake.cloud.analysis.spark.heap_collection import (
    AT_MS,
    EVERY_MS,
    LATE_MS,
    Garbage,
    interval_of,
    is_due,
)
from edgewake.protocol.clock import FakeClock

END = 1_790_000_040_000
"""Of a minute, and of all shorter windows."""
PIECE = 100 << 20
"""Bytes: too large to be taken for young."""
REFERENCE = 4
"""Bytes of one in an array."""


@pytest.mark.parametrize("step_ms", [5_000, 10_000, 15_000, 30_000, 60_000])
def test_it_is_looked_at_when_windows_were_told_and_the_next_do_not_end_yet(step_ms: int) -> None:
    times = [at_ms for at_ms in range(END, END + 60_000, 10) if interval_of(at_ms) is not None]
    assert len({interval_of(at_ms) for at_ms in times}) == 60_000 // EVERY_MS
    assert min(at_ms % step_ms for at_ms in times) > SETTLE_MS_MAX + SECOND_LOOK_MS + 1_000
    assert max(at_ms % step_ms for at_ms in times) <= step_ms - 1_000
    assert interval_of(END + AT_MS + LATE_MS + 1) is None, "it is too late"


def test_it_is_due_where_as_much_again_would_not_fit() -> None:
    assert is_due(80, 14, 100)
    assert not is_due(80, 13, 100)
    assert not is_due(100, 0, 100)


def test_what_would_not_last_is_collected_at_its_time_and_what_would_is_left_alone(
    spark: SparkSession,
) -> None:
    java: Any = spark.sparkContext._jvm
    heap = java_classes.new(spark, "Heap")
    clock = FakeClock(END + AT_MS)
    garbage = Garbage(spark, clock)
    heap.collect()
    garbage.turn()
    before = heap.used()
    lists = []
    while not lists or heap.used() + len(lists) * PIECE <= heap.room():
        lists.append(java.java.util.ArrayList())
        lists[-1].ensureCapacity(PIECE // REFERENCE)
    full = heap.used()
    assert full >= before + len(lists) * PIECE
    for each in lists:
        each.trimToSize()

    for at_ms in (AT_MS + LATE_MS, AT_MS + 5_000, EVERY_MS, EVERY_MS + AT_MS - 1):
        clock.jump((END + at_ms - clock.now_ms()) / 1000)
        garbage.turn()
        assert heap.used() >= full, "it is not time"
    clock.jump(0.001)
    garbage.turn()
    after = heap.used()
    assert after < before + PIECE
    clock.jump(EVERY_MS / 1000)
    garbage.turn()
    assert heap.used() >= after, "there is room enough"
