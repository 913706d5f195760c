"""Windows of a number of readings."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.operators.count_window import CountWindow
from edgewake.edge.processors.processor import NUMBER_MAX
from tests.edge.processors.helpers import FLOATS, T0, chain, column, made, readings, remarks, series
from tests.examples import examples


@given(st.lists(FLOATS), st.sampled_from([(3, 3), (4, 2), (1, 1)]))
def test_windows_by_count_agree_with_python(values: list[float], shape: tuple[int, int]):
    size, every = shape
    out = made(
        chain(
            {
                "type": "window",
                "fields": ["x"],
                "size_count": size,
                "every_count": every,
                "aggregates": ["max"],
            }
        ),
        series(*values),
    )
    ends = [end for end in range(size, len(values) + 1) if end % every == 0]
    assert out == [
        (T0 + (end - 1) * 1000, {"readings": size, "x_max": max(values[end - size : end])})
        for end in ends
    ]


@given(
    st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=40),
    st.sampled_from([(1, 1), (4, 1), (4, 2), (6, 6)]),
)
def test_windows_by_count_are_the_last_readings_whatever_is_missing_in_them(
    values: list[int | None], sizes: tuple[int, int]
) -> None:
    size, every = sizes
    window = CountWindow(["x"], ["sum", "count"], size=size, every=every)
    state, found = window.initial, []
    for t, value in enumerate(values):
        state, made, _ = window.step(state, (t, {"x": value} if value is not None else {"y": 1}))
        found += made
    ends = [end for end in range(every, len(values) + 1, every) if end >= size]
    expected = []
    for end in ends:
        inside = [value for value in values[end - size : end] if value is not None]
        expected.append(
            (
                end - 1,
                {
                    "readings": size,
                    "x_sum": float(sum(inside)) if inside else None,
                    "x_count": len(inside) if inside else None,
                },
            )
        )
    assert found == expected


def is_measured(value: object) -> bool:
    return type(value) in (int, float) and abs(value) <= NUMBER_MAX  # type: ignore[arg-type]


@settings(max_examples=examples(80))
@given(readings())
def test_what_is_no_number_is_remarked_on(given_readings: list[Reading]):
    one = chain({"type": "window", "fields": ["x"], "size_count": 1000})
    said = remarks(one, given_readings).get("1 window", {})
    assert sum(said.values()) == sum(not is_measured(value) for value in column(given_readings))
