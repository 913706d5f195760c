"""CSV, InfluxDB's line protocol, datagrams, programs, and answers that do not end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgewake.edge.sources.lines.file_tail import FileTailConfig
from edgewake.edge.sources.lines.line_format import LineFormat, LineReader, cell
from edgewake.edge.sources.lines.lines import Line
from edgewake.protocol.clock import FakeClock
from tests.edge.sources.cage import caged
from tests.edge.sources.sink import MemorySink, intake_of

NOW_MS = 1_790_000_000_000
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


@pytest.mark.parametrize("time", [1_772_352_930, T_MS, T_MS * 1000, T_MS * 10**6])
def test_the_unit_of_a_point_is_seen_by_its_size(time: int) -> None:
    """As `precision` of InfluxDB's own door for datagrams may be any of them."""
    found = [(T_MS, {"measurement": "weather", "temp": 21})]
    assert points(f"weather temp=21 {time}") == (found, {})


def test_a_point_of_a_clock_that_was_never_set_is_of_now_and_keeps_what_it_says() -> None:
    ((t, fields),), remarks = points("weather temp=21 12")
    assert (t, fields) == (NOW_MS, {"measurement": "weather", "temp": 21, "t_": 12})
    assert remarks == {"no time in time": 1}


def test_a_tag_or_field_called_like_the_measurement_or_one_another_is_kept_beside() -> None:
    line = f"power,measurement=peak,unit=kW,phase=1 unit=2,measurement=7 {T_MS}"
    ((_, fields),), _ = points(line)
    assert fields == {
        "measurement": "power", "measurement_": "peak", "measurement__": 7,
        "phase": "1", "unit": 2, "unit_": "kW",
    }  # fmt: skip


def points(line: str) -> tuple[list[Any], dict[str, int]]:
    """The readings of a line, and what was odd."""
    intake = intake_of(MemorySink(), clock=FakeClock(NOW_MS))
    found = LineReader(LineFormat.INFLUX).readings(intake, [Line(line.encode(), len(line))])
    return list(found), dict(intake.remarks)
