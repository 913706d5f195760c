"""Readings to rows and rows to frames."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.tables.codec import (
    Batch,
    FrameColumns,
    Reading,
    batches,
    checksum,
    columns_of,
    gap_payload,
)
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames.frame import FIELDS_MAX, Frame, Gap, Scalar
from edgewake.protocol.frames.frame_bytes import read
from tests.examples import examples

HEAD_BYTES = 80
"""Epoch, frame and seq before a batch's own bytes."""
VALUES = (
    st.none()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("abcäö ", max_size=5)
    | st.booleans()
)
READINGS = st.lists(
    st.tuples(
        st.integers(0, 4_000_000_000_000),
        st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1),
    ),
    min_size=1,
    max_size=30,
)


def frames_of(
    readings: list[Reading], *, readings_max: int = 10, bytes_max: int = 1000
) -> list[Frame]:
    """The frames that a log would make of readings."""
    found, waiting = [], list(batches(readings, readings_max=readings_max, bytes_max=bytes_max))
    seq = 1
    while waiting:
        columns = FrameColumns(readings_max=readings_max, bytes_max=bytes_max)
        while waiting and columns.add(waiting[0]):
            waiting.pop(0)
        number = len(found) + 1
        found.append(read(columns.wire(epoch=3, frame=number, seq=seq)[0]))
        assert frames.encode(found[-1]) == columns.payload(epoch=3, frame=number, seq=seq), (
            "packed or not, the same"
        )
        seq += columns.count
    return found


@settings(deadline=None)
@given(READINGS)
def test_every_reading_is_in_one_frame_in_order_and_unchanged(readings: list[Reading]) -> None:
    got = [
        (t, {name: column[i] for name, column in frame.fields.items() if column[i] is not None})
        for frame in frames_of(readings)
        for i, t in enumerate(frame.t)
    ]
    assert got == [
        (t, {name: value for name, value in fields.items() if value is not None})
        for t, fields in readings
    ]


@settings(deadline=None)
@given(READINGS)
def test_no_column_of_a_frame_mixes_types(readings: list[Reading]) -> None:
    for frame in frames_of(readings):
        for column in frame.fields.values():
            kinds = {
                "number" if type(value) in (int, float) else type(value).__name__
                for value in column
                if value is not None
            }
            assert len(kinds) <= 1


@settings(deadline=None)
@given(READINGS, st.integers(1, 5), st.integers(60, 400))
def test_frames_keep_their_bounds(
    readings: list[Reading], readings_max: int, bytes_max: int
) -> None:
    for batch in batches(readings, readings_max=readings_max, bytes_max=bytes_max):
        assert batch.count <= readings_max
        assert len(batch.body) <= bytes_max or batch.count == 1


COMMITS = st.lists(
    st.tuples(
        st.integers(1, 20),
        st.lists(st.integers(0, 299), min_size=1, max_size=8),
        VALUES | st.text("aä\x01", max_size=60),
    ),
    min_size=1,
    max_size=25,
)
"""Commits: how many readings, which fields each has, and their value."""


@settings(deadline=None, max_examples=examples(80))
@given(COMMITS, st.integers(200, 5_000))
def test_every_frame_put_together_keeps_its_bytes_and_passes_the_bridges_own_check(
    commits: list[tuple[int, list[int], Scalar]], bytes_max: int
) -> None:
    """Also of readings that share no field, each of which fills all columns of the others."""
    readings = [
        [(n, {f"field_{i}": value for i in names}) for n in range(count)]
        for count, names, value in commits
    ]
    waiting = [
        batch for of in readings for batch in batches(of, readings_max=1_000, bytes_max=bytes_max)
    ]
    seen = 0
    while waiting:
        columns = FrameColumns(readings_max=1_000, bytes_max=bytes_max)
        while waiting and columns.add(waiting[0]):
            waiting.pop(0)
        payload = columns.payload(epoch=3, frame=1, seq=1)
        assert len(payload) <= bytes_max + HEAD_BYTES or columns.count == 1
        wire = columns.wire(epoch=3, frame=1, seq=1)[0]
        assert len(wire) <= len(payload)
        assert frames.encode(read(wire)) == payload
        seen += len(frames.decode(payload).t)
    assert seen == sum(map(len, readings))


def test_a_gateway_that_reports_tag_by_tag_gets_no_frame_that_the_bridge_refuses() -> None:
    """250 fields, one in each reading, each in a commit of its own: a thousand of them in one frame
    were 1.27 MB of nulls.
    """
    limits = UplinkConfig()
    waiting = [
        batch
        for n in range(3000)
        for batch in batches(
            [(n, {f"tag_{n % 250:03d}": n * 0.5})],
            readings_max=limits.frame_readings_max,
            bytes_max=limits.frame_bytes_max,
        )
    ]
    count = 0
    while waiting:
        columns = FrameColumns(
            readings_max=limits.frame_readings_max, bytes_max=limits.frame_bytes_max
        )
        while waiting and columns.add(waiting[0]):
            waiting.pop(0)
        count += len(frames.decode(columns.payload(epoch=1, frame=1, seq=1)).t)
    assert count == 3000


def test_one_batch_becomes_the_bytes_that_the_protocol_makes() -> None:
    (batch,) = batches([(1, {"a": 1.5}), (2, {"a": None})], readings_max=10, bytes_max=1000)
    columns = FrameColumns(readings_max=10, bytes_max=1000)
    assert columns.add(batch)
    assert columns.payload(epoch=1, frame=2, seq=3) == frames.encode(
        Frame(1, 2, 3, [1, 2], {"a": [1.5, None]})
    )


def test_batches_are_put_together_while_they_fit() -> None:
    columns = FrameColumns(readings_max=3, bytes_max=1000)
    first, second = (
        Batch(2, b'{"t":[1,2],"fields":{"a":[1,2]}}'),
        Batch(1, b'{"t":[3],"fields":{"b":[true]}}'),
    )
    assert (columns.add(first), columns.add(second), columns.add(second)) == (True, True, False)
    assert frames.decode(columns.payload(epoch=1, frame=1, seq=1)).fields == {
        "a": [1, 2, None],
        "b": [None, None, True],
    }


def test_too_many_different_fields_make_several_frames() -> None:
    readings: list[Reading] = [(n, {f"f{n}_{i}": 1 for i in range(100)}) for n in range(5)]
    found = frames_of(readings, bytes_max=100_000)
    assert sum(len(frame.t) for frame in found) == 5
    assert all(len(frame.fields) <= FIELDS_MAX for frame in found)


def test_columns_have_null_where_a_row_has_no_such_field() -> None:
    assert columns_of([{"a": 1}, {"b": 2}]) == {"a": [1, None], "b": [None, 2]}


def test_a_gap_says_reason_and_count() -> None:
    assert frames.decode(gap_payload(epoch=1, frame=4, seq=9, gap=Gap("quota", 5))) == Frame(
        1, 4, 9, (), {}, Gap("quota", 5), 4
    )


def test_the_checksum_covers_the_place() -> None:
    assert (
        len({checksum(b"x", 1, 2), checksum(b"x", 12), checksum(b"x", 2, 1), checksum(b"y", 1, 2)})
        == 4
    )
