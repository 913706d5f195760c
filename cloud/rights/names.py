"""A set of names: some written out, some as patterns in which `*` stands for any characters. Pure.

It is a value: two sets of the same names are equal, so that what is seen through them is made once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_NOTHING = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class Names:
    """A set of names and patterns; `Names.of` makes it."""

    exact: frozenset[str]
    patterns: tuple[str, ...] = ()
    _matches: re.Pattern[str] = field(default=_NOTHING, compare=False, repr=False)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Names:
        """Read a list of names and patterns."""
        found = set(texts)
        patterns = tuple(sorted(text for text in found if "*" in text))
        parts = "|".join(re.escape(text).replace(r"\*", ".*") for text in patterns)
        compiled = re.compile(parts, re.DOTALL) if patterns else _NOTHING
        return cls(frozenset(found.difference(patterns)), patterns, compiled)

    @property
    def texts(self) -> list[str]:
        """Names and patterns, of which `of` makes the same set again."""
        return [*sorted(self.exact), *self.patterns]

    def covers(self, other: Names) -> bool:
        """Does it have all names that the other one has?

        A pattern is covered where it matches as a text: only a `*` takes the place of a `*`.
        """
        return all(name in self for name in (*other.exact - self.exact, *other.patterns))

    def __contains__(self, name: object) -> bool:
        """Is it one of them? What is not a text is not."""
        if not isinstance(name, str):
            return False
        return name in self.exact or self._matches.fullmatch(name) is not None
