"""Who may have how much in flight."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.keeping.lanes import Lane, Window

STREAMS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=400)
LANES = {"urgent": Lane.URGENT, "bulk": Lane.BULK}


def window(frames: int = 64, size: int = 1 << 20) -> Window:
    return Window(frames, size, lane=lambda stream: LANES.get(stream, Lane.NORMAL))


def fill(of: Window, stream: str, size: int = 1) -> int:
    """Take all that the stream may have; how many frames that were."""
    count = 0
    while of.admits(stream):
        of.add(stream, size)
        count += 1
    return count


def test_one_stream_alone_leaves_a_part_of_the_window_free() -> None:
    found = fill(window(), "a")
    assert 40 <= found < 58


def test_a_small_window_is_used_whole() -> None:
    assert [fill(window(frames), "a") for frames in (1, 2, 4)] == [1, 2, 4]


def test_bytes_bound_as_frames_do() -> None:
    assert fill(window(frames=10_000), "a", size=64 << 10) < 16


def test_a_stream_that_has_nothing_in_flight_may_always_have_one_frame() -> None:
    of = window()
    for stream in "abcdefgh":
        fill(of, stream)
    assert fill(of, "late") >= 1


def test_an_urgent_stream_finds_room_behind_any_number_of_full_ones() -> None:
    """Twenty streams that nobody answers have taken all that they may."""
    of = window()
    for number in range(20):
        fill(of, f"normal_{number}")
    assert fill(of, "urgent") >= 4


def test_bulk_leaves_room_for_normal_and_normal_for_urgent() -> None:
    of = window()
    assert 0 < fill(of, "bulk") <= 0.6 * 64
    assert fill(of, "a") >= 10
    assert fill(of, "urgent") >= 5


def test_the_order_is_that_of_the_lanes_and_of_what_was_given() -> None:
    assert window().in_order(["bulk", "b", "a", "urgent"]) == ["urgent", "b", "a", "bulk"]


@given(STREAMS, st.integers(1, 100))
def test_the_window_is_exceeded_by_at_most_one_frame_of_each_stream(
    asks: list[str], frames: int
) -> None:
    of = window(frames)
    taken = dict.fromkeys(asks, 0)
    for stream in asks:
        if of.admits(stream):
            of.add(stream, 1)
            taken[stream] += 1
    assert sum(taken.values()) <= frames + len(taken)
    assert all(taken.values())
