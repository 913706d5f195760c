"""The shape of a text table: delimiter, column names, remarks, and numeric columns. Pure.

The first lines decide it, and the user is told.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MISSING: Final = frozenset(
    {"", "?", "-", "na", "n/a", "nan", "null", "none", "nil", "\\n", "(empty)"}
)
REMARK: Final = "#"
FIELDS: Final = "#fields"
"""The line in which Zeek's logs name their columns."""
EVEN: Final = 0.9
"""Share of the lines that a delimiter has to cut into as many cells."""
ODD_SHARE: Final = 0.01
"""A column holds numbers where at most this share of its cells does not: one bad cell in ten
thousand rows does not make it text."""
_NUMBER: Final = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_COMMA: Final = re.compile(r"[+-]?([0-9]{1,3}(\.[0-9]{3})+|0|[1-9][0-9]*)(,[0-9]+)?")


class Cells(StrEnum):
    """What the cells of a column are."""

    TEXT = "text"
    NUMBER = "number"
    COMMA = "number with a decimal comma"


@dataclass(frozen=True, slots=True)
class Shape:
    """How a file's lines become cells: its delimiter, its names, and whether it has a header."""

    delimiter: str
    names: tuple[str, ...]
    """Empty ones are columns without a name, which are left out."""
    has_header: bool
    """Is the first line of `body` the names?"""
    is_named: bool
    """Does anybody say the names? They are c1, c2 … else."""


def shape(
    remarks: Sequence[str],
    body: Sequence[str],
    *,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
) -> Shape:
    """The shape of a file with these first lines; `columns`: names that the user gave."""
    fields = next((line for line in remarks if line.startswith(FIELDS + "\t")), None)
    parting = delimiter or ("\t" if fields is not None else sniff(body))
    rows = cells_of(body, parting)
    if columns is not None:
        return Shape(parting, tuple(columns), has_header=False, is_named=True)
    if fields is not None:
        names = fields.rstrip("\r\n").split("\t")[1:]
        return Shape(parting, told_apart(names), has_header=False, is_named=True)
    before = [line for line in remarks if not line.startswith(REMARK * 2)]
    if before and rows:
        above = next(iter(cells_of([before[-1].removeprefix(REMARK).strip()], parting)), [])
        if len(above) == len(rows[0]) > 1:
            return Shape(parting, told_apart(above), has_header=False, is_named=True)
    if rows and has_header(rows):
        return Shape(parting, told_apart(rows[0]), has_header=True, is_named=True)
    width = len(rows[0]) if rows else 0
    names = [f"c{number}" for number in range(1, width + 1)]
    return Shape(parting, tuple(names), has_header=False, is_named=False)


def cells_of(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    """Lines cut into cells; those that cannot be are left out."""
    if delimiter == " ":
        lines = [line.strip() for line in lines]
    try:
        found = list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))
    except csv.Error:
        return []
    return [[cell.strip() for cell in row] for row in found]


def sniff(sample: Sequence[str]) -> str:
    """The delimiter: the one of , ; tab | that cuts the lines into most pieces, evenly.

    Blanks where none of these does.
    """

    def score(delimiter: str) -> tuple[float, int]:
        counts = [line.count(delimiter) for line in sample]
        usual = max(set(counts), key=counts.count)
        return (counts.count(usual) / len(counts) if usual else 0.0, usual)

    best = max(",;\t|", key=score)
    if score(best)[0] >= EVEN:
        return best
    widths = [len(row) for row in cells_of(sample, " ")]
    usual = max(set(widths), key=widths.count, default=0)
    is_even = usual > 1 and widths.count(usual) >= EVEN * len(sample)
    return " " if is_even else best


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Does the first row name the columns? Not where it has a number in each column of numbers."""
    first, rest = rows[0], rows[1:]
    numbers = 0
    for place, cell in enumerate(first):
        below = [row[place] for row in rest if place < len(row)]
        filled = [one for one in below if one.lower() not in MISSING]
        if not filled or not all(is_number(one) or _COMMA.fullmatch(one) for one in filled):
            continue
        numbers += 1
        if not is_number(cell) and not _COMMA.fullmatch(cell) and cell.lower() not in MISSING:
            return True
    return numbers == 0


def told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """The names, each once: the second `x` is `x_2`."""
    seen: dict[str, int] = {}
    apart = []
    for name in (name.strip() for name in names):
        seen[name] = seen.get(name, 0) + 1
        apart.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return tuple(apart)


# --- numbers --------------------------------------------------------------------------------------


def is_number(text: str) -> bool:
    """A decimal number; not `007`, which names something."""
    return _NUMBER.fullmatch(text) is not None


def with_point(text: str) -> str:
    """A number with a decimal comma, with a point."""
    return text.replace(".", "").replace(",", ".")


def kinds(
    names: Sequence[str], sample: Iterable[Mapping[str, str]], *, may_have_comma: bool
) -> dict[str, Cells]:
    """What each column is, by these rows. A column without a value is text."""
    filled = dict.fromkeys(names, 0)
    points = dict.fromkeys(names, 0)
    commas = dict.fromkeys(names, 0)
    with_comma: set[str] = set()
    for row in sample:
        for name, cell in row.items():
            if cell.lower() in MISSING:
                continue
            filled[name] += 1
            points[name] += is_number(cell)
            if may_have_comma and _COMMA.fullmatch(cell):
                commas[name] += 1
                if "," in cell:
                    with_comma.add(name)

    def kind(name: str) -> Cells:
        needed = filled[name] * (1 - ODD_SHARE)
        if name in with_comma and commas[name] >= needed:
            return Cells.COMMA
        return Cells.NUMBER if filled[name] and points[name] >= needed else Cells.TEXT

    return {name: kind(name) for name in names}


def is_of(cell: str, kind: Cells) -> bool:
    """Is a cell what its column is?"""
    if kind is Cells.COMMA:
        return _COMMA.fullmatch(cell) is not None
    return kind is Cells.TEXT or is_number(cell)
