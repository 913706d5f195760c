"""Frames that can never get through to the cloud, kept on the device for people.

A frame that the broker refuses for good, or that is larger than it takes, would be sent for ever
and block its stream. It is taken out: its number becomes a gap that the cloud is told of, and its
bytes are kept here. One file per frame, `STREAM.EPOCH.FRAME`: a line of JSON that says what it is
and why it is here, then the payload as it was sent.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import orjson

from edgewake.edge import durable_file
from edgewake.edge.log.keeping.work import OutFrame

QUARANTINE_NAME: Final = "quarantine"
QUARANTINE_BYTES_MAX: Final = 16 << 20
"""Bytes of all files. At the bound the oldest go: what happens again and again is shown by the
latest as well."""


class Quarantine:
    """The directory; it is made at the first frame. Blocking: call it in a thread."""

    def __init__(self, data_dir: Path, *, bytes_max: int = QUARANTINE_BYTES_MAX) -> None:
        self._directory = data_dir / QUARANTINE_NAME
        self._bytes_max = bytes_max

    def keep(self, frame: OutFrame, *, why: str, now_ms: int) -> None:
        """Store a frame durably; the oldest ones make room. Raises OSError."""
        key = frame.key
        header = {
            "stream": key.stream,
            "epoch": key.epoch,
            "frame": key.frame,
            "readings": frame.count,
            "content_type": frame.content_type,
            "why": why,
            "at": now_ms,
        }
        data = orjson.dumps(header) + b"\n" + frame.payload
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(len(data))
        durable_file.replace(self._directory / f"{key.stream}.{key.epoch}.{key.frame}", data)

    def _make_room(self, size: int) -> None:
        """Removes files alone: a folder or a link there is somebody else's.

        One that goes meanwhile was taken away by hand.
        """
        found: list[tuple[int, int, str]] = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        found.append((status.st_mtime_ns, status.st_size, entry.path))
        found.sort()
        total = sum(each[1] for each in found)
        for _, used, path in found:
            if total + size <= self._bytes_max:
                return
            Path(path).unlink(missing_ok=True)
            total -= used
