"""Summaries that a device sends: the reading that carries one, the exact figures, counts of texts,
and samples.
"""

from __future__ import annotations

import statistics
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.errors import Rejected
from edgewake.protocol.frames.frame import STRING_CHARS_MAX
from edgewake.protocol.sketches.count_min import CountMin
from edgewake.protocol.sketches.sample import Sample
from edgewake.protocol.sketches.sketch import (
    DAY_MS,
    SKETCH_BYTES_MAX,
    DeviceSketch,
    Numbers,
    SketchKind,
    item_text,
    parse,
)

T0 = 1_790_000_040_000
SKETCH = DeviceSketch(
    "noise", "db", SketchKind.NUMBERS, T0, T0 + 60_000, 3, Numbers.of([1.0, 2.0, 4.0]).encode()
)
doubles = st.floats(-1e9, 1e9, allow_nan=False)


def test_a_reading_carries_a_sketch() -> None:
    assert parse(SKETCH.fields()) == SKETCH
    assert parse(SKETCH.fields() | {"start": float(T0)}) == SKETCH, "a field is a double everywhere"


def test_the_largest_sketch_is_one_text_of_a_frame() -> None:
    largest = DeviceSketch("noise", "db", SketchKind.KLL, T0, T0 + 1, 3, bytes(SKETCH_BYTES_MAX))
    assert len(str(largest.fields()["sketch"])) == STRING_CHARS_MAX
    with pytest.raises(ValueError, match="expected at most"):
        DeviceSketch(
            "noise", "db", SketchKind.KLL, T0, T0 + 1, 3, bytes(SKETCH_BYTES_MAX + 1)
        ).fields()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"of_stream": None}, "of_stream"),
        ({"of_stream": "a b"}, "no names"),
        ({"of_field": "t"}, "no names"),
        ({"kind": "cuckoo"}, "kind"),
        ({"start": True}, "start"),
        ({"end": T0}, "window"),
        ({"end": T0 + DAY_MS}, "window"),
        ({"start": 0.5}, "start"),
        ({"readings": -1}, "readings"),
        ({"sketch": "no base64"}, "base64"),
        ({"sketch": "ü"}, "base64"),
        ({"sketch": ""}, "0 bytes"),
    ],
)
def test_what_is_no_sketch_is_refused_by_name(change: dict[str, object], why: str) -> None:
    with pytest.raises(Rejected, match=why):
        parse(SKETCH.fields() | change)


def test_a_value_has_one_text_everywhere() -> None:
    values = [1.0, -0.0, 2.5, 12_345_678.9, 5e-4, 1e300, "ü", True, False]
    assert [item_text(value) for value in values] == [
        "1",
        "0",
        "2.5",
        "12345678.9",
        "0.0005",
        "1e+300",
        "ü",
        "true",
        "false",
    ]


@given(st.lists(doubles, min_size=1, max_size=40), st.integers(0, 40))
def test_figures_of_parts_are_those_of_the_whole(values: list[float], cut: int) -> None:
    found = Numbers.of(values[:cut]).merge(Numbers.of(values[cut:]))
    assert (found.count, found.min, found.max) == (len(values), min(values), max(values))
    assert found.mean == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-6)
    assert found.variance == pytest.approx(statistics.pvariance(values), rel=1e-9, abs=1e-4)
    assert Numbers.decode(found.encode()) == found


def test_a_small_variance_survives_a_large_mean() -> None:
    """Where the difference of squares and square would be 0 or negative."""
    parts = [Numbers.of([1e9 + step, 1e9 + step + 0.5]) for step in range(100)]
    found = Numbers()
    for part in parts:
        found = found.merge(part)
    values = [1e9 + step + half for step in range(100) for half in (0, 0.5)]
    assert found.variance == pytest.approx(statistics.pvariance(values), rel=1e-9)


def test_what_no_double_holds_is_not_told_as_a_figure() -> None:
    for values in ([1.5e300, 1.0], [1.7e308, 1.7e308, -1.7e308]):
        found = Numbers.of(values[:1]).merge(Numbers.of(values[1:]))
        assert (found.variance, found.count, found.max) == (None, len(values), max(values))
        assert Numbers.decode(found.encode()).encode() == found.encode()


def test_sparks_table_is_ours() -> None:
    own = CountMin.of("aaab", depth=2, width=4)
    spark = struct.pack(">iqii2q8q", 1, 4, 2, 4, 17, 19, *own.cells)
    assert CountMin.from_spark(spark) == own


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused_by_name(data: bytes) -> None:
    for kind in (CountMin, Sample, Numbers):
        try:
            found = kind.decode(data)
        except Rejected:
            continue
        assert kind.decode(found.encode()).encode() == found.encode()


def test_cut_bytes_are_refused() -> None:
    for whole, kind in (
        (CountMin.of("aab").encode(), CountMin),
        (Sample.of([(7, "x")]).encode(), Sample),
        (Numbers().encode(), Numbers),
    ):
        for end in range(len(whole)):
            if kind is Sample and end == 3:
                continue  # a sample of readings none of which it holds is one
            with pytest.raises(Rejected):
                kind.decode(whole[:end])
