"""Files become readings; whatever is wrong in them is counted with its line."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.names import is_device, is_stream
from edgewake.simulators.recordings import rows as recorded
from edgewake.simulators.recordings.look import look
from edgewake.simulators.recordings.readings import (
    Columns,
    Odd,
    Reading,
    legal_device,
    legal_stream,
    parse_time,
    to_readings,
)  # fmt: skip
from edgewake.simulators.recordings.rows import (
    BadRow,
    FileFormat,
    LineNumbers,
    Tally,
    UnreadableFile,
)


def read(
    path: Path,
    content: str | bytes,
    *,
    time: str | None = None,
    columns: Columns | None = None,
    header: list[str] | None = None,
):
    """(readings, bad rows, tally) of a file with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    tally = Tally()
    kind = recorded.detect(path)
    named = None if time is None else [] if time == "-" else time.split(",")
    meaning = look(path, kind, header, named, columns or Columns()).meaning
    found = list(to_readings(recorded.rows(path, kind, tally, columns=header), meaning))
    return (
        [r for r in found if isinstance(r, Reading)],
        [r for r in found if isinstance(r, BadRow)],
        tally,
    )


def test_a_csv_file_becomes_typed_readings(tmp_path: Path):
    readings, bad, _ = read(
        tmp_path / "a.csv",
        "time,speed,street\n2026-01-02T03:04:05Z,51.5,Mill Road\n2026-01-02T03:04:06Z,52,Ring\n",
    )
    assert bad == []
    assert readings[0] == Reading(
        "replay", 1_767_323_045_000, {"speed": 51.5, "street": "Mill Road"}
    )
    assert readings[1].fields == {"speed": 52, "street": "Ring"}


def test_missing_values_are_left_out_and_empty_rows_are_bad(tmp_path: Path):
    readings, bad, _ = read(tmp_path / "a.csv", "t;a;b\n1;?;2\n2;NA;\n3;1;x\n", time="t")
    assert [dict(r.fields) for r in readings] == [{"b": "2"}, {"a": 1, "b": "x"}]
    assert bad == [BadRow(3, "no value in any field")]


def test_short_and_long_rows_are_bad_rows_with_their_line(tmp_path: Path):
    readings, bad, _ = read(tmp_path / "a.csv", "t,a,b\n\n1,2,3\n1,2\n1,2,3,4\n1,2,3,\n")
    assert len(readings) == 2
    assert bad == [BadRow(4, "2 values: expected 3"), BadRow(5, "4 values: expected 3")]


def test_a_late_word_in_a_number_column_stands_beside_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(recorded, "TYPE_ROWS", 2)
    readings, _, tally = read(tmp_path / "a.csv", "t,a,b\n1,1,1\n2,2,2\n3,err,3\n", time="t")
    assert dict(readings[-1].fields) == {"a_odd": "err", "b": 3}
    assert (tally.bad_values, tally.columns) == (1, {"a"})
    text = "t,a (kWh)\n1,1\n2,2\n3,err\n"
    readings, _, _ = read(tmp_path / "b.csv", text, time="t")
    assert readings[-1].fields == {"a_kWh_odd": "err"}, "beside a_kWh"


def test_one_bad_cell_in_many_rows_makes_no_text_of_a_column(tmp_path: Path):
    cells = [str(n) for n in range(1_000)]
    cells[700] = "error"
    readings, _, tally = read(
        tmp_path / "a.csv", "t,a\n" + "".join(f"{n},{cell}\n" for n, cell in enumerate(cells))
    )
    assert readings[0].fields == {"a": 0}
    assert readings[700].fields == {"a_odd": "error"}
    assert tally.bad_values == 1


def test_bytes_that_are_not_utf8_cost_one_row(tmp_path: Path):
    readings, bad, _ = read(tmp_path / "a.csv", b"t,a\n1,x\n2,\xff\n3,y\n4,\0\n5,z\n")
    assert [r.fields["a"] for r in readings] == ["x", "y", "z"]
    assert {(b.line, b.reason) for b in bad} == {(3, "byte 2 is not UTF-8"), (5, "NUL in a line")}


