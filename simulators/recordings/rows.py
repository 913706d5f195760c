"""Reads recorded files as rows: CSV, TSV, tables with blanks, JSON, Zeek's logs, NMEA 0183.

Each may be gzipped. Pure but for reading the file.

A row is (line number, {column: value}); values are numbers, text, booleans or None where the file
says that it does not know. What is inside of an object is a column of its own, `data.temp`. What
cannot be read is a BadRow with its line and reason: counted and said by the caller, never silently
left out. A column of a table is a number if its values in the first TYPE_ROWS rows are, but for one
in a hundred (`007` and `46A` are text), else text; another value in a number column is
None, and its text is kept in `<column>_odd`. Agents have the same rule.
"""

from __future__ import annotations

import csv
import gzip
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from edgewake.protocol.frames.field_names import ODD
from edgewake.protocol.json_text import parse
from edgewake.simulators.recordings.csv_shape import (
    MISSING,
    REMARK,
    Cells,
    Shape,
    is_of,
    kinds,
    shape,
    with_point,
)
from edgewake.simulators.recordings.nmea import NmeaReader, is_sentence

TYPE_ROWS: Final = 10_000
"""Rows by which the type of a CSV column is decided; they are held in memory."""
LINE_BYTES_MAX: Final = 1024 * 1024
"""A longer line is a bad row: it would be no legal reading."""
ARRAY_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of a JSON file that is one array: it is held in memory as a whole. A larger one is refused;
lines have no bound."""
HEAD_LINES: Final = 50
"""Lines by which the shape of a table is decided."""
_DIGITS_EXACT: Final = 15
"""Decimal digits that a 64-bit float keeps; longer integers become floats like all other
numbers."""

Row: TypeAlias = tuple[int, Mapping[str, Any]]


class FileFormat(StrEnum):
    """The format of a file."""

    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    JSON = "json"
    """One array of objects, or an object with one."""
    NMEA = "nmea"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that could not be read."""

    line: int
    reason: str


@dataclass(slots=True)
class Tally:
    """What was found about a file while it was read."""

    bad_values: int = 0
    """Values of number columns that were no numbers."""
    columns: set[str] = field(default_factory=set)
    """Where they were."""
    repeated_headers: int = 0
    """Lines that name the columns once more, left out."""
    shape: Shape | None = None
    """Shape of a table; None before it was read, and for other files."""
    kinds: dict[str, Cells] = field(default_factory=dict)
    """Column of a table → the kind of its cells."""


class UnreadableFile(Exception):
    """The file as a whole cannot be read; the text says why."""


