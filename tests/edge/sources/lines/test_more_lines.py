"""CSV, InfluxDB's line protocol, datagrams, programs, and answers that do not end."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewake.edge.sources.lines.file_tail import FileTailConfig
from edgewake.edge.sources.lines.line_format import cell
from tests.edge.sources.cage import caged

T_MS = 1_772_352_930_000


async def test_csv_is_tailed_a_header_passed_over_and_a_torn_row_refused(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    rows = 'ts;temp;room\n2026-03-01T08:15:30Z;"21,5";hall\n1;2\n2026-03-01T08:15:31Z;;"a;b"\n'
    file.write_text(rows + "ts;temp;room\n")
    config = FileTailConfig.checked(
        {"type": "file_tail", "stream": "s", "path": str(file), "format": "csv", "poll_s": 0.01,
         "columns": ["ts", "temp", "room"], "separator": ";", "time": {"field": "ts"}}
    )  # fmt: skip
    async with caged(tmp_path / "log", config) as one:
        await one.until(lambda: len(one.times()) == 2, "two rows")
        with file.open("a") as more:
            more.write("2026-03-01T08:15:32Z;22;hall\n")
        await one.until(lambda: len(one.times()) == 3, "the third")
        assert one.column("temp") == [21.5, None, 22]
        assert one.column("room") == ["hall", "a;b", "hall"]
        assert one.times() == [T_MS, T_MS + 1000, T_MS + 2000]
        assert one.intake.refused == {"shape": 1}


def test_a_cell_is_a_number_where_it_is_one() -> None:
    assert [cell(text) for text in ("1", " -2.5 ", "", "1,5", "x", "1e3")] == [
        1, -2.5, None, "1,5", "x", 1000.0,
    ]  # fmt: skip
    assert [cell(text, decimal_comma=True) for text in ("1,5", "1.000,5")] == [1.5, "1.000,5"]


def test_columns_belong_to_csv() -> None:
    with pytest.raises(ValueError, match="columns"):
        FileTailConfig.checked({"type": "file_tail", "stream": "s", "path": "/x", "format": "csv"})
    with pytest.raises(ValueError, match="columns"):
        FileTailConfig.checked({"type": "file_tail", "stream": "s", "path": "/x", "columns": ["a"]})
