"""What a look shows."""

from __future__ import annotations

import gzip
from pathlib import Path

from click.testing import CliRunner

from edgewake.simulators.recordings.look_table import lines
from edgewake.simulators.recordings.rows import BadRow
from edgewake.simulators.replay_cli import replay
from tests.simulators.recordings.test_look import looked


def test_a_look_sends_nothing_and_shows_what_would_be_sent(tmp_path: Path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"timestamp,x y\n2026-01-02T10:00:00Z,1\n"))
    done = CliRunner().invoke(replay, [str(path), "--look"])
    assert done.exit_code == 0
    assert "x_y" in done.stderr
    assert "time: timestamp (by its name; iso, zone UTC), 2026-01-02 10:00:00 UTC" in done.stderr


def test_bad_rows_are_told(tmp_path: Path):
    found, _ = looked(tmp_path / "a.csv", "t,x\n1700000000,1\n1700000001\n")
    assert found.first_bad == (BadRow(3, "1 values: expected 2"),)
    assert "looked at all 2 rows; 1 of them cannot be read" in lines(found)