def lines(
    path: Path, *, line_bytes_max: int = LINE_BYTES_MAX
) -> Iterator[tuple[int, str | BadRow]]:
    """Numbered lines of a file, gunzipped where its first bytes say so. Raises UnreadableFile."""
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield number, _text(number, line, line_bytes_max)
    except (OSError, EOFError) as error:
        raise UnreadableFile(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _text(number: int, line: bytes, bytes_max: int) -> str | BadRow:
    if len(line) > bytes_max:
        return BadRow(number, f"{len(line)} bytes in a line: expected at most {bytes_max}")
    try:
        return line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").decode("utf-8")
    except UnicodeDecodeError as error:
        return BadRow(number, f"byte {error.start} is not UTF-8")


def detect(path: Path) -> FileFormat:
    """What a file is, by its first lines rather than by its name. Raises UnreadableFile."""
    for _, line in islice(lines(path), 20):
        if isinstance(line, BadRow) or not line.strip():
            continue
        if line.startswith(REMARK):  # a remark
            if line.startswith("#separator"):
                return FileFormat.TSV
            continue
        if line.lstrip().startswith("{"):
            return _json_format(path, line)
        if line.lstrip().startswith("[") and line.strip()[1:].lstrip()[:1] in {"", "{"}:
            return FileFormat.JSON
        if is_sentence(line):
            return FileFormat.NMEA
        return (
            FileFormat.TSV
            if "\t" in line and line.count("\t") >= line.count(",")
            else FileFormat.CSV
        )
    raise UnreadableFile(f"{path}: holds no line of text")


def _json_format(path: Path, line: str) -> FileFormat:
    """Decide by a file's first line: an object a line, or one document."""
    try:
        found = parse(line)
    except orjson.JSONDecodeError:
        return FileFormat.JSON
    filled = (text for _, text in lines(path) if isinstance(text, BadRow) or text.strip())
    is_alone = len(list(islice(filled, 2))) == 1
    return FileFormat.JSON if is_alone and len(_lists(found)) == 1 else FileFormat.JSONL


def rows(
    path: Path, file_format: FileFormat, tally: Tally, *, columns: Sequence[str] | None = None
) -> Iterator[Row | BadRow]:
    """The rows of a file.

    `columns` names the columns of a CSV or TSV file without a header line. Raises UnreadableFile.
    """
    numbered = lines(path)
    if file_format is FileFormat.JSONL:
        return _json_rows(numbered)
    if file_format is FileFormat.JSON:
        return _array_rows(path)
    if file_format is FileFormat.NMEA:
        return _nmea_rows(numbered)
    return _csv_rows(
        path, numbered, "\t" if file_format is FileFormat.TSV else None, columns, tally
    )


def _json_rows(numbered: Iterable[tuple[int, str | BadRow]]) -> Iterator[Row | BadRow]:
    for number, line in numbered:
        if isinstance(line, BadRow):
            yield line
        elif line.strip():
            yield _json_row(number, line)


def _json_row(number: int, line: str) -> Row | BadRow:
    try:
        row = parse(line)
    except orjson.JSONDecodeError as error:
        return BadRow(number, f"not JSON: {error}")
    return _object(number, row)


def _object(number: int, row: Any) -> Row | BadRow:
    if not isinstance(row, dict):
        return BadRow(number, f"expected an object, found {type(row).__name__}")
    return number, dict(_flat(row, ""))


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _array_rows(path: Path) -> Iterator[Row | BadRow]:
    """The objects of an array; instead of a line each has its place, from 1 on."""
    texts: list[str] = []
    size = 0
    for number, line in lines(path, line_bytes_max=ARRAY_BYTES_MAX):
        if isinstance(line, BadRow):
            raise UnreadableFile(f"{path}: line {number}: {line.reason}")
        size += len(line)
        if size > ARRAY_BYTES_MAX:
            raise UnreadableFile(
                f"{path}: an array of more than {ARRAY_BYTES_MAX >> 20} MiB: write an object a line"
            )
        texts.append(line)
    try:
        found = parse("".join(texts))
    except orjson.JSONDecodeError as error:
        raise UnreadableFile(f"{path}: not JSON: {error}") from error
    for number, row in enumerate(_array(path, found), 1):
        yield _object(number, row)


def _array(path: Path, found: Any) -> list[Any]:
    """The rows of a document: itself, or its only list of objects."""
    if isinstance(found, list):
        return found
    within = _lists(found)
    if len(within) != 1:
        raise UnreadableFile(
            f"{path}: expected an array of objects, or an object with one such array"
        )
    return within[0]


def _lists(found: Any) -> list[list[Any]]:
    """The lists of objects in a document."""
    values = found.values() if isinstance(found, dict) else ()
    return [one for one in values if isinstance(one, list) and one and isinstance(one[0], dict)]


def _nmea_rows(numbered: Iterable[tuple[int, str | BadRow]]) -> Iterator[Row | BadRow]:
    reader = NmeaReader()
    number = 0
    for number, line in numbered:
        if isinstance(line, BadRow):
            yield line
            continue
        try:
            fix = reader.feed(line)
        except ValueError as error:
            yield BadRow(number, str(error))
            continue
        if fix is not None:
            yield number, fix
    if (fix := reader.finish()) is not None:
        yield number, fix


# --- CSV ------------------------------------------------------------------------------------------


def _csv_rows(
    path: Path,
    numbered: Iterable[tuple[int, str | BadRow]],
    delimiter: str | None,
    columns: Sequence[str] | None,
    tally: Tally,
) -> Iterator[Row | BadRow]:
    bad: list[BadRow] = []
    passed = LineNumbers()
    remarks: list[str] = []
    good = _without_bad(numbered, bad, passed, remarks)
    head = list(islice(good, HEAD_LINES))
    if not head:
        raise UnreadableFile(f"{path}: holds no line of text")
    form = tally.shape = shape(remarks, head, delimiter=delimiter, columns=columns)
    body: Iterator[str] = chain(head, good)
    if form.delimiter == " ":
        body = (line.strip() for line in body)
    table = csv.reader(body, delimiter=form.delimiter, skipinitialspace=True)
    try:
        if form.has_header:
            next(table)
        cells = _cells(table, form.names, passed, tally)
        first = list(islice(cells, TYPE_ROWS))
        tally.kinds = kinds(
            [name for name in form.names if name],
            (row[1] for row in first if not isinstance(row, BadRow)),
            may_have_comma=form.delimiter != ",",
        )
        for row in chain(first, cells):
            yield from _drain(bad)
            yield row if isinstance(row, BadRow) else (row[0], _typed(row[1], tally))
    except csv.Error as error:
        raise UnreadableFile(f"{path}: line {passed.of(table.line_num)}: {error}") from error
    yield from _drain(bad)


class LineNumbers:
    """The file's line numbers of the lines passed to the CSV reader, which counts only those.

    Kept as runs (count of lines given, line number) that begin wherever lines were left out, and
    forgotten once they are read past: a file of any length costs what its unread lines cost, at
    most those of the sample.
    """

    def __init__(self) -> None:
        self._count = 0
        self._runs: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, number: int) -> None:
        """One more line was given to the reader; it is the file's line `number`."""
        self._count += 1
        if not self._runs or number - self._runs[-1][1] != self._count - self._runs[-1][0]:
            self._runs.append((self._count, number))

    def of(self, count: int) -> int:
        """The file's line of the reader's `count`-th; `count` must never decrease."""
        while len(self._runs) > 1 and self._runs[1][0] <= count:
            self._runs.popleft()
        first, number = self._runs[0]
        return number + count - first


