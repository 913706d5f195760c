"""Makes foreign texts, and numbers, safe for a terminal. Pure.

A control character there may move, hide, colour, or set the title.
"""

from __future__ import annotations

from typing import Final

# by its number: for its name the compiler loads the tables of Unicode, which then stay
UNSEEN: Final = "\ufffd"


def printable(text: str, *, keep: str = "") -> str:
    """The text with UNSEEN in place of each character that nobody can see, but those in `keep`."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() or c in keep else UNSEEN for c in text)
    )


def shortest(number: float) -> str:
    """The shortest text that reads back as the same number: a whole one without a point."""
    text = repr(number)
    return text.removesuffix(".0")
