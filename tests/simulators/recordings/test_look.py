"""Replay looks first: what a file is, and what is wrong with it, is said before a row is sent."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from edgewake.simulators.recordings import rows as recorded
from edgewake.simulators.recordings.look import Look, look
from edgewake.simulators.recordings.look_table import lines
from edgewake.simulators.recordings.readings import Columns, Reading, to_readings
from edgewake.simulators.recordings.rows import FileFormat, Tally, UnreadableFile
from edgewake.simulators.replay_cli import replay


def looked(path: Path, text: str, *, device: str | None = None) -> tuple[Look, list[Reading]]:
    """The look at a file with this text, and its readings."""
    path.write_text(text)
    kind = recorded.detect(path)
    found = look(path, kind, None, None, Columns(device_field=device))
    rows = recorded.rows(path, kind, Tally())
    return found, [one for one in to_readings(rows, found.meaning) if isinstance(one, Reading)]


def test_a_file_without_a_header_loses_no_row_and_says_what_its_columns_are_called(tmp_path: Path):
    found, readings = looked(tmp_path / "a.csv", "1700000000,1.5,x\n1700000001,2.5,y\n")
    assert [dict(r.fields) for r in readings] == [{"c2": 1.5, "c3": "x"}, {"c2": 2.5, "c3": "y"}]
    assert any("--columns c1,c2" in guess for guess in found.guesses)


def test_a_table_of_texts_has_a_header(tmp_path: Path):
    found, readings = looked(tmp_path / "a.csv", "when,state\n2026-01-02 10:00,on\n")
    assert (readings[0].fields, found.time.names) == ({"state": "on"}, ("when",))


def test_blanks_may_part_the_columns(tmp_path: Path):
    _, readings = looked(tmp_path / "a.txt", "t  x   y\n 1700000000 1 -2.5  \n1700000001 2 3\n")
    assert [dict(r.fields) for r in readings] == [{"x": 1, "y": -2.5}, {"x": 2, "y": 3}]


def test_lines_that_begin_with_a_number_sign_are_remarks_and_may_name_the_columns(tmp_path: Path):
    _, readings = looked(
        tmp_path / "a.csv", "# made by us\n#t,x\n1700000000,1\n# a pause\n1700000001,2\n"
    )
    assert [dict(r.fields) for r in readings] == [{"x": 1}, {"x": 2}]


def test_zeek_says_what_its_columns_are_called(tmp_path: Path):
    _, readings = looked(
        tmp_path / "dns.log",
        "#separator \\x09\n#unset_field\t-\n#fields\tts\tid.orig_h\tport\n"
        "#types\ttime\taddr\tport\n"
        "1521911721.25\t10.0.0.1\t53\n1521911722.5\t10.0.0.2\t-\n#close\t2018-03-24\n",
    )
    assert [(r.t, dict(r.fields)) for r in readings] == [
        (1_521_911_721_250, {"id_orig_h": "10.0.0.1", "port": 53}),
        (1_521_911_722_500, {"id_orig_h": "10.0.0.2"}),
    ]


def test_a_header_that_comes_again_is_left_out_and_counted(tmp_path: Path):
    found, readings = looked(tmp_path / "a.csv", "t,x\n1700000000,1\nt,x\n1700000001,2\n")
    assert [dict(r.fields) for r in readings] == [{"x": 1}, {"x": 2}]
    assert "1 lines name the columns once more: left out" in lines(found)


def test_a_comma_may_be_the_decimal_point(tmp_path: Path):
    _, readings = looked(
        tmp_path / "a.csv", "t;x;y;z\n1700000000;1,5;1.234,5;1.5\n1700000001;2;7,0;2\n"
    )
    assert [dict(r.fields) for r in readings] == [
        {"x": 1.5, "y": 1234.5, "z": 1.5},
        {"x": 2, "y": 7.0, "z": 2},
    ]


@pytest.mark.parametrize("around", ["%s", '{"count": 2, "items": %s}'])
@pytest.mark.parametrize("indent", [None, orjson.OPT_INDENT_2])
def test_an_array_of_objects_is_read(tmp_path: Path, around: str, indent: int | None):
    items = [{"ts": 1_700_000_000 + n, "of": {"n": n}, "id": "a"} for n in range(2)]
    text = around % orjson.dumps(items, option=indent).decode()
    found, readings = looked(tmp_path / "a.json", text, device="id")
    assert found.kind is FileFormat.JSON
    assert [(r.device, dict(r.fields)) for r in readings] == [
        ("a", {"of_n": 0}),
        ("a", {"of_n": 1}),
    ]


def test_a_document_that_is_no_array_is_refused_with_what_was_expected(tmp_path: Path):
    with pytest.raises(UnreadableFile, match="expected an array of objects"):
        looked(tmp_path / "a.json", '{\n"a": [1]\n}')


def test_what_is_inside_of_objects_can_be_named(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"event": {"time": 1700000000000}, "of": {"id": "x:1"}, "a": 1}\n')
    found = look(path, FileFormat.JSONL, None, ["event.time"], Columns(device_field="of.id"))
    (reading,) = to_readings(recorded.rows(path, FileFormat.JSONL, Tally()), found.meaning)
    assert reading == Reading("x-1", 1_700_000_000_000, {"a": 1})


def test_a_column_that_names_devices_is_proposed(tmp_path: Path):
    text = "t,sensor_id,x\n" + "".join(f"{1_700_000_000 + n},s{n % 3},1\n" for n in range(12))
    found, _ = looked(tmp_path / "a.csv", text)
    assert found.hints == (
        "sensor_id has 3 values here: --device-field 'sensor_id' makes them devices",
    )


# --- the command ----------------------------------------------------------------------------------


def test_a_program_is_refused_where_the_time_had_to_be_guessed(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("seen,x\n2026-01-02 10:00,1\n")
    done = CliRunner().invoke(replay, [str(path), "--port", "1"])
    assert done.exit_code == 2
    assert "--time-field 'seen'" in done.stderr
    assert "nothing was sent: use the options above, or --yes" in done.stderr


def test_a_file_without_a_time_is_refused_until_somebody_says_that_it_has_none(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,2\n")
    assert CliRunner().invoke(replay, [str(path), "--port", "1"]).exit_code == 2
    said = CliRunner().invoke(replay, [str(path), "--time-field", "-", "--look"])
    assert (said.exit_code, "guessed" in said.stderr) == (0, False)


def test_a_file_of_which_no_row_can_be_read_is_refused(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1\n{"a": 2\n')
    done = CliRunner().invoke(replay, [str(path), "--format", "jsonl", "--yes"])
    assert done.exit_code == 2
    assert "none of the first 2 rows can be read; line 1: not JSON" in done.stderr
