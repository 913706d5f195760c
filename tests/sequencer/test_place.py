"""Each frame once and in order, whatever two bridges did to them on the way."""

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.sequencer.place import WINDOW, Bounds, Emission, Item, Missing, Placer, State, decode_key, encode_key
from edgewake.protocol.record import Discipline, Placement

READINGS = 10
NOW_MS = 1_790_000_000_000


OFFSETS = itertools.count(1000)


def frame(first: int, *, last: int | None = None, offset: int | None = None, device: str = "a", epoch: int = 1, size: int = 100) -> Item:
    """Frame `first` of 10 readings; with `last`, a gap frame in the place of several."""
    last = last or first
    seq, count = (first - 1) * READINGS + 1, (last - first + 1) * READINGS
    offset = next(OFFSETS) if offset is None else offset
    return Item(offset, device, Placement(Discipline.ORDERED, "s", epoch, first, last, seq, count), size)


def numbered(number: int, *, offset: int = 0) -> Item:
    return Item(offset, "a", Placement(Discipline.NUMBERED, "s", 0, number, number, number, 1), 100)


def free(offset: int = 0) -> Item:
    return Item(offset, "a", Placement(Discipline.FREE, "s", 0, 0, 0), 100)


def feed(placer: Placer, items: Sequence[Item], *, now_s: float = 0.0) -> list[Emission]:
    return [out for item in items for out in placer.place(item, now_s=now_s, now_ms=NOW_MS)]


def said(out: Sequence[Emission]) -> list[object]:
    """Frame numbers; ("late", n) for a late one, (first, last, readings) for a gap said by us."""
    return [
        (one.first, one.last, one.count) if isinstance(one, Missing) else ("late", one.placement.first) if one.late else one.placement.first
        for one in out
    ]


@st.composite
def journeys(draw: st.DrawFn) -> list[int]:
    """Frames 1..n, each at least once, repeated and shuffled."""
    count = draw(st.integers(1, 30))
    numbers = list(range(1, count + 1)) + draw(st.lists(st.integers(1, count), max_size=30))
    return draw(st.permutations(numbers))


@given(journeys())
def test_any_interleaving_of_repeats_and_disorder_comes_out_once_and_in_order(numbers: list[int]) -> None:
    placer = Placer(Bounds())
    out = feed(placer, [frame(number, offset=i) for i, number in enumerate(numbers)])
    assert said(out) == list(range(1, max(numbers) + 1))
    assert (placer.held, placer.held_bytes, placer.resume_offset(len(numbers))) == (0, 0, len(numbers))


@given(journeys(), st.integers(0, 60), st.integers(0, 60))
def test_a_restart_at_any_record_repeats_and_loses_nothing(numbers: list[int], cut: int, second_cut: int) -> None:
    """The state and the resume offset are what Kafka keeps; held frames are read again."""
    items = [frame(number, offset=i) for i, number in enumerate(numbers)]
    placer, start, out = Placer(Bounds()), 0, []
    for end in sorted({min(cut, len(items)), min(second_cut, len(items)), len(items)}):
        out += feed(placer, items[start:end])
        start = placer.resume_offset(end)
        kept = {key: State.decode(state.encode()) for key, state in placer.states().items()}
        placer = Placer(Bounds(), done=end)
        for key, state in kept.items():
            placer.restore(decode_key(encode_key(key)), state)
    assert said(out) == list(range(1, max(numbers) + 1))


@given(st.lists(st.integers(1, 12), max_size=60), st.integers(1, 4))
def test_with_losses_no_frame_comes_twice_and_every_hole_is_said(numbers: list[int], frames_max: int) -> None:
    placer = Placer(Bounds(frames=frames_max, hold_s=10))
    out = feed(placer, [frame(number, offset=i) for i, number in enumerate(numbers)]) + placer.expire(now_s=11, now_ms=NOW_MS)
    passed = [one.placement.first for one in out if isinstance(one, Item)]
    missing = {n for one in out if isinstance(one, Missing) for n in range(one.first, one.last + 1)}
    late = {one.placement.first for one in out if isinstance(one, Item) and one.late}
    assert sorted(passed) == sorted(set(numbers))
    assert missing - late == set(range(1, max(numbers, default=0) + 1)) - set(numbers)
    in_turn = [one.placement.first for one in out if isinstance(one, Item) and not one.late]
    assert in_turn == sorted(in_turn)


def test_a_first_frame_that_is_not_number_one_waits_and_is_then_passed_on_with_its_gap() -> None:
    placer = Placer(Bounds(hold_s=5))
    assert feed(placer, [frame(4)]) == []
    assert placer.expire(now_s=4.9, now_ms=NOW_MS) == []
    assert said(placer.expire(now_s=5, now_ms=NOW_MS)) == [(1, 3, 30), 4]


def test_a_frame_that_comes_after_it_was_said_missing_passes_once_and_is_marked_late() -> None:
    placer = Placer(Bounds(frames=1))
    out = feed(placer, [frame(1), frame(4), frame(5), frame(3), frame(3), frame(2), frame(6)])
    assert said(out) == [1, (2, 3, 20), 4, 5, ("late", 3), ("late", 2), 6]
    assert placer.outcomes["repeat"] == 1


def test_no_frame_waits_longer_than_the_bound_and_a_later_one_goes_on_waiting() -> None:
    placer = Placer(Bounds(hold_s=5))
    feed(placer, [frame(1), frame(3)], now_s=0)
    feed(placer, [frame(6)], now_s=4)
    assert said(placer.expire(now_s=5, now_ms=NOW_MS)) == [(2, 2, 10), 3]
    assert placer.expire(now_s=8.9, now_ms=NOW_MS) == []
    assert said(placer.expire(now_s=9, now_ms=NOW_MS)) == [(4, 5, 20), 6]


