"""Numbered frames with gap frames among them: whatever came is passed on once, in any order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sequencer.ordering import Order

READINGS = 10
Sent = dict[str, Any]


def data(number: int) -> Sent:
    return {"frame": number}


def gap(first: int, number: int) -> Sent:
    """Frame `number`, which replaces those from `first` on."""
    return {"first": first, "last": number, "readings": READINGS * (number - first)}


def came_of(order: Order, out: list[dict[str, Any]]) -> list[tuple[Sent, bool]]:
    """What was passed on, and whether it was marked late. Fails at a statement."""
    found = []
    for one in out:
        assert "pass" in one, f"a hole is stated though all came: {one}"
        record = order.log[one["pass"]]
        sent = {name: record[name] for name in record if name != "received_at"}
        found.append((sent, bool(one.get("late"))))
    return found


@pytest.mark.parametrize(
    ("sent", "passed"),
    [
        ([gap(3, 4), data(3), data(2)], [data(2), data(3), gap(3, 4)]),
        ([data(3), gap(3, 4), data(2)], [data(2), data(3), gap(3, 4)]),
        ([gap(3, 4), data(3), gap(3, 4), data(3), data(2)], [data(2), data(3), gap(3, 4)]),
        ([gap(3, 4), gap(3, 5), data(2)], [data(2), gap(3, 4), gap(3, 5)]),
    ],
    ids=["the gap waits", "the frame waits", "repeats of both", "two gaps"],
)
def test_a_gap_frame_and_the_first_frame_that_it_replaces_may_wait_together(
    sent: list[Sent], passed: list[Sent]
) -> None:
    """The bridge had the frame after all: its readings are in Kafka, and are not to be lost."""
    order = Order()
    out = [*order.accept(data(1))]
    for one in sent:
        out += order.accept(one)
    assert came_of(order, out) == [(data(1), False), *((one, False) for one in passed)]
    assert order.time(60) == []


@st.composite
def journeys(draw: st.DrawFn) -> list[Sent]:
    """Frames without holes, of which some are gap frames that replace the frames before them; those
    may have come all the same. Repeated, in any order.
    """
    numbers = draw(st.integers(1, 14))
    sent: list[Sent] = []
    free_from = 1
    for number in range(1, numbers + 1):
        if number > free_from and draw(st.booleans()):
            first = draw(st.integers(free_from, number - 1))
            lost = draw(st.sets(st.integers(first, number - 1)))
            sent = [one for one in sent if one.get("frame") not in lost]
            sent.append(gap(first, number))
            free_from = number + 1
        else:
            sent.append(data(number))
    again = draw(st.lists(st.sampled_from(sent), max_size=6))
    return draw(st.permutations(sent + again))


@given(journeys(), st.sets(st.integers(0, 20), max_size=3))
@settings(max_examples=examples(300), deadline=None)
def test_whatever_came_passes_once_and_nothing_is_stated_where_nothing_is_missing(
    sent: list[Sent], kills: set[int]
) -> None:
    order = Order()
    out: list[dict[str, Any]] = []
    for at, one in enumerate(sent):
        if at in kills:
            out += order.restart()
        out += order.accept(one)
    came = came_of(order, out)
    assert sorted(map(str, (one for one, _ in came))) == sorted(set(map(str, sent)))
    in_turn = [int(one.get("last") or one["frame"]) for one, is_late in came if not is_late]
    assert in_turn == sorted(in_turn)
    assert order.time(60) == [], "nothing waits"
