"""A sweep brings many leases from their cursors to the live end."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.log.decode import DATA, WATERMARK, Event
from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.push.counting.sweep import Sweep
from tests.push.builders import NOW
from tests.push.counting.calls import Calls, event, use_up

PLACES = [(0, 0), (0, 1), (1, 0)]
WHERES = [None, "device = 'a'", "n > 3"]


@st.composite
def histories(
    draw: st.DrawFn,
) -> tuple[list[tuple[tuple[int, int], int, Event]], list[tuple[str | None, list[int]]]]:
    """Events by place and offset in an order in which one reading may pass them, and leases with a
    position in each place.
    """
    ends = dict.fromkeys(PLACES, 0)
    passed = []
    for place in draw(st.lists(st.sampled_from(PLACES), max_size=40)):
        kind = draw(st.sampled_from([DATA, DATA, DATA, WATERMARK]))
        passed.append(
            (place, ends[place], event(draw(st.integers(0, 6)), kind, draw(st.sampled_from("ab"))))
        )
        ends[place] += draw(st.integers(1, 3))  # offsets without records lie between
    positions = st.tuples(*(st.integers(0, ends[place]) for place in PLACES)).map(list)
    return passed, draw(
        st.lists(st.tuples(st.sampled_from(WHERES), positions), min_size=1, max_size=8)
    )


@given(histories(), st.integers(0, 3))
def test_a_sweep_gives_each_lease_what_reading_from_its_own_position_would_give(
    history: Any, previews_max: int
) -> None:
    passed, leases = history
    sweep, calls = Sweep(PLACES), Calls()
    counters = []
    for number, (where, at) in enumerate(leases):
        counter = calls.counter(str(number), where=where, previews_max=previews_max)
        sweep.add(counter, (((at[0], 0), (at[1], 0)), ((at[2], 0),)))
        counters.append(counter)
    start = sweep.start()
    assert start == (
        ((min(at[0] for _, at in leases), 0), (min(at[1] for _, at in leases), 0)),
        ((min(at[2] for _, at in leases), 0),),
    )
    for place, offset, one in passed:
        if (offset, 0) >= start[place[0]][place[1]]:
            use_up(sweep.pass_event(one, place, (offset + 1, 0), now=NOW))
    for counter in sweep.counters():
        sweep.leave(counter)
    for counter, (where, at) in zip(counters, leases, strict=True):
        wanted = [
            one.fields
            for place, offset, one in passed
            if offset >= at[PLACES.index(place)]
            and one.kind == DATA
            and (where is None or compile_where(where).passes(one.fields))
        ]
        assert counter.count == len(wanted)
        assert counter.previews == wanted[:previews_max]
        assert (counter.unseen.oldest_at is None) == (not wanted)


def test_a_sweep_reports_its_progress() -> None:
    sweep, counter = Sweep([(0, 0)]), Calls().counter()
    sweep.add(counter, (((0, 0),),))
    use_up(sweep.pass_event(event(1), (0, 0), (1, 0), now=NOW))
    assert [found.count for found in sweep.progress()] == [1]
    use_up(sweep.pass_event(event(1), (0, 0), (2, 0), now=NOW))
    assert [found.count for found in sweep.progress()] == [2]
    sweep.leave(counter)
    assert (counter.count, len(sweep)) == (2, 0)
