"""A pattern finds conditions that follow each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.tables.codec import Reading
from tests.edge.processors.helpers import T0, at, chain, made, series


def matches(given_readings: list[Reading], within_ms: int) -> list[int]:
    """Every match of x=1, then x=2, then x=3, by trying all triples; none shares a reading with, or
    begins before the end of, another.
    """
    found, begin = [], 0
    for end, (t, fields) in enumerate(given_readings):
        if fields.get("x") == 3 and any(
            given_readings[one][1].get("x") == 1
            and given_readings[two][1].get("x") == 2
            and t - given_readings[one][0] <= within_ms
            for one in range(begin, end)
            for two in range(one + 1, end)
        ):
            found.append(t)
            begin = end + 1
    return found


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=25))
def test_a_pattern_finds_what_trying_everything_finds(rows: list[tuple[int, int]]):
    t, given_readings = 0.0, []
    for step, value in rows:
        t += step
        given_readings.append(at(t, x=value))
    one = chain(
        {"type": "pattern", "name": "up", "sequence": ["x = 1", "x = 2", "x = 3"], "within_s": 8}
    )
    assert [t for t, _ in made(one, given_readings)] == matches(given_readings, 8000)


def test_each_condition_of_a_pattern_needs_a_reading_of_its_own():
    one = chain({"type": "pattern", "name": "thrice", "sequence": ["x > 0"] * 4, "within_s": 8})
    assert [t for t, _ in made(one, series(1, 1, 1))] == []
    assert [t for t, _ in made(one, series(1, 1, 1, 1, 1, 1, 1, 1))] == [T0 + 3000, T0 + 7000]
