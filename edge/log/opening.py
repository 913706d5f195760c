"""What is written while a log is opened: its epoch, and what its sidecar knows better.

Each function writes in one transaction of its own and raises sqlite3.Error.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from edgewake.edge.log.tables.epoch import COUNTED_ANEW, LogIdentity
from edgewake.edge.log.tables.schema import transaction
from edgewake.edge.log.tables.sidecar import FrameId, Known
from edgewake.edge.log.tables.tables import (
    read_streams,
    write_frame,
    write_identity,
    write_known,
    write_stream,
)


def corrected_positions(
    db: sqlite3.Connection, positions: Mapping[str, str], known: Mapping[str, str]
) -> dict[str, str]:
    """Positions of sources, corrected by the sidecar's of the same commit.

    No checksum covers them in the log, while the sidecar's lines have one.
    """
    differ = {name: position for name, position in known.items() if positions.get(name) != position}
    if differ:
        with transaction(db):
            db.executemany("INSERT OR REPLACE INTO sources VALUES (?, ?)", differ.items())
    return {**positions, **differ}


def begin_epoch(
    db: sqlite3.Connection, identity: LogIdentity, reason: str, ended: int, known: Known | None
) -> None:
    """Write a new epoch into the log, before its sidecar: no crash makes an old log look new.

    `reason`: why it begins; `ended`: the epoch before; `known`: what a log that is gone must hold.
    """
    keep_numbers = reason not in COUNTED_ANEW
    with transaction(db):
        if known is not None:
            write_known(db, known)
        write_identity(db, identity)
        for stream in read_streams(db):
            write_stream(db, stream.in_new_epoch(ended, keep_numbers=keep_numbers))


def restore_frames(db: sqlite3.Connection, known: Known, here: set[FrameId], now_ms: int) -> int:
    """Write boundaries of frames that the sidecar knows and the log lacks; returns how many.

    Their readings are looked for where they were.
    """
    ids = {stream.id for stream in read_streams(db)}
    missing = [
        (frame, boundary)
        for frame, boundary in known.frames.items()
        if frame not in here and frame[0] in ids
    ]
    with transaction(db):
        for frame, boundary in missing:
            write_frame(db, frame, boundary, None, now_ms)
    return len(missing)
