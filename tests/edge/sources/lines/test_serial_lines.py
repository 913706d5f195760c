"""A serial port is set as receivers speak: eight bits, no echo, nothing translated; and what lay in
it before is no sentence.
"""

from __future__ import annotations

import os
import pty
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from edgewake.edge.sources.lines.serial_lines import (
    Baud,
    SerialLines,
    SerialLinesConfig,
    opened,
    raw,
)
from edgewake.protocol.errors import LocalError
from tests.edge.sources.cage import caged
from tests.edge.sources.lines.test_nmea import RMC, sentence
from tests.edge.sources.sink import running
from tests.open_files import open_files


@pytest.fixture
def port() -> Iterator[tuple[int, Path]]:
    """Our end of a line, and the name of the other one."""
    ours, theirs = pty.openpty()
    try:
        yield ours, Path(os.ttyname(theirs))
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("baud", get_args(Baud))
def test_every_speed_that_may_be_configured_is_one_of_the_machine(baud: int) -> None:
    control = [b"\0"] * 32
    settings = raw([1, 2, 3, 4, 5, 6, control], baud)
    assert settings[4] == settings[5] == getattr(termios, f"B{baud}")
    assert control == [b"\0"] * 32, "what was given is not changed"


def test_a_line_is_eight_bits_without_echo_flow_control_or_translation() -> None:
    iflag, oflag, cflag, lflag, _, _, control = raw([0xFFFF] * 6 + [[b"\0"] * 32], 4800)
    assert (iflag, oflag, lflag) == (0, 0, 0)
    assert cflag & termios.CSIZE == termios.CS8
    assert cflag & (termios.PARENB | termios.CSTOPB | termios.CRTSCTS) == 0
    assert cflag & termios.CLOCAL, "no modem is waited for"
    assert cflag & termios.CREAD
    assert (control[termios.VMIN], control[termios.VTIME]) == (1, 0)


def test_a_port_is_set_and_what_lay_in_it_is_thrown_away(port: tuple[int, Path]) -> None:
    ours, name = port
    before = open_files(name.parent)
    os.write(ours, b"half a sentence\n")
    with opened(name, 115_200) as fd:
        assert termios.tcgetattr(fd)[4] == termios.B115200
        with pytest.raises(BlockingIOError):
            os.read(fd, 100)
        os.write(ours, b"\x03\x11\x13\r\xff")
        assert os.read(fd, 100) == b"\x03\x11\x13\r\xff", (
            "bytes as they come, also those that a terminal would take for commands"
        )
    assert open_files(name.parent) == before


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_is_no_port_is_said_and_left_open_by_nobody(tmp_path: Path, what: str) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises((LocalError, OSError)),
        opened(tmp_path / what if what == "file" else tmp_path, 4800),
    ):
        pass
    assert open_files(tmp_path) == []


async def test_sentences_cut_anywhere_are_taken_whole(port: tuple[int, Path]) -> None:
    ours, name = port
    whole = (sentence(RMC) + b"\r\n") * 3
    async with running(
        SerialLines(SerialLinesConfig(type="serial_lines", stream="s", path=name, baud=115_200))
    ) as one:
        await one.until(lambda: termios.tcgetattr(ours)[4] == termios.B115200)
        for at in range(0, len(whole), 7):
            os.write(ours, whole[at : at + 7])
            await one.until(lambda: True)
        await one.until(lambda: one.sink.values("course_deg") == [84.4] * 3)
    assert one.sink.lost == {}


async def test_a_port_that_is_silent_is_opened_anew(port: tuple[int, Path]) -> None:
    _, name = port
    async with running(
        SerialLines(SerialLinesConfig(type="serial_lines", stream="s", path=name, silence_s=0.01))
    ) as one:
        error = await one.error()
    assert isinstance(error, LocalError)
    assert "nothing heard" in str(error)


async def test_a_serial_port_is_read_and_opened_again_when_it_was_pulled_out(
    tmp_path: Path,
) -> None:
    link = tmp_path / "port"
    config = SerialLinesConfig(type="serial_lines", stream="s", path=link, baud=115_200)
    async with caged(tmp_path / "log", config, answering=False) as one:
        await one.failed("No such file")
        for course in (10.5, 20.5):
            ours, theirs = pty.openpty()
            link.symlink_to(os.ttyname(theirs))
            failures = one.supervisor.failures

            def readings(course: float = course, ours: int = ours) -> bool:
                if course in one.column("course_deg"):
                    return True
                os.write(ours, sentence(f"GPVTG,{course},T,,M,,N,,K") + b"\r\n")
                return False

            await one.until(readings, f"course {course}")
            link.unlink()
            os.close(ours)
            os.close(theirs)
            await one.until(
                lambda failures=failures: one.supervisor.failures > failures, "the port is gone"
            )  # type: ignore[misc]


async def test_what_is_no_serial_port_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    async with caged(
        tmp_path / "log", SerialLinesConfig(type="serial_lines", stream="s", path=tmp_path / "file")
    ) as one:
        await one.failed("is not a serial port")
