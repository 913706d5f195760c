"""Converts a value to the type of its field: what devices write for numbers, on and off. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Scalar

NUMBER_CHARS_MAX: Final = 64
"""Characters of a text that may be a number with its unit."""
_DIGITS: Final = r"[+-]?(?:[0-9]+(?:[.,][0-9]+)?|[.,][0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_UNIT: Final = r"(?:[^\W\d_]|[%‰°µ])\S{0,15}"
_NUMBER: Final = re.compile(rf"({_DIGITS})\s*({_UNIT})?")
_WORDS: Final[Mapping[str, bool]] = {
    "on": True, "off": False, "true": True, "false": False, "yes": True, "no": False, "open": True,
    "closed": False,
}  # fmt: skip
_BITS: Final[Mapping[str, bool]] = {"1": True, "0": False, "1.0": True, "0.0": False}
"""Texts that are true or false where nothing but that is declared; else they are numbers."""
NOTHING: Final = frozenset(
    {
        "",
        "nan",
        "-nan",
        "inf",
        "-inf",
        "+inf",
        "infinity",
        "-infinity",
        "null",
        "none",
        "unavailable",
        "unknown",
        "n/a",
    }
)
"""The words that programs write where there is no value."""
_TYPES: Final[Mapping[type, FieldType]] = {
    bool: FieldType.BOOLEAN, int: FieldType.NUMBER, float: FieldType.NUMBER, str: FieldType.STRING,
}  # fmt: skip


def type_of_value(value: Scalar) -> FieldType | None:
    """The type of one value; None for null."""
    return None if value is None else _TYPES[type(value)]


def as_declared(value: Scalar, kind: FieldType) -> Scalar:
    """Convert a value to the declared type; null where the text says that there is no value.

    Raises ValueError for a text that is not a value of that type.
    """
    if value is None or type_of_value(value) is kind:
        return value
    if kind is not FieldType.STRING and is_nothing(value):
        return None
    if kind is FieldType.NUMBER:
        return _number(value)
    if kind is FieldType.BOOLEAN:
        return _boolean(value)
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def is_nothing(value: object) -> bool:
    """Is it a word that programs write where there is no value? It tells no type."""
    return isinstance(value, str) and value.strip().lower() in NOTHING


def is_no_value(value: Scalar, kind: FieldType | None) -> bool:
    """Is it a word for no value, which is null and not odd?"""
    if kind is None:
        return is_nothing(value)
    try:
        return as_declared(value, kind) is None
    except ValueError:
        return False


def _number(value: Scalar) -> float:
    if isinstance(value, bool):
        return int(value)
    text = str(value).strip()
    if (word := _WORDS.get(text.lower())) is not None:
        return int(word)
    found = _NUMBER.fullmatch(text) if len(text) <= NUMBER_CHARS_MAX else None
    if found is None:
        raise ValueError("expected a number, perhaps with its unit")
    return float(found[1].replace(",", "."))


def _boolean(value: Scalar) -> bool:
    if value in (0, 1):
        return bool(value)
    text = str(value).strip().lower()
    word = _WORDS.get(text, _BITS.get(text))
    if word is None:
        raise ValueError("expected on or off, true or false, 1 or 0")
    return word
