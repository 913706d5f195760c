"""Which row of a table held at a reading's time: found in any order, within bounds."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.analysis.folds import table_versions
from edgewake.cloud.analysis.folds.table_versions import VERSIONS_MAX, Versions, key_text
from tests.examples import examples


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.integers(0, 9)), max_size=30),
    st.integers(-1, 25),
)
def test_a_reading_finds_the_row_that_held_at_its_time_in_whatever_order_rows_come(
    rows: list[tuple[str, int, int]], t: int
) -> None:
    versions = Versions()
    written: dict[str, bytes | None] = {}
    for i, (key, since, value) in enumerate(rows):
        versions.put(key, since, [value, i])
        written |= versions.dump()
        if i % 3 == 0:  # a restart from what was written down
            versions = Versions()
            for name, text in written.items():
                versions.load(name, orjson.loads(text or b"[]"))
    for key in "ab":
        held = [
            (since, i, value)
            for i, (name, since, value) in enumerate(rows)
            if name == key and since <= t
        ]
        expected = None if not held else max(held)
        assert versions.at(key, t) == (None if expected is None else [expected[2], expected[1]])


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 40)), max_size=80))
def test_rows_that_no_reading_asks_for_are_forgotten_and_change_no_answer(
    steps: list[tuple[int, int]],
) -> None:
    kept, all_rows, closed = Versions(), Versions(), 0
    for since, ahead in steps:
        closed = max(closed, since - 20)
        kept.put("a", since, [since], closed=closed)
        all_rows.put("a", since, [since])
        t = closed + 1 + ahead
        if len(all_rows.of["a"]) < VERSIONS_MAX:
            assert kept.at("a", t) == all_rows.at("a", t)
    assert sum(since <= closed for since, _ in kept.of.get("a", ())) <= len(steps)


def test_a_table_is_bounded_in_keys_and_in_rows_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_versions, "KEYS_MAX", 2)
    versions = Versions()
    for i in range(100):
        versions.put("a", i, [i])
    assert [since for since, _ in versions.of["a"]] == list(range(100 - VERSIONS_MAX, 100))
    versions.put("b", 0, [0])
    versions.dump()
    versions.put("c", 0, [0])
    assert versions.dump() == {"a": None, "c": b"[[0,[0]]]"}, (
        "the one without a new row for longest"
    )
    assert versions.forgotten == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"), st.integers(0, 9), st.integers(0, 20), st.integers(-1, 9)
        ),
        max_size=60,
    )
)
@settings(max_examples=examples(60))
def test_a_table_is_bounded_in_the_characters_of_its_texts(
    rows: list[tuple[str, int, int, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_versions, "CHARS_MAX", 40)
        versions, written = Versions(), dict[str, bytes | None]()
        for i, (key, since, chars, closed) in enumerate(rows):
            versions.put(key, since, ["x" * chars, i], closed=closed)
            written |= versions.dump()
            assert versions.chars == sum(
                len(values[0])
                for all_of in versions.of.values()
                for _, values in all_of
                if values is not None
            )
            assert versions.chars <= 40 or list(versions.of) == [key], "but for one key alone"
            assert {name for name, text in written.items() if text is not None} == set(versions.of)
            if i % 5 == 4:
                versions.cut(3)
            for name in versions.of if i % 7 == 6 else ():
                versions.load(name, orjson.loads(written[name] or b"[]"))


def test_keys_are_equal_as_sql_has_it() -> None:
    assert key_text([1, "x"]) == key_text([1.0, "x"]) != key_text([True, "x"])
    assert key_text([None, "x"]) is None
    assert Versions().at(None, 5) is None
