"""A page as a table."""

from __future__ import annotations

import csv

import orjson

from edgewake.cloud.access.bounded.table import table_of


def rows(*events: dict[str, object]) -> list[list[str]]:
    return list(csv.reader(table_of(map(orjson.dumps, events)).decode().splitlines()))


def test_the_first_row_names_the_fields_of_all_and_each_event_is_a_row() -> None:
    assert rows(
        {"device": "a", "n": 1.5, "is_on": True},
        {"device": 'b, "c"', "n": None, "place": [1, 2]},
        {"$event": "gap", "device": "a", "lost": 3},
    ) == [
        ["device", "n", "is_on", "place", "$event", "lost"],
        ["a", "1.5", "true", "", "", ""],
        ['b, "c"', "", "", "[1,2]", "", ""],
        ["a", "", "", "", "gap", "3"],
    ]


def test_watermarks_are_no_rows_and_a_page_without_events_is_empty() -> None:
    assert table_of([orjson.dumps({"$event": "watermark", "watermark": 1})]) == b""
    assert table_of([]) == b""


def test_what_a_device_sends_is_no_formula() -> None:
    formulas = ['=HYPERLINK("http://evil.example")', "+1", "-1", "@sum", "\t=1"]
    found = table_of([orjson.dumps({"=name": text}) for text in formulas]).decode()
    assert [row[0] for row in csv.reader(found.splitlines())] == [
        f"'{text}" for text in ("=name", *formulas)
    ]
    assert rows({"n": -1.5})[1] == ["-1.5"], "the control: a number stays one"
