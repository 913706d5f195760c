"""Fields are computed from other fields."""

from __future__ import annotations

from tests.edge.processors.helpers import at, chain, made, remarks


def test_derive_adds_fields_and_null_where_there_is_no_value():
    one = chain({"type": "derive", "fields": {"ratio": "x / y", "x": "x + 1"}})
    assert made(one, [at(0, x=6, y=3), at(1, x=6, y=0)]) == [
        at(0, x=7, y=3, ratio=2),
        at(1, x=7, y=0, ratio=None),
    ]
    assert remarks(one, [at(1, x=6, y=0)]) == {"1 derive": {"null": 1}}
