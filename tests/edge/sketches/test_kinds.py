"""What devices make, merged in the cloud as it merges its own: within its bounds of the exact
answer.
"""

from __future__ import annotations

import random
import statistics
from base64 import b64decode
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.summaries import answers, intake
from edgewake.cloud.summaries.summary import Summary, merged
from edgewake.edge.sketches.kinds import (
    BLOCK,
    COUNT_MIN_WIDTH,
    MAKERS,
    TEXT_BYTES_MAX,
    FilledBloom,
    FilledCountMin,
    FilledNumbers,
    numbers_of,
    texts_of,
)
from edgewake.edge.sketches.maker import Maker
from edgewake.protocol.errors import Rejected
from edgewake.protocol.sketches.bloom import Bloom
from edgewake.protocol.sketches.count_min import DEPTH, CountMin
from edgewake.protocol.sketches.sketch import (
    BLOOM_BITS_MIN,
    SKETCH_BYTES_MAX,
    DeviceSketch,
    Numbers,
    SketchKind,
    parse,
)

MADE = list(MAKERS)
T0 = 1_790_000_040_000


def summary(values: list[Any], *, device: str = "box", cut: int = 1000) -> Summary:
    """A device's sketches of some values as the cloud takes them in."""
    maker = Maker(MADE)
    for begin in range(0, len(values), cut):
        maker.take([(7, "price", values[begin : begin + cut])])
    found = []
    for field, kind, readings, text in maker.over(7):
        one = DeviceSketch(
            "shop", field, SketchKind(kind), T0, T0 + 60_000, readings, b64decode(text)
        )
        ((_, record),) = intake.taken({"device": device, "received_at": one.end_ms, **one.fields()})
        found.append(record.summary)
    return merged(found)


@pytest.mark.long
def test_merged_sketches_of_devices_answer_within_their_bounds() -> None:
    rng = random.Random(3)
    devices = [
        [round(rng.gauss(50 + 5 * device, 10), 1) for _ in range(20_000)] for device in range(5)
    ]
    values = [value for some in devices for value in some]
    found = merged([summary(some, device=f"box-{place}") for place, some in enumerate(devices)])
    figures = answers.figures(found)
    assert figures.count == len(values)
    assert figures.mean is not None
    assert abs(figures.mean - statistics.fmean(values)) < 1e-9
    distinct = answers.distinct(found)
    assert distinct is not None
    assert distinct.low <= len(set(values)) <= distinct.high
    ordered = sorted(values)
    for rank, quantile in zip((0.5, 0.99), answers.quantiles(found, [0.5, 0.99]), strict=True):
        exact = sum(value <= quantile.value for value in ordered) / len(ordered)
        assert abs(exact - rank) < 0.0266, "twice the bound of one sketch"


def test_what_is_sent_beside_readings_is_a_series_of_its_own_device_and_merged_with_no_other() -> (
    None
):
    one = DeviceSketch(
        "shop",
        "price",
        SketchKind.NUMBERS,
        T0,
        T0 + 60_000,
        3,
        Numbers.of([1.0, 2.0, 3.0]).encode(),
        beside=True,
    )
    assert parse(one.fields()) == one
    ((_, beside),) = intake.taken({"device": "box", "received_at": one.end_ms, **one.fields()})
    ((_, instead),) = intake.taken(
        {"device": "box", "received_at": one.end_ms, **replace(one, beside=False).fields()}
    )
    assert (beside.series.devices, instead.series.devices) == ("@box", "")
    with pytest.raises(Rejected, match="beside"):
        parse(one.fields() | {"beside": 1})


def test_merged_counts_of_texts_answer_within_their_bounds() -> None:
    rng = random.Random(4)
    devices = [
        [f"street {min(int(rng.expovariate(0.3)), 200)}" for _ in range(5_000)] for _ in range(4)
    ]
    exact = Counter(text for some in devices for text in some)
    found = merged([summary(some) for some in devices])
    for item in answers.frequent(found, 5):
        assert item.low <= exact[item.text] <= item.high
    assert {item.text for item in answers.frequent(found, 5)} == {
        text for text, _ in exact.most_common(5)
    }
    often = answers.occurrences(found, "street 3")
    assert often is not None
    assert often.low <= exact["street 3"] <= often.high


@given(
    st.lists(
        st.one_of(
            st.integers(-5, 5),
            st.floats(-1e9, 1e9),
            st.booleans(),
            st.sampled_from(["", "a", "ü" * 200, "long " * 60]),
        ),
        max_size=60,
    ),
    st.integers(1, 60),
)
def test_how_values_are_cut_into_messages_changes_nothing(values: list[Any], cut: int) -> None:
    whole, pieces = Maker(MADE), Maker(MADE)
    whole.take([(1, "x", values)])
    for begin in range(0, len(values), cut):
        pieces.take([(1, "x", values[begin : begin + cut])])
    assert pieces.over(1) == whole.over(1)
    assert whole.over(1) == [], "it is forgotten"


