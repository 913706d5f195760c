"""A table of a map file, key by key, with the line of each fault."""

from __future__ import annotations

from typing import Any

import pytest

from edgewake.protocol.maps.tables import Table, Wrong, line_of

FILE = """\
zone = "UTC"
[[map]]
topic = "a"
[map.fields]
x = "$.x"
[[map]]
topic = "b"
device = "d"
"""


def test_a_value_is_read_once_in_one_of_its_types() -> None:
    table = Table({"a": 1, "b": 2, "c": True, "e": False})
    read = (table.get("a", float), table.get("b", int), table.get("c", bool), table.get("d"))
    assert read == (1.0, 2, True, None)
    assert table.get("e") is False, "of any type"
    table.done()


@pytest.mark.parametrize(
    ("value", "kinds", "why"),
    [("x", (int,), "m.k: expected an integer, found 'x'"),
     (True, (int,), "m.k: expected an integer, found true"),
     ([], (str, dict), r"m.k: expected text or a table, found '\[\]'")],
)  # fmt: skip
def test_a_value_of_another_type_is_named_with_its_place(
    value: Any, kinds: tuple[type, ...], why: str
) -> None:
    with pytest.raises(Wrong, match=f"^{why}$"):
        Table({"k": value}, ["m"]).get("k", *kinds)


@pytest.mark.parametrize(
    ("key", "hint"), [("topik", "did you mean 'topic'"), ("zzz", "known are device, topic")]
)
def test_a_key_that_was_not_read_is_unknown_and_the_nearest_is_named(key: str, hint: str) -> None:
    table = Table({key: 1})
    table.get("topic")
    table.get("device")
    with pytest.raises(Wrong, match=f"unknown key: {hint}"):
        table.done()


@pytest.mark.parametrize(
    ("number", "where", "line"),
    [(0, ["zone"], 1), (1, ["fields", "x"], 5), (1, ["topic"], 3), (2, ["device"], 8),
     (2, ["gone"], 6), (3, ["topic"], 0), (0, ["gone"], 0)],
)  # fmt: skip
def test_a_fault_is_found_at_its_line_or_at_its_map(
    number: int, where: list[str], line: int
) -> None:
    assert line_of(FILE, number, where) == line