def test_json_lines_are_flattened_and_bad_ones_counted(tmp_path: Path):
    readings, bad, _ = read(
        tmp_path / "a.jsonl",
        '{"ts":1.5,"data":{"temp":20.5,"ok":true}}\n{"ts":2,"x":NaN}\n[1]\n{"ts":3,"x":null}\n',
        time="ts",
    )
    assert readings == [Reading("replay", 1500, {"data_temp": 20.5, "data_ok": True})]
    assert [b.line for b in bad] == [2, 3, 4]


def test_gzip_is_seen_by_its_bytes_not_by_its_name(tmp_path: Path):
    readings, _, _ = read(tmp_path / "a.txt", gzip.compress(b"t\ta\n1\t2\n"), time="t")
    assert readings == [Reading("replay", 1000, {"a": 2})]


def test_a_truncated_gzip_file_is_said(tmp_path: Path):
    with pytest.raises(UnreadableFile, match="end-of-stream"):
        read(tmp_path / "a.gz", gzip.compress(b"t,a\n" + b"1,2\n" * 10_000)[:-20])


def test_an_empty_file_is_said(tmp_path: Path):
    with pytest.raises(UnreadableFile, match="no line of text"):
        read(tmp_path / "a.csv", "\n\n")


def test_nmea_files_become_fixes(tmp_path: Path):
    readings, bad, _ = read(
        tmp_path / "track.nmea",
        "$GPRMC,123519,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W*6A\r\n"
        "$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47\r\n"
        "$GPGSV,1,1,00*79\r\n$GPRMC,broken*00\r\n"
        "$GPRMC,123520,A,4807.040,N,01131.010,E,022.4,084.4,230394,003.1,W*6E\r\n",
    )
    assert [(r.t, r.fields["lat"]) for r in readings] == [
        (764_426_119_000, 48.1173),
        (764_426_120_000, 48.1173333),
    ]
    assert readings[0].fields["altitude_m"] == 545.4
    assert [b.line for b in bad] == [4]


def test_a_file_without_header_gets_its_names(tmp_path: Path):
    readings, _, _ = read(tmp_path / "a.csv", "10,1\n20,2\n", header=["t", "a"], time="t")
    assert [r.t for r in readings] == [10_000, 20_000]


def test_two_columns_may_make_the_time(tmp_path: Path):
    columns = Columns(time_format="%d/%m/%Y %H:%M:%S", zone=ZoneInfo("Europe/Paris"))
    readings, _, _ = read(
        tmp_path / "a.txt",
        "Date;Time;a\n16/12/2006;17:24:00;4.2\n",
        time="Date,Time",
        columns=columns,
    )
    assert readings == [Reading("replay", 1_166_286_240_000, {"a": 4.2})]


def test_a_time_column_that_is_not_there_is_said(tmp_path: Path):
    with pytest.raises(ValueError, match="no column 'when'; there are t, a"):
        read(tmp_path / "a.csv", "t,a\n1,2\n", time="when")


def test_a_column_may_name_the_device(tmp_path: Path):
    readings, bad, _ = read(
        tmp_path / "a.csv",
        "t,mac,a\n1,0e:9c:00,1\n2,,1\n3,::,1\n",
        columns=Columns(device_field="mac"),
        time="t",
    )
    assert [(r.device, dict(r.fields)) for r in readings] == [("0e-9c-00", {"a": 1})]
    assert [b.reason for b in bad] == [
        "no device in mac",
        "device '::': expected a letter or a digit in it",
    ]


def test_rows_without_time_come_a_second_apart(tmp_path: Path):
    readings, _, _ = read(tmp_path / "a.csv", "a,b\n1,2\n3,4\n", time="-")
    assert [r.t for r in readings] == [0, 1000]


@pytest.mark.parametrize(
    ("value", "style", "ms"),
    [
        (1_594_598_424.5, "auto", 1_594_598_424_500),
        (1_533_101_250_000, "auto", 1_533_101_250_000),
        (1_359_590_401_000_000, "auto", 1_359_590_401_000),
        ("2026-01-26 15:57:02", "auto", 1_769_443_022_000),
        ("12.5", "s", 12_500), ("26.01.2026", "%d.%m.%Y", 1_769_385_600_000),
    ],
)  # fmt: skip
def test_times_of_many_styles_are_understood(value: object, style: str, ms: int):
    assert parse_time(value, Columns(time_format=style)) == ms


