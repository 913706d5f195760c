"""LIKE and ILIKE: does the whole of a text match a pattern (`%` any characters, `_` one)?

The pieces between the `%` are looked for from left to right, each once, so no pattern makes it go
back. A piece without `_` is found in linear time; one with `_` between two `%` is tried at each
character of the text, which is what makes a pattern expensive (`search_width`). ILIKE compares in
lower case.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from edgewake.protocol.errors import FilterError

_ANY: Final = None
_Piece: TypeAlias = list[str | None]
"""Characters; None for `_`."""
_Find: TypeAlias = Callable[[str, int], int]
"""Where a piece ends that is found from a character on; -1 where it is not."""


def like_matcher(
    pattern: str, *, escape: str | None = None, ignore_case: bool = False
) -> Callable[[str], bool]:
    """A function of a text; raises FilterError."""
    pieces = _split(pattern.lower() if ignore_case else pattern, escape)
    matches = _matcher(pieces)
    return (lambda text: matches(text.lower())) if ignore_case else matches


def search_width(pattern: str, *, escape: str | None = None) -> int:
    """Comparisons for each character of the text, at worst; 0 where matching is linear."""
    return max((len(piece) for piece in _split(pattern, escape)[1:-1] if _ANY in piece), default=0)


def literal_prefix(pattern: str, *, escape: str | None = None) -> tuple[str, bool]:
    """How every text begins that a pattern of LIKE matches, and whether that is the whole text.

    Raises FilterError.
    """
    pieces = _split(pattern, escape)
    literal = list(itertools.takewhile(lambda one: one is not _ANY, pieces[0]))
    is_whole = len(pieces) == 1 and len(literal) == len(pieces[0])
    return "".join(one or "" for one in literal), is_whole


def _matcher(pieces: list[_Piece]) -> Callable[[str], bool]:
    if len(pieces) == 1:
        whole = _regex(pieces[0])
        return lambda text: whole.fullmatch(text) is not None
    first, last = _regex(pieces[0]), _regex(pieces[-1])
    last_length = len(pieces[-1])
    middle = [_finder(piece) for piece in pieces[1:-1]]

    def matches(text: str) -> bool:
        found = first.match(text)
        if found is None:
            return False
        at = found.end()
        for find in middle:
            at = find(text, at)
            if at < 0:
                return False
        tail = len(text) - last_length
        return tail >= at and last.fullmatch(text, tail) is not None

    return matches


def _finder(piece: _Piece) -> _Find:
    if _ANY not in piece:
        literal = "".join(character or "" for character in piece)

        def find(text: str, at: int) -> int:
            found = text.find(literal, at)
            return found if found < 0 else found + len(literal)

        return find
    pattern = _regex(piece)

    def search(text: str, at: int) -> int:
        found = pattern.search(text, at)
        return -1 if found is None else found.end()

    return search


def _split(pattern: str, escape: str | None) -> list[_Piece]:
    """The pieces between the `%`."""
    pieces: list[_Piece] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise FilterError("where: LIKE: the pattern ends with the ESCAPE character")
            pieces[-1].append(literal)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(_ANY if character == "_" else character)
    return pieces


def _regex(piece: _Piece) -> re.Pattern[str]:
    return re.compile(
        "".join("." if character is None else re.escape(character) for character in piece),
        re.DOTALL,
    )
