"""What goes into a sketch and what does not, and the child that makes them: its pipe, its windows,
its bounds.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.sketches.config import OPEN_MAX, SketchConfig
from edgewake.edge.sketches.kinds import (
    BLOCK,
    COUNT_MIN_WIDTH,
    TEXT_BYTES_MAX,
    FilledBloom,
    FilledCountMin,
    FilledNumbers,
    numbers_of,
    texts_of,
)
from edgewake.edge.sketches.maker import Maker, serve
from edgewake.edge.sketches.pipe import LENGTH
from edgewake.protocol.sketches.bloom import Bloom
from edgewake.protocol.sketches.count_min import DEPTH, CountMin
from edgewake.protocol.sketches.sketch import BLOOM_BITS_MIN, SKETCH_BYTES_MAX, Numbers, SketchKind

OWN = (SketchKind.NUMBERS, SketchKind.COUNT_MIN, SketchKind.BLOOM)


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


# the maker


def made(maker: Maker, window: int) -> dict[tuple[str, str], int]:
    """(field, kind) → readings."""
    return {(field, kind): count for field, kind, count, _ in maker.over(window)}


def test_windows_and_fields_are_apart_and_a_window_is_given_once() -> None:
    maker = Maker(OWN)
    maker.take([[1, "speed", [1, 2]], [1, "name", ["a"]], [2, "speed", [3]]])
    maker.take([[1, "speed", [4]]])
    assert made(maker, 1) == {
        ("name", "count_min"): 1,
        ("name", "bloom"): 1,
        ("speed", "numbers"): 3,
        ("speed", "count_min"): 3,
        ("speed", "bloom"): 3,
    }
    assert made(maker, 1) == {}
    assert made(maker, 2) == {("speed", kind): 1 for kind in ("numbers", "count_min", "bloom")}
    assert made(maker, -7) == {}


def test_a_sketch_that_saw_nothing_is_not_sent() -> None:
    maker = Maker([SketchKind.NUMBERS])
    maker.take([[1, "name", ["a", True]], [1, "speed", []]])
    assert maker.over(1) == []


def served(*messages: bytes) -> list[Any]:
    """What the child answers to these bytes on its pipe."""
    outgoing = io.BytesIO()
    serve(Maker([SketchKind.NUMBERS]), io.BytesIO(b"".join(messages)), outgoing)
    answers, data = [], outgoing.getvalue()
    while data:
        (size,) = LENGTH.unpack(data[: LENGTH.size])
        answers.append(orjson.loads(data[LENGTH.size : LENGTH.size + size])["sketches"])
        data = data[LENGTH.size + size :]
    return answers


def message(value: object) -> bytes:
    text = orjson.dumps(value)
    return LENGTH.pack(len(text)) + text


def test_the_child_answers_in_order_and_ends_with_its_input() -> None:
    answers = served(
        message({"values": [[1, "speed", [1, 2]]]}), message({"over": 1}), message({"over": 1}),
        message({"values": [[2, "speed", [5]]]}),
        message({"over": 2}),
    )  # fmt: skip
    assert [[(field, kind, count) for field, kind, count, _ in one] for one in answers] == [
        [("speed", "numbers", 2)], [], [("speed", "numbers", 1)],
    ]  # fmt: skip
    assert Numbers.decode(base64.b64decode(answers[2][0][3])).max == 5


@pytest.mark.parametrize("torn", [b"", b"\x05", b"\x05\x00\x00"])
def test_an_input_that_ends_within_a_length_ends_it_in_order(torn: bytes) -> None:
    assert served(message({"over": 1}), torn) == [[]]


@pytest.mark.parametrize(
    "torn", [LENGTH.pack(10) + b'{"over', LENGTH.pack(0), LENGTH.pack(2) + b"xx"]
)
def test_a_message_that_is_none_ends_it_with_an_error_and_the_agent_makes_all_again(
    torn: bytes,
) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        served(torn)


# configuration


def config(**changed: object) -> SketchConfig:
    return SketchConfig.checked({"stream": "speed", "fields": ["x"], **changed})


@pytest.mark.parametrize(
    "good",
    [{}, {"window_s": 1, "grace_s": OPEN_MAX}, {"window_s": 86_400}, {"kinds": ["numbers"]},
        {"fields": [f"f{n}" for n in range(16)]},
     {"grace_s": 0.5}, {"beside": True}],
)  # fmt: skip
def test_what_may_be_asked_for(good: dict[str, object]) -> None:
    assert config(**good).stream == "speed"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [({"window_s": 7}, "part of a day"), ({"window_s": 0}, "window_s"),
        ({"window_s": 86_401}, "window_s"),
     ({"window_s": 1, "grace_s": OPEN_MAX + 0.1}, "at most 10 windows"), ({"kinds": []}, "kinds"),
     ({"kinds": ["numbers", "numbers"]}, "each kind once"),
     ({"kinds": ["sample"]}, "not made on the device"), ({"kinds": ["mode"]}, "kinds"),
     ({"fields": []}, "fields"),
     ({"fields": [f"f{n}" for n in range(17)]}, "fields"),
     ({"fields": ["x", "y", "x"]}, "twice"), ({"fields": ["device"]}, "envelope"),
     ({"stream": "Speed"}, "a-z"),
     ({"grace_s": -1}, "grace_s"), ({"grace_s": math.inf}, "grace_s"),
     ({"grace_s": math.nan}, "grace_s")],
)  # fmt: skip
def test_what_may_not(bad: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        config(**bad)


def test_the_kinds_that_need_no_library_are_the_ones_that_this_file_makes() -> None:
    from edgewake.edge.sketches.sketching import OWN_KINDS

    found: Sequence[SketchKind] = sorted(OWN_KINDS)
    assert found == sorted(OWN)
