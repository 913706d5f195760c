"""What the sequencer says of a device's clock, applied: in Spark and in plain Python alike."""

from __future__ import annotations

import orjson
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan.clock_correction import correct, corrected
from edgewake.cloud.analysis.plan.decode import decode
from edgewake.protocol.frames.corrected_time import AHEAD_MS_MAX, corrected_ms, sent_ms
from edgewake.protocol.frames.field_type import FieldType

T = 1_790_000_000_000
CASES = {  # t, shift, received_at, kept_at, expected t, flag
    "a right clock": (T, None, T + 200, None, T, None),
    "an hour ahead": (T + 3_600_000, -3_599_900, T + 150, None, T + 100, "shifted"),
    "an hour behind": (T - 3_600_000, 3_600_100, T + 150, None, T + 100, "shifted"),
    "in 2099 and silent about it": (T + 10**12, None, T, None, T + AHEAD_MS_MAX, "clamped"),
    "in 1970 and silent about it": (5_000, None, T, None, 5_000, None),
    "in 2099, and the bridge as well": (
        T + 10**12,
        None,
        T + 10**12,
        T,
        T + AHEAD_MS_MAX,
        "clamped",
    ),
    "right, and the bridge an hour behind": (T, None, T - 3_600_000, T + 200, T, None),
}


@pytest.mark.parametrize("case", CASES)
def test_the_reference_corrects(case: str) -> None:
    t, shift, received_at, kept_at, expected, _ = CASES[case]
    assert corrected_ms(t, shift=shift or 0, received_at=kept_at or received_at) == expected


def test_spark_corrects_as_the_reference_does_and_flags_the_frame(spark: SparkSession) -> None:
    rows = [
        (
            0,
            0,
            orjson.dumps(
                {
                    "device": name,
                    "shift": shift,
                    "kept_at": kept_at,
                    "received_at": received_at,
                    "t": [t, t],
                    "fields": {"x": [1, 2]},
                }
            ),
        )
        for name, (t, shift, received_at, kept_at, _, _) in CASES.items()
    ]
    frames = correct(
        decode(
            spark.createDataFrame(rows, "partition int, offset bigint, value binary"),
            {"x": FieldType.NUMBER},
        )
    )
    found = frames.select(
        "device", "clock_flag", "top", corrected(F.element_at("t", 1)).alias("t")
    ).collect()
    assert {row.device: (row.t, row.clock_flag) for row in found} == {
        name: case[4:] for name, case in CASES.items()
    }
    assert all(row.top <= (CASES[row.device][3] or CASES[row.device][2]) for row in found)


SENT = {  # sent_at, shift, received_at, kept_at, when it was sent
    "a right clock": (T - 50, None, T, None, T - 50),
    "an hour ahead": (T + 3_600_000, -3_600_050, T, None, T - 50),
    "an hour behind": (T - 3_600_000, 3_599_950, T, None, T - 50),
    "an hour ahead, and nobody knows yet": (T + 3_600_000, None, T, None, T),
    "silent about it": (None, None, T, None, T),
    "silent about it, and its readings are shifted": (None, -3_600_000, T, None, T),
    "right, and the bridge an hour behind": (T - 50, None, T - 3_600_000, T + 200, T - 50),
}


def test_a_frame_s_sending_time_is_corrected_never_past_reception_in_spark_and_reference(
    spark: SparkSession,
) -> None:
    rows = [
        (
            0,
            0,
            orjson.dumps(
                {
                    "device": name,
                    "shift": shift,
                    "kept_at": kept,
                    "sent_at": sent,
                    "received_at": received,
                    "t": [T],
                }
            ),
        )
        for name, (sent, shift, received, kept, _) in SENT.items()
    ]
    frames = decode(
        spark.createDataFrame(rows, "partition int, offset bigint, value binary"),
        {"x": FieldType.NUMBER},
    )
    expected = {name: case[4] for name, case in SENT.items()}
    assert {
        row.device: row.sent_at for row in frames.select("device", "sent_at").collect()
    } == expected
    found = {
        name: sent_ms(sent, shift=shift or 0, received_at=kept or received)
        for name, (sent, shift, received, kept, _) in SENT.items()
    }
    assert found == expected
