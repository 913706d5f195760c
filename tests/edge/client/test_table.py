"""The table of `edgewake tail`: whatever the width, no column without room, and each stream's
fields in its own rows.
"""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from edgewake.edge.client.table import columns_of, merged, shown, table_of

ROW = {
    "stream": "vehicle_position",
    "device": "vehicle-000017",
    "epoch": 1_795_300_000_000,
    "seq": 123_456,
    "t": 1_790_000_000_123,
    "received_at": 1_790_000_000_200,
    "lat": 52.520008,
    "lon": 13.404954,
    "speed_kmh": 51.2,
    "heading": 271.5,
    "street": "Karl-Marx-Allee",
    "fuel": 0.71,
    "odometer_km": 120_345.6,
}


def drawn(rows: list[dict[str, object]], width: int, *, several: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, legacy_windows=False)
    console.print(table_of(rows, width=width, several=several))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [20, 40, 80, 100, 120, 200])
def test_every_column_that_is_there_can_be_read(width: int) -> None:
    text = drawn([ROW], width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "vehicle-000017" in text
    names = columns_of([ROW], width)
    header = next(line for line in text.splitlines() if "device" in line)
    assert [name for name in names if name not in header] == []


def test_what_tells_rows_apart_comes_first_and_what_machines_need_last() -> None:
    assert columns_of([ROW], 300)[:3] == ["device", "t", "lat"]
    assert columns_of([ROW], 60) == ["device", "t", "lat", "lon"]


def test_rows_of_several_streams_begin_with_their_stream_and_keep_their_own_fields() -> None:
    rows: list[dict[str, object]] = [
        {"stream": "a", "device": "d", "t": 1_790_000_000_123, "x": 1.5},
        {"query": "means", "window_start": 1_790_000_000_000, "mean[y]": "[2]"},
    ]
    text = drawn(rows, 100, several=True)
    assert "x=1.5" in text
    assert "mean[y]=[2]" in text
    assert [merged(row)["stream"] for row in rows] == ["a", "means"]


def test_values_are_shown_for_people() -> None:
    assert [shown("t", 1_790_000_000_123), shown("x", 0.1 + 0.2), shown("x", None),
        shown("s", "a\x1b[31m")] == [
        "14:13:20.123", "0.30000000000000004", "", "a\ufffd\\[31m",
    ]  # fmt: skip
