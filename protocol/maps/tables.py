"""Reads a table of a map file key by key. Pure.

An error names its line; a key not read is unknown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")
_HEADER: Final = re.compile(r"^\s*\[\[\s*map\s*\]\]")
_WORDS: Final = {
    str: "text", bool: "true or false", dict: "a table", list: "a list",
    float: "a number", int: "an integer",
}  # fmt: skip


class Wrong(ValueError):
    """A fault of a map file. `where` is the path to the key from its `[[map]]`."""

    def __init__(self, where: Sequence[str], said: str) -> None:
        super().__init__(f"{'.'.join(where)}: {said}" if where else said)
        self.where = tuple(where)


class Table:
    """One TOML table. A key is read at most once."""

    def __init__(self, values: Mapping[str, Any], where: Sequence[str] = ()) -> None:
        self.where = tuple(where)
        self._left = dict(values)
        self._asked: list[str] = []

    def get(self, name: str, *kinds: type, default: Any = None) -> Any:
        """Returns a value of one of these types, or of any, else `default`. Raises Wrong."""
        self._asked.append(name)
        if name not in self._left:
            return default
        value = self._left.pop(name)
        if kinds and isinstance(value, bool) and bool not in kinds:
            raise self.wrong(name, f"expected {_named(kinds)}, found {str(value).lower()}")
        if float in kinds and isinstance(value, int) and not isinstance(value, bool):
            value = _float(value) if int not in kinds else value
        if kinds and not isinstance(value, kinds):
            raise self.wrong(name, f"expected {_named(kinds)}, found {str(value)[:40]!r}")
        return value

    def wrong(self, name: str, said: str) -> Wrong:
        """Makes the error to raise about a key."""
        return Wrong((*self.where, name), said)

    def done(self) -> None:
        """Raises Wrong for a key that was not read."""
        for name in self._left:
            near = difflib.get_close_matches(name, self._asked, 1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise self.wrong(
                name, f"unknown key{hint or ': known are ' + ', '.join(sorted(self._asked))}"
            )


def _float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _named(kinds: Sequence[type]) -> str:
    return " or ".join(_WORDS[kind] for kind in kinds)


def line_of(text: str, number: int, where: Sequence[str]) -> int:
    """Returns the line of a key in the `[[map]]` of this number, counted from 1, or of its header.

    0 where the file has no such header. `number` 0 stands for the lines before the first one.
    """
    lines = text.splitlines()
    headers = [at for at, line in enumerate(lines) if _HEADER.match(line)]
    if number > len(headers):
        return 0
    first = headers[number - 1] if number else 0
    last = headers[number] if number < len(headers) else len(lines)
    for name in reversed(where):
        pattern = re.compile(rf"""(?:^|[\s{{,\[.])["']?{re.escape(name)}["']?\s*(?:=|\]|\.)""")
        for at in range(first, last):
            if pattern.search(lines[at]):
                return at + 1
    return first + 1 if number else 0
