"""Words in texts, for `has_words` and `has_any_word`: case and marks (é, ü, ç) do not count. Pure.

A word is a run of letters, digits and `_`; `brak*` stands for all words that begin so. A letter is
folded as Unicode says (NFKD, without combining marks, case folded): `Straße` is `strasse`, `Crème`
is `creme`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

WORDS_MAX: Final = 20
"""Words of one search. Over it: refused."""
WORDS_CHARS_MAX: Final = 512
"""Characters of one search. Over it: refused."""
_WORD: Final = re.compile(r"\w+")
_SOUGHT: Final = re.compile(r"(\w+)(\*?)")


class _Folds(dict[int, str | int]):
    """Code point → what it folds to. At most the 65,536 of the basic plane; others stay."""

    def __missing__(self, code: int) -> str | int:
        if code > 0xFFFF:
            return code
        folded = self[code] = "".join(
            one
            for one in unicodedata.normalize("NFKD", chr(code).casefold())
            if not unicodedata.combining(one)
        ).casefold()
        return folded


_FOLDS: Final = _Folds()


def fold(text: str) -> str:
    """A text in which neither case nor marks count."""
    return text.lower() if text.isascii() else text.translate(_FOLDS)


def searcher(sought: str, *, every: bool) -> Callable[[str], bool]:
    """Does a text have the words of `sought`: `every` one, or any? Raises ValueError."""
    if len(sought) > WORDS_CHARS_MAX:
        raise ValueError(f"{len(sought)} characters, expected at most {WORDS_CHARS_MAX}")
    whole, beginnings = set[str](), set[str]()
    for part in sought.split():
        found = _SOUGHT.fullmatch(fold(part))
        if found is None:
            raise ValueError(
                f"{part[:40]!r}: expected words of letters and digits with blanks between, and * "
                "at a word's end alone"
            )
        (beginnings if found[2] else whole).add(found[1])
    if not whole and not beginnings:
        raise ValueError("expected a word")
    if len(whole) + len(beginnings) > WORDS_MAX:
        raise ValueError(f"{len(whole) + len(beginnings)} words, expected at most {WORDS_MAX}")

    def has_all(text: str) -> bool:
        words = set(_WORD.findall(fold(text)))
        return whole <= words and all(
            any(word.startswith(begin) for word in words) for begin in beginnings
        )

    starts = tuple(beginnings)

    def has_any(text: str) -> bool:
        words = set(_WORD.findall(fold(text)))
        return not whole.isdisjoint(words) or any(word.startswith(starts) for word in words)

    return has_all if every else has_any
