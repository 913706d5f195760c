"""Salvages a damaged log.

It knows which errors mean damage, how the files are set aside, and which rows are taken over.

The damaged files are renamed, a new log takes their place at once, and rows are carried over a few
pages at a time while readings are accepted. The stream counters say which positions there must be,
the sidecar which frames; a row is taken when its key is one of these and its CRC holds. What is not
found becomes a gap, exactly. When all pages were read the damaged files are deleted: they hold
nothing more.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from edgewake.edge.log.damage.pages import Pages, Row, rows
from edgewake.edge.log.tables.codec import checksum
from edgewake.edge.log.tables.consumers import ConsumerState, passed_by_all
from edgewake.edge.log.tables.gaps import GivenUp, gap_at, gap_checksum, write_gap
from edgewake.edge.log.tables.schema import LOG_NAME, LogDamagedError, boundary_checksum
from edgewake.edge.log.tables.sidecar import SIDECAR_NAME, Known
from edgewake.edge.log.tables.streams import StreamState
from edgewake.edge.log.tables.tables import frame_ranges
from edgewake.protocol.frames.frame import GAP_REASON_CHARS_MAX

DAMAGED_NAME: Final = LOG_NAME + ".damaged-"
FOREIGN_NAME: Final = LOG_NAME + ".foreign-"
_SQLITE_HEAD: Final = b"SQLite format 3\0"
DAMAGED_LOGS_MAX: Final = 4
"""Damaged logs that wait to be read. A fifth means that the disk damages faster than it can be
read: the oldest is deleted, and said."""

LOG_ERRORS: Final = (sqlite3.Error, OSError, UnicodeDecodeError)
"""What a log on a bad disk raises; the last where SQLite's own message quotes the damaged bytes."""
_ANOTHER_TRY: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
    }
)
"""Primary result codes of an OperationalError that the same file may survive."""


def is_damage(error: BaseException) -> bool:
    """Does the error say that the file itself is damaged?

    A page that the disk can no longer read is damage, too.
    """
    if isinstance(error, LogDamagedError | UnicodeDecodeError):
        return True
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.NotSupportedError) or not isinstance(
        error, sqlite3.DatabaseError
    ):
        return False
    if not isinstance(error, sqlite3.OperationalError):
        return True
    # None: a text that is not UTF-8.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return (
        code in (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)
        or code & 0xFF not in _ANOTHER_TRY
    )


def is_full(error: BaseException) -> bool:
    """Is the disk full?"""
    return (
        isinstance(error, sqlite3.OperationalError)
        and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    )


def set_aside(directory: Path) -> None:
    """Rename the log's files, so that a new one can be made. Raises OSError."""
    path = directory / LOG_NAME
    path.with_name(f"{LOG_NAME}-shm").unlink(missing_ok=True)
    if not (path.exists() or path.with_name(f"{LOG_NAME}-wal").exists()):
        return  # they were set aside where the damage was found
    waiting = damaged_logs(directory)
    for old in waiting[: max(0, len(waiting) + 1 - DAMAGED_LOGS_MAX)]:
        delete(old)
    number = 1 + max((int(one.name.removeprefix(DAMAGED_NAME)) for one in waiting), default=0)
    aside = directory / f"{DAMAGED_NAME}{number}"
    # The log's own name last: while it is there, this can be done again.
    with contextlib.suppress(FileNotFoundError):
        path.with_name(f"{LOG_NAME}-wal").rename(f"{aside}-wal")
    with contextlib.suppress(FileNotFoundError):
        path.rename(aside)


def set_foreign_aside(directory: Path) -> Path | None:
    """Rename a foreign file that has the log's name; return its new path. Raises OSError.

    None without such a file.

    No sidecar vouches for it, and it is not an SQLite database or has tables that are not ours:
    with a wrong `data_dir` it is somebody's own. It is never read and never deleted.
    """
    path = directory / LOG_NAME
    if (directory / SIDECAR_NAME).exists() or not path.exists() or not _is_foreign(path):
        return None
    number = 1
    while (aside := directory / f"{FOREIGN_NAME}{number}").exists():
        number += 1
    for beside in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + beside).rename(f"{aside}{beside}")
    return aside


