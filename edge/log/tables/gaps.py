"""The rows of `gaps`: what was given up, in the place of its batches.

Inside the caller's transaction.

Each row has a CRC over all of it. One whose CRC does not hold says nothing: what is missing in its
place is found missing when it is reached, and said as damaged, and what is there is sent, as if
nobody had given it up.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from edgewake.edge.log.tables.codec import checksum


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A counted range of positions of a stream."""

    stream: int
    first: int
    count: int
    reason: str

    @property
    def row(self) -> tuple[int, int, int, str, int]:
        """The row with its CRC."""
        return (
            self.stream,
            self.first,
            self.count,
            self.reason,
            gap_checksum(self.stream, self.first, self.count, self.reason),
        )

    @property
    def last(self) -> int:
        """The last position of the gap."""
        return self.first + self.count - 1


def gap_checksum(stream: int, first: int, count: int, reason: str) -> int:
    """CRC of a row."""
    return checksum(b"", stream, first, count, reason)


def gap_at(db: sqlite3.Connection, stream: int, first: int) -> GivenUp | None:
    """The one that begins there."""
    return next(_sound(db, "first = ?", (stream, first)), None)


def gap_before(db: sqlite3.Connection, stream: int, first: int) -> GivenUp | None:
    """The last one that begins before a position."""
    return next(_sound(db, "first < ? ORDER BY first DESC LIMIT 1", (stream, first)), None)


def gaps_behind(db: sqlite3.Connection, stream: int, after: int, last: int) -> Iterator[GivenUp]:
    """Those that begin behind a position, and at `last` at the latest, in order.

    Change none meanwhile.
    """
    return _sound(db, "first > ? AND first <= ? ORDER BY first", (stream, after, last))


def given_up(db: sqlite3.Connection) -> dict[str, int]:
    """By stream: how many of the positions that wait for their frame are of readings that are lost.

    Reads small rows alone; one that cannot be true counts nothing.
    """
    last = "g.first + g.count - 1"
    waiting = (
        f"{last} BETWEEN max(g.first, framed + 1) AND last AND typeof(g.first) = 'integer' AND "
        "typeof(g.count) = 'integer'"
    )
    query = (
        f"SELECT name, sum({last} - max(g.first - 1, framed)) FROM gaps g JOIN streams ON id = "  # noqa: S608
        f"g.stream WHERE {waiting} GROUP BY name"
    )
    return {name: int(count) for name, count in db.execute(query)}


def _sound(db: sqlite3.Connection, where: str, values: tuple[int, ...]) -> Iterator[GivenUp]:
    for *row, crc in db.execute(
        f"SELECT stream, first, count, reason, crc FROM gaps WHERE stream = ? AND {where}",  # noqa: S608
        values,
    ):
        if is_sound(row, crc):
            yield GivenUp(*row)


def is_sound(row: list[object], crc: object) -> bool:
    """Is this what the log wrote?"""
    of, first, count, reason = row
    if not (type(of) is type(first) is type(count) is int and isinstance(reason, str)):
        return False
    return gap_checksum(of, first, count, reason) == crc


def write_gap(db: sqlite3.Connection, gap: GivenUp) -> None:
    """In the place of one that began there."""
    db.execute(
        "INSERT OR REPLACE INTO gaps (stream, first, count, reason, crc) VALUES (?, ?, ?, ?, ?)",
        gap.row,
    )


def delete_gap(db: sqlite3.Connection, gap: GivenUp) -> None:
    """The one that begins there."""
    db.execute("DELETE FROM gaps WHERE stream = ? AND first = ?", (gap.stream, gap.first))


def forget_unsound_gaps(db: sqlite3.Connection) -> int:
    """Delete rows that say nothing; how many."""
    rows = db.execute("SELECT stream, first, count, reason, crc FROM gaps").fetchall()
    unsound = [(row[0], row[1]) for row in rows if not is_sound(list(row[:4]), row[4])]
    db.executemany("DELETE FROM gaps WHERE stream IS ? AND first IS ?", unsound)
    return len(unsound)
