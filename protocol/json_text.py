"""Parses JSON as devices write it: NaN and Infinity are null, a byte order mark is skipped.

Many programs write NaN and Infinity, and the standard does not know them (RFC 8259, section 6).
Text that other parsers take for JSON and the standard does not is refused, never guessed at. Pure.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Any, Final

import orjson

_ODD: Final = (b"NaN", b"Infinity")
_OPENING: Final = (b"{", b"[")


def parse(text: bytes | str) -> Any:
    """Parse a JSON text. Raises orjson.JSONDecodeError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        found = text.encode("utf-8", "replace") if isinstance(text, str) else text
        is_marked = found.startswith(BOM_UTF8)
        if not is_marked and not any(word in found for word in _ODD):
            raise
    found = found.removeprefix(BOM_UTF8)
    if is_marked and not any(word in found for word in _ODD):
        return orjson.loads(found)
    return _parse_odd(found)


def compact(text: bytes) -> bytes:
    """A copy in memory of its own size, for what is kept.

    What orjson made keeps the 4 KB in which it was written, however short it is.
    """
    return bytes(memoryview(text))


def is_meant_as_json(text: bytes) -> bool:
    """Does the text begin as an object or a list?

    Then it is JSON, whole or damaged, and not plain text.
    """
    return text.removeprefix(BOM_UTF8).lstrip().startswith(_OPENING)


def _parse_odd(text: bytes) -> Any:
    import json  # seldom needed: a small device pays for it when it comes

    try:
        return json.loads(text.decode(), parse_constant=lambda _word: None, parse_int=_number)
    except UnicodeDecodeError as error:
        raise orjson.JSONDecodeError(f"byte {error.start} is not UTF-8", "", 0) from error
    except RecursionError as error:
        raise orjson.JSONDecodeError("nested too deep", "", 0) from error
    except json.JSONDecodeError as error:
        raise orjson.JSONDecodeError(error.msg, error.doc, error.pos) from error


def _number(digits: str) -> float:
    """Parse an integer as orjson does: a float past 64 bits."""
    value = int(digits) if len(digits) <= _DIGITS_MAX else float(digits)
    return value if -(2**63) <= value < 2**64 else float(value)


_DIGITS_MAX: Final = 20
"""The digits of an integer of 64 bits, with or without a sign."""
