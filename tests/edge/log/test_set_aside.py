"""How a log is set aside, what is read of it then, and what is never touched: file by file,
interrupted anywhere, called twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from edgewake.edge.log.damage.salvage import (
    DAMAGED_LOGS_MAX,
    damaged_logs,
    delete,
    is_full,
    set_aside,
    set_foreign_aside,
    what_it_knew,
)
from edgewake.edge.log.tables.consumers import ConsumerState
from edgewake.edge.log.tables.schema import LOG_NAME, open_for_writing
from edgewake.edge.log.tables.sidecar import SIDECAR_NAME, Known
from edgewake.edge.log.tables.streams import StreamState
from edgewake.edge.log.tables.tables import write_consumer, write_known, write_stream


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def lay(directory: Path, *found: str) -> None:
    for name in found:
        (directory / name).write_text(name)


def test_the_log_and_its_write_ahead_log_go_together_and_what_sqlite_makes_anew_goes(
    tmp_path: Path,
) -> None:
    lay(tmp_path, LOG_NAME, f"{LOG_NAME}-wal", f"{LOG_NAME}-shm", SIDECAR_NAME, "lock")
    set_aside(tmp_path)
    assert names(tmp_path) == [
        SIDECAR_NAME,
        f"{LOG_NAME}.damaged-1",
        f"{LOG_NAME}.damaged-1-wal",
        "lock",
    ]
    assert (tmp_path / f"{LOG_NAME}.damaged-1-wal").read_text() == f"{LOG_NAME}-wal"


@pytest.mark.parametrize("left", [[LOG_NAME], [f"{LOG_NAME}-wal"], [], [f"{LOG_NAME}-shm"]])
def test_what_an_interruption_left_is_set_aside_too(tmp_path: Path, left: list[str]) -> None:
    lay(tmp_path, *left)
    set_aside(tmp_path)
    assert not any((tmp_path / name).exists() for name in left)


def test_the_numbers_grow_also_over_a_hole_and_beyond_nine(tmp_path: Path) -> None:
    lay(tmp_path, f"{LOG_NAME}.damaged-2", f"{LOG_NAME}.damaged-10", LOG_NAME)
    assert [path.name for path in damaged_logs(tmp_path)] == [
        f"{LOG_NAME}.damaged-2",
        f"{LOG_NAME}.damaged-10",
    ]
    set_aside(tmp_path)
    assert [path.name for path in damaged_logs(tmp_path)][-1] == f"{LOG_NAME}.damaged-11"


@pytest.mark.parametrize(
    "name",
    [".damaged-", ".damaged-x", ".damaged-1-wal", ".damaged-1.bak", ".damaged--1", ".foreign-1"],
)
def test_other_files_are_no_damaged_logs(tmp_path: Path, name: str) -> None:
    lay(tmp_path, LOG_NAME + name)
    assert damaged_logs(tmp_path) == []


@pytest.mark.parametrize(
    "waiting", [*range(DAMAGED_LOGS_MAX), DAMAGED_LOGS_MAX, DAMAGED_LOGS_MAX + 3]
)
def test_so_many_wait_to_be_read_and_beyond_the_oldest_go(tmp_path: Path, waiting: int) -> None:
    """The third made the first go, that nobody had read."""
    for number in range(1, waiting + 1):
        lay(tmp_path, f"{LOG_NAME}.damaged-{number}", f"{LOG_NAME}.damaged-{number}-wal")
    lay(tmp_path, LOG_NAME)
    set_aside(tmp_path)
    kept = [int(path.name.rpartition("-")[2]) for path in damaged_logs(tmp_path)]
    assert kept == list(range(waiting + 1, 0, -1))[:DAMAGED_LOGS_MAX][::-1]
    assert len(list(tmp_path.glob("*-wal"))) == len(kept) - 1, "its write-ahead log goes with it"


def test_where_nothing_is_left_to_be_set_aside_nothing_goes(tmp_path: Path) -> None:
    """Who finds the damage sets the files aside at once, and who opens the log does so again."""
    for number in range(1, DAMAGED_LOGS_MAX + 1):
        lay(tmp_path, f"{LOG_NAME}.damaged-{number}")
    for _ in range(2):
        set_aside(tmp_path)
    assert len(damaged_logs(tmp_path)) == DAMAGED_LOGS_MAX


def test_a_log_that_is_deleted_leaves_nothing_and_may_be_deleted_twice(tmp_path: Path) -> None:
    lay(tmp_path, "x", "x-wal", "x-shm", "x-2")
    for _ in range(2):
        delete(tmp_path / "x")
    assert names(tmp_path) == ["x-2"]


# files of others


def text(path: Path) -> None:
    path.write_bytes(b"somebody's own")


def tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE guests (name)")


def nothing(path: Path) -> None:
    path.write_bytes(b"")


def ours(path: Path) -> None:
    open_for_writing(path).close()


def no_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA user_version = 0")
        db.execute("CREATE TABLE x (y)")
        db.execute("DROP TABLE x")


@pytest.mark.parametrize(
    ("make", "is_foreign"),
    [(text, True), (tables, True), (nothing, False), (ours, False), (no_tables, False)],
)
@pytest.mark.parametrize("vouched", [False, True], ids=["", "with a sidecar"])
def test_whose_a_file_under_the_logs_name_is(
    tmp_path: Path, make: Callable[[Path], None], is_foreign: bool, vouched: bool
) -> None:
    make(tmp_path / LOG_NAME)
    if vouched:
        lay(tmp_path, SIDECAR_NAME)
    before = (tmp_path / LOG_NAME).read_bytes()
    aside = set_foreign_aside(tmp_path)
    assert (aside is not None) == (is_foreign and not vouched)
    assert (aside or tmp_path / LOG_NAME).read_bytes() == before


def test_a_second_foreign_file_gets_a_name_of_its_own_and_takes_what_stands_beside_it_along(
    tmp_path: Path,
) -> None:
    lay(tmp_path, f"{LOG_NAME}.foreign-1", LOG_NAME, f"{LOG_NAME}-wal")
    assert set_foreign_aside(tmp_path) == tmp_path / f"{LOG_NAME}.foreign-2"
    assert names(tmp_path) == [
        f"{LOG_NAME}.foreign-1",
        f"{LOG_NAME}.foreign-2",
        f"{LOG_NAME}.foreign-2-wal",
    ]
    assert set_foreign_aside(tmp_path) is None


def test_a_file_with_sqlites_head_and_nothing_else_is_a_damaged_log_and_nobodys_own(
    tmp_path: Path,
) -> None:
    (tmp_path / LOG_NAME).write_bytes(b"SQLite format 3\0" + b"\xff" * 500)
    assert set_foreign_aside(tmp_path) is None


# what a damaged log still knows


def damaged(directory: Path, known: Known) -> Path:
    """A log with these counters, as it was set aside."""
    db = open_for_writing(directory / LOG_NAME)
    write_known(db, known)
    db.executemany(
        "INSERT INTO meta VALUES (?, ?)", [("log_id", known.log_id), ("epoch", str(known.epoch))]
    )
    db.close()
    set_aside(directory)
    return damaged_logs(directory)[-1]


def of(**changed: object) -> Known:
    return Known(**({"log_id": "log", "epoch": 7, "commit": 10} | changed))  # type: ignore[arg-type]


def test_of_each_stream_the_newer_counters_hold(tmp_path: Path) -> None:
    """The sidecar may be behind by what the machine's death took; the tables by what a damaged page
    took.
    """
    in_log = {
        1: StreamState(1, "speed", 30, 20),
        2: StreamState(2, "street", 5),
        3: StreamState(3, "new", 9),
    }
    told = {
        1: StreamState(1, "speed", 30, 25),
        2: StreamState(2, "street", 4),
        4: StreamState(4, "gone", 6),
    }
    path = damaged(tmp_path, of(streams=in_log))
    found = what_it_knew(path, of(streams=dict(told)))
    assert found is not None
    assert found.streams == {1: told[1], 2: in_log[2], 3: in_log[3], 4: told[4]}


def test_counters_with_a_wrong_checksum_are_not_believed(tmp_path: Path) -> None:
    path = damaged(tmp_path, of(streams={1: StreamState(1, "speed", 30)}))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE streams SET last = 3000000")
    assert what_it_knew(path, of()) == of()


@pytest.mark.parametrize(("commit", "state"), [(11, b"eleven"), (10, None)])
def test_a_consumers_state_is_taken_only_where_it_is_of_the_commit_of_its_cursor(
    tmp_path: Path, commit: int, state: bytes | None
) -> None:
    """An older state with a newer cursor would leave readings out."""
    db = open_for_writing(tmp_path / LOG_NAME)
    write_consumer(db, ConsumerState("mean", {"speed": 5}, 0, 11, b"eleven"))
    db.executemany("INSERT INTO meta VALUES (?, ?)", [("log_id", "log"), ("epoch", "7")])
    db.close()
    set_aside(tmp_path)
    told = ConsumerState("mean", {"speed": 6 if commit == 10 else 5}, 0, commit)
    found = what_it_knew(damaged_logs(tmp_path)[-1], of(consumers={"mean": told}))
    assert found is not None
    assert found.consumers["mean"].state == state
    assert found.consumers["mean"].cursor == told.cursor


def test_a_source_is_where_the_sidecar_says_and_one_that_it_does_not_name_where_the_log_says(
    tmp_path: Path,
) -> None:
    path = damaged(tmp_path, of(sources={"file": "17", "other": "3"}))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO sources VALUES ('odd', x'ff')")
    found = what_it_knew(path, of(sources={"file": "18"}))
    assert found is not None
    assert found.sources == {"file": "18", "other": "3"}


def test_without_a_sidecar_the_log_speaks_for_itself(tmp_path: Path) -> None:
    db = open_for_writing(tmp_path / LOG_NAME)
    write_stream(db, StreamState(1, "speed", 30))
    write_consumer(db, ConsumerState("mean", {"speed": 5}, 0, 11, b"eleven"))
    db.executemany("INSERT INTO meta VALUES (?, ?)", [("log_id", "log"), ("epoch", "7")])
    db.close()
    set_aside(tmp_path)
    found = what_it_knew(damaged_logs(tmp_path)[-1], None)
    assert found is not None
    assert (found.log_id, found.epoch, found.commit) == ("log", 7, 0)
    assert found.streams == {1: StreamState(1, "speed", 30)}
    assert found.consumers["mean"].state == b"eleven"


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\0" + b"\xff" * 2_000, b"text", bytes(4_096)]
)
@pytest.mark.parametrize("known", [None, of(sources={"file": "17"})])
def test_a_log_that_says_nothing_changes_nothing_that_the_sidecar_says(
    tmp_path: Path, content: bytes, known: Known | None
) -> None:
    (tmp_path / "aside").write_bytes(content)
    assert what_it_knew(tmp_path / "aside", known) == known
    assert what_it_knew(tmp_path / "nowhere", known) == known


@pytest.mark.parametrize(
    ("code", "full"), [("FULL", True), ("IOERR", False), ("IOERR_WRITE", False), ("NOMEM", False)]
)
def test_which_errors_mean_a_full_disk(code: str, full: bool) -> None:
    error = sqlite3.OperationalError(code)
    error.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{code}")
    assert is_full(error) is full
    assert not is_full(sqlite3.OperationalError("of no code"))
    assert not is_full(OSError(28, "No space left on device"))
