"""Text templates with the placeholders `{device}`, `{$.a.b}` and `{@.a}`. Pure.

`{device}` is a part of the topic, `{$.a.b}` a value of the message, `{@.a}` one of the reading's
own object.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgewake.protocol.maps.path import MISSING, Path

TEXT_CHARS_MAX: Final = 256
"""The most characters of a template."""
_PLACE: Final = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Text:
    """A parsed template: a sequence of literals, names of parts, and paths."""

    pieces: tuple[str | _Part | Path, ...]
    constant: str | None = None
    """The text of a template without placeholders."""

    @classmethod
    def parse(cls, text: str, parts: Collection[str]) -> Text:
        """Parses a template; `parts` are the names that the topic gives. Raises ValueError."""
        if not 0 < len(text) <= TEXT_CHARS_MAX:
            raise ValueError(f"expected 1 to {TEXT_CHARS_MAX} characters")
        pieces: list[str | _Part | Path] = []
        at = 0
        for found in _PLACE.finditer(text):
            pieces += [text[at : found.start()]] if found.start() > at else []
            pieces.append(_place(found[1], parts))
            at = found.end()
        rest = text[at:]
        if "{" in rest or "}" in rest or any("}" in one for one in pieces if type(one) is str):
            raise ValueError(f"{text!r}: unbalanced brace")
        pieces += [rest] if rest else []
        is_constant = len(pieces) == 1 and type(pieces[0]) is str
        return cls(tuple(pieces), text if is_constant else None)

    @property
    def is_of_topic(self) -> bool:
        """Returns whether the topic alone fills it."""
        return not any(isinstance(piece, Path) for piece in self.pieces)

    def fill(self, parts: Mapping[str, str], whole: Any, own: Any) -> str:
        """Fills the placeholders. Raises ValueError where a value is missing or not text."""
        if self.constant is not None:
            return self.constant
        return "".join(_filled(piece, parts, whole, own) for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class _Part:
    name: str


def _place(text: str, parts: Collection[str]) -> _Part | Path:
    if text.startswith("@."):
        path = Path.parse(text[2:])
    elif text.startswith("$"):
        path = Path.parse(text)
    elif text in parts:
        return _Part(text)
    else:
        known = ", ".join(sorted(parts)) or "none"
        raise ValueError(
            f"unknown part {{{text}}}: the topic has {known}; a value of the message is "
            "written {$.path}, one of the reading's own object {@.path}"
        )
    if path.has_star:
        raise ValueError(f"{{{text}}}: expected a path to one value")
    return path


def _filled(piece: str | _Part | Path, parts: Mapping[str, str], whole: Any, own: Any) -> str:
    if isinstance(piece, str):
        return piece
    if isinstance(piece, _Part):
        return parts.get(piece.name, "")
    value = piece.get(whole if piece.is_whole else own)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        found = "nothing" if value is MISSING else f"{type(value).__name__}"
        raise ValueError(f"expected text or a number at {piece.text!r}, found {found}")
    return str(value)
