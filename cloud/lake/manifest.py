"""The lake's manifest, in SQLite: its files, and the offsets of Kafka that they reach.

Files are written first and named here after, in one transaction with the places they reach: a file
that is missing here is ignored, so a kill at any moment neither loses nor doubles a row. A writer
commits only from the places that it began at; of two writers one is refused. Files that were merged
or are too old are taken out at once, and deleted GRACE_S later, when no question reads them any
longer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import orjson

from edgewake.cloud.lake.shape import ColumnType, Fields, Kind
from edgewake.protocol.errors import LocalError, Unavailable

NAME: Final = "manifest.db"
VERSION: Final = 2
GRACE_S: Final = 300
"""Seconds that a file stays after it is named no more: longer than any question may take."""
BUSY_S: Final = 10.0
"""Seconds that a transaction of another process is waited for."""
GAPS_MAX: Final = 1000
"""Gaps that are remembered; the oldest go."""
_SCHEMA: Final = f"""
CREATE TABLE file (path TEXT PRIMARY KEY, kind TEXT, name TEXT, topic TEXT, date TEXT,
    level INTEGER, rows INTEGER, bytes INTEGER, fields TEXT, written_at INTEGER);
CREATE INDEX file_topic ON file (topic);
CREATE TABLE place (topic TEXT, partition INTEGER, topic_id TEXT, next INTEGER,
    PRIMARY KEY (topic, partition));
CREATE TABLE old (path TEXT PRIMARY KEY, at INTEGER);
CREATE TABLE gap (topic TEXT, partition INTEGER, first INTEGER, next INTEGER, at INTEGER);
PRAGMA user_version = {VERSION};
"""
_FILE: Final = "path, kind, name, topic, date, level, rows, bytes, fields, written_at"

T = TypeVar("T")


class Fenced(LocalError):
    """Another writer was here: it has written, or will write, what this one gathered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of the lake."""

    path: str
    """Relative to the lake's folder."""
    kind: Kind
    name: str
    """Stream or query, or `summaries.` and the step."""
    topic: str
    date: str
    """Day of UTC on which Kafka got what is in it."""
    rows: int
    bytes: int
    fields: Fields
    written_at: int
    """ms since 1970."""
    level: int = 0
    """The number of times that its rows were merged."""


