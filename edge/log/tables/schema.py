"""The event log's tables, and how a connection to it is opened.

    meta      what the log is: id, epoch, place
    counters  commit number, readings lost by reason, sums over the rows of batches
    streams   per stream: last accepted position, last framed one, where the epoch began, last
              frame, epochs that wait (see log_streams)
    batches   what was received: columns, with CRC, kept until everybody who needs them has passed:
              the cloud and every consumer
    gaps      given up: a counted range of positions in the place of its batches, with CRC, kept as
              long as they would be
    frames    boundaries over the batches, written before the first send, kept until the cloud's
              acknowledgement; `payload` only where what is sent is logged a second time (modes)
    consumers how far each has read, and its state, in one row
    clocks    under which start of the machine commits were made, and wall clock less milliseconds
              since it, where that changed (`clocks`)
    sources   how far a source has read, moved on in the transaction of the readings taken from it

A *position* numbers the readings of one stream from 1 for as long as the log lives. `seq = position
- base`, where `base` is the last position of the epoch before.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edgewake.edge.log.tables.codec import checksum
from edgewake.protocol.errors import LocalError

LOG_NAME: Final = "events.db"
PAGE_BYTES: Final = 1024
"""SQLite's page in a log that is made now. A commit writes whole pages, and few readings fill none:
a quarter of 4096 halves what a lone reading writes to the flash, and costs a long backlog twice the
CPU (1.8 and 3.4 us a reading)."""
PAGE_CACHE_KIB: Final = 1024
"""SQLite's cache. The log writes at the end and deletes at the beginning; more memory buys
nothing."""
CHECKPOINT_BYTES: Final = 4 << 20
"""Bytes of the write-ahead log from which it is copied into the file: few copies of a page that
changes often, little to recover."""
BUSY_S: Final = 0.05
"""Seconds that a checkpoint waits for a reader. It is tried again later; meanwhile readings are
accepted."""


class LogDamagedError(sqlite3.DatabaseError):
    """The file holds what the log never wrote."""


def boundary_checksum(
    stream: int, epoch: int, frame: int, seq: int, first: int, count: int, gap: str | None
) -> int:
    """CRC of a frame's boundary."""
    return checksum(b"", stream, epoch, frame, seq, first, count, gap or "")


BACKLOG_BYTES: Final = "backlog_bytes"
"""Counter: bytes of batches that wait for the cloud, as the quota counts them."""
RETAINED_BYTES: Final = "retained_bytes"
"""Counter: bytes of batches that only consumers still need."""
SUMS: Final = (BACKLOG_BYTES, RETAINED_BYTES)
"""Counters of what could be summed up over the whole log, kept so that nobody has to. Each start
counts again."""


