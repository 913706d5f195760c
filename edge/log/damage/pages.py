"""Rows of a SQLite file that SQLite cannot read any more, page by page.

Pure bytes; no SQLite, no SQL.

In: the pages of the file and of its write-ahead log, any of them damaged or missing. Out: the
records of every index b-tree page (WITHOUT ROWID tables), as tuples. A page needs no other page,
except that a long record goes on in overflow pages. So one damaged page costs its own records and
those that ran through it.

Nothing here is trusted: pages that were freed still hold records, and a damaged record may look
whole. The caller knows which keys there must be, and checks each row's CRC. Source of the layout:
https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = tuple[Value, ...]

RECORD_BYTES_MAX: Final = 4 << 20
"""Longest record that is put together: a damaged length must not take all memory. The log's are
below 1.3 MiB."""
_MAGIC: Final = b"SQLite format 3\x00"
_INDEX_LEAF, _INDEX_INTERIOR = 0x0A, 0x02
_WAL_HEADER, _WAL_FRAME_HEADER = 32, 24
_WAL_MAGIC: Final = b"\x37\x7f\x06\x82"
_INT_BYTES: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class DamagedError(ValueError):
    """These bytes are not a record."""


class Pages:
    """The pages of a database file as its write-ahead log leaves them.

    `page_size` is taken where the file does not tell its own.
    """

    def __init__(self, path: Path, *, page_size: int) -> None:
        """Raises OSError."""
        self._file: BinaryIO = path.open("rb")
        try:
            wal = path.with_name(path.name + "-wal")
            self._wal: BinaryIO | None = wal.open("rb") if wal.exists() else None
            header = self._file.read(100)
            self.page_size = _page_size(header) or page_size
            self._in_wal = _committed_frames(self._wal, self.page_size) if self._wal else {}
            self._in_file = -(-self._file.seek(0, 2) // self.page_size)
        except BaseException:
            self.close()
            raise

    def numbers(self) -> Iterator[int]:
        """The numbers of the pages that are there.

        A damaged number in the write-ahead log is one page more, not all that would come before it.
        """
        yield from range(1, self._in_file + 1)
        yield from sorted(number for number in self._in_wal if number > self._in_file)

    def read(self, number: int) -> bytes:
        """Page `number`, from 1; shorter, or empty, where the file ends or the disk fails."""
        at = self._in_wal.get(number)
        try:
            if at is not None and self._wal is not None:
                self._wal.seek(at)
                return self._wal.read(self.page_size)
            self._file.seek((number - 1) * self.page_size)
            return self._file.read(self.page_size)
        except OSError:
            return b""

    def close(self) -> None:
        """Let go of the files."""
        self._file.close()
        if getattr(self, "_wal", None) is not None:
            self._wal.close()  # type: ignore[union-attr]


def _page_size(header: bytes) -> int | None:
    if len(header) < 18 or not header.startswith(_MAGIC):
        return None
    size: int = struct.unpack_from(">H", header, 16)[0]
    size = 65_536 if size == 1 else size
    return size if size >= 512 and size & (size - 1) == 0 else None


def wal_header_is_sound(header: bytes) -> bool:
    """Has the header of a write-ahead log its checksum?"""
    if len(header) < _WAL_HEADER or header[:3] + bytes([header[3] & 0xFE]) != _WAL_MAGIC:
        return False
    words = struct.unpack_from(">6I" if header[3] & 1 else "<6I", header)
    first = second = 0
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return struct.unpack_from(">2I", header, 24) == (first, second)


def has_lost_its_header(wal: Path, page_size: int) -> bool:
    """Does a write-ahead log hold commits behind a damaged header? SQLite would overwrite them."""
    if not wal.exists():
        return False
    with wal.open("rb") as file:
        return not wal_header_is_sound(_at(file, 0, _WAL_HEADER)) and bool(
            _committed_frames(file, page_size)
        )


def _committed_frames(wal: BinaryIO, page_size: int) -> dict[int, int]:
    """Where in the write-ahead log the newest committed bytes of a page are.

    A frame that carries no salts of this turn is passed over: it is of an earlier turn, as all
    behind it, or damaged.
    """
    found: dict[int, int] = {}
    pending: dict[int, int] = {}
    header = _at(wal, 0, _WAL_HEADER)
    # The first frame has them too.
    salts = header[16:24] if wal_header_is_sound(header) else _at(wal, _WAL_HEADER + 8, 8)
    at = _WAL_HEADER
    while len(frame := _at(wal, at, _WAL_FRAME_HEADER)) == _WAL_FRAME_HEADER:
        if frame[8:16] == salts:
            number, pages_after_commit = struct.unpack_from(">II", frame)
            pending[number] = at + _WAL_FRAME_HEADER
            if pages_after_commit:
                found |= pending
                pending = {}
        at += _WAL_FRAME_HEADER + page_size
    return found


def _at(file: BinaryIO, offset: int, count: int) -> bytes:
    file.seek(offset)
    return file.read(count)


def rows(pages: Pages, number: int) -> Iterator[Row]:
    """The readable records of one page; none on a page that is not an index b-tree."""
    page = pages.read(number)
    if len(page) < pages.page_size or page[0] not in (_INDEX_LEAF, _INDEX_INTERIOR):
        return
    header, skip = (8, 0) if page[0] == _INDEX_LEAF else (12, 4)
    cells = struct.unpack_from(">H", page, 3)[0]
    for at in range(header, min(header + 2 * cells, len(page) - 1), 2):
        try:
            yield _record(_payload(pages, page, struct.unpack_from(">H", page, at)[0] + skip))
        except (DamagedError, IndexError, struct.error, UnicodeDecodeError):
            continue


def _payload(pages: Pages, page: bytes, at: int) -> bytes:
    """A cell's payload, put together from its overflow pages."""
    size, at = _varint(page, at)
    usable = pages.page_size
    if size > RECORD_BYTES_MAX:
        raise DamagedError
    most, least = (usable - 12) * 64 // 255 - 23, (usable - 12) * 32 // 255 - 23
    if size <= most:
        return page[at : at + size]
    local = least + (size - least) % (usable - 4)
    local = local if local <= most else least
    parts = [page[at : at + local]]
    left, following = size - local, struct.unpack_from(">I", page, at + local)[0]
    while left > 0:
        overflow = pages.read(following) if following else b""
        part = overflow[4 : 4 + left]
        if not part:
            raise DamagedError
        parts.append(part)
        left -= len(part)
        following = struct.unpack_from(">I", overflow)[0]
    return b"".join(parts)


def _record(payload: bytes) -> Row:
    header, at = _varint(payload, 0)
    kinds = []
    while at < header:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values: list[Value] = []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    if at != len(payload):
        raise DamagedError
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind in (0, 8, 9):
        return (None, 0, 1)[max(0, kind - 7)], at
    if kind in _INT_BYTES:
        end = at + _INT_BYTES[kind]
        return int.from_bytes(payload[at:end], "big", signed=True), end
    if kind == 7:
        return struct.unpack_from(">d", payload, at)[0], at + 8
    if kind < 12:
        raise DamagedError
    end = at + (kind - 12) // 2
    return (payload[at:end] if kind % 2 == 0 else payload[at:end].decode()), end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i in range(8):
        byte = data[at + i]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + i + 1
    return value << 8 | data[at + 8], at + 9
