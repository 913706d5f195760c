"""Who has to give a connection to whom where all are taken."""

from __future__ import annotations

import random

import pytest

from edgewake.edge.sources.web.seats import Seats


def taken(most: int, *senders: str) -> Seats[int]:
    seats: Seats[int] = Seats(most)
    for n, sender in enumerate(senders):
        assert seats.take(n, sender) == (True, None)
    return seats


def test_one_sender_alone_may_have_all_of_them() -> None:
    seats = taken(4, *"aaaa")
    assert seats.take(9, "a") == (False, None)


def test_who_has_fewer_takes_the_oldest_idle_one_of_who_has_most() -> None:
    seats = taken(6, *"baaabc")
    seats.works(1)
    assert seats.take(9, "d") == (True, 2), "what is being taken is answered"
    assert seats.take(10, "e") == (True, 0), "of those with two each the oldest that is idle"
    assert seats.take(11, "e") == (False, None)


def test_nothing_ends_that_is_being_taken() -> None:
    seats = taken(3, *"aaa")
    for n in range(3):
        seats.works(n)
    assert seats.take(9, "b") == (False, None)
    seats.rests(1)
    assert seats.take(9, "b") == (True, 1)


def test_a_place_is_not_taken_back_and_forth() -> None:
    seats = taken(4, *"aaaa")
    assert [seats.take(n, "b") for n in (9, 10, 11)] == [(True, 0), (True, 1), (False, None)]
    assert seats.take(12, "a") == (False, None)


def test_who_left_has_no_place() -> None:
    seats = taken(2, *"aa")
    seats.works(0)
    seats.leave(0)
    assert seats.take(9, "a") == (True, None)


@pytest.mark.parametrize("seed", range(20))
def test_no_story_holds_more_than_there_are(seed: int) -> None:
    rng = random.Random(seed)
    seats: Seats[int] = Seats(5)
    there: set[int] = set()
    for n in range(500):
        if there and rng.random() < 0.3:
            gone = rng.choice(sorted(there))
            seats.leave(gone)
            there.discard(gone)
        has_seat, out = seats.take(n, rng.choice("abc"))
        if out is not None:
            there.remove(out)
        if has_seat:
            there.add(n)
        assert set(seats._senders) == there
        assert len(there) <= 5
