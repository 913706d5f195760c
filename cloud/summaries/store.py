"""Summaries in SQLite, by series and time, so that any range is read at once.

It has one writer, many readers.

The topics are the truth: the offsets that were read stand in the same transaction as what was read,
and a file that is lost or of another version is filled again from them. Rows go KEPT_MS of their
step after they came. `dirty`: hours and days whose parts changed since they were rolled up; until
then they are merged when somebody asks. Late parts are added up as they come (late_part).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import orjson

from edgewake.cloud.summaries.late_part import PREFIX, is_beside, is_part
from edgewake.cloud.summaries.summary import KEPT_MS, Record, Series, Sketch, Step, Summary, merged
from edgewake.protocol.errors import LocalError, Rejected, Unavailable
from edgewake.protocol.sketches.sketch import Numbers, SketchKind

log = logging.getLogger("edgewake.summaries")

VERSION: Final = 2
SERIES_MAX: Final = 20_000
"""Series that are followed; a row of one more is left out and counted: any device may name new
fields."""
ROWS_MAX: Final = 30_000
"""Rows that one question may read: a week of minutes has 10,080, as many more where some readings
came late, and devices add theirs."""
BYTES_MAX: Final = 128 << 20
"""Bytes of sketches that one question may read."""
COVERS: Final = {Step.HOUR: Step.MINUTE, Step.DAY: Step.HOUR}
"""What a step is rolled up from."""
LONGER: Final = {Step.MINUTE: (Step.HOUR, Step.DAY), Step.HOUR: (Step.DAY,), Step.DAY: ()}
"""What changes with a step."""
_SKETCHES: Final[tuple[SketchKind, ...]] = tuple(
    kind for kind in SketchKind if kind is not SketchKind.NUMBERS
)
_COLUMNS: Final = ("end", "readings", "numbers", "seen", *(kind.value for kind in _SKETCHES))
_LATE_MAKERS: Final = (PREFIX, PREFIX[:-1] + chr(ord(PREFIX[-1]) + 1))
"""The range, in order, in which the makers of late parts lie."""

_SCHEMA: Final = f"""
CREATE TABLE series (id INTEGER PRIMARY KEY, stream TEXT, field TEXT, devices TEXT,
    UNIQUE (stream, field, devices));
CREATE TABLE summary (series INTEGER, step TEXT, start INTEGER, maker TEXT, at INTEGER,
    "end" INTEGER, readings INTEGER, numbers BLOB, seen TEXT,
    {", ".join(f"{kind.value} BLOB" for kind in _SKETCHES)},
    PRIMARY KEY (series, step, start, maker));
CREATE INDEX summary_age ON summary (step, at);
CREATE TABLE dirty (series INTEGER, step TEXT, start INTEGER, at INTEGER,
    PRIMARY KEY (series, step, start));