def test_many_blocks_of_numbers_are_the_same_however_they_were_cut() -> None:
    rng = random.Random(9)
    values = [rng.uniform(0, 1e6) for _ in range(3_000)]
    numbers = {SketchKind.NUMBERS: MAKERS[SketchKind.NUMBERS]}
    found = []
    for cut in (1, 7, 256, 3_000):
        maker = Maker([SketchKind.NUMBERS], numbers)
        for begin in range(0, len(values), cut):
            maker.take([(1, "x", values[begin : begin + cut])])
        found.append(maker.over(1))
    assert found == [found[0]] * 4


def test_the_largest_sketches_fit_into_a_reading() -> None:
    rng = random.Random(2)
    texts = (
        [f"{n:04d} " + "x" * 240 for n in range(40)] * 3
        + [str(rng.random()) for _ in range(20_000)]
        + [f"{n:04d} " + "x" * 240 for n in range(40)] * 60
    )
    maker = Maker([kind for kind in MADE if kind is not SketchKind.COUNT_MIN])
    maker.take([(1, "x", texts), (1, "y", [rng.random() for _ in range(200_000)])])
    sizes = {(field, kind): len(b64decode(text)) for field, kind, _, text in maker.over(1)}
    assert len(sizes) == 3 + 5
    assert max(sizes.values()) <= SKETCH_BYTES_MAX


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ([1, 2.5, -3], [1.0, 2.5, -3.0]),
        ([True, False], []),
        (["1", ""], []),
        ([2**63], [2.0**63]),
        ([], []),
        ([1, True, "x", 2], [1.0, 2.0]),
    ],
)
def test_a_truth_value_and_a_text_are_no_numbers(values: list[Any], numbers: list[float]) -> None:
    assert numbers_of(values) == numbers
    assert all(type(number) is float for number in numbers_of(values))


@pytest.mark.parametrize(
    ("text", "is_counted"),
    [("", True), ("x" * TEXT_BYTES_MAX, True), ("x" * (TEXT_BYTES_MAX + 1), False),
        ("ä" * (TEXT_BYTES_MAX // 2), True),
     ("ä" * (TEXT_BYTES_MAX // 2) + "x", False),
     ("\N{GRINNING FACE}" * (TEXT_BYTES_MAX // 4), True),
     ("\N{GRINNING FACE}" * (TEXT_BYTES_MAX // 4) + "x", False)],
    ids=["empty", "at the bound", "one byte more", "of two bytes each", "of two bytes and one more",
        "of four bytes each",
         "of four and one more"],
)  # fmt: skip
def test_a_text_is_counted_up_to_its_bytes(text: str, is_counted: bool) -> None:
    assert len(texts_of([text])) == is_counted


def test_one_and_one_point_nought_are_one_item_and_its_text_another() -> None:
    assert texts_of([1, 1.0])[0] == texts_of([1, 1.0])[1]
    assert len(set(texts_of([True, "other", 1]))) == 3


CUTS = st.lists(st.integers(0, 2 * BLOCK + 3), max_size=6)


@given(st.lists(st.floats(-1e6, 1e6), max_size=2 * BLOCK + 3), CUTS)
def test_figures_are_the_same_to_the_last_digit_however_the_values_were_cut(
    values: list[float], cuts: list[int]
) -> None:
    whole, parts = FilledNumbers(), FilledNumbers()
    whole.add(values)
    places = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    for begins, ends in pairwise(places):
        parts.add(values[begins:ends])
        assert parts.readings == ends
    assert parts.data() == whole.data()
    assert parts.data() == parts.data(), "asked twice it answers the same"


@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK])
def test_figures_are_exact_around_a_block(count: int) -> None:
    filled = FilledNumbers()
    filled.add([float(value) for value in range(count)])
    found = Numbers.decode(filled.data())
    assert (found.count, filled.readings) == (count, count)
    if count:
        assert (found.min, found.max) == (0, count - 1)
        assert found.mean == pytest.approx((count - 1) / 2)


def test_counts_of_texts_are_those_of_the_sketch_that_the_cloud_knows() -> None:
    filled = FilledCountMin()
    filled.add(["a", "b", "a", 7, "x" * (TEXT_BYTES_MAX + 1)])
    found = CountMin.decode(filled.data())
    assert (found.readings, filled.readings, len(found.cells)) == (4, 4, DEPTH * COUNT_MIN_WIDTH)
    assert sum(found.cells) == DEPTH * 4


def test_which_values_there_were_is_in_the_filter_that_the_cloud_knows() -> None:
    filled = FilledBloom()
    filled.add(["a", "b", "a", 7.0, "", "x" * (TEXT_BYTES_MAX + 1)])
    found = Bloom.decode(filled.data())
    assert (filled.readings, found) == (5, Bloom.of(["a", "b", "7"]))


def test_a_filter_holds_some_thousand_values_in_a_frames_text_and_of_more_none_is_sent() -> None:
    filled = FilledBloom()
    filled.add([f"v{i}" for i in range(4_500)])
    data = filled.data()
    found = Bloom.decode(data)
    assert len(data) <= SKETCH_BYTES_MAX
    assert found.bits >= BLOOM_BITS_MIN
    assert found.false_positives <= found.error
    filled.add([f"w{i}" for i in range(1_000)])
    assert filled.readings == 0
    with pytest.raises(ValueError, match="more values"):
        filled.data()
