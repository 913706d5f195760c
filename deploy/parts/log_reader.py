"""Reads the log files of parts: the last lines of all by time, and what is appended later.

Lines are JSON objects of our own parts (`edgewake.protocol.log`) or plain text of Kafka, Mosquitto
and Spark; plain lines have the time of the line before them.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edgewake.deploy.parts.part_log import LINE_BYTES_MAX, turned_over

BACK_BYTES_MAX: Final = 512 << 10
"""Bytes of each part's log that are looked back over, for its last lines: some thousand of them.
Older ones are in the file."""
READ_BYTES: Final = 256 << 10
"""Bytes of one read of a file that grows."""
LEVELS: Final = ("debug", "info", "warning", "error", "critical")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a part's log.

    `time_ms` is since 1970 UTC; 0 before the first line with a time. `level` is "" for plain text.
    """

    part: str
    time_ms: int
    level: str
    text: str
    extras: Mapping[str, Any]
    """The values that a part gave beside its sentence."""

    def is_at_least(self, level: str) -> bool:
        """Is it as severe as `level`?

        Plain text passes `debug` and `info` only: it may be anything.
        """
        return LEVELS.index(self.level or "info") >= LEVELS.index(level)


def parse(raw: bytes, part: str, *, time_ms: int) -> Line:
    """A line without its end; `time_ms` is that of the line before. Never raises."""
    try:
        found = json.loads(raw)
        extras = {
            name: value
            for name, value in found.items()
            if name not in ("time", "level", "part", "text")
        }
        level = found["level"] if found["level"] in LEVELS else ""
        return Line(part, int(found["time"]), level, str(found["text"]), extras)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Line(part, time_ms, "", raw.decode("utf-8", "replace"), {})


class Tail:
    """One part's log file, read from near its end on.

    A missing file is an empty one that may come.
    """

    def __init__(self, path: Path) -> None:
        self.part = path.name.removesuffix(".log")
        self._path = path
        self._inode = 0
        self._offset = 0
        self._rest = b""
        self._time_ms = 0

    def last(self) -> Sequence[Line]:
        """The lines of the last BACK_BYTES_MAX, the oldest first; `more` goes on after them.

        Raises OSError.
        """
        size = 0
        raw = b""
        if self._path.exists():
            status = self._path.stat()
            self._inode = status.st_ino
            self._offset = size = status.st_size
            raw = _end_of(self._path, size, BACK_BYTES_MAX)
        before = turned_over(self._path)
        if size < BACK_BYTES_MAX and before.exists():
            raw = _end_of(before, before.stat().st_size, BACK_BYTES_MAX - size) + raw
        *whole, self._rest = raw.split(b"\n")
        return list(self._parsed(whole))

    def more(self) -> Iterator[Line]:
        """What was appended since; the file may have been turned over in between.

        Raises OSError.
        """
        if not self._path.exists():
            return
        if self._inode and self._path.stat().st_ino != self._inode:
            turned = turned_over(self._path)
            if turned.exists() and turned.stat().st_ino == self._inode:
                yield from self._appended(turned)
            self._offset, self._rest = 0, b""
        self._inode = self._path.stat().st_ino
        yield from self._appended(self._path)

    def _appended(self, path: Path) -> Iterator[Line]:
        with path.open("rb") as file:
            file.seek(self._offset)
            while part := file.read(READ_BYTES):
                self._offset += len(part)
                *whole, rest = (self._rest + part).split(b"\n")
                # A line without an end is no longer than our own writer makes it.
                self._rest = rest[:LINE_BYTES_MAX]
                yield from self._parsed(whole)

    def _parsed(self, lines: Iterable[bytes]) -> Iterator[Line]:
        for raw in lines:
            if raw:
                line = parse(raw, self.part, time_ms=self._time_ms)
                self._time_ms = line.time_ms
                yield line


def _end_of(path: Path, size: int, most: int) -> bytes:
    """The last `most` of the file's first `size` bytes, from the beginning of a line on."""
    with path.open("rb") as file:
        start = max(0, size - most)
        file.seek(start)
        raw = file.read(size - start)
    return raw[raw.find(b"\n") + 1 :] if start else raw


def parts_in(folder: Path) -> list[str]:
    """Names of the parts that have a log there. Raises OSError."""
    return sorted(
        path.name.removesuffix(".log") for path in folder.iterdir() if path.name.endswith(".log")
    )


def newest(tails: Collection[Tail], count: int, level: str) -> Sequence[Line]:
    """The last `count` lines of that severity or more, of all files, by time. Raises OSError."""
    each = ([line for line in tail.last() if line.is_at_least(level)] for tail in tails)
    merged = list(heapq.merge(*each, key=lambda line: line.time_ms))
    return merged[len(merged) - count :] if count < len(merged) else merged
