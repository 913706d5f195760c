"""Packed frames: what goes in comes out, to the type of each number; a reader that is not ours
agrees; hostile bytes are refused.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames import packed
from edgewake.protocol.frames.frame import Frame, Gap
from tests.edge import foreign_frame
from tests.examples import examples

T0 = 1_790_000_000_000


def frame(fields: dict[str, list[Any]], t: list[int] | None = None) -> Frame:
    return Frame(
        2_170_000_000_123,
        12,
        1101,
        t or [T0 + 10 * n for n in range(len(next(iter(fields.values()), [0])))],
        fields,
    )


def packed_bytes(of: Frame) -> bytes:
    found = packed.pack(of)
    assert found is not None
    return found


COLUMNS: dict[str, list[Any]] = {
    "integers": [1, -5, 2**40],
    "one": [7, 7, 7],
    "steps": [100, 101, 102],
    "decimals": [51.2, 49.85, 0.1],
    "whole decimals": [51.0, 49.0, 2.0],
    "mixed as JavaScript writes them": [5, 5.5, 6],
    "with nulls": [None, 5.5, None],
    "integers with nulls": [3, None, 4],
    "small": [1e-7, 2.5e-300, 0.0],
    "many digits": [0.1 + 0.2, 1 / 3, 2 / 3],
    "large": [1e300, -1e22, 9007199254740993.0],
    "as large as floats are, with a fraction": [1.5e308, -1.25e307],
    "as large as floats are beside small ones": [1e308, 0.123456],
    "minus nothing": [-0.0, 0.0, 1.5],
    "texts": ["Market Street", "Market Street", "Nörth Quay 😀"],
    "booleans": [True, False, None],
    "nothing": [None, None, None],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_comes_back_as_it_was(name):
    one = frame({"x": COLUMNS[name]})
    data = packed_bytes(one)
    assert frames.encode(packed.unpack(data)[0]) == frames.encode(one), (
        "to the last digit, and to the type of each number"
    )
    assert json.loads(foreign_frame.inflate(data, packed.PACKED_TYPE)) == json.loads(
        frames.encode(one)
    )


@pytest.mark.parametrize(
    "column", [[2**63, 1], [1.0, 1, 2.5], [True, 1], ["a", 1], [f"text {n}" for n in range(64)]]
)
def test_what_would_not_come_back_exactly_or_get_smaller_goes_as_json(column):
    assert packed.pack(frame({"x": column})) is None


def test_gaps_and_many_readings_are_not_packed():
    assert packed.pack(Frame(3, 14, 1103, (), {}, Gap("quota", 200), 13)) is None
    assert packed.pack(frame({"x": [1] * (packed.PACKED_READINGS_MAX + 1)})) is None


def refusal_of(read: Callable[[], object]) -> RejectReason | None:
    try:
        read()
    except Rejected as refusal:
        return refusal.reason
    return None


SCALARS = st.one_of(
    st.none(), st.booleans(), st.text(max_size=5), st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**6), 10**6).map(lambda n: n / 100),
)  # fmt: skip


@given(st.integers(1, 70), st.data())
@settings(max_examples=examples(300))
def test_whatever_is_packed_passes_the_bridges_own_decode_and_is_the_same(count, data):
    names = data.draw(
        st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True), max_size=4, unique=True)
    )
    kind = st.sampled_from(
        [SCALARS, st.integers(0, 50), st.integers(0, 5000).map(lambda n: n / 10)]
    )
    fields = {
        name: data.draw(st.lists(data.draw(kind), min_size=count, max_size=count)) for name in names
    }
    one = frame(
        fields,
        data.draw(st.lists(st.integers(0, frames.TIME_MS_MAX), min_size=count, max_size=count)),
    )
    text = frames.encode(one)
    bits = packed.pack(one)
    if bits is None:
        return
    reason = refusal_of(lambda: frames.decode(text))
    assert refusal_of(lambda: packed.unpack(bits)) is reason, (
        "a reserved name, a NUL: refused in either form"
    )
    if reason is not None:
        return
    expected, kinds = frames.decode_with_kinds(text)
    back, back_kinds = packed.unpack(bits)
    assert (frames.encode(back), back_kinds) == (frames.encode(expected), kinds)
    assert json.loads(foreign_frame.inflate(bits, packed.PACKED_TYPE)) == json.loads(text)


@given(st.binary(max_size=60))
@settings(max_examples=examples(300))
def test_any_bytes_are_a_frame_or_refused(data):
    try:
        found, kinds = packed.unpack(bytes([packed.FORM]) + data)
    except Rejected:
        return
    assert frames.decode_with_kinds(frames.encode(found)) == (
        found._replace(t=list(found.t)),
        kinds,
    )


@given(st.data())
@settings(max_examples=examples(300))
def test_changed_bytes_are_a_frame_or_refused(data):
    whole = bytearray(packed_bytes(frame({"lat": [53.1, 53.2], "state": ["a", None], "n": [1, 2]})))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        found, kinds = packed.unpack(bytes(whole))
    except Rejected:
        return
    assert frames.decode_with_kinds(frames.encode(found))[1] == kinds


def test_every_piece_of_a_frame_is_refused():
    whole = packed_bytes(frame({"lat": [53.1, 53.2, 53.7], "state": ["a", None, "b"]}))
    for length in range(1, len(whole)):
        with pytest.raises(Rejected):
            packed.unpack(whole[:length])
    with pytest.raises(Rejected):
        packed.unpack(whole + b"\0")


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * (1 << 20),  # a number without end: its square would take minutes
        b"\x02" + b"\xff" * 100_000,
        b"\x02" + bytes([1, 1, 1]) + b"\xff\xff\x7f",  # two million readings
        b"\x02" + bytes([1, 1, 1, 1]) + packed._sized(packed._deflated(("a," * 5000,))) + b"\0\0",
    ],
)
def test_bytes_that_ask_for_much_get_nothing(data):
    with pytest.raises(Rejected):
        packed.unpack(data)


def test_one_long_text_in_every_reading_is_refused_before_it_is_written_out():
    """A megabyte of them would be a quarter of a gigabyte of JSON, and a second of a processor."""
    text = json.dumps(["x" * packed.TEXT_BYTES_MAX]).encode()
    choice = b"\x21" + packed._sized(text) + packed._integers([0] * 256)
    head = (
        bytes([packed.FORM, 1, 1, 1])
        + packed.varint.encode(256)
        + packed._sized(packed._deflated(("n",)))
        + packed._integers([T0] * 256)
    )
    assert refusal_of(lambda: packed.unpack(head + choice)) is RejectReason.OVERSIZE
    short = json.dumps(["x" * 250]).encode()
    assert (
        packed.unpack(head + b"\x21" + packed._sized(short) + packed._integers([0] * 256))[
            0
        ].fields["n"]
        == ["x" * 250] * 256
    )


def test_names_that_deflate_says_at_length_are_refused_and_not_remembered():
    """A block of deflate that holds nothing takes five bytes."""
    said, padding = packed._deflated(("n",)), b"\0\0\0\xff\xff" * 100_000
    before = packed._inflated.cache_info().currsize
    with pytest.raises(Rejected):
        packed.unpack(
            bytes([packed.FORM, 1, 1, 1, 1])
            + packed._sized(padding + said)
            + packed._integers([T0])
            + b"\0"
            + packed._integers([1])
        )
    assert packed._inflated.cache_info().currsize == before


def test_a_frame_of_host_metrics_is_a_third_of_its_compressed_json():
    rng = random.Random(1)
    fields: dict[str, list[Any]] = {
        "cpu_percent": [round(rng.random() * 100, 1) for _ in range(20)],
        "disk_percent": [41.3] * 20,
        "process_count": [rng.randrange(90, 110) for _ in range(20)],
    }
    one = frame(fields)
    assert 3 * len(packed_bytes(one)) < 2 * len(frames.compress(frames.encode(one))[0])


def test_the_reasons_name_whose_fault_it_is():
    with pytest.raises(Rejected) as found:
        packed.unpack(packed_bytes(frame({"seq": [1]})))
    assert found.value.reason is RejectReason.SHAPE
