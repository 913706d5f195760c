"""A filter lets through what its condition says."""

from __future__ import annotations

from tests.edge.processors.helpers import at, chain, made, remarks


def test_filter_keeps_what_is_true_and_remarks_on_what_is_neither():
    one = chain({"type": "filter", "where": "x > 1"})
    given_readings = [at(0, x=1), at(1, x=2), at(2, x="2"), at(3, y=2)]
    assert made(one, given_readings) == [at(1, x=2)]
    assert remarks(one, given_readings) == {"1 filter": {"unknown": 2}}
