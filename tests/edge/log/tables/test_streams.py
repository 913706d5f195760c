"""The counters of a stream: every position gets one number of one epoch, whatever epochs come and
go while nobody takes anything.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.tables.streams import RANGES_MAX, EpochRange, StreamState

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("accept"), st.integers(1, 20)),
        st.tuples(st.just("frame"), st.integers(1, 20)),
        st.tuples(st.just("epoch"), st.booleans()),
        st.tuples(st.just("keep here"), st.integers(1, 20)),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_position_has_one_number_and_the_numbers_of_an_epoch_have_no_hole(
    steps: list[tuple[str, int]],
) -> None:
    stream, epoch, frames = StreamState(1, "speed"), 1, list[tuple[int, int, int, int]]()
    for what, count in [*steps, *([("frame", 1_000)] * 80)]:
        if what == "accept":
            stream = _accept(stream, count)
        elif what == "keep here" and stream.framed == stream.last:
            stream = stream.kept_here(stream.last + count)
        elif what == "frame" and stream.framed < stream.last:
            span, first = stream.next_range(epoch), stream.framed + 1
            last = min(stream.framed + count, span.last)
            assert first <= span.last <= stream.last
            assert span.epoch == stream.next_epoch(epoch)
            frames.append((span.epoch, span.frame + 1, first - span.base, last - first + 1))
            stream = stream.after_frame(last)
        elif what == "epoch":
            stream = stream.in_new_epoch(epoch, keep_numbers=bool(count))
            epoch += 1
        assert StreamState.from_row(stream.row()) == stream
    assert stream.framed == stream.last
    assert [one[0] for one in frames] == sorted(one[0] for one in frames), (
        "epochs are sent in the order in which they were"
    )
    for one in {frame[0] for frame in frames}:
        of_it = [frame[1:] for frame in frames if frame[0] == one]
        assert [frame for frame, _, _ in of_it] == list(range(1, len(of_it) + 1))
        expected = of_it[0][1]
        for _, seq, readings in of_it:
            assert seq == expected, "a number was left out, or given twice"
            expected += readings


def _accept(stream: StreamState, count: int) -> StreamState:
    return replace(stream, last=stream.last + count)


@given(STEPS)
def test_what_keeps_its_numbers_begins_with_one_in_each_epoch(steps: list[tuple[str, int]]) -> None:
    """So that a frame of the cloud's epoch is the first one where it is numbered so."""
    stream, epoch, first = StreamState(1, "speed"), 1, dict[int, int]()
    for what, count in [*steps, *([("frame", 1_000)] * 80)]:
        if what == "accept":
            stream = _accept(stream, count)
        elif what == "frame" and stream.framed < stream.last:
            span = stream.next_range(epoch)
            first.setdefault(span.epoch, stream.framed + 1 - span.base)
            stream = stream.after_frame(min(stream.framed + count, span.last))
        elif what == "epoch":
            stream = stream.in_new_epoch(epoch, keep_numbers=True)
            epoch += 1
    assert set(first.values()) <= {1}


def test_at_the_bound_of_epochs_the_newest_two_are_one_and_nothing_is_left_out() -> None:
    stream = StreamState(1, "speed")
    for epoch in range(1, RANGES_MAX + 3):
        stream = _accept(stream, 2).in_new_epoch(epoch, keep_numbers=True)
        assert len(stream.older) == min(epoch, RANGES_MAX)
    newest = RANGES_MAX + 3
    found = []
    while stream.framed < stream.last:
        span = stream.next_range(newest)
        found.append((span.epoch, span.last - stream.framed))
        stream = stream.after_frame(span.last)
    assert found == [*((epoch, 2) for epoch in range(1, RANGES_MAX + 1)), (newest, 4)]


@pytest.mark.parametrize("keep", [True, False])
def test_an_epoch_that_found_nothing_waiting_begins_behind_what_was_sent(keep: bool) -> None:
    stream = StreamState(1, "speed", last=30, framed=30, base=10, frame=4).in_new_epoch(
        5, keep_numbers=keep
    )
    assert stream == StreamState(1, "speed", last=30, framed=30, base=30, frame=0)


def test_what_a_copy_waits_with_is_counted_anew_but_that_of_epochs_before_is_not() -> None:
    """A copy's original goes on with the numbers of the last epoch; those of the epochs before are
    nobody's to give again.
    """
    older = (EpochRange(3, 0, 20, 1),)
    stream = StreamState(1, "speed", last=30, framed=10, base=20, frame=0, older=older)
    assert stream.in_new_epoch(4, keep_numbers=False) == StreamState(
        1, "speed", 30, 10, 20, 0, older
    )
    assert stream.in_new_epoch(4, keep_numbers=True) == StreamState(
        1, "speed", 30, 10, 30, 0, (*older, EpochRange(4, 20, 30, 0))
    )


def test_a_stream_that_is_not_sent_takes_no_numbers_of_those_that_are() -> None:
    stream = StreamState(1, "speed", last=5, framed=5, base=0, frame=1).kept_here(105)
    assert (stream.last, stream.framed, stream.base) == (105, 105, 100)
    assert _accept(stream, 1).next_range(1) == EpochRange(1, 100, 106, 1), (
        "the next one that is sent is number 6"
    )


@pytest.mark.parametrize(
    "row",
    [
        [1, "speed", 0, 0, 0, 0],
        [1, 7, 0, 0, 0, 0, ""],
        ["1", "speed", 0, 0, 0, 0, ""],
        [1, "speed", 0.0, 0, 0, 0, ""],
        [1, "speed", True, 0, 0, 0, ""],
        [1, "speed", 0, None, 0, 0, ""],
        [1, "speed", 0, 0, 0, 0, "[[1]]"],
        [1, "speed", 0, 0, 0, 0, "[1]"],
        [1, "speed", 0, 0, 0, 0, "{"],
        [1, "speed", 0, 0, 0, 0, b"\xff"],
        [],
    ],
)
def test_a_row_that_the_log_did_not_write_is_refused(row: list[object]) -> None:
    with pytest.raises((ValueError, TypeError)):
        StreamState.from_row(row)


@given(st.integers(0, 5), st.integers(1, 100))
def test_the_checksum_covers_each_of_the_counters(which: int, more: int) -> None:
    row = [1, "speed", 2, 3, 4, 5]
    changed = [*row]
    changed[which] = f"{row[1]}{more}" if which == 1 else int(str(row[which])) + more
    assert StreamState(*row).checksum() != StreamState(*changed).checksum()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "older", [(EpochRange(1, 0, 9, 1),), (EpochRange(1, 0, 9, 2),), (EpochRange(2, 0, 9, 1),), ()]
)
def test_the_checksum_covers_the_epochs_that_wait(older: tuple[EpochRange, ...]) -> None:
    other = StreamState(1, "speed", 20, 3, 9, 0, (EpochRange(1, 1, 9, 1),))
    assert StreamState(1, "speed", 20, 3, 9, 0, older).checksum() != other.checksum()


def test_a_stream_without_earlier_epochs_has_the_checksum_of_the_first_version() -> None:
    """Logs that devices have."""
    assert StreamState(1, "speed", 30, 20, 5, 2).checksum() == 0x44DA54F1
