"""Rows of two tables, and which rows of the result may have changed."""

from __future__ import annotations

import pytest

from edgewake.cloud.analysis.folds import table_state as module
from edgewake.cloud.analysis.folds.table_state import Linked, Row


def row(since: int, refers: str | None = None, *, values: tuple[object, ...] = ()) -> Row:
    return Row(since, (0, since, 0), list(values), refers)


def test_only_a_later_row_of_its_key_counts() -> None:
    linked = Linked()
    for since in (5, 3, 5, 7):
        linked.put_left("a", row(since))
    assert (linked.left.of["a"].since, linked.take()) == (7, (["a"], []))


def test_a_row_of_the_other_table_concerns_those_that_refer_to_it() -> None:
    linked = Linked()
    linked.put_left("a", row(1, "x"))
    linked.put_left("b", row(1, "y"))
    linked.put_left("c", row(1, "x"))
    linked.take()
    linked.put_right("x", row(2))
    assert linked.take()[0] == ["a", "c"]
    linked.put_left("a", row(3, "y"))
    linked.take()
    linked.remove_right("x")
    assert linked.take()[0] == ["c"]
    linked.remove_right("x")
    assert linked.take()[0] == []


def test_beyond_the_bound_what_did_not_change_for_longest_is_forgotten_and_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ROWS_MAX", 2)
    linked = Linked()
    for key, since in (("a", 1), ("b", 1), ("a", 2), ("c", 1)):
        linked.put_left(key, row(since))
    assert (list(linked.left.of), linked.forgotten) == (["a", "c"], 1)
    due, gone = linked.take()
    assert (due, [one.since for one in gone], linked.forgotten) == (["a", "c"], [1], 0)
    monkeypatch.setattr(module, "CHARS_MAX", 5)
    linked.put_left("c", row(2, values=("long text", 7)))
    assert list(linked.left.of) == ["c"], "one row stays, however large"


def test_what_was_written_is_what_it_goes_on_with() -> None:
    linked, again = Linked(), Linked()
    linked.put_left("a", row(1, "x", values=("text", None, 2.5)))
    linked.put_right("x", row(2))
    for name, value in linked.dump():
        assert value is not None
        again.load(name, value)
    assert list(linked.dump()) == [], "it is written once"
    assert (again.left.of, again.right.of) == (linked.left.of, linked.right.of)
    assert (again.left.chars, again.left.of["a"].refers) == (4, "x")
    again.put_right("x", row(3))
    assert again.take()[0] == ["a"]
    again.remove_right("x")
    assert [(name[1:], value) for name, value in again.dump()] == [("x", None)]
