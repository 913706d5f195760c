"""Event times of wrong clocks: shifted by the device's skew, never far in the future. A wrong clock harms only its own device.

Three times of a frame decide: `t` (event, device clock), `sent_at` (device clock, at this attempt), `received_at` (bridge clock).
The skew is `received_at - sent_at`, the clocks' difference plus the way. Beyond SKEW_MS_MIN the clock is wrong and event times move by
the skew; below it they stay, for the way may well take seconds. In the end no event time is later than `received_at + AHEAD_MS_MAX`.
What is given here as columns is given once more in plain Python, for tests and for whoever asks what happened to one reading.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

SKEW_MS_MIN: Final = 10_000
"""Smaller differences of `received_at` and `sent_at` are taken for the way, not for a wrong clock."""
AHEAD_MS_MAX: Final = 300_000
"""How far after its reception an event may claim to be; later ones are set to that."""


def correct(frames: DataFrame) -> DataFrame:
    """Adds `shift` (ms to add to each `t`), `top` (latest event time, not after reception) and `clock_flag` (null, shifted or clamped).

    In: device, sent_at, received_at, t, fields. Out: device, received_at, t, fields, shift, top, clock_flag.
    """
    skew = F.col("received_at") - F.col("sent_at")
    shift = F.when(F.abs(skew) > SKEW_MS_MIN, skew).otherwise(F.lit(0).cast("bigint"))
    latest = F.array_max("t") + shift
    flag = F.when(latest > F.col("received_at") + AHEAD_MS_MAX, "clamped").when(shift != 0, "shifted")
    return frames.select(
        "device",
        "received_at",
        "t",
        "fields",
        shift.alias("shift"),
        F.least(latest, F.col("received_at")).alias("top"),
        flag.alias("clock_flag"),
    )


def corrected(t: Column) -> Column:
    """An event time of a frame that went through `correct`."""
    return F.least(t + F.col("shift"), F.col("received_at") + AHEAD_MS_MAX)


def corrected_ms(t: int, *, sent_at: int | None, received_at: int) -> int:
    """The same for one reading, in plain Python."""
    skew = 0 if sent_at is None else received_at - sent_at
    shift = skew if abs(skew) > SKEW_MS_MIN else 0
    return min(t + shift, received_at + AHEAD_MS_MAX)
