"""Which records of a damaged log are taken over, and as what.

Whatever a page holds, nothing comes in that was not written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.damage.pages import Row
from edgewake.edge.log.damage.salvage import (
    BatchRow,
    FrameRow,
    GapRow,
    Salvage,
    SavedRow,
    forget_gaps_of_what_is_there,
    row_of,
    take_over,
)
from edgewake.edge.log.tables.codec import checksum
from edgewake.edge.log.tables.gaps import GivenUp, gap_at, gap_checksum, write_gap
from edgewake.edge.log.tables.schema import boundary_checksum, open_for_writing, open_in_memory
from edgewake.edge.log.tables.tables import write_frame
from edgewake.protocol.frames.frame import GAP_REASON_CHARS_MAX

BODY = b'{"t":[1],"fields":{"n":[1]}}'
WANTED = [(1, 20), (31, 40)]


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """The tables of a new log."""
    found = open_in_memory()
    yield found
    found.close()


def batch(
    first: int = 1, count: int = 5, *, stream: int = 1, body: bytes = BODY, crc: int | None = None
) -> BatchRow:
    return BatchRow(
        stream,
        first,
        count,
        7,
        100,
        checksum(body, stream, first, count) if crc is None else crc,
        body,
    )


def gap(first: int = 1, count: int = 5, reason: str = "quota", *, crc: int = -1) -> GapRow:
    return GapRow(
        1, first, count, reason, gap_checksum(1, first, count, reason) if crc == -1 else crc
    )


def frame(
    *,
    gap: str | None = "quota",
    payload: bytes | None = None,
    seq: int = 1,
    count: int = 5,
    number: int = 1,
) -> FrameRow:
    key = (1, 9, number)
    crc = boundary_checksum(*key, seq, 1, count, gap)
    return FrameRow(*key, seq, 1, count, gap, 100, crc, checksum(payload or b"", *key), payload)


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ((1, 1, 5, 7, 100, 0, BODY), BatchRow),
        ((1, 9, 1, 1, 1, 5, None, 100, 0, 0, None), FrameRow),
        ((1, 9, 1, 1, 1, 5, "quota", 100, 0, 0, None), FrameRow),
        ((1, 9, 1, 1, 1, 5, None, 100, 0, 0, b"{}"), FrameRow),
        ((1, 9, 1, 1, 1, 5, None, 100, 0, 0, "text"), None),
        ((1, 9, 1, 1, 5, None, 100, "application/json", 0, b"{}"), None),
        ((1, 1, 5, "quota"), None),
        ((1, 1, 5, "quota", 7), GapRow),
        ((1, 1, 5, None), None),
        ((1, 1, 5, None, 7), None),
        (("log_id", "abc"), None),
        (("speed", 1), None),
        ((1, 1.0, 5, 7, 100, 0, BODY), None),
        ((1, 1, 5, 7, 100, 0, "text"), None),
        ((1, 1, 5, 7, 100, BODY), None),
        ((), None),
    ],
)
def test_a_record_is_what_its_types_say(record: Row, kind: type[SavedRow] | None) -> None:
    found = row_of(record)
    assert (None if found is None else type(found)) == kind


VALUE = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
)


@given(st.lists(VALUE, max_size=12).map(tuple))
def test_no_record_of_any_types_is_taken_over_or_stops_the_salvage(record: Row) -> None:
    found = row_of(record)
    if found is None:
        return
    db = open_in_memory()
    assert not take_over(db, found, [(-(2**63), 2**63 - 1)]), "its checksum cannot be right"
    db.close()


# batches


@pytest.mark.parametrize(
    ("first", "count", "is_taken"),
    [(1, 20, True), (1, 21, False), (0, 5, False), (20, 1, True), (21, 1, False), (30, 1, False),
        (31, 10, True), (31, 11, False),
     (40, 1, True), (41, 1, False), (15, 20, False)],
)  # fmt: skip
def test_a_batch_is_taken_where_all_of_it_is_wanted(
    db: sqlite3.Connection, first: int, count: int, is_taken: bool
) -> None:
    assert take_over(db, batch(first, count), WANTED) is is_taken
    assert db.execute("SELECT count(*) FROM batches").fetchone() == (int(is_taken),)


@pytest.mark.parametrize(
    "row",
    [batch(crc=0), batch(count=0), batch(count=-5),
        BatchRow(1, 1, 5, 7, 100, batch().crc, BODY + b" "),
     BatchRow(2, 1, 5, 7, 100, batch().crc, BODY), BatchRow(1, 2, 5, 7, 100, batch().crc, BODY),
     BatchRow(1, 1, 6, 7, 100, batch().crc, BODY)],
    ids=["crc", "of nothing", "of less than nothing", "body", "stream", "position", "count"],
)  # fmt: skip
def test_a_batch_that_is_not_what_was_written_is_not_taken(
    db: sqlite3.Connection, row: BatchRow
) -> None:
    assert not take_over(db, row, WANTED)
    assert db.execute("SELECT count(*) FROM batches").fetchone() == (0,)


def test_a_batch_is_taken_once_and_as_it_was(db: sqlite3.Connection) -> None:
    assert take_over(db, batch(), WANTED)
    assert not take_over(db, batch(), WANTED)
    assert db.execute("SELECT * FROM batches").fetchall() == [(1, 1, 5, 7, 100, batch().crc, BODY)]


@pytest.mark.parametrize(("counts", "kept"), [((10, 5), 5), ((5, 10), 5), ((5, 5), 5)])
def test_of_two_batches_of_one_place_the_shorter_one_holds(
    db: sqlite3.Connection, counts: tuple[int, int], kept: int
) -> None:
    """It was cut; the page that was freed still had the whole."""
    for count in counts:
        take_over(db, batch(1, count), WANTED)
    assert db.execute("SELECT count FROM batches").fetchall() == [(kept,)]


# gaps


@pytest.mark.parametrize(
    ("row", "is_taken"),
    [(gap(), True), (gap(crc=0), False), (gap(count=0), False),
        (gap(first=18, count=5), False),
     (gap(first=31, count=10), True)],
    ids=["sound", "damaged", "of nothing", "half wanted", "at the bound"],
)  # fmt: skip
def test_a_gap_is_taken_where_it_is_sound_and_wanted(
    db: sqlite3.Connection, row: GapRow, is_taken: bool
) -> None:
    assert take_over(db, row, WANTED) is is_taken
    assert (gap_at(db, 1, row.first) is not None) is is_taken


def test_the_gap_that_is_there_stays(db: sqlite3.Connection) -> None:
    """What was noted since is newer than a page that was freed."""
    write_gap(db, GivenUp(1, 1, 2, "age"))
    assert not take_over(db, gap(), WANTED)
    assert gap_at(db, 1, 1) == GivenUp(1, 1, 2, "age")


def test_a_reason_that_is_too_long_for_the_cloud_is_cut(db: sqlite3.Connection) -> None:
    assert take_over(db, gap(reason="x" * 1_000), WANTED)
    found = gap_at(db, 1, 1)
    assert found is not None
    assert found.reason == "x" * GAP_REASON_CHARS_MAX


@pytest.mark.parametrize(
    ("first", "stream", "stays"),
    [(1, 1, False), (5, 1, False), (6, 1, True), (3, 2, True), (0, 1, True)],
    ids=["at its beginning", "at its end", "behind it", "of another stream", "before it"],
)  # fmt: skip
def test_a_gap_goes_where_what_it_says_was_found_after_all(
    db: sqlite3.Connection, first: int, stream: int, stays: bool
) -> None:
    write_gap(db, GivenUp(1, 1, 5, "quota"))
    assert take_over(db, batch(first, 1, stream=stream), [(0, 100)])
    forget_gaps_of_what_is_there(db)
    assert (gap_at(db, 1, 1) is not None) is stays


# frames


def told(db: sqlite3.Connection) -> None:
    """What the sidecar told: a boundary, and neither that it was a gap nor its copy."""
    write_frame(db, (1, 9, 1), (1, 5, 1), None, 50)


def kept_frame(db: sqlite3.Connection) -> tuple[object, ...]:
    found: tuple[object, ...] = db.execute("SELECT gap, payload, crc FROM frames").fetchone()
    return found


@pytest.mark.parametrize(
    "row",
    [frame(), frame(gap=None, payload=b"{}"), frame(payload=b"{}")],
    ids=["a gap", "a copy", "both"],
)
def test_a_frame_gets_what_its_boundary_did_not_say(db: sqlite3.Connection, row: FrameRow) -> None:
    told(db)
    assert take_over(db, row, [])
    assert kept_frame(db) == (row.gap, row.payload, boundary_checksum(1, 9, 1, 1, 1, 5, row.gap))


@pytest.mark.parametrize(
    "row",
    [frame(gap=None), frame(seq=2), frame(count=6), frame(number=2),
        FrameRow(1, 9, 1, 1, 1, 5, "quota", 100, 0, 0, None),
     FrameRow(1, 9, 1, 1, 1, 5, None, 100, boundary_checksum(1, 9, 1, 1, 1, 5, None), 0, b"{}")],
    ids=["nothing new", "another number", "another count", "nobody's", "a damaged boundary",
        "a damaged copy"],
)  # fmt: skip
def test_a_frame_that_is_not_the_one_that_was_told_changes_nothing(
    db: sqlite3.Connection, row: FrameRow
) -> None:
    told(db)
    before = kept_frame(db)
    assert not take_over(db, row, [])
    assert kept_frame(db) == before


def test_a_frame_that_has_its_copy_keeps_it(db: sqlite3.Connection) -> None:
    told(db)
    assert take_over(db, frame(gap=None, payload=b"{}"), [])
    assert not take_over(db, frame(gap=None, payload=b"[]"), [])
    assert kept_frame(db)[1] == b"{}"


# the walk


def test_rows_stay_the_same_until_they_are_taken_over_and_end_with_none(tmp_path: Path) -> None:
    """A disk that is full in between costs none."""
    path = tmp_path / "events.db"
    db = open_for_writing(path)
    db.executemany(
        "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(1, n, 1, 1, 1, n, b"x" * 300) for n in range(1, 40)],
    )
    db.close()
    salvage, found = Salvage([path, path], 1024), list[SavedRow]()
    while (some := salvage.rows(3)) is not None:
        assert salvage.rows(3) is some
        found += some
        salvage.advance()
    assert salvage.rows(3) is None
    assert sorted(row.first for row in found if isinstance(row, BatchRow)) == sorted(
        [*range(1, 40)] * 2
    )
    salvage.delete()
    assert list(tmp_path.iterdir()) == []
    salvage.delete()


def test_a_damaged_log_that_somebody_deleted_ends_its_salvage_with_an_error_of_the_disk(
    tmp_path: Path,
) -> None:
    with pytest.raises(FileNotFoundError):
        Salvage([tmp_path / "gone"], 1024).rows(1)
