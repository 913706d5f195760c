"""What the log says of itself and of its streams: the tables `meta` and `streams`, read with their checks and written."""

from __future__ import annotations

import sqlite3

from edgewake.edge.log_epoch import LogIdentity, LogLocation
from edgewake.edge.log_schema import LogDamagedError
from edgewake.edge.log_sidecar import Known
from edgewake.edge.log_streams import StreamState


def read_identity(db: sqlite3.Connection) -> LogIdentity | None:
    """None where the log was just made. Raises KeyError, ValueError, TypeError where it is damaged."""
    meta = dict(db.execute("SELECT name, value FROM meta"))
    if not meta:
        return None
    commit = db.execute("SELECT value FROM counters WHERE name = 'commit'").fetchone()[0]
    where = LogLocation(meta["machine"], int(meta["device"]), int(meta["inode"]), meta.get("boot", ""))
    return LogIdentity(meta["log_id"], int(meta["epoch"]), commit, where)


def write_identity(db: sqlite3.Connection, identity: LogIdentity) -> None:
    """Inside a transaction."""
    where = identity.location
    values = {
        "log_id": identity.log_id,
        "epoch": identity.epoch,
        "machine": where.machine,
        "device": where.device,
        "inode": where.inode,
        "boot": where.boot,
    }
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(name, str(value)) for name, value in values.items()])
    db.execute("INSERT OR REPLACE INTO counters VALUES ('commit', ?)", (identity.commit,))


def write_known(db: sqlite3.Connection, known: Known) -> None:
    """What a log that is gone had counted, into the new one. Inside a transaction."""
    db.executemany("INSERT OR REPLACE INTO sources VALUES (?, ?)", known.sources.items())
    db.executemany("INSERT OR REPLACE INTO counters VALUES (?, ?)", known.counters.items())
    for stream in known.streams.values():
        write_stream(db, stream)


def read_streams(db: sqlite3.Connection) -> list[StreamState]:
    """All streams. Raises LogDamagedError where a CRC does not hold."""
    found = []
    for *row, crc in db.execute("SELECT id, name, last, framed, base, frame, older, crc FROM streams").fetchall():
        stream = StreamState.from_row(row)
        if stream.checksum() != crc:
            raise LogDamagedError(f"counters of stream {stream.name!r} are malformed")
        found.append(stream)
    return found


def write_stream(db: sqlite3.Connection, stream: StreamState) -> None:
    """Inside a transaction."""
    row = (*stream.row(), stream.checksum())
    db.execute("INSERT OR REPLACE INTO streams (id, name, last, framed, base, frame, older, crc) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
