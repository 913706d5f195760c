"""What is written while a log is opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgewake.edge.log.opening import begin_epoch, corrected_positions, restore_frames
from edgewake.edge.log.tables import tables
from edgewake.edge.log.tables.epoch import LogIdentity, LogLocation
from edgewake.edge.log.tables.schema import open_for_writing
from edgewake.edge.log.tables.sidecar import Known
from edgewake.edge.log.tables.streams import StreamState

IDENTITY = LogIdentity("a" * 32, 7, 12, LogLocation("machine", 1, 2, "boot 3"))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    found = open_for_writing(tmp_path / "log")
    yield found
    found.close()


def test_positions_of_sources_are_the_sidecars_where_they_differ(db: sqlite3.Connection) -> None:
    db.executemany("INSERT INTO sources VALUES (?, ?)", [("a", "damaged"), ("b", "2")])
    found = corrected_positions(db, {"a": "damaged", "b": "2"}, {"a": "1", "c": "3"})
    assert found == {"a": "1", "b": "2", "c": "3"}
    assert dict(db.execute("SELECT name, position FROM sources")) == found


def test_a_new_log_begins_with_what_the_one_that_is_gone_had_counted(
    db: sqlite3.Connection,
) -> None:
    gone = Known("b" * 32, 6, 11, streams={1: StreamState(1, "speed", last=9, framed=9)})
    begin_epoch(db, IDENTITY, "lost", 6, gone)
    (stream,) = tables.read_streams(db)
    assert tables.read_identity(db) == IDENTITY
    assert (stream.name, stream.last) == ("speed", 9)


def test_frames_that_only_the_sidecar_knows_are_written_for_streams_that_are_here(
    db: sqlite3.Connection,
) -> None:
    tables.write_stream(db, StreamState(1, "speed"))
    frames = {(1, 7, 1): (1, 2, 1), (1, 7, 2): (3, 2, 3), (9, 7, 1): (1, 1, 1)}
    known = Known("a" * 32, 7, 12, frames=frames)
    assert restore_frames(db, known, {(1, 7, 1)}, 1_790_000_000_000) == 1
    assert dict(tables.read_frames(db)) == {(1, 7, 2): (3, 2, 3)}
