"""Event times of wrong clocks: shifted as the sequencer says, never far in the future.

A wrong clock harms only its own device.

By how much a device's clock is wrong the sequencer finds out and writes into each record
(protocol/frames/record.py, cloud/sequencer/order/clocks.py). Here it is applied: `t + shift`, but
no later than AHEAD_MS_MAX after the reception. When a frame was sent is by the same clock, and
nothing is received before it is sent. What is given here as columns
protocol/frames/corrected_time.py gives in plain Python, for readers and SQL.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.protocol.frames.corrected_time import AHEAD_MS_MAX


def correct(frames: DataFrame) -> DataFrame:
    """Add `top` (latest event time) and `clock_flag` (null, shifted or clamped).

    `top` is not after reception.

    In: partition, device, shift, received_at, t, fields. Out: the same, with top and clock_flag.
    """
    shift = F.col("shift")
    latest = F.array_max("t") + shift
    flag = F.when(latest > F.col("received_at") + AHEAD_MS_MAX, "clamped").when(
        shift != 0, "shifted"
    )
    return frames.select(
        "*", F.least(latest, F.col("received_at")).alias("top"), flag.alias("clock_flag")
    )


def corrected(t: Column) -> Column:
    """An event time of a frame that went through `correct`."""
    return F.least(t + F.col("shift"), F.col("received_at") + AHEAD_MS_MAX)


def sent() -> Column:
    """When a frame was sent; when it was received where its device does not say it.

    In: sent_at, shift, received_at.
    """
    at = F.col("received_at")
    return F.coalesce(F.least(F.col("sent_at") + F.col("shift"), at), at)
