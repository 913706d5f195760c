"""`edgewake logs` on files that the supervisor's own writer made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgewake.deploy.parts.log_reader import BACK_BYTES_MAX, Tail, newest
from edgewake.deploy.parts.logs_cli import logs
from edgewake.deploy.parts.part_log import LINE_BYTES_MAX, PartLog
from edgewake.protocol.errors import ConfigError


def said(time_ms: int, text: str, level: str = "info", **extras: object) -> bytes:
    return json.dumps(
        {"time": time_ms, "level": level, "part": "edgewake.bridge", "text": text, **extras}
    ).encode()


def write(folder: Path, part: str, *lines: bytes, bytes_max: int = 8 << 20) -> PartLog:
    log = PartLog(folder / f"{part}.log", bytes_max=bytes_max)
    for line in lines:
        log.write(line)
    log.close()
    return log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    path.mkdir()
    return path


def shown(data: Path, *arguments: str) -> list[str]:
    done = CliRunner().invoke(logs, ["--data", str(data), *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_lines_of_all_parts_come_in_the_order_of_their_times(folder: Path) -> None:
    write(folder, "bridge", said(1000, "first"), said(3000, "third", "warning", topic="ew.up"))
    write(folder, "kafka", b"plain before any time", said(2000, "second"), b"[plain] after it")
    rows = [json.loads(line) for line in shown(folder.parent, "--json")]
    assert [row["text"] for row in rows] == [
        "plain before any time",
        "first",
        "second",
        "[plain] after it",
        "third",
    ]
    assert (rows[3]["time"], rows[3]["level"], rows[3]["part"]) == (2000, None, "kafka")
    assert rows[4]["topic"] == "ew.up"
    assert [line.partition(": ")[2] for line in shown(folder.parent, "--level", "warning")] == [
        "third topic=ew.up"
    ]
    assert [line.partition(": ")[2] for line in shown(folder.parent, "bridge", "-n", "1")] == [
        "third topic=ew.up"
    ]
    assert shown(folder.parent, "-n", "0") == []


@pytest.mark.parametrize(
    "hostile",
    [
        b"{",
        b"[]",
        b"null",
        b'{"time":"x","level":"info","text":1}',
        b"[" * 20_000,
        b"\xff\xfe",
        b"1e999",
    ],
)
def test_a_line_that_is_no_event_is_shown_as_it_is(folder: Path, hostile: bytes) -> None:
    write(folder, "bridge", said(5, "before"), hostile)
    (line,) = newest([Tail(folder / "bridge.log")], 1, "info")
    assert (line.time_ms, line.level, line.text) == (5, "", hostile.decode("utf-8", "replace"))


def test_colours_and_titles_that_a_part_wrote_do_not_reach_the_terminal(folder: Path) -> None:
    write(folder, "mosquitto", b"\x1b[2Jgone\x1b]0;title\x07")
    assert shown(folder.parent) == ["--:--:--          mosquitto: gone\ufffd]0;title\ufffd"]


def test_the_file_before_is_read_where_the_new_one_is_short(folder: Path) -> None:
    write(
        folder, "bridge", *(said(n, "x" * 200) for n in range(400)), bytes_max=LINE_BYTES_MAX + 1000
    )
    assert (folder / "bridge.log.1").exists()
    assert [line.time_ms for line in newest([Tail(folder / "bridge.log")], 150, "info")] == list(
        range(250, 400)
    )


def test_looking_back_is_bounded(folder: Path) -> None:
    write(folder, "bridge", *(said(n, "x" * 1000) for n in range(2000)))
    found = newest([Tail(folder / "bridge.log")], 10**9, "info")
    assert found[-1].time_ms == 1999
    assert sum(len(line.text) for line in found) <= BACK_BYTES_MAX


def test_following_goes_on_across_a_turn_of_the_file_and_in_the_middle_of_a_line(
    folder: Path,
) -> None:
    log = write(folder, "bridge", said(0, "old"), bytes_max=LINE_BYTES_MAX + 1000)
    tail = Tail(folder / "bridge.log")
    assert [line.time_ms for line in tail.last()] == [0]
    got = []
    for n in range(1, 300):
        log.write(said(n, "x" * 300))
        if n % 7 == 0:
            got += [line.time_ms for line in tail.more()]
    log.close()
    assert (folder / "bridge.log.1").exists()
    with (folder / "bridge.log").open("ab") as file:
        file.write(said(300, "two")[:20])
        file.flush()
        got += [line.time_ms for line in tail.more()]
        file.write(said(300, "two")[20:] + b"\n")
    got += [line.time_ms for line in tail.more()]
    assert got == list(range(1, 301))


def test_a_part_without_a_log_and_a_folder_that_is_none_are_named(folder: Path) -> None:
    write(folder, "bridge", said(1, "x"))
    with pytest.raises(ConfigError, match=r"brigde has no log in .*; there are: bridge"):
        shown(folder.parent, "brigde")
    with pytest.raises(
        ConfigError, match=r"nothing/logs: No such file or directory; --data names the data folder"
    ):
        shown(folder.parent / "nothing")
