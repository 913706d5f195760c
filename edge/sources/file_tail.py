"""Lines that are added to a file, through rotation and truncation, each taken exactly once.

How far it has read is committed in the same transaction as the readings taken from there: after a crash at any moment the next start goes
on behind the last accepted line. The place is inode, device, offset and a checksum of the file's beginning. Rotation: a file that was
renamed is read to its end before the new one is opened, also when it was rotated while the agent was away, as long as it lies in the
same directory. Truncation, or another content under the same inode: read from the beginning. A last line without an end waits for it.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Final

import orjson

from edgewake.edge.config import FileTailConfig
from edgewake.edge.intake import Intake, Policy
from edgewake.edge.log_codec import Reading
from edgewake.edge.sources.lines import Line, LineSplitter
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RejectReason

log = logging.getLogger("edgewake.source")

CHUNK_BYTES: Final = 64 * 1024
"""Read at once; one transaction takes the lines of it."""
HEAD_BYTES: Final = 256
"""Bytes of the file's beginning that tell it from another one."""


@dataclass(frozen=True, slots=True)
class Place:
    """Everything before `offset` was taken."""

    device: int
    inode: int
    offset: int
    head_bytes: int
    head_crc: int

    def encode(self) -> str:
        """As the log keeps it."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def decode(cls, text: str) -> Place:
        """Read what `encode` wrote."""
        return cls(**orjson.loads(text))


class OpenFile:
    """A file being followed."""

    def __init__(self, file: BinaryIO, offset: int) -> None:
        self.file = file
        self.offset = offset
        self.splitter = LineSplitter(start=offset)
        found = os.fstat(file.fileno())
        self.identity = (found.st_dev, found.st_ino)
        file.seek(offset)
        self._head = (min(offset, HEAD_BYTES), _head_crc(file, min(offset, HEAD_BYTES)))

    def read(self) -> list[Line]:
        """Lines that are complete now."""
        return self.splitter.feed(self.file.read(CHUNK_BYTES))

    @property
    def read_to(self) -> int:
        """How far bytes were read, whole lines or not."""
        return self.file.tell()

    def was_replaced(self) -> bool:
        """Is it shorter than what was read, or does it begin otherwise?"""
        if self.size() < self.read_to:
            return True
        length, crc = self._head
        if length < HEAD_BYTES:
            self._head = (min(self.read_to, HEAD_BYTES), _head_crc(self.file, min(self.read_to, HEAD_BYTES)))
        return _head_crc(self.file, length) != crc

    def size(self) -> int:
        """Bytes in it now."""
        return os.fstat(self.file.fileno()).st_size

    def place(self, offset: int) -> Place:
        """The place to remember."""
        length = min(offset, HEAD_BYTES)
        return Place(*self.identity, offset, length, _head_crc(self.file, length))


class FileTail:
    """The source. `position` gives what the log remembers of it, None where it was never read."""

    policy = Policy.BLOCK

    def __init__(self, config: FileTailConfig, clock: Clock, *, position: Callable[[str], str | None]) -> None:
        self._config = config
        self._clock = clock
        self._name = f"file_tail:{config.path}"
        self._position = position
        self._current: OpenFile | None = None

    async def run(self, intake: Intake) -> None:
        known = self._position(self._name)
        try:
            self._current = self._resume(Place.decode(known)) if known else self._open_first()
            while True:
                if not await self._step(intake):
                    await self._clock.sleep(self._config.poll_s)
        finally:
            if self._current is not None:
                self._current.file.close()

    async def _step(self, intake: Intake) -> bool:
        """Take what there is; False where there is nothing now."""
        current = self._current
        if current is None:
            self._current = self._open(self._config.path, 0)
            return self._current is not None
        if current.was_replaced():
            log.warning("%s was truncated: read from its beginning", self._config.path, extra={"event": "source.truncated"})
            current.file.close()
            self._current = self._open(self._config.path, 0)
            return True
        before = current.read_to
        lines = current.read()
        if lines:
            await intake.put(self._readings(intake, lines), position=(self._name, current.place(lines[-1].end).encode()))
        if current.read_to > before:
            return True
        return self._rotated(current)

    def _rotated(self, current: OpenFile) -> bool:
        """At the end of a file: is there a new one under the name? It may have grown between the last read and now, so ask twice."""
        try:
            found = self._config.path.stat()
        except FileNotFoundError:
            return False
        if (found.st_dev, found.st_ino) == current.identity or current.size() > current.read_to:
            return False
        current.file.close()
        self._current = None
        return True

    def _readings(self, intake: Intake, lines: list[Line]) -> list[Reading]:
        readings: list[Reading] = []
        for line in lines:
            reading = self._reading(intake, line)
            if reading is not None:
                readings.append(reading)
        return readings

    def _reading(self, intake: Intake, line: Line) -> Reading | None:
        if line.too_long:
            intake.refuse(RejectReason.OVERSIZE, "a line past its bound")
            return None
        if self._config.format == "json":
            return intake.check_line(line.text)
        return intake.check({"line": line.text.decode("utf-8", "replace")})

    # where to begin

    def _open_first(self) -> OpenFile | None:
        at_end = self._config.start == "end" and self._config.path.exists()
        return self._open(self._config.path, self._config.path.stat().st_size if at_end else 0)

    def _resume(self, place: Place) -> OpenFile | None:
        """The file of the place, wherever it is called now; else the one under the name, from its beginning."""
        for path in (self._config.path, *sorted(self._config.path.parent.glob(self._config.path.name + "?*"))):
            opened = self._open(path, place.offset)
            if opened is None:
                continue
            same = opened.identity == (place.device, place.inode) and opened.size() >= place.offset
            if same and _head_crc(opened.file, place.head_bytes) == place.head_crc:
                return opened
            opened.file.close()
        return self._open(self._config.path, 0)

    def _open(self, path: Path, offset: int) -> OpenFile | None:
        try:
            return OpenFile(path.open("rb", buffering=0), offset)
        except (FileNotFoundError, IsADirectoryError, PermissionError):
            return None


def _head_crc(file: BinaryIO, length: int) -> int:
    return zlib.crc32(os.pread(file.fileno(), length, 0))