@dataclass(frozen=True, slots=True)
class Place:
    """The progress of the lake in a partition."""

    topic_id: str
    """Kafka's: another one is another topic of the same name."""
    next: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that Kafka had deleted before they were read."""

    topic: str
    partition: int
    first: int
    next: int


Partition = tuple[str, int]


class Manifest:
    """The writer's side. Not for several threads."""

    def __init__(self, folder: Path) -> None:
        """Raises LocalError where the file cannot be opened, or is of another version."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / NAME
        try:
            self._db = sqlite3.connect(
                file, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise LocalError(f"{file}: {error}") from error
        try:
            self._prepare(file)
        except BaseException as error:
            self._db.close()
            if isinstance(error, sqlite3.Error):
                raise LocalError(f"{file}: {error}") from error
            raise

    def _prepare(self, file: Path) -> None:
        # No write-ahead log: its shared memory does not work over a mount that several machines
        # have.
        self._db.execute("PRAGMA synchronous = FULL")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if not version:
            self._db.executescript("BEGIN IMMEDIATE;" + _SCHEMA + "COMMIT;")
        elif version != VERSION:
            raise LocalError(_of_another_version(file, version))
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS erased (id TEXT PRIMARY KEY, files INTEGER, rows INTEGER)"
        )

    def commit(
        self,
        added: Iterable[File],
        before: Mapping[Partition, Place | None],
        after: Mapping[Partition, Place],
        gaps: Iterable[Gap] = (),
        *,
        now_ms: int,
    ) -> None:
        """Name new files and how far they reach.

        Raises Fenced where the places are not `before` any more, and sqlite3.OperationalError.
        """

        def act() -> None:
            if {partition: _place(self._db, *partition) for partition in before} != dict(before):
                raise Fenced("another process writes this lake")
            for file in added:
                self._db.execute(
                    f"INSERT INTO file ({_FILE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                    _row(file),
                )
            for (topic, partition), place in after.items():
                self._db.execute(
                    "INSERT OR REPLACE INTO place VALUES (?, ?, ?, ?)",
                    (topic, partition, place.topic_id, place.next),
                )
            for gap in gaps:
                self._db.execute(
                    "INSERT INTO gap VALUES (?, ?, ?, ?, ?)",
                    (gap.topic, gap.partition, gap.first, gap.next, now_ms),
                )
            self._db.execute(
                "DELETE FROM gap WHERE rowid <= (SELECT max(rowid) FROM gap) - ?", (GAPS_MAX,)
            )

        self._transaction(act)

    def replace(self, gone: Sequence[File], merged: File | None, *, now_ms: int) -> None:
        """Name `merged` in place of files, or nothing.

        Raises Fenced where one of them is named no more.
        """

        def act() -> None:
            for file in gone:
                if not self._db.execute("DELETE FROM file WHERE path = ?", (file.path,)).rowcount:
                    raise Fenced("another process merges this lake")
                self._db.execute("INSERT OR REPLACE INTO old VALUES (?, ?)", (file.path, now_ms))
            if merged is not None:
                self._db.execute(
                    f"INSERT INTO file ({_FILE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                    _row(merged),
                )

        self._transaction(act)

    def erase(
        self, erasure: str, changed: Sequence[tuple[File, File | None]], rows: int, *, now_ms: int
    ) -> None:
        """Replace files by those without erased rows, and note that the erasure is done.

        Raises Fenced.

        It is one transaction; Fenced means that one of them was replaced meanwhile.
        """

        def act() -> None:
            for before, after in changed:
                if not self._db.execute("DELETE FROM file WHERE path = ?", (before.path,)).rowcount:
                    raise Fenced("another process changes this lake")
                self._db.execute("INSERT OR REPLACE INTO old VALUES (?, ?)", (before.path, now_ms))
                if after is not None:
                    self._db.execute(
                        f"INSERT INTO file ({_FILE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                        _row(after),
                    )
            self._db.execute(
                "INSERT OR REPLACE INTO erased VALUES (?, ?, ?)", (erasure, len(changed), rows)
            )

        self._transaction(act)

    def erased(self) -> dict[str, tuple[int, int]]:
        """Erasure → files and rows that it took."""
        found = self._db.execute("SELECT id, files, rows FROM erased")
        return {id_: (files, rows) for id_, files, rows in found}

    def files(self) -> list[File]:
        """All that are named, the oldest first."""
        return _files(self._db, "1 = 1", ())

    def places(self) -> dict[Partition, Place]:
        """The progress of the lake."""
        return {
            (topic, partition): Place(id_, next_)
            for topic, partition, id_, next_ in self._db.execute("SELECT * FROM place")
        }

    def old(self, before_ms: int) -> list[str]:
        """Files to delete: named no more since before a time."""
        return [
            path for (path,) in self._db.execute("SELECT path FROM old WHERE at < ?", (before_ms,))
        ]

    def known(self) -> set[str]:
        """All files that may be there."""
        return {
            path for (path,) in self._db.execute("SELECT path FROM file UNION SELECT path FROM old")
        }

    def deleted(self, paths: Iterable[str]) -> None:
        """Forget what is deleted."""
        self._transaction(
            lambda: self._db.executemany(
                "DELETE FROM old WHERE path = ?", [(path,) for path in paths]
            )
        )

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def _transaction(self, act: Callable[[], object]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            act()
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK") if self._db.in_transaction else None
            raise


@dataclass(frozen=True, slots=True)
class Contents:
    """What the lake had of some topics at one moment."""

    files: Sequence[File]
    places: Mapping[Partition, Place]
    gaps: int
    """Records that it never got."""


def _is_being_made(db: sqlite3.Connection, path: Path) -> bool:
    """The writer makes the file, and its tables a moment later.

    Raises Unavailable where another release wrote it.
    """
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version and version != VERSION:
        raise Unavailable(_of_another_version(path, version))
    return not version


def _of_another_version(path: Path, version: int) -> str:
    return (
        f"{path}: version {version}, expected {VERSION}; another release of edgewake wrote this "
        "lake; move its folder away, and a new one"
        " begins with what Kafka still has"
    )


def kept_topics(folder: Path) -> set[str]:
    """Topics of which the lake has something, also those that Kafka has no more.

    Raises Unavailable.
    """
    if not (folder / NAME).exists():
        return set()
    try:
        with closing(
            sqlite3.connect(f"file:{folder / NAME}?mode=ro", uri=True, timeout=BUSY_S)
        ) as db:
            if _is_being_made(db, folder / NAME):
                return set()
            return {topic for (topic,) in db.execute("SELECT DISTINCT topic FROM file")}
    except sqlite3.Error as error:
        raise Unavailable(f"{folder / NAME}: {error}") from error


def contents(folder: Path, wanted: Iterable[str]) -> Contents:
    """The lake as one question sees it; empty before there is a lake. Raises Unavailable."""
    names = list(wanted)
    marks = ", ".join("?" * len(names))
    if not (folder / NAME).exists():
        return Contents([], {}, 0)
    try:
        with closing(
            sqlite3.connect(
                f"file:{folder / NAME}?mode=ro", uri=True, timeout=BUSY_S, isolation_level=None
            )
        ) as db:
            db.execute("BEGIN")
            if _is_being_made(db, folder / NAME):
                return Contents([], {}, 0)
            places = db.execute(f"SELECT * FROM place WHERE topic IN ({marks})", names)  # noqa: S608  (question marks)
            found = {
                (topic, partition): Place(id_, next_) for topic, partition, id_, next_ in places
            }
            (gaps,) = db.execute(
                f"SELECT coalesce(sum(next - first), 0) FROM gap WHERE topic IN ({marks})",  # noqa: S608
                names,
            ).fetchone()
            return Contents(_files(db, f"topic IN ({marks})", names), found, gaps)
    except sqlite3.Error as error:
        raise Unavailable(f"{folder / NAME}: {error}") from error


def _files(db: sqlite3.Connection, where: str, values: Sequence[str]) -> list[File]:
    rows = db.execute(f"SELECT {_FILE} FROM file WHERE {where} ORDER BY written_at, path", values)  # noqa: S608  (our names)
    return [
        File(
            path=path,
            kind=Kind(kind),
            name=name,
            topic=topic,
            date=date,
            level=level,
            rows=count,
            bytes=size,
            fields={field: ColumnType(type_) for field, type_ in orjson.loads(fields).items()},
            written_at=written_at,
        )
        for path, kind, name, topic, date, level, count, size, fields, written_at in rows
    ]


def _row(file: File) -> tuple[object, ...]:
    fields = orjson.dumps(dict(file.fields)).decode()
    return (
        file.path,
        file.kind.value,
        file.name,
        file.topic,
        file.date,
        file.level,
        file.rows,
        file.bytes,
        fields,
        file.written_at,
    )


def _place(db: sqlite3.Connection, topic: str, partition: int) -> Place | None:
    found = db.execute(
        "SELECT topic_id, next FROM place WHERE topic = ? AND partition = ?", (topic, partition)
    ).fetchone()
    return None if found is None else Place(*found)
