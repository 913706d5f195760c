"""Inspects a log without opening it for writing: is it sound, its contents, a copy of it.

It only reads; also while the agent runs.

A copy that is put back begins a new epoch when the agent opens it (`epoch`): what it holds is sent
again under new numbers, never lost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from edgewake.edge.log.tables.codec import checksum, is_sound_batch, readings_of
from edgewake.edge.log.tables.gaps import is_sound as gap_is_sound
from edgewake.edge.log.tables.schema import boundary_checksum, reading, sound_rows
from edgewake.edge.log.tables.tables import read_consumers, read_streams
from edgewake.protocol.errors import LocalError

FAULTS_SAID_MAX: Final = 20
"""Faults that are listed; all are counted."""
ROWS_AT_ONCE: Final = 200
"""Rows that are read in one statement. Between two the write-ahead log can be emptied, so that no
agent has to wait for a reader."""


@dataclass(slots=True)
class Verdict:
    """Is a log sound?"""

    batches: int = 0
    readings: int = 0
    frames: int = 0
    faults: list[str] = field(default_factory=list)
    """The first FAULTS_SAID_MAX."""
    fault_count: int = 0

    def fault(self, text: str) -> None:
        """Note a fault."""
        self.fault_count += 1
        if len(self.faults) < FAULTS_SAID_MAX:
            self.faults.append(text)


def verify(directory: Path) -> Verdict:
    """Check every page, row and checksum. Raises LocalError where the log cannot even be opened."""
    verdict = Verdict()
    with reading(directory) as db:
        try:
            for (said,) in db.execute("PRAGMA integrity_check(20)"):
                if said != "ok":
                    verdict.fault(f"page: {said}")
            with sound_rows():
                _verify_rows(db, verdict)
                _verify_rest(db, verdict)
        except sqlite3.Error as error:
            verdict.fault(str(error))
    return verdict


def _verify_rows(db: sqlite3.Connection, verdict: Verdict) -> None:
    names = {stream.id: stream.name for stream in read_streams(db)}
    for stream, name in names.items():
        for first, count, is_sound, _ in _batches(db, stream):
            verdict.batches += 1
            verdict.readings += count if isinstance(count, int) else 0
            if not is_sound:
                verdict.fault(
                    f"stream {name}: {count} readings from position {first} do not have their "
                    "checksum"
                )
    columns = "stream, epoch, frame, seq, first, count, gap, crc, payload_crc, payload"
    for stream, epoch, frame, seq, first, count, gap, crc, payload_crc, payload in db.execute(
        f"SELECT {columns} FROM frames"  # noqa: S608
    ):
        verdict.frames += 1
        if boundary_checksum(stream, epoch, frame, seq, first, count, gap) != crc:
            verdict.fault(
                f"stream {names.get(stream, stream)}: the boundary of frame {epoch}.{frame} does "
                "not have its checksum"
            )
        if payload is not None and checksum(payload, stream, epoch, frame) != payload_crc:
            verdict.fault(
                f"stream {names.get(stream, stream)}: frame {epoch}.{frame} does not have its "
                "checksum"
            )
    read_consumers(db)


def _verify_rest(db: sqlite3.Connection, verdict: Verdict) -> None:
    for *row, crc in db.execute("SELECT stream, first, count, reason, crc FROM gaps"):
        if not gap_is_sound(row, crc):
            verdict.fault(
                f"stream {row[0]}: the gap at position {row[1]} does not have its checksum"
            )
    for table in ("batches", "frames", "gaps"):
        (orphans,) = db.execute(
            f"SELECT count(*) FROM {table} WHERE stream NOT IN (SELECT id FROM streams)"  # noqa: S608
        ).fetchone()
        if orphans:
            verdict.fault(f"{table}: {orphans} rows are of an unknown stream")
    for name, value in db.execute(
        "SELECT name, value FROM counters WHERE typeof(value) <> 'integer'"
    ):
        verdict.fault(f"the counter {name} is {value!r}")
    for (epoch,) in db.execute("SELECT value FROM meta WHERE name = 'epoch'"):
        if not (isinstance(epoch, str) and epoch.isascii() and epoch.isdigit()):
            verdict.fault(f"the epoch is {epoch!r}")


def _batches(db: sqlite3.Connection, stream: int) -> Iterator[tuple[int, int, bool, bytes]]:
    """(first position, count, does its checksum hold, body) of a stream's batches, in order."""
    query = (
        "SELECT first, count, crc, body FROM batches WHERE stream = ? AND first > ? ORDER BY "
        "first LIMIT ?"
    )
    after = -(1 << 63)  # also what a damaged row says
    while rows := db.execute(query, (stream, after, ROWS_AT_ONCE)).fetchall():
        for first, count, crc, body in rows:
            yield first, count, is_sound_batch(stream, first, count, crc, body), body
        after = rows[-1][0]


def export(directory: Path, stream: str | None = None) -> Iterator[dict[str, Any]]:
    """Every reading in the log, by stream and position.

    What does not have its checksum is left out and said. Raises LocalError.
    """
    with reading(directory) as db:
        for one in read_streams(db):
            if stream is not None and one.name != stream:
                continue
            for first, count, is_sound, body in _batches(db, one.id):
                if not is_sound:
                    yield {"stream": one.name, "position": first, "damaged": count}
                    continue
                for place, (t, fields) in enumerate(readings_of(body), start=first):
                    yield {"stream": one.name, "position": place, "t": t, **fields}


def stats(directory: Path) -> list[dict[str, Any]]:
    """Per stream: readings, bytes and batches kept, and when the oldest and newest came.

    Raises LocalError.
    """
    query = """
        SELECT name, coalesce(sum(count), 0), coalesce(sum(length(body)), 0), count(body),
            min(accepted_at), max(accepted_at)
        FROM streams LEFT JOIN batches ON stream = id GROUP BY id ORDER BY name
    """
    keys = ("stream", "readings", "bytes", "batches", "oldest_at", "newest_at")
    with reading(directory) as db:
        return [dict(zip(keys, row, strict=True)) for row in db.execute(query)]


def latest(directory: Path) -> dict[str, dict[str, Any]]:
    """Stream → its last reading that is still in the log. Raises LocalError.

    Rows with a wrong checksum are left out.
    """
    found: dict[str, dict[str, Any]] = {}
    query = (
        "SELECT first, count, crc, body FROM batches WHERE stream = ? ORDER BY first DESC LIMIT 1"
    )
    with reading(directory) as db:
        for stream, name in db.execute("SELECT id, name FROM streams ORDER BY name").fetchall():
            for first, count, crc, body in db.execute(query, (stream,)):
                if is_sound_batch(stream, first, count, crc, body):
                    t, fields = readings_of(body)[-1]
                    found[name] = {"t": t, **fields}
    return found


def backup(directory: Path, into: Path) -> int:
    """Copy the log to a file that is not there yet, while the agent goes on; its bytes.

    Raises LocalError.
    """
    if into.exists():
        raise LocalError(f"{into} exists already; expected a new file")
    fresh = into.with_name(into.name + ".part")
    with reading(directory) as source:
        try:
            with closing(sqlite3.connect(fresh)) as copy:
                fresh.chmod(0o600)
                # In one step: of a log that is written to, smaller ones would begin again and
                # again.
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
            fresh.replace(into)
        except (sqlite3.Error, OSError) as error:
            fresh.unlink(missing_ok=True)
            raise LocalError(f"{into}: {error}") from error
    return into.stat().st_size


def as_line(row: dict[str, Any]) -> str:
    """A line of JSON."""
    return orjson.dumps(row, default=repr).decode()
