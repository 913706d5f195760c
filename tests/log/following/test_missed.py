"""What was found for a view while its readers were away."""

from __future__ import annotations

from edgewake.cloud.log.decode import DATA, Event
from edgewake.cloud.log.following.fan_out import Candidate
from edgewake.cloud.log.following.missed import CANDIDATE_BYTES, Missed, MissedBytes

BEGIN = (((0, 0), (0, 0)),)


def at(partition: int, offset: int) -> Candidate:
    event = Event(DATA, {}, b"")
    return Candidate(event, 0, partition, (offset, 0), (offset + 1, 0))


def test_of_too_much_the_oldest_go_and_it_is_complete_behind_them() -> None:
    missed = Missed(MissedBytes(of_view=2 * CANDIDATE_BYTES))
    missed.begin(BEGIN)
    missed.add([at(0, 3), at(1, 5)], (((4, 0), (6, 0)),))
    assert (missed.start, len(missed.found)) == (BEGIN, 2)
    missed.add([at(0, 7)], (((8, 0), (6, 0)),))
    assert missed.start == (((4, 0), (0, 0)),)
    assert list(missed.found) == [at(1, 5), at(0, 7)]
    assert missed.end == (((8, 0), (6, 0)),)


def test_all_views_share_the_room_of_a_server() -> None:
    room = MissedBytes(most=3 * CANDIDATE_BYTES)
    one, other = Missed(room), Missed(room)
    for view in (one, other):
        view.begin(BEGIN)
        view.add([at(0, 1), at(0, 2)], (((3, 0), (0, 0)),))
    assert (len(one.found), len(other.found)) == (2, 1)
    one.forget()
    other.begin(BEGIN)
    assert room.held == 0


def test_what_nobody_knows_the_beginning_of_is_told_from_its_end_on() -> None:
    missed = Missed(MissedBytes())
    missed.add([at(0, 1)], (((2, 0), (0, 0)),))
    assert (missed.start, list(missed.found)) == ((((2, 0), (0, 0)),), [])
    missed.forget()
    assert missed.start is None
