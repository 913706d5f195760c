"""Which event of a group is given to whom, decided without I/O."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.push.groups import window as windows
from edgewake.cloud.push.groups.window import HELD_MAX, Window
from edgewake.protocol.leases.group_record import Group, decode, encode

START = (((0, 0), (10, 0)),)


def filled(count: int, **more: object) -> Window:
    window = Window(START, **more)  # type: ignore[arg-type]
    for n in range(1, count + 1):
        window.add(0, 0, (n, 0), b'{"n":%d}' % n)
    window.passed((((count, 0), (10, 0)),))
    return window


def test_each_event_is_given_to_one_until_its_time_is_over() -> None:
    window = filled(5)
    one = window.take(3, 1000, now=0)
    two = window.take(3, 1000, now=0)
    assert [e.event for e in one + two] == [b'{"n":%d}' % n for n in range(1, 6)]
    assert window.take(3, 1000, now=999) == []
    again = window.take(9, 1000, now=1000)
    assert [(e.event, e.count) for e in again] == [(e.event, 2) for e in one + two]


def test_what_is_done_is_given_no_more_and_the_floor_is_the_first_that_is_not() -> None:
    window = filled(4)
    taken = window.take(4, 1000, now=0)
    assert window.finish([taken[1].token, taken[3].token, "garbage", "0.0.99.0.1"]) == 2
    assert window.floor == (((0, 0), (10, 0)),)
    assert window.done == ((0, 0, 2, 0), (0, 0, 4, 0))
    assert window.finish([taken[0].token]) == 1
    assert window.floor == (((2, 0), (10, 0)),)
    assert window.finish([taken[0].token]) == 0
    assert window.finish([taken[2].token]) == 1
    assert (window.floor, window.done, window.held) == ((((4, 0), (10, 0)),), (), 0)


def test_a_token_of_an_earlier_turn_finishes_and_does_not_release() -> None:
    window = filled(1)
    (first,) = window.take(1, 1000, now=0)
    (second,) = window.take(1, 1000, now=1000)
    assert window.release([first.token], at=1000) == 0
    assert window.release([second.token], at=1500) == 1
    assert window.take(1, 1000, now=1499) == []
    (third,) = window.take(1, 1000, now=1500)
    assert third.count == 3
    assert window.finish([first.token]) == 1
    assert window.take(1, 1000, now=9999) == []


def test_an_event_that_nobody_was_given_cannot_be_finished() -> None:
    assert filled(1).finish(["0.0.1.0.0", "0.0.1.0.1"]) == 0


def test_a_group_holds_so_many_and_reads_so_far() -> None:
    window = filled(windows.EVENTS_MAX)
    assert not window.has_room
    taken = window.take(10_000, 1000, now=0)
    assert len(taken) == HELD_MAX
    assert window.take(1, 1000, now=0) == []
    window.finish([one.token for one in taken])
    assert window.has_room
    assert len(window.take(10_000, 1000, now=0)) == HELD_MAX


def test_who_reads_again_keeps_what_is_held_and_done() -> None:
    before = filled(6)
    taken = before.take(4, 1000, now=0)
    before.finish([taken[1].token])
    after = Window(before.floor, before.done, before.all_held)
    assert not after.is_complete
    assert (after.held, set(after.all_held)) == (3, set(before.all_held))
    for n in range(1, 7):
        after.add(0, 0, (n, 0), b'{"n":%d}' % n)
    after.passed((((6, 0), (10, 0)),))
    assert after.is_complete
    assert after.held == 3
    assert [e.event for e in after.take(9, 1000, now=0)] == [b'{"n":5}', b'{"n":6}']
    assert [e.count for e in after.take(9, 1000, now=1000)][:3] == [2, 2, 2]
    assert after.finish([taken[0].token]) == 1  # its token is what it was


def test_a_row_is_read_as_it_was_written() -> None:
    window = filled(3)
    window.finish([window.take(3, 1000, now=0)[2].token])
    group = Group(
        id="a",
        owner="o",
        name="n",
        streams=("s",),
        cursor="c",
        done=window.done,
        held=tuple(window.all_held),
        created_at=1,
        used_at=1,
    )
    assert decode(encode(group)) == group


@given(st.lists(st.tuples(st.sampled_from("atrf"), st.integers(0, 30)), max_size=60))
def test_nothing_is_lost_whatever_is_said(words: list[tuple[str, int]]) -> None:
    """Against a list of what is done: all else is given again in the end."""
    window = Window((((0, 0), (0, 0), (0, 0)),))
    added, done, tokens, now = [0, 0, 0], set(), [], 0
    for word, number in words:
        now += number
        match word:
            case "a":
                partition = number % 3
                added[partition] += 1
                place = (partition, added[partition])
                window.add(0, partition, (added[partition], 0), repr(place).encode())
            case "t":
                tokens += window.take(number % 4, 20, now=now)
            case "r" if tokens:
                window.release([tokens[number % len(tokens)].token], at=now)
            case "f" if tokens:
                one = tokens[number % len(tokens)]
                window.finish([one.token])
                done.add(one.event)
        for partition, at in enumerate(window.floor[0]):
            assert all(repr((partition, n)).encode() in done for n in range(1, at[0] + 1))
    left = {e.event for e in window.take(10_000, 20, now=now + 1000)}
    everything = {repr((p, n)).encode() for p in range(3) for n in range(1, added[p] + 1)}
    assert left == everything - done


def test_the_oldest_event_that_is_not_done_is_told_with_its_count() -> None:
    window = filled(2)
    assert window.oldest == ("0.0.1.0.0", 0)
    taken = window.take(2, 1000, now=0)
    window.finish([taken[1].token])
    assert window.oldest == (taken[0].token, 1)
    window.take(1, 1000, now=1000)
    assert window.oldest == ("0.0.1.0.2", 2)
    window.finish([taken[0].token])
    assert window.oldest is None
