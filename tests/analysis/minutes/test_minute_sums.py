"""Which streams and fields are summed up: new ones push none out."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import datasketches
import pyarrow as pa
import pytest

from edgewake.cloud.analysis.minutes.minute_sums import (
    FIELDS_MAX,
    STREAMS_MAX,
    VALUES_LOG2,
    found_in,
    lake_rows,
    summarised,
)
from edgewake.cloud.summaries.answers import presence
from edgewake.cloud.summaries.summary import Series
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.sketches import bloom, sketch
from edgewake.protocol.sketches.bloom import Bloom
from edgewake.protocol.sketches.count_min import CountMin
from edgewake.protocol.sketches.sample import Sample
from edgewake.protocol.sketches.sketch import Numbers, SketchKind

NUMBER = FieldType.NUMBER


def theta_of(texts: Iterable[str]) -> bytes:
    """As Spark's `theta_sketch_agg` gives it."""
    theta = datasketches.update_theta_sketch(VALUES_LOG2)
    for text in texts:
        theta.update(text)
    return bytes(theta.compact().serialize())


TABLE = struct.pack(">iqii2q4q", 1, 1, 2, 2, 17, 19, 1, 0, 0, 1)
"""Spark's Count-Min of one text."""
MARK = {
    "partition": 3,
    "minute": 0,
    "readings": 1,
    "count": 1,
    "sum": 0.0,
    "min": 0.0,
    "variance": 0.0,
}
VALUE = {
    "field": "x",
    "partition": -1,
    "minute": 60_000,
    "readings": 1,
    "count": 1,
    "sum": 2.0,
    "min": 2.0,
    "max": 2.0,
    "variance": 0.0,
}
SKETCHES = {
    "hll": b"h",
    "theta": theta_of(["2"]),
    "kll": b"k",
    "top": b"t",
    "count_min": TABLE,
    "sample": [{"draw": -5, "text": "2"}],
}
ROWS = pa.Table.from_pylist(
    [
        {"stream": "s", "devices": devices} | SKETCHES | row
        for devices, row in (
            ("", VALUE),
            ("", MARK | {"field": "$top", "max": 70_000.0}),
            ("north", MARK | {"field": "$top", "max": 60_000.0}),
            ("", MARK | {"field": "$read", "max": 70_001.0}),
        )
    ]
)
"""As a job gives them; a mark of a set of devices counts for nothing."""


def test_fields_are_taken_in_the_order_in_which_the_catalogue_learnt_them() -> None:
    old = {f"z{i:02d}": NUMBER for i in range(FIELDS_MAX)}
    assert summarised({"s": old | {"a": NUMBER}}, ()) == {"s": tuple(sorted(old.items()))}


def test_streams_that_are_summed_up_keep_their_place() -> None:
    old = [f"z{i:02d}" for i in range(STREAMS_MAX - 1)]
    catalogue = {name: {"x": NUMBER} for name in ("b", *old, "a")} | {"empty": {}}
    assert set(summarised(catalogue, set(old))) == {*old, "a"}


def test_a_stream_without_fields_has_nothing_to_sum_up() -> None:
    assert summarised({"s": {}}, ()) == {}


def test_a_row_of_spark_is_the_summary_that_devices_and_answers_know() -> None:
    found = found_in(ROWS, {})
    (record,) = found.records
    assert (record.series, record.start_ms, record.end_ms) == (Series("s", "x"), 60_000, 120_000)
    assert record.summary.numbers == Numbers.of([2.0])
    assert record.summary.sketch(SketchKind.COUNT_MIN) == CountMin(2, 2, 1, (1, 0, 0, 1))
    assert record.summary.sketch(SketchKind.SAMPLE) == Sample(64, 1, ((2**63 - 5, "2"),))
    assert (found.tops, found.received_at) == ({"s": {3: 70_000}}, {"s": {3: 70_001}})


def test_the_lake_has_a_column_for_each_figure_and_sketch() -> None:
    (row,) = lake_rows(found_in(ROWS, {}).records).to_pylist()
    sketches = {
        name: row.pop(name)
        for name in ("hll", "theta", "kll", "top", "count_min", "bloom", "sample")
    }
    figures = {"readings": 1, "count": 1, "sum": 2.0, "min": 2.0, "max": 2.0, "variance": 0.0}
    assert row == {"field": "x", "devices": "", "minute": 60_000, "part": None} | figures
    assert sketches.pop("bloom") is None, "theta has the only text"
    assert all(sketches.values())
    assert CountMin.decode(sketches["count_min"]) == CountMin(2, 2, 1, (1, 0, 0, 1))


@pytest.mark.parametrize(
    ("different", "declared", "bits"),
    [
        (4_096, None, None),
        (4_097, None, bloom.BITS),
        (60_000, None, bloom.BITS),
        (3, Bloom.of((), capacity=50_000, error=0.001), 30),
        (150_000, None, None),
    ],
    ids=["theta holds all", "one more", "many", "declared", "more than Spark's holds"],
)
def test_a_filter_is_made_where_theta_does_not_hold_all(
    different: int, declared: Bloom | None, bits: int | None
) -> None:
    texts = [f"v{i}" for i in range(different)]
    rows = pa.Table.from_pylist([{"stream": "s", "devices": ""} | SKETCHES | VALUE
        | {"theta": theta_of(texts), "readings": different}])  # fmt: skip
    (record,) = found_in(rows, {("s", "x"): declared} if declared else {}).records
    filled = record.summary.sketch(SketchKind.BLOOM)
    assert (None if filled is None else filled.bits) == bits
    if filled is not None:
        assert all(map(filled.contains, texts[::10]))
    theta = record.summary.sketch(SketchKind.THETA)
    assert theta.num_retained <= 4_096
    (said,) = presence(record.summary, ["w"])
    assert said.value is (None if different == 150_000 else False)


def test_sketches_of_devices_are_not_summed_up_themselves() -> None:
    assert summarised({sketch.STREAM: {"readings": NUMBER}}, ()) == {}