def _without_bad(
    numbered: Iterable[tuple[int, str | BadRow]],
    bad: list[BadRow],
    passed: LineNumbers,
    remarks: list[str],
) -> Iterator[str]:
    """Lines for the CSV reader; `passed` notes which it gets.

    Where the first line is a remark all that begin so are; those above the table are kept.
    """
    has_remarks: bool | None = None
    for number, line in numbered:
        if has_remarks is None and not isinstance(line, BadRow) and line.strip():
            has_remarks = line.startswith(REMARK)
        if has_remarks and not isinstance(line, BadRow) and line.startswith(REMARK):
            if not passed and len(remarks) < HEAD_LINES:
                remarks.append(line)
            continue
        if isinstance(line, BadRow):
            bad.append(line)
        elif "\0" in line:
            bad.append(BadRow(number, "NUL in a line"))
        elif line.strip():
            passed.add(number)
            yield line


def _drain(bad: list[BadRow]) -> Iterator[BadRow]:
    while bad:
        yield bad.pop(0)


def _cells(
    table: Any, names: Sequence[str], passed: LineNumbers, tally: Tally
) -> Iterator[tuple[int, dict[str, str]] | BadRow]:
    for cells in table:
        if tuple(cell.strip() for cell in cells) == names:
            tally.repeated_headers += 1
            continue
        line = passed.of(table.line_num)
        if len(cells) < len(names) or any(cell.strip() for cell in cells[len(names) :]):
            yield BadRow(line, f"{len(cells)} values: expected {len(names)}")
        else:
            yield (
                line,
                {name: cell.strip() for name, cell in zip(names, cells, strict=False) if name},
            )


def _typed(row: Mapping[str, str], tally: Tally) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, cell in row.items():
        kind = tally.kinds[name]
        if cell.lower() in MISSING:
            values[name] = None
        elif kind is Cells.TEXT:
            values[name] = cell
        elif is_of(cell, kind):
            values[name] = _number(with_point(cell) if kind is Cells.COMMA else cell)
        else:
            values[name] = None
            values[f"{name}{ODD}"] = cell
            tally.bad_values += 1
            tally.columns.add(name)
    return values


def _number(text: str) -> int | float:
    is_whole = len(text) <= _DIGITS_EXACT and not any(c in ".eE" for c in text)
    return int(text) if is_whole else float(text)
