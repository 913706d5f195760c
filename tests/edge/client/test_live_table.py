"""The live table: how many rows and columns fit, what its title says."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from edgewake.edge.client.table import (
    CELL_MAX,
    CELL_MIN,
    COLUMNS_MAX,
    ROWS_MAX,
    LiveTable,
    columns_of,
    table_of,
)


def console(width: int = 80, height: int = 20) -> Console:
    return Console(file=io.StringIO(), width=width, height=height, force_terminal=False)


def text_of(table: LiveTable) -> str:
    """What it shows now."""
    on = table._console
    on.print(table._render())
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


@pytest.mark.parametrize(("height", "rows"), [(20, 14), (7, 1), (6, 1), (1, 1), (1000, 50)])
def test_as_many_of_the_latest_rows_are_shown_as_the_terminal_is_high(
    height: int, rows: int
) -> None:
    table = LiveTable(["s"], console(height=height))
    for n in range(50):
        table.add({"n": n})
    shown = [line.strip("│ ┃") for line in text_of(table).split("\n") if line.startswith("│")]
    assert shown == [str(n) for n in range(50 - rows, 50)]


def test_no_more_rows_are_kept_than_any_terminal_has() -> None:
    table = LiveTable(["s"], console(height=10**6))
    for n in range(ROWS_MAX + 5):
        table.add({"n": n})
    assert sum(line.startswith("│") for line in text_of(table).split("\n")) == ROWS_MAX
    assert f"{ROWS_MAX + 5} events" in text_of(table)


def test_the_title_tells_what_is_followed_how_many_came_and_how_the_connection_is() -> None:
    table = LiveTable(["a", "b"], console())
    assert "a, b · 0 events · connecting" in text_of(table)
    table.add({"stream": "a", "n": 1})
    table.show_state("lost [it]")
    assert "a, b · 1 events · lost [it]" in text_of(table)


def test_rows_of_one_stream_have_columns_and_those_of_several_have_their_fields_in_one() -> None:
    one, several = LiveTable(["a"], console()), LiveTable(["a", "b"], console())
    for table in (one, several):
        table.add({"stream": "a", "speed": 5.5})
    assert "speed=5.5" not in text_of(one)
    assert "speed=5.5" in text_of(several)


def test_it_is_shown_while_it_is_entered() -> None:
    on = console()
    with LiveTable(["s"], on) as table:
        table.add({"n": 7})
    assert isinstance(on.file, io.StringIO)
    assert "7" in on.file.getvalue()


COLUMN = CELL_MIN + 3
"""Characters of the narrowest column, with its frame."""


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (1, 1),
        (COLUMN, 1),
        (2 * COLUMN, 1),
        (2 * COLUMN + 1, 2),
        (3 * COLUMN, 2),
        (3 * COLUMN + 1, 3),
        (1000, 4),
    ],
)
def test_as_many_columns_are_shown_as_there_is_room_for(width: int, columns: int) -> None:
    assert len(columns_of([{"a": 1, "b": 2, "c": 3, "d": 4}], width)) == columns


def test_no_more_columns_are_shown_than_people_read() -> None:
    assert len(columns_of([{f"field_{n}": n for n in range(100)}], 10_000)) == COLUMNS_MAX


def test_a_long_value_takes_no_more_than_its_part() -> None:
    row = {"a": "x" * 1000, "b": "y"}
    assert columns_of([row], CELL_MAX + 3 + COLUMN + 1) == ["a", "b"]
    assert columns_of([row], CELL_MAX + 3 + COLUMN) == ["a"]
    on = console(width=100)
    on.print(table_of([row], width=100, several=False))
    assert isinstance(on.file, io.StringIO)
    assert "x" * CELL_MAX not in on.file.getvalue()
    assert "x" * (CELL_MAX - 1) + "…" in on.file.getvalue()
