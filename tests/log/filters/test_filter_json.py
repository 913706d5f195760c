"""Paths into fields that hold objects or lists."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.log.filters.filter import compile_select
from tests.examples import examples

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab'", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b c", "d"]), inner)
    ),
    max_leaves=8,
)
steps = st.lists(st.sampled_from(["a", "b c", "d", 0, 1, -1]), min_size=1, max_size=4)


@given(json_values, steps)
@settings(max_examples=examples(400))
def test_a_path_leads_where_python_goes(value: Any, path: list[str | int]) -> None:
    """In an object and in its text."""
    at: Any = value if isinstance(value, dict | list) else None
    for step in path:
        try:
            at = at[step] if isinstance(at, dict if isinstance(step, str) else list) else None
        except (KeyError, IndexError):
            at = None
    text = "$" + "".join(f"[{s}]" if isinstance(s, int) else f'["{s}"]' for s in path)
    select = compile_select(f"json_value(x, '{text}') AS found")
    if not isinstance(value, str):
        assert select.project({"x": value}) == {"found": at}
    assert select.project({"x": json.dumps(value)}) == {"found": at}
    assert select.project({"x": "{" + json.dumps(value)}) == {"found": None}
