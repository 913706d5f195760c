"""Reads the files of a rotated log. Blocking: it runs in a thread of its source.

`rotation` says which files, `FilePositions` is what the log keeps of it. A
file that was renamed stays open: its writer may add lines until it has noticed. Only regular files
are read; a FIFO or a terminal is refused before it is opened, since opening it would wait.
"""

from __future__ import annotations

import glob
import os
import stat
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from edgewake.edge.sources.lines.lines import Line, LineSplitter
from edgewake.edge.sources.lines.rotation import (
    KNOWN_MAX,
    PACKED,
    PROOF_BYTES,
    Follow,
    Known,
    LastLook,
    Seen,
    is_rotated_name,
    plan,
)
from edgewake.protocol.errors import LocalError

CHUNK_BYTES: Final = 64 * 1024
"""Read at once; one transaction takes the lines of it."""
LOOK_S: Final = 1.0
"""Time between two looks at the directory while there is something to read; else each poll
looks."""
QUIET_S: Final = 5.0
"""A rotated file without growth for so long ends: its last line counts, also without an end."""
CLOSE_S: Final = 60.0
"""A file that is gone from the directory is closed after so long without growth."""
OPEN_MAX: Final = 4
"""Files kept open. A writer goes on with the last one for a moment, not with those before."""


@dataclass(frozen=True, slots=True)
class FilePositions:
    """How far the files were taken, and the latest change of any of them."""

    since_ns: int
    files: tuple[Known, ...]
    foreign_ns: int | None = None
    """See `LastLook`; None: the folder was not looked into yet."""

    def encode(self) -> str:
        """The position as the log keeps it."""
        foreign = {} if self.foreign_ns is None else {"foreign_ns": self.foreign_ns}
        return orjson.dumps(
            {"since_ns": self.since_ns, **foreign, "files": [asdict(each) for each in self.files]}
        ).decode()

    @classmethod
    def decode(cls, text: str) -> FilePositions:
        """Read what `encode` wrote."""
        body: dict[str, Any] = orjson.loads(text)
        return cls(
            body["since_ns"], tuple(Known(**each) for each in body["files"]), body.get("foreign_ns")
        )


@dataclass(frozen=True, slots=True)
class Taken:
    """Lines, and the position after them."""

    lines: list[Line]
    position: FilePositions


class OpenFile:
    """A file being followed.

    Somebody may truncate and rewrite it between any two calls here, so what stands before a place
    is remembered from the bytes that were read, and looked at again after each read.
    """

    def __init__(self, fd: int, follow: Follow, now_s: float) -> None:
        self.fd = fd
        self.seen = follow.file
        self.offset = follow.offset
        """Everything before was given out as lines."""
        self.read_to = follow.offset
        self.grown_s = now_s
        self.is_current = True
        """Is it the one under the name?"""
        self.is_over = False
        """Its last line was given out although it had no end."""
        self._splitter = LineSplitter(start=follow.offset)
        self._head = os.pread(fd, min(follow.offset, PROOF_BYTES), 0)
        self._proof = self._bytes_before_read()
        """Bytes before `read_to`."""
        self._tail = self._proof
        """Bytes before `offset`."""

    def read(self, now_s: float) -> list[Line] | None:
        """Lines that are complete now; None where other bytes stand where we had read."""
        while True:
            data = os.pread(self.fd, CHUNK_BYTES, self.read_to)
            if self._bytes_before_read() != self._proof:
                return None
            if not data:
                return []
            self.grown_s, self.is_over = now_s, False
            before, begin = self._proof + data, self.read_to - len(self._proof)
            self.read_to += len(data)
            self._proof = before[-PROOF_BYTES:]
            if len(self._head) < PROOF_BYTES:
                self._head = (self._head + data)[:PROOF_BYTES]
            lines = self._splitter.feed(data)
            if lines:
                self.offset = lines[-1].end
                self._tail = before[: self.offset - begin][-PROOF_BYTES:]
                return lines

    def finish(self) -> list[Line]:
        """The last line, although it has no end."""
        self.is_over = True
        lines = self._splitter.last()
        self.offset, self._tail = self.read_to, self._proof
        self._splitter = LineSplitter(start=self.read_to)
        return lines

    def known(self) -> Known:
        """The state to remember."""
        head = self._head[: self.offset]
        return Known(
            self.seen.device,
            self.seen.inode,
            self.offset,
            len(head),
            zlib.crc32(head),
            len(self._tail),
            zlib.crc32(self._tail),
        )

    def _bytes_before_read(self) -> bytes:
        length = min(self.read_to, PROOF_BYTES)
        return os.pread(self.fd, length, self.read_to - length)