def test_bytes_of_one_state_are_bounded() -> None:
    placer = Placer(Bounds(bytes=250))
    assert said(feed(placer, [frame(2), frame(3), frame(5)])) == [(1, 1, 10), 2, 3]
    assert placer.held_bytes == 100


def test_bytes_of_all_states_are_bounded_and_the_longest_wait_ends_first() -> None:
    placer = Placer(Bounds(bytes_total=250))
    feed(placer, [frame(2, device="old")], now_s=1)
    feed(placer, [frame(2, device="young")], now_s=2)
    out = feed(placer, [frame(2, device="youngest")], now_s=3)
    assert [(type(one).__name__, one.device) for one in out] == [("Missing", "old"), ("Item", "old")]


def test_a_gap_frame_takes_the_numbers_of_the_frames_it_replaces() -> None:
    assert said(feed(Placer(Bounds()), [frame(1), frame(2, last=4), frame(5)])) == [1, 2, 5]


def test_frames_that_a_gap_frame_gave_up_still_pass_late_when_they_came_after_all() -> None:
    """The device dropped them unacknowledged, but a bridge had taken one and another brings one later."""
    out = feed(Placer(Bounds()), [frame(1), frame(3), frame(2, last=4), frame(4), frame(3), frame(5)])
    assert said(out) == [1, 2, ("late", 3), ("late", 4), 5]


def test_a_gap_frame_that_begins_in_the_past_passes_for_what_is_new_in_it() -> None:
    out = feed(Placer(Bounds()), [frame(1), frame(2), frame(2, last=3), frame(2), frame(4)])
    assert said(out) == [1, 2, 2, 4]


def test_a_new_epoch_starts_anew_beside_the_old_one() -> None:
    out = feed(Placer(Bounds()), [frame(1), frame(1, epoch=2), frame(2), frame(2, epoch=2)])
    assert [(one.placement.epoch, one.placement.first) for one in out if isinstance(one, Item)] == [(1, 1), (2, 1), (1, 2), (2, 2)]


def test_old_epochs_are_forgotten_after_a_time_and_the_newest_never() -> None:
    placer = Placer(Bounds(old_epoch_s=100))
    feed(placer, [frame(1), frame(1, epoch=2)])
    placer.dirty.clear()
    placer.sweep(now_ms=NOW_MS + 101_000)
    assert placer.dirty == {("a", 1, "s", True): None}
    assert list(placer.states()) == [("a", 2, "s", True)]


def test_the_number_of_states_is_bounded() -> None:
    placer = Placer(Bounds(states=100))
    for i in range(150):
        placer.place(frame(1, device=f"d{i}"), now_s=0, now_ms=NOW_MS + i)
    placer.sweep(now_ms=NOW_MS)
    assert len(placer.states()) == 95
    assert ("d149", 1, "s", True) in placer.states()


def test_ranges_that_are_remembered_as_missing_are_bounded() -> None:
    placer = Placer(Bounds(frames=1))
    feed(placer, [frame(number) for number in range(2, 400, 2)])
    (state,) = placer.states().values()
    assert len(state.missing) == 64
    assert said(feed(placer, [frame(1)])) == []


def test_held_frames_hold_back_the_resume_offset() -> None:
    placer = Placer(Bounds())
    feed(placer, [frame(1, offset=10), frame(3, offset=11), frame(4, offset=12), free(offset=13)])
    assert placer.resume_offset(14) == 11
    feed(placer, [frame(2, offset=14)])
    assert placer.resume_offset(15) == 15


def test_free_and_numbered_records_that_are_read_again_do_not_pass_again() -> None:
    placer = Placer(Bounds(), done=3)
    assert feed(placer, [free(offset=0), numbered(7, offset=1), free(offset=2)]) == []
    assert len(feed(placer, [free(offset=3), numbered(8, offset=4)])) == 2


@given(st.lists(st.integers(1, 40), max_size=80))
def test_numbered_records_pass_once_each_in_the_order_they_came(numbers: list[int]) -> None:
    out = feed(Placer(Bounds()), [numbered(number) for number in numbers])
    assert said(out) == list(dict.fromkeys(numbers))


def test_a_numbered_record_below_the_window_counts_as_a_repeat() -> None:
    placer = Placer(Bounds())
    out = feed(placer, [numbered(5), numbered(WINDOW + 5), numbered(6), numbered(5), numbered(4)])
    assert said(out) == [5, WINDOW + 5, 6]
    assert placer.outcomes["repeat"] == 2


def test_a_stream_that_changes_from_ack_to_one_way_is_numbered_anew() -> None:
    placer = Placer(Bounds())
    one_way = Item(0, "a", Placement(Discipline.NUMBERED, "s", 1, 1, 1, 1, 1), 100)
    assert len(feed(placer, [frame(1), frame(2), one_way])) == 3


def test_a_state_survives_its_row() -> None:
    state = State(next=9, next_seq=81, missing=[(2, 3), (7, 7)], seen=0b1011, touched_ms=5)
    assert State.decode(state.encode()) == state


@pytest.mark.parametrize("value", [b"", b"{}", b"[1]", b'{"next":1}'])
def test_a_foreign_row_is_a_value_error(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"sequencer|JSON|document|end of"):
        State.decode(value)


def test_long_disorder_within_a_bound_leaves_nothing_behind() -> None:
    """A soak in small: disorder of at most 50 frames over many frames leaves nothing behind."""
    rng = random.Random(7)
    numbers = sorted(range(1, 20_001), key=lambda n: n + rng.uniform(0, 50))
    placer = Placer(Bounds())
    assert said(feed(placer, [frame(n, offset=i) for i, n in enumerate(numbers)])) == list(range(1, 20_001))
    assert placer.held == 0
