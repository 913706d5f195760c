"""Counting once for all leases gives each what counting for it alone would give."""

from __future__ import annotations

from edgewake.cloud.push.counting.tally import Tally
from tests.push.builders import NOW
from tests.push.counting.calls import Calls, event, use_up


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
