"""A field may be called as we call something inside of a plan: every kind of lane takes the
reading's.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.jobs.job import Dials
from edgewake.cloud.analysis.jobs.kinds import jobs_of
from edgewake.cloud.analysis.plan.shed_columns import Dial
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.analysis.support import T0, records, registered

NAMES: Final = (
    "number", "partition", "offset", "shift", "value", "topic", "reading", "readings", "row", "tag",
    "key", "part", "top", "weight",
    "expires", "x_0", "count_0", "sum_0", "kept_at", "boxed", "x", "values", "Device", "T",
)  # fmt: skip
STREAM: Final = Stream(name="s", fields={name: FieldInfo(type=FieldType.NUMBER) for name in NAMES})
MAXIMA: Final = ", ".join(f"max(`{name}`) AS c_{name}" for name in NAMES)
EACH: Final = ", ".join(f"`{name}` AS c_{name}" for name in NAMES)
MINUTE: Final = "GROUP BY window(event_time, '1 minute'), device"
FILES: Final = {
    LaneKind.PLAIN: f"SELECT device, {MAXIMA} FROM s {MINUTE}",
    LaneKind.SKETCH: (
        f"SELECT device, {MAXIMA}, stddev(number) AS spread FROM s WHERE `offset` + `partition` + "
        f"`number` > 0 {MINUTE}"
    ),
    LaneKind.DISTINCT: (
        f"SELECT device, {MAXIMA}, approx_count_distinct(`number`) AS d FROM s {MINUTE}, "
        "`partition`, `offset`"
    ),
    LaneKind.PLAIN_SHED: (
        f"-- shed: random above 60 seconds except where `number` > 0\nSELECT device, {MAXIMA} "
        f"FROM s {MINUTE}"
    ),
    LaneKind.ROWS: f"SELECT {EACH} FROM s WHERE `number` = 1",
    LaneKind.CHANGE: f"-- on_change: device, key\nSELECT {EACH} FROM s WHERE `number` = 1",
    LaneKind.SEQUENCE: (
        f"SELECT device, {MAXIMA} FROM s GROUP BY session_window(event_time, '1 minute'), device"
    ),
    LaneKind.TABLE_JOIN: (
        f"SELECT {EACH}, robust_zscore(`offset`, 5) AS score FROM s WHERE `partition` = 2"
    ),
}


def one_reading() -> bytes:
    """Each field has its place in NAMES, from 1."""
    body = frame.encode(
        frame.Frame(1, 1, 1, [T0 + 7], {name: [float(i)] for i, name in enumerate(NAMES, 1)})
    )
    value = record.encode(
        device="d1",
        stream="s",
        mode=record.Mode.ACK,
        sent_at=None,
        received_at=T0 + 7,
        frame_bytes=body,
    )
    return record.with_clocks(value, shift=0, kept_at=None)


@pytest.mark.parametrize("kind", FILES)
def test_a_field_is_never_taken_for_what_we_call_so(spark: SparkSession, kind: LaneKind) -> None:
    queries = registered(f"-- name: q\n{FILES[kind]}", streams=[STREAM])
    (job,) = jobs_of(queries, {"s": dict.fromkeys(NAMES, FieldType.NUMBER)}).values()
    assert job.kind is kind
    frames = records(spark, b"{}", one_reading())
    levels = {queries[0].label: Dial(spark, 1).level()} if kind.sheds else {}
    rows = job.graph(frames, 1, Dials(levels)).toArrow()
    broken: emit.Broken = {}
    outputs = list(
        job.new_states().outputs(rows, emit.Batch(revision=1, top_before=None, top=None), broken)
    )

    assert broken == {}
    (told,) = [
        json.loads(one.value or b"") for one in emit.each(outputs) if one.topic == queries[0].topic
    ]
    found: dict[str, Any] = {
        name.removeprefix("c_"): value for name, value in told.items() if name.startswith("c_")
    }
    assert found == {name: float(i) for i, name in enumerate(NAMES, 1)}
    if kind in (LaneKind.ROWS, LaneKind.CHANGE, LaneKind.TABLE_JOIN):
        assert told["reading"] == "0:1:0"


def test_every_kind_whose_plan_has_fields_is_tried() -> None:
    assert {*LaneKind} - FILES.keys() == {
        LaneKind.SKETCH_SHED,
        LaneKind.STREAM_JOIN,
        LaneKind.TABLE,
    }, "the first is the sum of two that are"
