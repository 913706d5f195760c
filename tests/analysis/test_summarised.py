"""Which streams and fields are summed up: new ones push none out."""

from __future__ import annotations

import struct

import pyarrow as pa

from edgewake.cloud.analysis.emit import Batch
from edgewake.cloud.analysis.summaries import FIELDS_MAX, STREAMS_MAX, SummaryJob, summarised
from edgewake.cloud.summaries.summary import Record, Series
from edgewake.protocol import sketch
from edgewake.protocol.count_min import CountMin
from edgewake.protocol.field_type import FieldType
from edgewake.protocol.sample import Sample
from edgewake.protocol.sketch import Numbers, SketchKind

NUMBER = FieldType.NUMBER
TABLE = struct.pack(">iqii2q4q", 1, 1, 2, 2, 17, 19, 1, 0, 0, 1)
"""Spark's Count-Min of one text."""
FIGURES = {"readings": [1], "count": [1], "sum": [2.0], "min": [2.0], "max": [2.0], "variance": [0.0]}
SKETCHES = {"hll": [b"h"], "theta": [b"e"], "kll": [b"k"], "top": [b"t"], "count_min": [TABLE], "sample": [[{"draw": -5, "text": "2"}]]}
ROWS = pa.table({"field": ["x"], "devices": [""], "minute": [60_000], **FIGURES, **SKETCHES})


def test_fields_are_taken_in_the_order_in_which_the_catalogue_learnt_them() -> None:
    old = {f"z{i:02d}": NUMBER for i in range(FIELDS_MAX)}
    assert summarised({"s": old | {"a": NUMBER}}, ()) == {"s": tuple(sorted(old.items()))}


def test_streams_that_have_a_state_keep_their_place() -> None:
    old = [f"z{i:02d}" for i in range(STREAMS_MAX - 1)]
    catalogue = {name: {"x": NUMBER} for name in ("b", *old, "a")} | {"empty": {}}
    assert set(summarised(catalogue, set(old))) == {*old, "a"}


def test_a_stream_without_fields_has_nothing_to_sum_up() -> None:
    assert summarised({"s": {}}, ()) == {}


def test_the_lake_gets_what_was_committed_and_nothing_before() -> None:
    kept: list[tuple[str, int]] = []
    job = SummaryJob("s", (("x", NUMBER),), lambda stream, _, revision: kept.append((stream, revision)))
    (output,) = job.outputs(ROWS, Batch(revision=4, top_before=None, top=None), {})
    assert (output.key, kept) == (b"s|x||60000|", []), "its transaction may still fail, or be another driver's"
    job.committed(ROWS, 4)
    job.committed(ROWS.slice(0, 0), 5)
    assert kept == [("s", 4)]


def test_a_row_of_spark_is_the_summary_that_devices_and_answers_know() -> None:
    (output,) = SummaryJob("s", (("x", NUMBER),), lambda *_: None).outputs(ROWS, Batch(revision=4, top_before=None, top=None), {})
    record = Record.decode(output.value)
    assert (record.series, record.start_ms, record.end_ms) == (Series("s", "x"), 60_000, 120_000)
    assert record.summary.numbers == Numbers.of([2.0])
    assert record.summary.sketch(SketchKind.COUNT_MIN) == CountMin(2, 2, 1, (1, 0, 0, 1))
    assert record.summary.sketch(SketchKind.SAMPLE) == Sample(64, 1, ((2**63 - 5, "2"),))


def test_sketches_of_devices_are_not_summed_up_themselves() -> None:
    assert summarised({sketch.STREAM: {"readings": NUMBER}}, ()) == {}
