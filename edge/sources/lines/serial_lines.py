"""Lines from a serial port: NMEA 0183 from a receiver, JSON or text from a microcontroller.

A port that is pulled out and put back is opened again by the back-off of every source. The settings
of the line are made with termios, which Python has: a small device needs no library for it. The
kernel's buffer holds 4 KB, at 115,200 baud a third of a second.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.lines.line_format import LineFormat, LinesConfig
from edgewake.edge.sources.lines.lines import LineSplitter
from edgewake.edge.sources.mapping import MessageMaps
from edgewake.protocol.errors import LocalError
from edgewake.protocol.plain import key

CHUNK_BYTES: Final = 4096
"""Read at once: what the kernel holds of a line."""
Baud = Literal[1200, 2400, 4800, 9600, 19_200, 38_400, 57_600, 115_200, 230_400, 460_800, 921_600]


class SerialLinesConfig(LinesConfig):
    """Lines from a serial port: NMEA 0183, JSON or text."""

    type: Literal["serial_lines"]
    path: Path
    """The port, e.g. `/dev/ttyUSB0`, or better its name in `/dev/serial/by-id`, which stays."""
    format: LineFormat = LineFormat.NMEA
    """json: each line is a JSON object; text: each becomes the field `line`; csv: values of
    `columns`; influx: a point of InfluxDB's line protocol; nmea: a sentence of NMEA 0183; gpsd: a
    report of gpsd."""
    baud: Baud = 4800
    """Bits a second, 8 data bits, no parity, 1 stop bit. NMEA 0183 has 4800, fast receivers 9600 to
    115,200."""
    silence_s: float = key(default=60.0, gt=0, le=86_400)
    """Seconds without a byte after which the port is reopened."""

    def source(self, context: SourceContext) -> SerialLines:
        return SerialLines(self, self.message_maps(context))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_columns(self.format)

    def owns(self) -> str:
        return f"the port {self.path}"


class SerialLines:
    """Opens the port, and queues a reading for each line that comes."""

    policy = Policy.DROP_NEWEST

    def __init__(self, config: SerialLinesConfig, maps: MessageMaps | None = None) -> None:
        self._config = config
        self._lines = config.reader(config.format, maps)

    async def run(self, intake: Intake) -> None:
        splitter = LineSplitter()
        with opened(self._config.path, self._config.baud) as fd:
            while True:
                await self._readable(fd)
                data = _read(fd)
                if data == b"":
                    raise LocalError(f"{self._config.path}: the port is gone")
                await intake.put(self._lines.readings(intake, splitter.feed(data or b"")))

    async def _readable(self, fd: int) -> None:
        """Wait for bytes.

        The loop watches the port only meanwhile: what waits in it while the queue is full must not
        wake the loop.
        """
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(fd, readable.set)
        try:
            async with asyncio.timeout(self._config.silence_s):
                await readable.wait()
        except TimeoutError as error:
            raise LocalError(
                f"{self._config.path}: nothing heard for {self._config.silence_s:.0f} s"
            ) from error
        finally:
            loop.remove_reader(fd)


def _read(fd: int) -> bytes | None:
    try:
        return os.read(fd, CHUNK_BYTES)
    except BlockingIOError:
        return None


@contextmanager
def opened(path: Path, baud: int) -> Iterator[int]:
    """Open the port, raw, for this process alone. Raises OSError; LocalError if not a tty."""
    fd = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        try:
            termios.tcsetattr(fd, termios.TCSANOW, raw(termios.tcgetattr(fd), baud))
            fcntl.ioctl(fd, termios.TIOCEXCL)  # two readers would have half of the bytes each
            termios.tcflush(fd, termios.TCIFLUSH)  # half a sentence from before
        except (termios.error, OSError) as error:
            raise LocalError(f"{path} is not a serial port: {error}") from error
        yield fd
    finally:
        os.close(fd)


def raw(attributes: list[Any], baud: int) -> list[Any]:
    """Settings of a line: 8N1, no echo, no flow control, bytes as they come. Pure."""
    _iflag, _oflag, _cflag, _lflag, _ispeed, _ospeed, control = attributes
    speed = getattr(termios, f"B{baud}")
    control = list(control)
    control[termios.VMIN], control[termios.VTIME] = 1, 0
    return [0, 0, termios.CS8 | termios.CREAD | termios.CLOCAL, 0, speed, speed, control]
