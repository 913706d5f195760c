"""Events that wait because of a pace: bounded for each client and for all."""

from __future__ import annotations

from edgewake.cloud.access.paced import Held
from edgewake.cloud.held_bytes import EVENT_BYTES, HeldBytes
from edgewake.cloud.log.decode import DATA, Event
from edgewake.cloud.log.reader import Step
from edgewake.cloud.log.subscription import Plan, Source, plan
from edgewake.cloud.log.wanted import Pace, Wanted


def step(device: str, n: int, size: int) -> Step:
    fields = {"device": device, "n": n}
    return Step(Event(DATA, fields, b"x" * size), 0, 0, (n, 0))


def a_plan() -> Plan:
    return plan(
        Wanted(streams=("s",)),
        [Source("s", "s", is_query=False, topic_id="", partitions=1)],
        [None],
    )


def test_what_waits_by_a_pace_is_counted_for_each_client_and_for_all() -> None:
    """Of one thing one event is held; what is given, forgotten or replaced is held no more."""
    every = HeldBytes(share=0.25, most=40 * (EVENT_BYTES + 100))
    pace = Pace(conflate_ms=100)
    held = Held(a_plan(), pace, every.account("a"))
    for n in range(30):
        held.add(step(f"car-{n % 10}", n, 100))
    assert (len(held), held.superseded, held.is_full) == (10, 20, True)
    assert every.total == 10 * (EVENT_BYTES + 100)
    assert Held(a_plan(), pace, every.account("a")).is_full, "another reader of the same client"
    other = Held(a_plan(), pace, every.account("b"))
    assert not other.is_full, "the control: another client has its own"
    held.add(step("car-1", 31, 50))
    assert every.total == 10 * (EVENT_BYTES + 100) - 50
    assert len(held.take(3)) == 3
    assert not held.is_full
    held.drop()
    assert every.total == 0
