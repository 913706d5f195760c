"""Recorded files as rows: CSV and TSV, JSON lines, NMEA 0183, each also gzipped. Pure but for
reading the file.

A row is (line number, {column: value}); values are numbers, text, booleans or None where the file
says that it does not know. What cannot be read is a BadRow with its line and reason: counted and
reported by the caller, never silently left out. A column of a CSV file is a number if all its
values in the first TYPE_ROWS rows are (`007` and `46A` are text), else text; a later value of a
number column that is not a number becomes a BadValue.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from edgewake.protocol.json_text import parse
from edgewake.simulators.nmea import NmeaReader, is_sentence

TYPE_ROWS: Final = 10_000
"""Rows by which the type of a CSV column is decided; they are held in memory."""
LINE_BYTES_MAX: Final = 1024 * 1024
"""A longer line is a bad row: it would be no legal reading."""
MISSING: Final = frozenset({"", "?", "-", "na", "n/a", "nan", "null", "none", "nil", "\\n"})
_NUMBER: Final = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_DIGITS_EXACT: Final = 15
"""Decimal digits that a 64-bit float keeps; longer integers become floats like all other
numbers."""

Row: TypeAlias = tuple[int, Mapping[str, Any]]


class FileFormat(StrEnum):
    """What a file is."""

    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    NMEA = "nmea"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that could not be read."""

    line: int
    reason: str


@dataclass(slots=True)
class Tally:
    """What was wrong inside rows that could be read."""

    bad_values: int = 0
    """Values of number columns that were not numbers; left out of their rows."""
    columns: set[str] = field(default_factory=set)
    """Where they were."""


class UnreadableFile(Exception):
    """The file as a whole cannot be read; the text says why."""


def lines(path: Path) -> Iterator[tuple[int, str | BadRow]]:
    """Numbered lines of a file, gunzipped where its first bytes say so. Raises UnreadableFile."""
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield number, _text(number, line)
    except (OSError, EOFError) as error:
        raise UnreadableFile(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _text(number: int, line: bytes) -> str | BadRow:
    if len(line) > LINE_BYTES_MAX:
        return BadRow(number, f"{len(line)} bytes in a line: expected at most {LINE_BYTES_MAX}")
    try:
        return line.removeprefix(b"\xef\xbb\xbf" if number == 1 else b"").decode("utf-8")
    except UnicodeDecodeError as error:
        return BadRow(number, f"byte {error.start} is not UTF-8")


def detect(path: Path) -> FileFormat:
    """What a file is, by its first lines rather than by its name. Raises UnreadableFile."""
    for _, line in islice(lines(path), 20):
        if isinstance(line, BadRow) or not line.strip():
            continue
        if line.lstrip().startswith("{"):
            return FileFormat.JSONL
        if is_sentence(line):
            return FileFormat.NMEA
        return (
            FileFormat.TSV
            if "\t" in line and line.count("\t") >= line.count(",")
            else FileFormat.CSV
        )
    raise UnreadableFile(f"{path}: holds no line of text")


def rows(
    path: Path, file_format: FileFormat, tally: Tally, *, columns: Sequence[str] | None = None
) -> Iterator[Row | BadRow]:
    """The rows of a file.

    `columns` names the columns of a CSV or TSV file without a header line. Raises UnreadableFile.
    """
    numbered = lines(path)
    if file_format is FileFormat.JSONL:
        return _json_rows(numbered)
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
    return (
        (number, row)
        if isinstance(row, dict)
        else BadRow(number, f"expected an object, found {type(row).__name__}")
    )


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
    good = _without_bad(numbered, bad, passed)
    sample = list(islice(good, 50))
    if not sample:
        raise UnreadableFile(f"{path}: holds no line of text")
    table = csv.reader(
        chain(sample, good), delimiter=delimiter or sniff(sample), skipinitialspace=True
    )
    try:
        names = (
            list(columns)
            if columns is not None
            else _told_apart([name.strip() for name in next(table)])
        )
        first = list(islice(_cells(table, names, passed), TYPE_ROWS))
        numbers = _number_columns(names, (row[1] for row in first if not isinstance(row, BadRow)))
        for row in chain(first, _cells(table, names, passed)):
            yield from _drain(bad)
            yield row if isinstance(row, BadRow) else (row[0], _typed(row[1], numbers, tally))
    except csv.Error as error:
        raise UnreadableFile(f"{path}: line {passed.of(table.line_num)}: {error}") from error
    yield from _drain(bad)


class LineNumbers:
    """The file's line numbers of the lines that the CSV reader was given, as it only counts what it
    gets.

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
        """The file's line of the reader's `count`-th; never asked for an earlier one than
        before.
        """
        while len(self._runs) > 1 and self._runs[1][0] <= count:
            self._runs.popleft()
        first, number = self._runs[0]
        return number + count - first


def _without_bad(
    numbered: Iterable[tuple[int, str | BadRow]], bad: list[BadRow], passed: LineNumbers
) -> Iterator[str]:
    """Lines for the CSV reader; `passed` notes which it gets."""
    for number, line in numbered:
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


def sniff(sample: Sequence[str]) -> str:
    """The delimiter: the one of , ; tab | that cuts the lines into most pieces, as many in each."""

    def score(delimiter: str) -> tuple[float, int]:
        counts = [line.count(delimiter) for line in sample]
        usual = max(set(counts), key=counts.count)
        return (counts.count(usual) / len(counts) if usual else 0.0, usual)

    return max(",;\t|", key=score)


def _told_apart(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    apart = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        apart.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return apart


def _cells(
    table: Any, names: Sequence[str], passed: LineNumbers
) -> Iterator[tuple[int, dict[str, str]] | BadRow]:
    for cells in table:
        line = passed.of(table.line_num)
        if len(cells) < len(names) or any(cell.strip() for cell in cells[len(names) :]):
            yield BadRow(line, f"{len(cells)} values: expected {len(names)}")
        else:
            yield (
                line,
                {name: cell.strip() for name, cell in zip(names, cells, strict=False) if name},
            )


def is_number(text: str) -> bool:
    """A decimal number; not `007`, which names something."""
    return _NUMBER.fullmatch(text) is not None


def _number_columns(names: Sequence[str], sample: Iterable[Mapping[str, str]]) -> frozenset[str]:
    numbers, filled = set(names), set()
    for row in sample:
        for name, cell in row.items():
            if cell.lower() in MISSING:
                continue
            filled.add(name)
            if name in numbers and not is_number(cell):
                numbers.discard(name)
    return frozenset(numbers & filled)


def _typed(row: Mapping[str, str], numbers: frozenset[str], tally: Tally) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, cell in row.items():
        if cell.lower() in MISSING:
            values[name] = None
        elif name not in numbers:
            values[name] = cell
        elif is_number(cell):
            values[name] = (
                int(cell)
                if len(cell) <= _DIGITS_EXACT and not any(c in ".eE" for c in cell)
                else float(cell)
            )
        else:
            values[name] = None
            tally.bad_values += 1
            tally.columns.add(name)
    return values
