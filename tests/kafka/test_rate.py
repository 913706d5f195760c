"""The rate of records in a second."""

from __future__ import annotations

from edgewake.cloud.kafka.rate import Rate


def test_what_came_in_a_span_is_the_rate_of_the_next() -> None:
    rate = Rate(span_s=2)
    assert (rate.look(100), rate.per_s) == (True, 0.0)
    rate.note(30)
    rate.note()
    assert (rate.look(101.9), rate.per_s) == (False, 0.0)
    assert (rate.look(102), rate.per_s) == (True, 15.5)
    assert (rate.look(106), rate.per_s) == (True, 0.0)
