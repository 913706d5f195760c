"""Checks many objects at once, column by column, by `edgewake.protocol.frames.frame`. Pure.

It says yes or nothing: where all objects have the same fields and hold nothing odd, they are a
bundle; where anything is not as usual, the caller checks them one by one, which tells what is wrong
with which. So it may refuse what the rules take, and never takes what they refuse.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import itemgetter
from types import NoneType
from typing import Any, Final

from edgewake.edge.log.tables.bundle import Bundle
from edgewake.protocol.frames.event_time import is_ms
from edgewake.protocol.frames.field_type import FieldType, type_of_kinds
from edgewake.protocol.frames.frame import STRING_CHARS_MAX, WHOLE_MAX, is_suspect

VALUE_BYTES: Final = 40
"""Memory of a value: its place in the column, and a number, or the head of a text."""
INT_MIN: Final = -(2**63)
"""The smallest integer of a reading."""
INT_MAX: Final = 2**64 - 1
"""The largest integer of a reading."""
CHAR_BYTES: Final = 4
"""Memory of a character at most."""


def bundle_of(
    bodies: Sequence[dict[str, Any]],
    names: tuple[str, ...],
    now_ms: int,
    *,
    large: list[str] | None = None,
) -> Bundle | None:
    """Make a bundle of objects with the fields `names`; None: check them one by one.

    The names are valid, and may include `t`; it is `now_ms` where it is missing. `large` gets the
    names of fields with whole numbers beyond WHOLE_MAX.
    """
    if set(map(len, bodies)) != {len(names)}:
        return None
    try:
        columns = dict(zip(names, _columns(bodies, names), strict=True))
    except KeyError:
        return None
    t = columns.pop("t", None) or [now_ms] * len(bodies)
    if set(map(type, t)) != {int} or not (is_ms(min(t)) and is_ms(max(t))):
        return None
    types: list[FieldType | None] = []
    texts: list[Sequence[str]] = []
    for name, column in columns.items():
        kinds = frozenset(map(type, column))
        try:
            types.append(type_of_kinds(kinds))
        except TypeError:
            return None
        values = [value for value in column if value is not None] if NoneType in kinds else column
        if types[-1] is FieldType.STRING:
            texts.append(values)
        elif types[-1] is FieldType.NUMBER and not _are_sound(name, values, kinds, large):
            return None
    text_bytes = _text_bytes(texts)
    if text_bytes is None:
        return None
    size = VALUE_BYTES * len(bodies) * (len(columns) + 1) + text_bytes
    return Bundle(t, tuple(columns), tuple(columns.values()), types, size)


def _columns(bodies: Sequence[dict[str, Any]], names: tuple[str, ...]) -> Iterable[tuple[Any, ...]]:
    """Raises KeyError."""
    values = map(itemgetter(*names), bodies)
    return zip(*values, strict=True) if len(names) > 1 else [tuple(values)]


def _are_sound(
    name: str, numbers: Sequence[Any], kinds: frozenset[type], large: list[str] | None
) -> bool:
    """Are all numbers finite, and within 64 bits? `large` gets the name where one is large.

    The bounds come first: a sum of larger integers need not fit into a float. If one number is not
    finite, neither is the sum.
    """
    if int in kinds:
        lowest, highest = min(numbers), max(numbers)
        if not (lowest >= INT_MIN and highest <= INT_MAX):
            return False
        if large is not None and (lowest < -WHOLE_MAX or highest > WHOLE_MAX):
            large.append(name)
    return float not in kinds or math.isfinite(sum(numbers))


def _text_bytes(columns: Sequence[Sequence[str]]) -> int | None:
    """Memory of the characters in columns of text.

    None where one of them holds a character that a reading may not, or a reading may have too many.
    """
    joined = ["".join(column) for column in columns]
    if (
        sum(map(len, joined)) > STRING_CHARS_MAX
        and sum(max(map(len, column)) for column in columns) > STRING_CHARS_MAX
    ):
        return None
    if any("\0" in text or (not text.isascii() and is_suspect(text)) for text in joined):
        return None
    return sum(len(text) * (1 if text.isascii() else CHAR_BYTES) for text in joined)
