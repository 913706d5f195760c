"""Takes long lists of texts, polygons and named sets out of a condition before it is parsed. Pure.

The parser takes a hundred microseconds for each value of a list; this module takes one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from edgewake.cloud.log.filters.filter_geo import POLYGON_BYTES_MAX
from edgewake.protocol.errors import FilterError

LISTED_MAX: Final = 1000
"""Texts in the lists of one condition: the vehicles of a dispatcher. Over it: refused."""
LISTED_BYTES_MAX: Final = 20 * 1024
"""UTF-8 bytes of these lists: a request's head has 32 KB. Over it: refused."""
_TEXT: Final = r"'(?:[^']|'')*+'"
_FOUND: Final = re.compile(
    rf"""(?P<text>{_TEXT})|"(?:[^"]|"")*+"|\b(?i:IN)\s*\(\s*(?P<list>{_TEXT}(?:\s*,\s*{_TEXT})++)\s*\)"""
    rf"""|\b(?i:IN)\s+(?i:SET)\s*\(\s*(?P<set>{_TEXT})\s*\)"""
    r"""|--[^\n]*|(?P<block>/\*)"""
)
"""A text, a quoted name or a comment, which is passed (a polygon is not), a list of texts, or a
named set. Comments in `/* */` may be in one another: where one begins nothing is taken out."""
_POLYGON: Final = re.compile(r"'\s*POLYGON", re.IGNORECASE)
_ARGUMENTS: Final = re.compile(r"\bin_polygon\s*\([^()']*$", re.IGNORECASE)
"""What stands before a polygon: any other text may begin so, too."""
_ARGUMENTS_CHARS: Final = 200
"""Characters of the arguments before a polygon: two names of fields."""
_LISTED: Final = re.compile(_TEXT)
_PLACE: Final = "\0"
"""Stands before the kind and number of what was taken out; no text may have it."""
_STANDS: Final = re.compile(r"\0([lps])(\d+)")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Taken:
    """The text that is left, and what was taken out."""

    text: str
    lists: Sequence[tuple[str, ...]] = ()
    polygons: Sequence[str] = ()
    sets: Sequence[str] = ()
    cuts: Sequence[tuple[int, int]] = ()
    """Where in what is left a thing stands that was shortened (its end), and by how much."""

    def list_of(self, literal: str) -> tuple[str, ...] | None:
        """The list that a literal stands for."""
        return _one_of(self.lists, literal, "l")

    def polygon_of(self, literal: str) -> str | None:
        """The polygon that a literal stands for."""
        return _one_of(self.polygons, literal, "p")

    def set_of(self, literal: str) -> str | None:
        """The name of the set that a literal stands for."""
        return _one_of(self.sets, literal, "s")

    def at(self, character: int) -> int:
        """Which character of the client's text this one of what is left is."""
        return character + sum(shorter for end, shorter in self.cuts if end < character)

    def shown(self, text: str) -> str:
        """A part of what is left, without our own marks."""
        return _STANDS.sub("…", text)


NOTHING: Final = Taken("")


def take_out(text: str) -> Taken:
    """Raises FilterError where there is too much of it."""
    if _PLACE in text:
        return Taken(text)
    lists: list[tuple[str, ...]] = []
    polygons: list[str] = []
    sets: list[str] = []
    sizes = [0, 0]
    parts: list[str] = []
    cuts: list[tuple[int, int]] = []
    at = length = 0
    before = ""
    for found in _FOUND.finditer(text):
        stand = found[0]
        before = (before + text[at : found.start()])[-_ARGUMENTS_CHARS:]
        if found["block"] is not None:
            return Taken(text)
        if found["list"] is not None:
            sizes[0] += len(found["list"].encode("utf-8", "replace"))
            lists.append(tuple(dict.fromkeys(map(_unquoted, _LISTED.findall(found["list"])))))
            stand = f"IN ('{_PLACE}l{len(lists) - 1}')"
        elif found["set"] is not None:
            sets.append(_unquoted(found["set"]))
            stand = f"IN ('{_PLACE}s{len(sets) - 1}')"
        elif found["text"] is not None and _is_polygon(found["text"], before):
            sizes[1] += len(found["text"].encode("utf-8", "replace"))
            polygons.append(_unquoted(found["text"]))
            stand = f"'{_PLACE}p{len(polygons) - 1}'"
        parts += (text[at : found.start()], stand)
        length += found.start() - at + len(stand)
        if stand != found[0]:
            cuts.append((length, len(found[0]) - len(stand)))
        at = found.end()
        before += " " if found[0].startswith("--") else found[0]  # a comment calls nothing
    parts.append(text[at:])
    count = sum(map(len, lists))
    if count > LISTED_MAX:
        raise FilterError(
            f"where: lists of {count} values, expected at most {LISTED_MAX} together; up to 10,000 "
            "devices are given as devices, in a POST, or kept as a named set"
        )
    if sizes[0] > LISTED_BYTES_MAX:
        raise FilterError(
            f"where: lists of {sizes[0]} bytes, expected at most {LISTED_BYTES_MAX} together"
        )
    if sizes[1] > POLYGON_BYTES_MAX:
        raise FilterError(
            f"where: polygons of {sizes[1]} bytes, expected at most {POLYGON_BYTES_MAX} together"
        )
    return Taken("".join(parts), lists, polygons, sets, cuts)


def _is_polygon(literal: str, before: str) -> bool:
    return _POLYGON.match(literal) is not None and _ARGUMENTS.search(before) is not None


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _one_of(found: Sequence[T], literal: str, kind: str) -> T | None:
    stands = _STANDS.fullmatch(literal)
    if stands is None or stands[1] != kind or int(stands[2]) >= len(found):
        return None
    return found[int(stands[2])]