NO_BATCHES: Final = 0
"""`first` of a frame that covers no positions, such as the gap that stands for a refused one.
Positions begin at 1."""
VERSION: Final = 5
"""Version of the tables (`user_version`): a file of any other version is not read."""
_TABLES: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE sources (name TEXT PRIMARY KEY, position TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, last INTEGER NOT NULL,
    framed INTEGER NOT NULL, base INTEGER NOT NULL, frame INTEGER NOT NULL, crc INTEGER NOT NULL,
    older TEXT NOT NULL DEFAULT ''
);
CREATE TABLE batches (
    stream INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL,
    commit_number INTEGER NOT NULL, accepted_at INTEGER NOT NULL, crc INTEGER NOT NULL,
    body BLOB NOT NULL, PRIMARY KEY (stream, first)
) WITHOUT ROWID;
CREATE TABLE gaps (
    stream INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL,
    reason TEXT NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (stream, first)
) WITHOUT ROWID;
CREATE TABLE frames (
    stream INTEGER NOT NULL, epoch INTEGER NOT NULL, frame INTEGER NOT NULL,
    seq INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, gap TEXT,
    accepted_at INTEGER NOT NULL, crc INTEGER NOT NULL, payload_crc INTEGER NOT NULL,
    payload BLOB, PRIMARY KEY (stream, epoch, frame)
) WITHOUT ROWID;
CREATE TABLE consumers (
    name TEXT PRIMARY KEY, cursor TEXT NOT NULL, missed INTEGER NOT NULL,
    commit_number INTEGER NOT NULL, crc INTEGER NOT NULL, state BLOB
) WITHOUT ROWID;
CREATE TABLE clocks (
    commit_number INTEGER PRIMARY KEY, boot TEXT NOT NULL, offset_ms INTEGER NOT NULL
);
"""


def open_for_writing(
    path: Path, *, version: int = 0, page_bytes: int = PAGE_BYTES
) -> sqlite3.Connection:
    """The one write connection: WAL, synchronous FULL, both read back; with its tables.

    Raises LocalError or sqlite3.Error.

    `version`: what the sidecar says of the tables; 0 where it does not. `page_bytes` is for a log
    that is made. Files are for their owner only: SQLite gives those it makes beside the log the
    log's own mode.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for beside in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + beside).chmod(0o600)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_S)
    try:
        found = db.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, VERSION) and version == VERSION:
            raise LogDamagedError(
                f"the tables have version {found}, but they were of version {version}"
            )
        db.execute(f"PRAGMA page_size = {page_bytes}")  # without effect on a log that is there
        _pragma(db, "auto_vacuum", "INCREMENTAL", 2)
        _pragma(db, "journal_mode", "WAL", "wal")
        _pragma(db, "synchronous", "FULL", 2)
        _pragma(db, "mmap_size", "0", 0)
        # Some builds write zeros over all that is freed: as much flash again as the readings took.
        _pragma(db, "secure_delete", "OFF", 0)
        db.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KIB}")
        # Its errors would be swallowed; the writer checkpoints by itself.
        db.execute("PRAGMA wal_autocheckpoint = 0")
        make_tables(db)
    except BaseException:
        db.close()
        raise
    return db


def open_in_memory() -> sqlite3.Connection:
    """A log that ends with its process."""
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    _pragma(db, "auto_vacuum", "INCREMENTAL", 2)
    make_tables(db)
    return db


def open_for_reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write.

    Keep its transactions short: they hold the write-ahead log. Raises sqlite3.Error.
    """
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2.0)
    db.execute("PRAGMA query_only = ON")
    return db


@contextlib.contextmanager
def reading(directory: Path) -> Iterator[sqlite3.Connection]:
    """A directory's log, open for reading until the block ends.

    Raises LocalError where there is no log, it cannot be read, or holds what the log never wrote.
    """
    path = directory / LOG_NAME
    try:
        is_there = path.exists()
    except PermissionError as error:
        raise LocalError(
            f"{path}: {error.strerror}: the log is for the agent's user; ask as that one, or as "
            "root"
        ) from error
    if not is_there:
        raise LocalError(f"{path}: no event log yet; it is made when the agent first runs")
    try:
        with contextlib.closing(open_for_reading(path)) as db, sound_rows():
            yield db
    except sqlite3.Error as error:
        raise LocalError(f"{path}: {error}") from error


def _pragma(db: sqlite3.Connection, name: str, value: str, expected: object) -> None:
    """Set and read back: a pragma with a typo or without effect is silent."""
    db.execute(f"PRAGMA {name} = {value}")
    row = db.execute(f"PRAGMA {name}").fetchone()
    if row is None or row[0] == expected:
        return
    what = f"event log: {name} is {row[0]!r}, expected {expected!r}"
    raise LogDamagedError(what) if name == "auto_vacuum" else LocalError(what)


def make_tables(db: sqlite3.Connection) -> None:
    """Make missing tables, all of them or none.

    Raises LocalError where existing ones are of another version.
    """
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version == VERSION:
        return
    if version > 0:
        wrote = "a newer one" if version > VERSION else "one from before the first release"
        raise LocalError(
            f"event log has version {version}, expected {VERSION}: another program wrote it, "
            f"{wrote}. Run that one until its readings are sent, or move the log away"
        )
    with transaction(db):
        for statement in filter(str.strip, _TABLES.split(";")):
            db.execute(statement)
        db.executemany("INSERT INTO counters VALUES (?, 0)", [(name,) for name in SUMS])
        db.execute(f"PRAGMA user_version = {VERSION}")


@contextlib.contextmanager
def sound_rows() -> Iterator[None]:
    """What is done inside reads rows; one that holds what the log never wrote there is damage."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise LogDamagedError(f"not what the log wrote: {error!r}") from error


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of what is done inside, durably, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        raise
