"""Counting once for all leases gives each what counting for it alone would give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.log.decode import DATA, WATERMARK, Event
from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.push.counting.sweep import Sweep
from edgewake.cloud.push.counting.tally import Counter, Tally
from tests.push.builders import NOW

PLACES = [(0, 0), (0, 1), (1, 0)]
WHERES = [None, "device = 'a'", "n > 3"]


@dataclass
class Calls:
    """Which leases called."""

    ids: list[str] = field(default_factory=list)

    def counter(self, lease_id: str = "1", **more: Any) -> Counter:
        return Counter(lease_id, streams=("s",), on_change=self.ids.append, **more)


def use_up(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def event(n: int, kind: str = DATA, device: str = "a") -> Event:
    fields = {"n": n, "device": device, "received_at": NOW - 1000 + n}
    return Event(kind, fields, orjson.dumps(fields))


def test_a_lease_counts_what_comes_after_it_joined() -> None:
    tally, calls = Tally(None), Calls()
    early, late = calls.counter("early"), calls.counter("late")
    early.attach(tally)
    use_up(tally.add(event(1), NOW))
    late.attach(tally)
    use_up(tally.add(event(2), NOW))
    assert (early.count, late.count) == (2, 1)


def test_a_lease_is_called_at_its_first_event_and_when_it_has_enough_and_not_between() -> None:
    tally, calls = Tally(None), Calls()
    calls.counter(min_events=3).attach(tally)
    called = []
    for n in range(5):
        use_up(tally.add(event(n), NOW))
        called.append(len(calls.ids))
    assert called == [1, 1, 2, 2, 2]


def test_a_lease_keeps_the_first_events_and_when_the_first_came() -> None:
    tally, counter = Tally(None), Calls().counter(previews_max=2)
    counter.attach(tally)
    for n in range(5):
        use_up(tally.add(event(n), NOW))
    assert [fields["n"] for fields in counter.previews] == [0, 1]
    assert counter.unseen.oldest_at == NOW - 1000
    assert not tally.hungry


def test_what_left_counts_no_more_and_keeps_its_count() -> None:
    tally, calls = Tally(None), Calls()
    counter = calls.counter(min_events=3)
    counter.attach(tally)
    use_up(tally.add(event(1), NOW))
    counter.detach()
    for n in range(5):
        use_up(tally.add(event(n), NOW))
    assert (counter.count, len(calls.ids), tally.counters) == (1, 1, set())


def test_what_was_counted_before_goes_on() -> None:
    tally, calls = Tally(None), Calls()
    counter = calls.counter(min_events=5, count=3)
    counter.attach(tally)
    use_up(tally.add(event(1), NOW))
    assert (counter.count, calls.ids) == (4, [])
    use_up(tally.add(event(2), NOW))
    assert (counter.count, calls.ids) == (5, ["1"])


def test_a_lost_range_calls_once() -> None:
    calls = Calls()
    counter = calls.counter()
    counter.mark_gap()
    counter.mark_gap()
    assert (counter.unseen.gap, calls.ids) == (True, ["1"])


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
