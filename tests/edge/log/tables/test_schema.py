"""The tables of a log: made whole or not at all, and left alone where another program made them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from edgewake.edge.log.tables.schema import (
    LOG_NAME,
    VERSION,
    LogDamagedError,
    make_tables,
    open_for_writing,
    sound_rows,
    transaction,
)
from edgewake.protocol.errors import LocalError


def test_a_log_of_a_newer_program_is_left_alone(tmp_path: Path) -> None:
    db = open_for_writing(tmp_path / LOG_NAME)
    db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    with pytest.raises(LocalError, match="newer"):
        open_for_writing(tmp_path / LOG_NAME)
    with pytest.raises(LogDamagedError, match="were of version"):
        open_for_writing(tmp_path / LOG_NAME, version=VERSION)
    with pytest.raises(LocalError, match="newer"):
        open_for_writing(tmp_path / LOG_NAME, version=VERSION + 1)


@pytest.mark.parametrize("version", range(1, VERSION))
def test_a_log_of_before_the_first_release_is_left_alone(tmp_path: Path, version: int) -> None:
    db = open_for_writing(tmp_path / LOG_NAME)
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
    with pytest.raises(LocalError, match=r"before the first release.+or move the log away"):
        open_for_writing(tmp_path / LOG_NAME)
    with pytest.raises(LogDamagedError, match="were of version"):
        open_for_writing(tmp_path / LOG_NAME, version=VERSION)


def test_tables_whose_making_is_interrupted_are_made_again_whole(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / LOG_NAME, isolation_level=None)

    def authorise(action: int, *_: object) -> int:
        is_last = action == sqlite3.SQLITE_PRAGMA and db.in_transaction
        asked.extend([action] * is_last)
        return sqlite3.SQLITE_DENY if is_last else sqlite3.SQLITE_OK

    asked: list[int] = []
    db.set_authorizer(authorise)
    with pytest.raises(sqlite3.DatabaseError):
        make_tables(db)
    assert asked == [sqlite3.SQLITE_PRAGMA], "the fault did not fire"
    db.set_authorizer(None)
    assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    make_tables(db)
    assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
    db.close()


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    db = open_for_writing(tmp_path / LOG_NAME)

    def half(error: type[BaseException]) -> None:
        with transaction(db):
            db.execute("INSERT INTO sources VALUES ('file', '1')")
            raise error

    for error in (ValueError, KeyboardInterrupt, sqlite3.DatabaseError):
        with pytest.raises(error):
            half(error)
        assert not db.in_transaction
    assert db.execute("SELECT count(*) FROM sources").fetchone() == (0,)
    db.close()


@pytest.mark.parametrize(
    "error", [KeyError, IndexError, TypeError, ValueError, OverflowError, UnicodeDecodeError]
)
def test_what_rows_cannot_be_is_damage(error: type[Exception]) -> None:
    raised = (
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x")
        if error is UnicodeDecodeError
        else error("x")
    )
    with pytest.raises(LogDamagedError), sound_rows():
        raise raised
    with pytest.raises(ZeroDivisionError), sound_rows():
        raise ZeroDivisionError
