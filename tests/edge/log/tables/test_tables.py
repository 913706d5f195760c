"""The small tables of a log: read as they were written, or damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgewake.edge.log.tables import tables
from edgewake.edge.log.tables.consumers import ConsumerState
from edgewake.edge.log.tables.epoch import LogIdentity, LogLocation
from edgewake.edge.log.tables.schema import LogDamagedError, open_for_writing
from edgewake.edge.log.tables.streams import StreamState

IDENTITY = LogIdentity("a" * 32, 7, 12, LogLocation("machine", 1, 2, "boot 3"))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    found = open_for_writing(tmp_path / "log")
    yield found
    found.close()


def test_a_log_that_was_just_made_has_no_identity_and_later_its_latest(
    db: sqlite3.Connection,
) -> None:
    assert tables.read_identity(db) is None
    for identity in (LogIdentity("b", 1, 1, IDENTITY.location), IDENTITY):
        tables.write_identity(db, identity)
    assert tables.read_identity(db) == IDENTITY


def test_streams_are_read_as_they_were_written(db: sqlite3.Connection) -> None:
    one = StreamState(1, "speed", last=9, framed=4, base=2, frame=3)
    for stream in (StreamState(1, "speed"), one, StreamState(2, "street")):
        tables.write_stream(db, stream)
    assert tables.read_streams(db) == [one, StreamState(2, "street")]
    db.execute("UPDATE streams SET last = 8 WHERE name = 'speed'")
    with pytest.raises(LogDamagedError, match="counters of stream 'speed'"):
        tables.read_streams(db)


def test_frames_are_read_as_they_were_written(db: sqlite3.Connection) -> None:
    tables.write_frame(db, (1, 7, 2), (11, 3, 5), None, 1_790_000_000_000)
    tables.write_frame(db, (1, 7, 3), (14, 2, 8), "quota", 1_790_000_000_000)
    assert dict(tables.read_frames(db)) == {(1, 7, 2): (11, 3, 5), (1, 7, 3): (14, 2, 8)}
    assert tables.frame_ranges(db, 1) == [(5, 7), (8, 9)]
    db.execute("UPDATE frames SET count = 4 WHERE frame = 2")
    with pytest.raises(LogDamagedError, match=r"the boundary of frame 7\.2"):
        dict(tables.read_frames(db))


def test_consumers_are_read_as_they_were_written(db: sqlite3.Connection) -> None:
    one = ConsumerState("reader", {"speed": 4}, 2, 3, b"state")
    tables.write_consumer(db, one)
    assert tables.read_consumers(db) == [one]
    db.execute("UPDATE consumers SET state = x'00'")
    with pytest.raises(LogDamagedError):
        tables.read_consumers(db)