class Follower:
    """Follows one file by name. Every method may block."""

    def __init__(self, path: Path, *, at_end: bool, position: FilePositions | None) -> None:
        """`position`: what was read before.

        None: the file is new, and read from its end or beginning.
        """
        self._path = path
        self._known = {each.identity: each for each in position.files} if position else {}
        self._since_ns = position.since_ns if position else 0
        self._foreign_ns = position.foreign_ns if position else None
        self._changed_ns: dict[tuple[int, int], int] = {}
        """When each file of the directory had changed, at the last look."""
        self._is_first = position is None
        self._at_end = at_end
        self._open: dict[tuple[int, int], OpenFile] = {}
        self._look_s = float("-inf")
        self.truncations = 0
        """Files read from the beginning because the bytes before our offset had changed."""
        self.packed: Sequence[str] = ()
        """Files that were rotated and packed while nobody read them: what they had is lost."""
        self._was_away = position is not None

    def read(self, now_s: float) -> Taken | None:
        """The next lines, oldest file first; None where there is nothing now.

        Raises OSError, LocalError.
        """
        if now_s - self._look_s >= LOOK_S:
            self._look(now_s)
        taken = self._read_open(now_s)
        if taken is None and self._look_s < now_s:
            self._look(now_s)
            taken = self._read_open(now_s)
        return taken

    def _read_open(self, now_s: float) -> Taken | None:
        for file in list(self._open.values()):
            lines = file.read(now_s)
            if lines is None:
                self._forget(file)
                continue
            if (
                not lines
                and not file.is_current
                and not file.is_over
                and now_s - file.grown_s >= QUIET_S
            ):
                lines = file.finish()
                self._remember(file.known())
            if lines:
                self._remember(file.known())
                return Taken(lines, self.position())
        return None

    def _forget(self, file: OpenFile) -> None:
        """Other bytes: whatever is there now is found by the next look."""
        self.truncations += 1
        self._look_s = float("-inf")
        os.close(file.fd)
        del self._open[file.seen.identity]

    def position(self) -> FilePositions:
        """The positions to remember."""
        return FilePositions(self._since_ns, tuple(self._known.values()), self._foreign_ns)

    def _remember(self, known: Known) -> None:
        """One of KNOWN_MAX. What goes for it was read long ago, as what is foreign."""
        self._known[known.identity] = known
        while len(self._known) > KNOWN_MAX:
            oldest = next(iter(self._known))
            del self._known[oldest]
            if self._foreign_ns is not None:
                self._foreign_ns = max(self._foreign_ns, self._changed_ns.get(oldest, 0))

    def close(self) -> None:
        """Close all files."""
        for file in self._open.values():
            os.close(file.fd)
        self._open.clear()

    # the directory

    def _look(self, now_s: float) -> None:
        self._look_s = now_s
        seen = self._list()
        if self._was_away:
            self._was_away = False
            self.packed = self._packed_unread(seen)
        if self._is_first:
            self._begin(seen)
        if not self._since_ns:
            self._since_ns = self._since_of_first_version(seen)
        self._changed_ns = {file.identity: file.mtime_ns for file in seen}
        last = LastLook(self._since_ns, self._foreign_ns)
        follows = plan(tuple(self._known.values()), last, seen, self._path.name, self._checksum)
        followed = {follow.file.identity for follow in follows}
        foreign = [
            each
            for each in seen
            if each.identity not in followed and is_rotated_name(each.name, self._path.name)
        ]
        self._foreign_ns = max((each.mtime_ns for each in foreign), default=0)
        for follow in follows:
            self._follow(follow, now_s)
        current = {
            follow.file.identity for follow in follows if follow.file.name == self._path.name
        }
        for identity, file in self._open.items():
            file.is_current = identity in current
        self._close_left(now_s)

    def _list(self) -> list[Seen]:
        """Regular files whose names begin as ours. Raises LocalError where ours is not a file."""
        found = []
        try:
            entries = list(os.scandir(self._path.parent))
        except FileNotFoundError:
            return []
        for entry in entries:
            if not entry.name.startswith(self._path.stem) or entry.name.endswith(PACKED):
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                found.append(
                    Seen(
                        entry.name, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
                    )
                )
            elif entry.name == self._path.name:
                raise LocalError(
                    f"{self._path} is not a regular file: file_tail follows files; a pipe can be "
                    "read by json_lines"
                )
        return found

    def _packed_unread(self, seen: Iterable[Seen]) -> list[str]:
        """Packed files that changed after our last look, and were not read to their end before.

        Packing keeps the time of the last change.
        """
        if not self._since_ns:
            return []
        there = {file.identity for file in seen}
        gone = {known.offset for known in self._known.values() if known.identity not in there}
        found = []
        for path in sorted(self._path.parent.glob(f"{glob.escape(self._path.stem)}*")):
            is_ours = path.suffix in PACKED and is_rotated_name(path.stem, self._path.name)
            if not is_ours:
                continue
            try:
                is_new = path.stat().st_mtime_ns > self._since_ns
            except FileNotFoundError:
                continue
            if is_new and _unpacked_size(path) not in gone:
                found.append(path.name)
        return found

    def _begin(self, seen: list[Seen]) -> None:
        """Begin: files that were rotated before are not ours.

        The current one starts as configured.
        """
        self._is_first = False
        for file in seen:
            if file.name != self._path.name:
                self._since_ns = max(self._since_ns, file.mtime_ns + 1)
            elif self._at_end and (fd := self._open_fd(file)) is not None:
                ended = OpenFile(fd, Follow(file, _line_end(fd, file.size)), 0.0)
                self._known[file.identity] = ended.known()
                os.close(fd)

    def _since_of_first_version(self, seen: list[Seen]) -> int:
        """The time for an old position without one.

        Files that changed before the one that it names were read long ago.
        """
        named = [file.mtime_ns for file in seen if file.identity in self._known]
        return max(
            named,
            default=max(
                (file.mtime_ns + 1 for file in seen if file.name != self._path.name), default=1
            ),
        )

    def _follow(self, follow: Follow, now_s: float) -> None:
        identity = follow.file.identity
        self._since_ns = max(self._since_ns, follow.file.mtime_ns)
        opened = self._open.get(identity)
        if opened is not None:
            if opened.offset == follow.offset:
                opened.seen = follow.file
                if follow.file.size > opened.read_to:
                    opened.grown_s, opened.is_over = now_s, False
                return
            self._forget(opened)
        known = self._known.get(identity)
        if known is not None and known.offset == follow.offset == follow.file.size:
            return  # read to its end; opened when it grows
        fd = self._open_fd(follow.file)
        if fd is None:
            return
        file = OpenFile(fd, follow, now_s)
        if known is not None and known.offset == follow.offset and file.known() != known:
            self.truncations += 1  # since the look that had found it unchanged
            file = OpenFile(fd, Follow(follow.file, 0), now_s)
        self._open[identity] = file
        self._known.pop(identity, None)
        self._remember(file.known())

    def _close_left(self, now_s: float) -> None:
        """Close what has long been quiet, and the oldest of too many."""
        files = list(self._open.values())
        for number, file in enumerate(files):
            quiet = now_s - file.grown_s >= CLOSE_S
            too_many = len(files) - number > OPEN_MAX
            if file.is_over and not file.is_current and (quiet or too_many):
                os.close(file.fd)
                del self._open[file.seen.identity]

    def _open_fd(self, file: Seen) -> int | None:
        """O_NONBLOCK: whatever stands there by now, opening it does not wait."""
        try:
            fd = os.open(
                self._path.with_name(file.name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except (FileNotFoundError, PermissionError):
            return None
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) == file.identity and stat.S_ISREG(status.st_mode):
            return fd
        os.close(fd)
        return None

    def _checksum(self, file: Seen, start: int, length: int) -> int | None:
        opened = self._open.get(file.identity)
        fd = opened.fd if opened is not None else self._open_fd(file)
        if fd is None:
            return None
        try:
            return zlib.crc32(os.pread(fd, length, start))
        finally:
            if opened is None:
                os.close(fd)


def _line_end(fd: int, size: int) -> int:
    """The end of the last whole line of a file that is read from its end.

    Half a line would be a bad one when it is complete.
    """
    begin = max(0, size - CHUNK_BYTES)
    found = os.pread(fd, size - begin, begin).rfind(b"\n")
    return size if found < 0 and begin else begin + found + 1


def _unpacked_size(path: Path) -> int | None:
    """Bytes of a file before gzip packed it; None where that is not told. Below 4 GiB."""
    if path.suffix != ".gz":
        return None
    try:
        with path.open("rb") as file:
            file.seek(-4, os.SEEK_END)
            return int.from_bytes(file.read(4), "little")
    except OSError:
        return None