CREATE TABLE place (topic TEXT, partition INTEGER, next INTEGER, PRIMARY KEY (topic, partition));
PRAGMA user_version = {VERSION};
"""


T = TypeVar("T")


_PUT: Final = (
    f"INSERT INTO summary VALUES (?, ?, ?, ?, ?, {', '.join('?' * len(_COLUMNS))})"  # noqa: S608
    " ON CONFLICT DO UPDATE SET "
    + ", ".join(f'"{name}" = excluded."{name}"' for name in ("at", *_COLUMNS))
    + " WHERE excluded.readings >= summary.readings OR summary.maker <> ''"
)
"""What the cloud computed never shrinks: one with fewer readings was computed again from a log that
retention has cut."""


class TooMuch(LocalError):
    """A question would read more than ROWS_MAX rows or BYTES_MAX bytes."""


class Store:
    """The writer. Not for several threads."""

    def __init__(self, path: Path, *, patience_s: float = 5.0) -> None:
        """Open the store, waiting for a lock on it.

        Raises LocalError or sqlite3.OperationalError where the file cannot be used.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(f"data_dir: {error}") from error
        try:
            self._db = _opened(path, patience_s)
        except sqlite3.OperationalError:
            # It is locked, or the disk is full: nothing is wrong with it.
            raise
        except sqlite3.DatabaseError:
            remove(path)
            self._db = _opened(path, patience_s)
        self._series: dict[Series, int] = {
            Series(stream, field, devices): number
            for number, stream, field, devices in self._db.execute("SELECT * FROM series")
        }
        self.refused = 0
        """Rows left out because of SERIES_MAX."""

    def places(self) -> dict[tuple[str, int], int]:
        """(topic, partition) → the next offset to read."""
        return {
            (topic, partition): at
            for topic, partition, at in self._db.execute("SELECT topic, partition, next FROM place")
        }

    def keep(
        self,
        records: Iterable[tuple[Step, Record]],
        places: Mapping[tuple[str, int], int],
        *,
        now_ms: int,
    ) -> None:
        """Put records in, and how far the topics are read, at once.

        What they are part of becomes dirty. Raises sqlite3.Error.
        """
        with self._db:
            for step, record in records:
                self._keep(step, record, now_ms)
            self._db.executemany(
                "INSERT OR REPLACE INTO place VALUES (?, ?, ?)",
                [(*place, at) for place, at in places.items()],
            )

    def forget(self, keys: Iterable[tuple[Step, Series, int, str]]) -> None:
        """Remove rows by step, series, start and maker; their roll-ups become dirty.

        A record without a value on the topics asks for it. The bytes are overwritten in the file.
        """
        self._db.execute("PRAGMA secure_delete = ON")
        with self._db:
            for step, series, start_ms, maker in keys:
                self._forget(step, series, start_ms, PREFIX if is_part(maker) else maker)
        self._db.execute("PRAGMA secure_delete = OFF")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _forget(self, step: Step, series: Series, start_ms: int, maker: str) -> None:
        number = self._series.get(series)
        if number is None:
            return
        self._db.execute(
            "DELETE FROM summary WHERE series = ? AND step = ? AND start = ? AND maker = ?",
            (number, step, start_ms, maker),
        )
        if self._db.execute("SELECT 1 FROM summary WHERE series = ? LIMIT 1", (number,)).fetchall():
            changed = (step, *LONGER[step]) if step in COVERS else LONGER[step]
            rows = [(number, whole, whole.floor(start_ms), 0) for whole in changed]
            self._db.executemany("INSERT OR REPLACE INTO dirty VALUES (?, ?, ?, ?)", rows)
            return
        self._db.execute("DELETE FROM dirty WHERE series = ?", (number,))
        self._db.execute("DELETE FROM series WHERE id = ?", (number,))
        del self._series[series]

    def _keep(self, step: Step, record: Record, now_ms: int) -> None:
        series = self._id(record.series)
        if series is None:
            self.refused += 1
            return
        maker, summary = record.maker, record.summary
        if is_part(maker):
            try:
                maker, summary = (
                    PREFIX,
                    merged([*self._parts_before(series, step, record.start_ms), summary]),
                )
            except Rejected as error:
                self.refused += 1
                log.warning(
                    "a late part of %s cannot be added: %s",
                    record.series,
                    error,
                    extra={"event": "summaries.refused"},
                )
                return
        sketches = [
            summary.sketches[kind].data if kind in summary.sketches else None for kind in _SKETCHES
        ]
        seen = {
            kind.value: sketch.seen
            for kind, sketch in summary.sketches.items()
            if sketch.seen != summary.readings
        }
        row = (
            now_ms,
            record.end_ms,
            summary.readings,
            summary.numbers.encode(),
            orjson.dumps(seen).decode() if seen else None,
            *sketches,
        )
        self._db.execute(_PUT, (series, step, record.start_ms, maker, *row))
        if is_beside(step, maker):
            return
        # A roll-up itself leaves its own step clean; what a device made for an hour does not.
        changed = (step, *LONGER[step]) if record.maker and step in COVERS else LONGER[step]
        rows = [(series, whole, whole.floor(record.start_ms), now_ms) for whole in changed]
        self._db.executemany("INSERT OR REPLACE INTO dirty VALUES (?, ?, ?, ?)", rows)

    def _parts_before(self, series: int, step: Step, start_ms: int) -> Iterator[Summary]:
        """The late parts of steps before a time."""
        columns = ", ".join(kind.value for kind in _SKETCHES)
        rows = self._db.execute(
            f"SELECT readings, numbers, seen, {columns} FROM summary"  # noqa: S608  (our names)
            " WHERE series = ? AND step = ? AND start = ? AND maker = ?",
            (series, step, start_ms, PREFIX),
        )
        yield from (_summary(_SKETCHES, *row) for row in rows)

    def _id(self, series: Series) -> int | None:
        found = self._series.get(series)
        if found is None and len(self._series) < SERIES_MAX:
            row = (series.stream, series.field, series.devices)
            cursor = self._db.execute(
                "INSERT INTO series (stream, field, devices) VALUES (?, ?, ?)", row
            )
            found = self._series[series] = int(cursor.lastrowid or 0)
        return found

    def due(
        self, step: Step, *, ended_before_ms: int, changed_before_ms: int, limit: int
    ) -> list[tuple[Series, int]]:
        """Dirty hours or days that are over, and quiet: (series, start)."""
        rows = self._db.execute(
            "SELECT stream, field, devices, start FROM dirty JOIN series ON id = series"
            " WHERE step = ? AND start < ? AND at < ? ORDER BY start LIMIT ?",
            (step, ended_before_ms - step.ms, changed_before_ms, limit),
        ).fetchall()
        return [(Series(*names), start) for *names, start in rows]

    def clean(self, step: Step, rolled: Iterable[tuple[Series, int]]) -> None:
        """These are rolled up, and what they are published as is on its way back."""
        with self._db:
            # One may be gone since: it was erased.
            marks = [
                (self._series[series], step, start)
                for series, start in rolled
                if series in self._series
            ]
            self._db.executemany(
                "DELETE FROM dirty WHERE series = ? AND step = ? AND start = ?", marks
            )

    def postpone(self, step: Step, series: Series, start_ms: int, *, changed_ms: int) -> None:
        """Leave one dirty, as if it had changed at `changed_ms`; the others are due before it."""
        with self._db:
            self._db.execute(
                "UPDATE dirty SET at = ? WHERE series = ? AND step = ? AND start = ?",
                (changed_ms, self._series.get(series), step, start_ms),
            )

    def prune(self, now_ms: int) -> None:
        """Drop what is older than it is kept."""
        with self._db:
            for step, kept in KEPT_MS.items():
                self._db.execute(
                    "DELETE FROM summary WHERE step = ? AND at < ?", (step, now_ms - kept)
                )

    def close(self) -> None:
        """Close the database."""
        self._db.close()


