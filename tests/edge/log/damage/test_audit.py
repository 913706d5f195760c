"""What is said of a log from outside, while an agent may run: each fault is found and named, and
what is sound is given as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from edgewake.edge.log.damage import audit
from edgewake.edge.log.damage.audit import FAULTS_SAID_MAX, ROWS_AT_ONCE
from edgewake.edge.log.keeping.work import Work
from edgewake.edge.log.tables import view
from edgewake.edge.log.tables.schema import (
    LOG_NAME,
    reading,
)
from edgewake.protocol.errors import LocalError
from tests.edge.helpers import json_of
from tests.edge.helpers import reading as a_reading
from tests.edge.log.bare_log import BareLog, with_two_streams


@pytest.fixture
def log(tmp_path: Path) -> BareLog:
    return with_two_streams(tmp_path / "log")


def edited(log: BareLog, statement: str) -> Path:
    """The directory of the closed log, changed behind its back."""
    log.close()
    with closing(sqlite3.connect(log.directory / LOG_NAME)) as db, db:
        assert db.execute(statement).rowcount != 0, "the fault did not fire"
    return log.directory


def test_a_sound_log_is_counted_whole_also_while_it_is_open(log: BareLog) -> None:
    assert audit.verify(log.directory) == audit.Verdict(batches=4, readings=10, frames=1)
    log.close()
    assert audit.verify(log.directory) == audit.Verdict(batches=4, readings=10, frames=1)


FAULTS = {
    "UPDATE batches SET crc = crc + 1 WHERE first = 10": (
        "stream speed: 3 readings from position 10 do not have their checksum"
    ),
    "UPDATE batches SET count = 4 WHERE first = 10": (
        "stream speed: 4 readings from position 10 do not have their checksum"
    ),
    "UPDATE batches SET body = x'7b7d' WHERE first = 10": (
        "stream speed: 3 readings from position 10 do not have their checksum"
    ),
    "UPDATE frames SET seq = 2": "the boundary of frame 1.1 does not have its checksum",
    "UPDATE frames SET payload = x'00'": "stream speed: frame 1.1 does not have its checksum",
    "UPDATE gaps SET count = 5": "stream 1: the gap at position 6 does not have its checksum",
    "UPDATE gaps SET stream = 9, crc = 0": "gaps: 1 rows are of an unknown stream",
    "UPDATE batches SET stream = 9 WHERE stream = 2": ("batches: 1 rows are of an unknown stream"),
    "UPDATE counters SET value = 'x' WHERE name = 'commit'": "the counter commit is 'x'",
    "UPDATE meta SET value = '-1' WHERE name = 'epoch'": "the epoch is '-1'",
    "UPDATE meta SET value = '\u0663' WHERE name = 'epoch'": "the epoch is '\u0663'",
    "UPDATE streams SET framed = 4": "counters of stream 'speed' are malformed",
    "UPDATE streams SET older = '{'": "not what the log wrote",
    "INSERT INTO consumers VALUES ('mean', '{}', 0, 0, 0, NULL)": "consumer 'mean' is malformed",
}


@pytest.mark.parametrize("statement", FAULTS)
def test_each_fault_is_found_and_named(log: BareLog, statement: str) -> None:
    verdict = audit.verify(edited(log, statement))
    assert verdict.fault_count >= 1
    assert any(FAULTS[statement] in fault for fault in verdict.faults), verdict.faults


def test_all_faults_are_counted_and_so_many_are_listed(tmp_path: Path) -> None:
    log = BareLog(tmp_path / "log")
    for n in range(FAULTS_SAID_MAX + 5):
        log.put({"speed": [a_reading(n)]})
    verdict = audit.verify(edited(log, "UPDATE batches SET crc = 0"))
    assert (verdict.fault_count, len(verdict.faults)) == (FAULTS_SAID_MAX + 5, FAULTS_SAID_MAX)
    assert verdict.batches == verdict.readings == FAULTS_SAID_MAX + 5


def test_a_log_with_damaged_pages_is_said_to_have_them(tmp_path: Path) -> None:
    log = BareLog(tmp_path / "log")
    for n in range(200):
        log.put({"speed": [a_reading(n, text="x" * 200)]})
    log.close()
    data = bytearray((log.directory / LOG_NAME).read_bytes())
    data[40 * 1024 : 60 * 1024] = b"\xff" * (20 * 1024)
    (log.directory / LOG_NAME).write_bytes(data)
    verdict = audit.verify(log.directory)
    assert verdict.fault_count > 0
    assert verdict.readings < 200


# what is in it


def test_every_reading_is_exported_with_its_stream_and_position_and_damage_is_said_in_its_place(
    log: BareLog,
) -> None:
    found = list(audit.export(edited(log, "UPDATE batches SET crc = 0 WHERE first = 10")))
    assert [(row["stream"], row["position"], row.get("n"),
        row.get("damaged")) for row in found] == [
        *(("speed", n, n, None) for n in range(1, 6)), ("speed", 10, None, 3),
        ("speed", 13, 13, None), ("street", 1, 1, None),
    ]  # fmt: skip
    assert found[-1] == {
        "stream": "street",
        "position": 1,
        "t": a_reading(1)[0],
        "n": 1,
        "name": "B 3",
    }


@pytest.mark.parametrize(
    ("stream", "count"), [(None, 10), ("speed", 9), ("street", 1), ("nobody", 0), ("", 0)]
)
def test_one_stream_may_be_exported_alone(log: BareLog, stream: str | None, count: int) -> None:
    assert len(list(audit.export(log.directory, stream))) == count
    log.close()


@pytest.mark.parametrize("batches", [ROWS_AT_ONCE - 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1])
def test_more_rows_than_are_read_at_once_come_each_once(tmp_path: Path, batches: int) -> None:
    log = BareLog(tmp_path / "log")
    log.store._db.execute("PRAGMA synchronous = OFF")
    for n in range(batches):
        log.put({"speed": [a_reading(n + 1)]})
    assert [row["position"] for row in audit.export(log.directory)] == list(range(1, batches + 1))
    log.close()


def test_a_line_of_anything_is_json() -> None:
    assert json_of(audit.as_line({"stream": "speed", "odd": b"\xff", "t": 1})) == {
        "stream": "speed",
        "odd": "b'\\xff'",
        "t": 1,
    }


# a copy


def test_a_copy_is_made_while_the_agent_writes_and_is_for_its_owner_only(
    log: BareLog, tmp_path: Path
) -> None:
    into = tmp_path / "copies.db"
    assert audit.backup(log.directory, into) == into.stat().st_size > 0
    log.put({"speed": [a_reading(14)]})
    assert into.stat().st_mode & 0o077 == 0
    assert not list(tmp_path.glob("copies.db?*")), "no part and no write-ahead log beside it"
    restored = tmp_path / "restored"
    restored.mkdir()
    into.rename(restored / LOG_NAME)
    assert audit.verify(restored) == audit.Verdict(batches=4, readings=10, frames=1)
    log.close()


def test_a_copy_that_is_put_back_begins_an_epoch_of_its_own(log: BareLog, tmp_path: Path) -> None:
    restored = BareLog(log.directory)
    restored.close()
    audit.backup(log.directory, tmp_path / "copy.db")
    log.close()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "copy.db").rename(tmp_path / "elsewhere" / LOG_NAME)
    again = BareLog(tmp_path / "elsewhere")
    assert again.store.epoch_began == "without its sidecar"
    assert again.store.epoch > log.store.epoch
    again.close()


@pytest.mark.parametrize("there", ["file", "folder", "nothing above it"])
def test_a_copy_that_cannot_be_made_leaves_what_is_there(
    log: BareLog, tmp_path: Path, there: str
) -> None:
    into = tmp_path / "copy.db"
    if there == "file":
        into.write_text("mine")
    elif there == "folder":
        into.mkdir()
    else:
        into = tmp_path / "no" / "such" / "folder" / "copy.db"
    with pytest.raises(LocalError):
        audit.backup(log.directory, into)
    assert not list(tmp_path.glob("**/*.part"))
    assert there != "file" or into.read_text() == "mine"
    log.close()


def test_a_copy_of_a_damaged_log_leaves_no_part_of_itself(log: BareLog, tmp_path: Path) -> None:
    log.close()
    (log.directory / LOG_NAME).write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    with pytest.raises(LocalError):
        audit.backup(log.directory, tmp_path / "copy.db")
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


# a log that is none


@pytest.mark.parametrize(
    "ask",
    [
        audit.verify,
        audit.stats,
        audit.latest,
        lambda of: list(audit.export(of)),
        lambda of: list(view.rows(of, 1)),
    ],
)
@pytest.mark.parametrize(
    "content", [None, b"", b"text of somebody's"], ids=["none", "empty", "no database"]
)
def test_where_there_is_no_log_that_is_said(
    tmp_path: Path, ask: Callable[[Path], object], content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / LOG_NAME).write_bytes(content)
    said = answer(ask, tmp_path)
    if isinstance(said, audit.Verdict):
        assert said.fault_count > 0
    else:
        assert str(tmp_path) in str(said) or (said == [] and content == b"")


def answer(ask: Callable[[Path], object], directory: Path) -> object:
    """What it says, or why it cannot."""
    try:
        return ask(directory)
    except LocalError as error:
        return str(error)


def test_what_reads_cannot_write(log: BareLog) -> None:
    with pytest.raises(LocalError, match="readonly"), reading(log.directory) as db:
        db.execute("DELETE FROM batches")
    log.close()


# tables


def test_a_stream_is_counted_by_what_is_kept_of_it(log: BareLog) -> None:
    speed, street = audit.stats(log.directory)
    assert (speed["stream"], speed["readings"], speed["batches"]) == ("speed", 9, 3)
    assert (street["stream"], street["readings"], street["batches"]) == ("street", 1, 1)
    assert speed["oldest_at"] <= speed["newest_at"]
    log.store.apply(Work(lost={"silent": {"refused": 1}}))
    assert [row["stream"] for row in audit.stats(log.directory)] == ["silent", "speed", "street"]
    assert audit.stats(log.directory)[0]["readings"] == 0
    log.close()


def test_the_latest_reading_of_each_stream_is_its_last_that_is_sound(log: BareLog) -> None:
    assert {stream: row["n"] for stream, row in audit.latest(log.directory).items()} == {
        "speed": 13,
        "street": 1,
    }
    assert audit.latest(edited(log, "UPDATE batches SET crc = 0 WHERE first = 13")).keys() == {
        "street"
    }