@pytest.mark.parametrize(
    ("value", "style"),
    [
        ("yesterday", "auto"),
        (True, "auto"),
        ("x", "ms"),
        (-5, "s"),
        (4.2e12, "ms"),
        ("1/2/2026", "auto"),
    ],
)
def test_a_time_that_cannot_be_read_is_said(value: object, style: str):
    with pytest.raises(ValueError, match="expected"):
        parse_time(value, Columns(time_format=style))


def test_devices_that_would_become_one_are_told_apart(tmp_path: Path):
    readings, _, _ = read(
        tmp_path / "a.csv",
        "t,mac,a\n1,0e:9c,1\n2,0e-9c,1\n3,0e:9c,1\n",
        columns=Columns(device_field="mac"),
        time="t",
    )
    devices = [r.device for r in readings]
    assert devices[0] == devices[2] == "0e-9c"
    assert devices[1].startswith("0e-9c-")
    assert is_device(devices[1])


def test_the_hour_that_a_zone_has_twice_is_the_second_one_where_time_would_run_back(
    tmp_path: Path,
):
    """In Paris the clocks went back from three to two on 25 October 2026, at 01:00 UTC."""
    clocks = ["01:30", "02:00", "02:30", "02:00", "02:30", "03:00"]
    path = tmp_path / "a.csv"
    path.write_text("time,a\n" + "".join(f"2026-10-25 {clock}:00,1\n" for clock in clocks))
    columns = Columns(zone=ZoneInfo("Europe/Paris"), time_fields=("time",))
    odd = Odd()
    readings = list(to_readings(recorded.rows(path, FileFormat.CSV, Tally()), columns, odd))
    assert [(b.t - a.t) // 60_000 for a, b in pairwise(readings)] == [30] * 5
    assert (odd.twice, odd.never) == (4, 0)


def test_a_time_of_the_hour_that_a_zone_leaves_out_is_an_hour_later(tmp_path: Path):
    """In Paris the clocks went from two to three on 29 March 2026."""
    path = tmp_path / "a.csv"
    path.write_text("time,a\n2026-03-29 02:30:00,1\n2026-03-29 03:30:00,1\n")
    columns = Columns(zone=ZoneInfo("Europe/Paris"), time_fields=("time",))
    odd = Odd()
    first, second = to_readings(recorded.rows(path, FileFormat.CSV, Tally()), columns, odd)
    assert first.t == second.t
    assert (odd.twice, odd.never) == (0, 1)


@given(st.text(max_size=90))
def test_every_name_can_be_made_legal(name: str):
    assert is_stream(legal_stream(name))
    try:
        assert is_device(legal_device(name))
    except ValueError:
        assert not any(c.isascii() and c.isalnum() for c in name)


def test_a_forced_format_is_not_guessed(tmp_path: Path):
    (tmp_path / "a").write_text("t,a\n1,2\n")
    assert recorded.detect(tmp_path / "a") is FileFormat.CSV
    assert all(
        isinstance(row, BadRow) for row in recorded.rows(tmp_path / "a", FileFormat.JSONL, Tally())
    )


def test_the_line_numbers_of_a_file_of_any_length_cost_no_memory():
    """One list entry a row were 80 MiB at two million rows."""
    numbers = LineNumbers()
    for count in range(1, 2_000_001):
        numbers.add(count)
    assert len(numbers) == 1
    assert numbers.of(2_000_000) == 2_000_000


@given(st.lists(st.booleans(), max_size=200), st.integers(0, 50))
def test_each_line_keeps_its_number_whatever_lies_between(given_to_reader: list[bool], behind: int):
    lines = [number for number, is_given in enumerate(given_to_reader, 1) if is_given]
    numbers, asked = LineNumbers(), 0
    for count, number in enumerate(lines, 1):
        numbers.add(number)
        if count > behind:  # the reader is asked about what it was given some lines ago
            asked = count - behind
            assert numbers.of(asked) == lines[asked - 1]
    for count in range(max(asked, 1), len(lines) + 1):
        assert numbers.of(count) == lines[count - 1]
    assert len(numbers) <= 1
