"""A part's log file."""

from __future__ import annotations

from pathlib import Path

from edgewake.deploy.parts.part_log import LINE_BYTES_MAX, PartLog


def test_lines_are_appended_across_starts(tmp_path: Path) -> None:
    for line in (b"one", b"two"):
        log = PartLog(tmp_path / "part.log")
        log.write(line + b"\r\n")
        log.close()
    assert (tmp_path / "part.log").read_bytes() == b"one\ntwo\n"


def test_the_file_is_turned_over_at_its_bound(tmp_path: Path) -> None:
    log = PartLog(tmp_path / "part.log", bytes_max=LINE_BYTES_MAX + 1000)
    for i in range(3000):
        log.write(b"%04d" % i)
        log.write(b"x" * 95)
    log.close()
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["part.log", "part.log.1"]
    assert all(path.stat().st_size <= LINE_BYTES_MAX + 1100 for path in files)
    assert b"2999" in files[0].read_bytes()


def test_a_disk_that_refuses_lines_stops_nobody_and_their_number_is_kept(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    log = PartLog(tmp_path / "gone" / "part.log")
    (tmp_path / "gone").rmdir()
    log.write(b"one")
    log.write(b"two")
    (tmp_path / "gone").mkdir()
    log.write(b"three")
    log.close()
    assert (
        tmp_path / "gone" / "part.log"
    ).read_text() == "[2 lines before this one could not be written]\nthree\n"
    assert log.last_line == "three"
