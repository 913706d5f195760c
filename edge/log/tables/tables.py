"""The log's small tables of itself, its streams, frames and consumers.

They are read with their checks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from edgewake.edge.log.tables.codec import checksum
from edgewake.edge.log.tables.consumers import ConsumerState
from edgewake.edge.log.tables.epoch import LogIdentity, LogLocation
from edgewake.edge.log.tables.schema import NO_BATCHES, LogDamagedError, boundary_checksum
from edgewake.edge.log.tables.sidecar import Boundary, FrameId, Known
from edgewake.edge.log.tables.streams import StreamState


def read_identity(db: sqlite3.Connection) -> LogIdentity | None:
    """None where the log was just made.

    Raises KeyError, ValueError, TypeError where it is damaged.
    """
    meta = dict(db.execute("SELECT name, value FROM meta"))
    if not meta:
        return None
    commit = db.execute("SELECT value FROM counters WHERE name = 'commit'").fetchone()[0]
    where = LogLocation(
        meta["machine"], int(meta["device"]), int(meta["inode"]), meta.get("boot", "")
    )
    return LogIdentity(meta["log_id"], int(meta["epoch"]), commit, where)


def write_identity(db: sqlite3.Connection, identity: LogIdentity) -> None:
    """Writes which log this is, where it lies, and its last commit. Inside a transaction."""
    where = identity.location
    values = {
        "log_id": identity.log_id,
        "epoch": identity.epoch,
        "machine": where.machine,
        "device": where.device,
        "inode": where.inode,
        "boot": where.boot,
    }
    db.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)",
        [(name, str(value)) for name, value in values.items()],
    )
    db.execute("INSERT OR REPLACE INTO counters VALUES ('commit', ?)", (identity.commit,))


def write_known(db: sqlite3.Connection, known: Known) -> None:
    """What a log that is gone had counted, into the new one. Inside a transaction."""
    db.executemany("INSERT OR REPLACE INTO sources VALUES (?, ?)", known.sources.items())
    db.executemany("INSERT OR REPLACE INTO counters VALUES (?, ?)", known.counters.items())
    for stream in known.streams.values():
        write_stream(db, stream)
    for consumer in known.consumers.values():
        write_consumer(db, consumer)


def read_streams(db: sqlite3.Connection) -> list[StreamState]:
    """All streams. Raises LogDamagedError where a CRC does not hold."""
    found = []
    for *row, crc in db.execute(
        "SELECT id, name, last, framed, base, frame, older, crc FROM streams"
    ).fetchall():
        stream = StreamState.from_row(row)
        if stream.checksum() != crc:
            raise LogDamagedError(f"counters of stream {stream.name!r} are malformed")
        found.append(stream)
    return found


def write_stream(db: sqlite3.Connection, stream: StreamState) -> None:
    """Writes a stream's counters with their checksum. Inside a transaction."""
    row = (*stream.row(), stream.checksum())
    db.execute(
        "INSERT OR REPLACE INTO streams (id, name, last, framed, base, frame, older, crc) VALUES "
        "(?, ?, ?, ?, ?, ?, ?, ?)",
        row,
    )


def read_frames(db: sqlite3.Connection) -> Iterator[tuple[FrameId, Boundary]]:
    """All frames that are kept. Raises LogDamagedError where a boundary's CRC does not hold."""
    for stream, epoch, frame, seq, first, count, gap, crc in db.execute(
        "SELECT stream, epoch, frame, seq, first, count, gap, crc FROM frames"
    ):
        if boundary_checksum(stream, epoch, frame, seq, first, count, gap) != crc:
            raise LogDamagedError(f"the boundary of frame {epoch}.{frame} is malformed")
        yield (stream, epoch, frame), (seq, count, first)


def frame_ranges(db: sqlite3.Connection, stream: int) -> list[tuple[int, int]]:
    """First and last position of each frame of a stream that is kept, in order."""
    query = (
        "SELECT first, first + count - 1 FROM frames WHERE stream = ? AND first <> ? ORDER BY first"
    )
    return db.execute(query, (stream, NO_BATCHES)).fetchall()


def write_frame(
    db: sqlite3.Connection,
    frame: FrameId,
    boundary: Boundary,
    gap: str | None,
    accepted_at: int,
    copy: bytes | None = None,
) -> None:
    """Writes a frame's boundary. Inside a transaction.

    `copy`: what is sent, where it is logged a second time.
    """
    seq, count, first = boundary
    crc = boundary_checksum(*frame, seq, first, count, gap)
    row = (*frame, seq, first, count, gap, accepted_at, crc, checksum(copy or b"", *frame), copy)
    db.execute("INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def read_consumers(db: sqlite3.Connection) -> list[ConsumerState]:
    """All consumers with their states. Raises LogDamagedError where a CRC does not hold."""
    rows = db.execute(
        "SELECT name, cursor, missed, commit_number, crc, state FROM consumers"
    ).fetchall()
    try:
        return [ConsumerState.from_row(row) for row in rows]
    except (TypeError, ValueError) as error:
        raise LogDamagedError(str(error)) from error


def write_consumer(db: sqlite3.Connection, consumer: ConsumerState) -> None:
    """Writes how far a consumer is, with its state. Inside a transaction."""
    db.execute("INSERT OR REPLACE INTO consumers VALUES (?, ?, ?, ?, ?, ?)", consumer.row())