class Reads:
    """Questions to the store, each with a connection of its own, so from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def with_view(self, question: Callable[[View], T]) -> T:
        """Ask the store. Raises Unavailable while the file is missing or being rebuilt.

        Also raises what the question raises.
        """
        db: sqlite3.Connection | None = None
        try:
            db = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=5)
            return question(View(db))
        except sqlite3.DatabaseError as error:
            raise Unavailable(f"the store of summaries: {error}; it is being made") from error
        finally:
            if db is not None:
                db.close()


class View:
    """The store as one question sees it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._rows = self._bytes = 0

    def begin(self) -> None:
        """Begin another question by the same connection: what was read before counts no more."""
        self._rows = self._bytes = 0

    def known(self, *, stream: str | None = None, after: str = "", limit: int) -> list[Series]:
        """Series by name, of one stream or any, from after a key.

        `after`: stream|field|devices.
        """
        rows = self._db.execute(
            "SELECT stream, field, devices FROM series WHERE stream || '|' || field || '|' || "
            "devices > ? AND stream = coalesce(?, stream)"
            " ORDER BY stream || '|' || field || '|' || devices LIMIT ?",
            (after, stream, limit),
        )
        return [Series(*row) for row in rows]

    def __contains__(self, series: Series) -> bool:
        names = (series.stream, series.field, series.devices)
        return bool(
            self._db.execute(
                "SELECT 1 FROM series WHERE stream = ? AND field = ? AND devices = ?", names
            ).fetchall()
        )

    def rows(
        self,
        series: Series,
        step: Step,
        start_ms: int,
        end_ms: int,
        kinds: Iterable[SketchKind],
        *,
        late: bool | None = None,
    ) -> Iterator[Record]:
        """Rows whose step begins in the time, with these sketches only. Raises TooMuch.

        Other sketches are not read.

        `late`: True for late parts only, False for all others.
        """
        wanted = [kind for kind in _SKETCHES if kind in set(kinds)]
        columns = "".join(f", {kind.value}" for kind in wanted)
        cursor = self._db.execute(
            f'SELECT start, maker, "end", readings, numbers, seen{columns}'  # noqa: S608  (our names)
            " FROM summary JOIN series ON id = series"
            " WHERE stream = ? AND field = ? AND devices = ? AND step = ?"
            " AND start >= ? AND start < ? AND coalesce((maker >= ? AND maker < ?) = ?, TRUE)"
            " ORDER BY start, maker",
            (
                series.stream,
                series.field,
                series.devices,
                step,
                start_ms,
                end_ms,
                *_LATE_MAKERS,
                late,
            ),
        )
        for start, maker, end, readings, numbers, seen, *found in cursor:
            self._rows += 1
            self._bytes += sum(len(data) for data in found if data)
            if self._rows > ROWS_MAX or self._bytes > BYTES_MAX:
                raise TooMuch(_too_much())
            yield Record(
                series, start, end, _summary(wanted, readings, numbers, seen, *found), maker
            )

    def plain_minutes(
        self, series: Series, start_ms: int, end_ms: int
    ) -> list[tuple[int, int, bytes]] | None:
        """Start, readings and numbers (Numbers.encode) of each minute in the time. Raises TooMuch.

        None where some minutes are not one row of the cloud's.
        """
        cursor = self._db.execute(
            "SELECT start, readings, numbers, maker FROM summary JOIN series ON id = series"
            " WHERE stream = ? AND field = ? AND devices = ? AND step = ? AND start >= ? AND "
            "start < ? ORDER BY start LIMIT ?",
            (
                series.stream,
                series.field,
                series.devices,
                Step.MINUTE,
                start_ms,
                end_ms,
                ROWS_MAX + 1,
            ),
        )
        found = cursor.fetchall()
        if len(found) > ROWS_MAX:
            raise TooMuch(_too_much())
        return None if any(maker for *_, maker in found) else [row[:3] for row in found]

    def dirty(self, series: Series, step: Step, start_ms: int, end_ms: int) -> set[int]:
        """Hours or days whose roll-up is missing or no longer right."""
        rows = self._db.execute(
            "SELECT start FROM dirty JOIN series ON id = series WHERE stream = ? AND field = ? "
            "AND devices = ? AND step = ?"
            " AND start >= ? AND start < ?",
            (series.stream, series.field, series.devices, step, start_ms, end_ms),
        )
        return {start for (start,) in rows}


def _too_much() -> str:
    return (
        f"more than {ROWS_MAX} summaries or {BYTES_MAX >> 20} MiB lie in this time; ask for less "
        "of it"
    )


def _summary(
    kinds: Sequence[SketchKind],
    readings: int,
    numbers: bytes,
    seen: str | None,
    *data: bytes | None,
) -> Summary:
    """The summary from the columns of a row."""
    counts = orjson.loads(seen) if seen else {}
    sketches = {
        kind: Sketch(counts.get(kind.value, readings), found)
        for kind, found in zip(kinds, data, strict=True)
        if found
    }
    return Summary(readings, Numbers.decode(numbers), sketches)


def remove(path: Path) -> None:
    """Drop a file that is damaged or of another version; it is filled again from the topics."""
    for old in path.parent.glob(path.name + "*"):
        old.unlink(missing_ok=True)


def _opened(path: Path, patience_s: float) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=patience_s, check_same_thread=False)
    try:
        _prepare(db)
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    # What a power cut takes is read from the topics again.
    db.execute("PRAGMA synchronous = NORMAL")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version not in (0, VERSION):
        raise sqlite3.DatabaseError(f"version {version}")
    if not version:
        db.executescript("BEGIN;" + _SCHEMA + "COMMIT;")