def _is_foreign(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(len(_SQLITE_HEAD))
    if head != _SQLITE_HEAD:
        return head != b""
    with contextlib.suppress(*LOG_ERRORS):
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            tables = {
                name
                for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
        finally:
            db.close()
        return bool(tables) and not {"meta", "streams", "batches"} <= tables
    return False


def damaged_logs(directory: Path) -> list[Path]:
    """Logs that were set aside, the oldest first."""
    found = [
        path
        for path in directory.glob(f"{DAMAGED_NAME}*")
        if path.name.removeprefix(DAMAGED_NAME).isdigit()
    ]
    return sorted(found, key=lambda path: int(path.name.removeprefix(DAMAGED_NAME)))


def delete(path: Path) -> None:
    """Delete a damaged log."""
    for name in (f"{path}-wal", f"{path}-shm", f"{path}"):
        Path(name).unlink(missing_ok=True)


def what_it_knew(path: Path, known: Known | None) -> Known | None:
    """The sidecar's knowledge joined with the damaged log's own, of each stream the newer.

    None where neither has any.
    """
    found = known
    with contextlib.suppress(sqlite3.Error, ValueError, TypeError, KeyError, OverflowError):
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        try:
            found = _with_tables(db, known)
        finally:
            db.close()
    return found


def _with_tables(db: sqlite3.Connection, known: Known | None) -> Known:
    meta = dict(db.execute("SELECT name, value FROM meta"))
    found = known or Known(meta["log_id"], int(meta["epoch"]), 0)
    for *row, crc in db.execute(
        "SELECT id, name, last, framed, base, frame, older, crc FROM streams"
    ):
        stream = StreamState.from_row(row)
        before = found.streams.get(stream.id)
        if stream.checksum() == crc and (
            before is None or (stream.last, stream.framed) > (before.last, before.framed)
        ):
            found.streams[stream.id] = stream
    with contextlib.suppress(sqlite3.Error):
        for row in db.execute(
            "SELECT name, cursor, missed, commit_number, crc, state FROM consumers"
        ):
            with contextlib.suppress(ValueError, TypeError):
                consumer = ConsumerState.from_row(row)
                told = found.consumers.get(consumer.name)
                # An older state would not fit its cursor.
                if known is None or (told is not None and told.commit == consumer.commit):
                    found.consumers[consumer.name] = consumer
    with contextlib.suppress(sqlite3.Error):
        texts = db.execute(
            "SELECT name, position FROM sources WHERE typeof(name) = 'text' AND typeof(position) "
            "= 'text'"
        )
        found.sources = dict(texts) | found.sources
    return found


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A row of `batches`."""

    stream: int
    first: int
    count: int
    commit: int
    accepted_at: int
    crc: int
    body: bytes

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return len(self.body)

    @property
    def is_sound(self) -> bool:
        """Does its CRC hold?"""
        return (
            self.count > 0 and checksum(self.body, self.stream, self.first, self.count) == self.crc
        )


@dataclass(frozen=True, slots=True)
class FrameRow:
    """A row of `frames`."""

    stream: int
    epoch: int
    frame: int
    seq: int
    first: int
    count: int
    gap: str | None
    accepted_at: int
    crc: int
    payload_crc: int
    payload: bytes | None

    @property
    def size(self) -> int:
        """Its boundary is there already."""
        return len(self.payload or b"")

    @property
    def is_sound(self) -> bool:
        """Do its CRCs hold?"""
        frame = (self.stream, self.epoch, self.frame)
        payload_holds = self.payload is None or checksum(self.payload, *frame) == self.payload_crc
        return (
            payload_holds
            and boundary_checksum(*frame, self.seq, self.first, self.count, self.gap) == self.crc
        )


@dataclass(frozen=True, slots=True)
class GapRow:
    """A row of `gaps`."""

    stream: int
    first: int
    count: int
    reason: str
    crc: int

    @property
    def is_sound(self) -> bool:
        """Does its CRC hold?"""
        return gap_checksum(self.stream, self.first, self.count, self.reason) == self.crc

    @property
    def size(self) -> int:
        """The bytes of its body: it has none."""
        return 0


SavedRow: TypeAlias = BatchRow | FrameRow | GapRow


def _kind_of(value: object) -> str:
    if isinstance(value, int):
        return "i"
    return "b" if isinstance(value, bytes) else "t"


def row_of(row: Row) -> SavedRow | None:
    """A record as the row that it looks like; None for those of other tables."""
    kinds = "".join(map(_kind_of, row))
    if any(isinstance(value, float) for value in row):
        return None
    match kinds:
        case "iiiiiib":
            return BatchRow(*row)  # type: ignore[arg-type]
        case "iiiiiitiiib" | "iiiiiitiiit":
            return FrameRow(*row) if row[10] is None or isinstance(row[10], bytes) else None  # type: ignore[arg-type]
        case "iiiti":
            return GapRow(*row) if isinstance(row[3], str) else None  # type: ignore[arg-type]
    return None


def take_over(db: sqlite3.Connection, row: SavedRow, wanted: Sequence[tuple[int, int]]) -> bool:
    """Insert a row that is whole and wanted; False where it is not.

    `wanted`: ranges of positions of its stream.
    """
    if isinstance(row, FrameRow):
        return _take_frame(db, row)
    if not any(first <= row.first <= row.first + row.count - 1 <= last for first, last in wanted):
        return False
    if isinstance(row, GapRow):
        gap = GivenUp(row.stream, row.first, row.count, row.reason[:GAP_REASON_CHARS_MAX])
        if not row.is_sound or gap_at(db, gap.stream, gap.first) is not None:
            return False
        write_gap(db, gap)
        return True
    batch = (row.stream, row.first, row.count, row.commit, row.accepted_at, row.crc, row.body)
    return row.is_sound and db.execute(_TAKE_BATCH, batch).rowcount > 0


def needed(
    db: sqlite3.Connection,
    row: SavedRow,
    streams: Iterable[StreamState],
    consumers: Iterable[ConsumerState],
) -> list[tuple[int, int]] | None:
    """Positions from before the damage whose readings somebody still needs, in the row's stream.

    None for an unknown stream.
    """
    stream = next((one for one in streams if one.id == row.stream), None)
    if stream is None:
        return None
    through = stream.older[-1].last if stream.older else stream.framed
    passed = passed_by_all(consumers, stream.name)
    begins = stream.framed if passed is None else min(stream.framed, passed)
    return [*frame_ranges(db, stream.id), (begins + 1, through)]


def _take_frame(db: sqlite3.Connection, row: FrameRow) -> bool:
    """What a boundary that the sidecar told does not know: whether it was a gap, and its copy."""
    if not row.is_sound or (row.gap is None and row.payload is None):
        return False
    key = (row.stream, row.epoch, row.frame)
    found = db.execute(
        "SELECT seq, first, count FROM frames WHERE stream = ? AND epoch = ? AND frame = ? AND "
        "gap IS NULL",
        key,
    ).fetchone()
    if found is None or (found[0], found[2]) != (row.seq, row.count):
        return False
    crc = boundary_checksum(*key, found[0], found[1], found[2], row.gap)
    values = (row.gap, row.accepted_at, crc, row.payload_crc, row.payload, *key)
    update = "UPDATE frames SET gap = ?, accepted_at = ?, crc = ?, payload_crc = ?, payload = ?"
    return (
        db.execute(
            f"{update} WHERE stream = ? AND epoch = ? AND frame = ? AND payload IS NULL", values
        ).rowcount
        > 0
    )


def forget_gaps_of_what_is_there(db: sqlite3.Connection) -> None:
    """A page that was freed still had readings that were given up: they are delivered after all."""
    inside = (
        "SELECT 1 FROM batches WHERE stream = gaps.stream AND first BETWEEN gaps.first AND "
        "gaps.first + gaps.count - 1"
    )
    db.execute(f"DELETE FROM gaps WHERE EXISTS ({inside})")  # noqa: S608


_TAKE_BATCH: Final = """
INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (stream, first) DO UPDATE
SET count = excluded.count, commit_number = excluded.commit_number,
    accepted_at = excluded.accepted_at, crc = excluded.crc, body = excluded.body
WHERE excluded.count < count
"""
"""A freed page may still hold the whole of a batch that was cut: the shorter one holds."""


class Salvage:
    """Reads damaged logs page by page.

    Remembers nothing over a restart: it begins again, and rows that are there already stay.
    """

    def __init__(self, paths: list[Path], page_bytes: int) -> None:
        """`page_bytes`: of logs whose header is lost."""
        self._paths = paths
        self._page_bytes = page_bytes
        self._pages = self._all_pages()
        self._rows: list[SavedRow] | None = None

    def rows(self, pages: int) -> list[SavedRow] | None:
        """The rows of the next pages, the same until `advance`; None when all were read."""
        if self._rows is None:
            found = [page for _, page in zip(range(pages), self._pages, strict=False)]
            self._rows = [row for page in found for row in page] if found else None
        return self._rows

    def advance(self) -> None:
        """These rows are taken over."""
        self._rows = None

    def delete(self) -> None:
        """Delete the damaged files: everything is saved."""
        for path in self._paths:
            delete(path)

    def _all_pages(self) -> Iterator[list[SavedRow]]:
        for path in self._paths:
            pages = Pages(path, page_size=self._page_bytes)
            try:
                for number in pages.numbers():
                    found = map(row_of, rows(pages, number))
                    yield [row for row in found if row is not None]
            finally:
                pages.close()
