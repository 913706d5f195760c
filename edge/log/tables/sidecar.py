"""The sidecar: a small file beside the log that repeats what must survive the log.

After every commit it gets one line: the number of the commit and what it changed in the counters,
the positions of the sources and the frames that are kept. It tells

* whether the log was lost, copied or put back (see `log_epoch`), and
* when the log is damaged, which readings and frames there must be: what cannot be found any more is
  then said exactly.

A line survives the death of the process; the death of the machine only survives what was synced
(with every checkpoint). So a missing line does no harm: what the log itself says is newer then.
Each line carries its CRC; reading ends at the first torn one. The file is rewritten when it has
grown by `REWRITE_BYTES`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from edgewake.edge.durable_file import sync_directory
from edgewake.edge.log.tables.consumers import ConsumerState
from edgewake.edge.log.tables.streams import StreamState

log = logging.getLogger("edgewake.log")

SIDECAR_NAME: Final = "epoch"
REWRITE_BYTES: Final = 256 << 10
"""Growth after which the file is rewritten: some thousand commits, so that the two fsyncs of it
cost nothing."""

FrameId: TypeAlias = tuple[int, int, int]
"""(stream's number, epoch, frame)."""
Boundary: TypeAlias = tuple[int, int, int]
"""(first seq, readings, first position or `NO_BATCHES`)."""


@dataclass(slots=True)
class Change:
    """The changes of one commit."""

    streams: list[StreamState] = field(default_factory=list)
    formed: list[tuple[FrameId, Boundary]] = field(default_factory=list)
    freed: list[FrameId] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    consumers: list[ConsumerState] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    """Consumers that were removed."""

    def as_json(self) -> dict[str, Any]:
        """Without what is empty: most commits change little."""
        found = {
            "streams": [stream.row() for stream in self.streams],
            "formed": [[*frame, *boundary] for frame, boundary in self.formed],
            "freed": self.freed,
            "sources": self.sources,
            "counters": self.counters,
            "consumers": [consumer.without_state() for consumer in self.consumers],
            "forgotten": self.forgotten,
        }
        return {name: value for name, value in found.items() if value}


@dataclass(slots=True)
class Known:
    """What the sidecar says of the log."""

    log_id: str
    epoch: int
    commit: int
    version: int = 0
    """The version of the tables; 0: not known."""
    page_size: int = 0
    streams: dict[int, StreamState] = field(default_factory=dict)
    frames: dict[FrameId, Boundary] = field(default_factory=dict)
    """Frames that are kept."""
    sources: dict[str, str] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    consumers: dict[str, ConsumerState] = field(default_factory=dict)
    """Without their states."""

    def apply(self, line: dict[str, Any]) -> None:
        """One more line. Raises ValueError, TypeError, KeyError."""
        self.commit = int(line["commit"])
        self.streams |= {
            stream.id: stream for stream in map(StreamState.from_row, line.get("streams", ()))
        }
        # Before: a gap takes the number of the frame that it replaces.
        for stream, epoch, frame in line.get("freed", ()):
            self.frames.pop((stream, epoch, frame), None)
        for stream, epoch, frame, seq, count, first in line.get("formed", ()):
            self.frames[stream, epoch, frame] = (seq, count, first)
        self.sources |= line.get("sources", {})
        self.counters |= line.get("counters", {})
        for name in line.get("forgotten", ()):  # before: a name that is used again
            self.consumers.pop(name, None)
        self.consumers |= {
            consumer.name: consumer
            for consumer in map(ConsumerState.from_json, line.get("consumers", ()))
        }

    def as_json(self) -> dict[str, Any]:
        """All of it as a first line."""
        all_of_it = Change(
            [*self.streams.values()],
            [*self.frames.items()],
            [],
            self.sources,
            self.counters,
            [*self.consumers.values()],
        ).as_json()
        first = {
            "log": self.log_id,
            "epoch": self.epoch,
            "commit": self.commit,
            "version": self.version,
            "page_size": self.page_size,
        }
        return first | all_of_it


def _line(value: dict[str, Any]) -> bytes:
    text = orjson.dumps(value)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode(data: bytes) -> Known | None:
    """None where the first line is not ours."""
    known: Known | None = None
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
        for line in data.split(b"\n"):
            crc, _, text = line.partition(b" ")
            if int(crc, 16) != zlib.crc32(text):
                break
            value = orjson.loads(text)
            if known is None:
                known = _begun(value)
            known.apply(value)
    return known or _decode_mark(data)


def _begun(line: Mapping[str, Any]) -> Known:
    log_id, *numbers = (line[name] for name in ("log", "epoch", "commit", "version", "page_size"))
    if not isinstance(log_id, str) or not all(type(number) is int for number in numbers):
        raise ValueError(f"not a sidecar's first line: {line!r}")
    return Known(log_id, *numbers)


def _decode_mark(data: bytes) -> Known | None:
    """The file as it was before it had lines: id, epoch and commit."""
    try:
        log_id, epoch, commit = data.decode("ascii").split()
        return Known(log_id, int(epoch), int(commit))
    except ValueError:
        return None


class Sidecar:
    """The sidecar file.

    A write that fails, on a full disk, is logged and made up for later: the log goes on without it.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / SIDECAR_NAME
        self._fd: int | None = None
        self._grown = 0
        self.is_due = False
        """Whether it is time to rewrite it, because it has grown or a line could not be added."""

    def read(self) -> Known | None:
        """None where there is no sidecar, or it is not ours."""
        return decode(self._path.read_bytes()) if self._path.exists() else None

    def rewrite(self, known: Known) -> None:
        """Replace the file by one that says all, and force it to the disk."""
        self._let_go()
        try:
            self._fd = self._write_anew(_line(known.as_json()))
        except OSError as error:
            self._is_behind(error)
        else:
            self._grown, self.is_due = 0, False

    def _write_anew(self, line: bytes) -> int:
        fresh = self._path.with_suffix(".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            _write_whole(fd, line)
            os.fsync(fd)
            fresh.replace(self._path)
            sync_directory(self._path.parent)
        except BaseException:
            os.close(fd)
            fresh.unlink(missing_ok=True)
            raise
        return fd

    def append(self, commit: int, change: Change) -> None:
        """Add a line. After the commit that it repeats, never before."""
        if self._fd is None:
            return
        line = _line({"commit": commit} | change.as_json())
        try:
            _write_whole(self._fd, line)
        except OSError as error:
            self._is_behind(error)
        self._grown += len(line)
        self.is_due = self.is_due or self._grown >= REWRITE_BYTES

    def _is_behind(self, error: OSError) -> None:
        if not self.is_due:
            log.error(
                "the event log's sidecar cannot be written: %s",
                error,
                extra={"event": "log.sidecar_behind"},
            )
        self.is_due = True

    def sync(self) -> None:
        """Force it to the disk."""
        if self._fd is not None:
            os.fsync(self._fd)

    def close(self) -> None:
        """Sync and close."""
        try:
            self.sync()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _write_whole(fd: int, data: bytes) -> None:
    if os.write(fd, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
