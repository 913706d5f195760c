r"""Decodes InfluxDB's line protocol: `payload = "influx"`. Pure.

    measurement,tag=a,other=b field=1.5,count=3i,text="x y" 1790000000000000000

Each line is `{"measurement": …, "tags": {…}, "fields": {…}, "time": …}`; `time` is the number as
received, in nanoseconds unless the request names another precision. A faulty line is refused by
itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.maps.decoding import BadItem, text_of
from edgewake.protocol.maps.rule import READINGS_MAX, Map

FIELDS_OF_LINE_MAX: Final = 1_000
"""The most fields of a line that are looked at: a reading has at most 256, of which a map may drop
others."""
_TRUE: Final = frozenset({"t", "T", "true", "True", "TRUE"})
_FALSE: Final = frozenset({"f", "F", "false", "False", "FALSE"})
_ESCAPED: Final = frozenset(", =\\")
"""Characters that a backslash escapes outside of quotes; before others it is a literal."""
_REMARK: Final = re.compile(r"[ \t]*+#[^\n]*+")
_LINE: Final = re.compile(
    r"""[ \t]*+(?:\\[^\n]|[^ \n])*+"""
    r"""(?:[ ](?:="(?:[^"\\]|\\.)*+"?|\\[^\n]|[^\n])*+)?""",
    re.DOTALL,
)
"""Matches a line with its fields. Quotes mean something behind a field's `=` alone: in names, tags
and remarks they are letters, as in the model of a disk of `3.5"`."""


def decode(payload: bytes, _of: Map, _now_ms: int) -> list[Any]:
    """Decodes a payload for maps. Raises Rejected(encoding)."""
    return points(payload)


def points(payload: bytes, most: int = READINGS_MAX + 1) -> list[Any]:
    """Decodes the first `most` lines. Raises Rejected(encoding)."""
    found: list[Any] = []
    for line in _lines(text_of(payload)):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if len(found) >= most:
            break
        try:
            found.append(_point(line.strip()))
        except ValueError as error:
            why = Rejected(RejectReason.SHAPE, f"line {line[:60]!r}: {error}")
            found.append(BadItem(why, line.encode("utf-8", "replace")))
    return found


def _lines(text: str) -> Iterator[str]:
    """Splits text into lines; a line break in the quotes of a field's text ends no line."""
    if '"' not in text:
        yield from (line.rstrip("\r") for line in text.split("\n"))
        return
    at = 0
    while at < len(text):
        end = (_REMARK.match(text, at) or _LINE.match(text, at)).end()  # type: ignore[union-attr]
        yield text[at:end].rstrip("\r")
        at = end + 1


def _point(line: str) -> dict[str, Any]:
    parts = _split(line, " ", quotes=False, most=1)
    if len(parts) != 2:
        raise ValueError("expected a measurement and fields")
    names = _split(parts[0], ",", quotes=False)
    measurement = _plain(names[0])
    if not measurement:
        raise ValueError("expected a measurement before the first comma")
    tags = dict(_pair(one, "tag") for one in names[1:])
    rest = [one for one in _split(parts[1].strip(), " ", quotes=True) if one]
    if len(rest) > 2:
        raise ValueError("expected fields and a time, and no more")
    fields = _split(rest[0], ",", quotes=True)
    if len(fields) > FIELDS_OF_LINE_MAX:
        raise ValueError(f"{len(fields)} fields: expected at most {FIELDS_OF_LINE_MAX}")
    pairs = [_pair(one, "field") for one in fields]
    point: dict[str, Any] = {
        "measurement": measurement,
        "tags": {name: _plain(value) for name, value in tags.items()},
        "fields": {name: _value(value) for name, value in pairs},
    }
    if len(rest) == 2:
        if not rest[1].lstrip("-").isdigit() or len(rest[1]) > 20 or not rest[1].isascii():
            raise ValueError(f"time {rest[1][:40]!r}: expected an integer")
        point["time"] = int(rest[1])
    return point


def _split(text: str, at: str, *, quotes: bool, most: int = -1) -> list[str]:
    """Splits at a character that is not escaped and, with `quotes`, not quoted."""
    if "\\" not in text and not (quotes and '"' in text):
        return text.split(at, most)
    found: list[str] = []
    start, is_quoted, is_escaped = 0, False, False
    for number, char in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif char == "\\":
            is_escaped = True
        elif char == '"' and quotes:
            is_quoted = not is_quoted
        elif char == at and not is_quoted and most:
            found.append(text[start:number])
            start = number + 1
            most -= 1
    if is_quoted:
        raise ValueError("unbalanced quotes")
    return [*found, text[start:]]


def _pair(text: str, what: str) -> tuple[str, str]:
    name, *value = _split(text, "=", quotes=False, most=1)
    if not value or not name or not value[0]:
        raise ValueError(f"{what} {text[:40]!r}: expected name=value")
    return _plain(name), value[0]


def _plain(text: str) -> str:
    if "\\" not in text:
        return text
    found: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text) and text[at + 1] in _ESCAPED:
            at += 1
        found.append(text[at])
        at += 1
    return "".join(found)


def _value(text: str) -> Any:
    if text.startswith('"'):
        if len(text) < 2 or not text.endswith('"'):
            raise ValueError(f"value {text[:40]!r}: expected a text in quotes")
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if text[-1] in "iu" and text[:-1].lstrip("-").isdigit() and len(text) <= 21:
        return _integer(int(text[:-1]), is_unsigned=text[-1] == "u")
    try:
        number = float(text)
    except ValueError:
        raise ValueError(
            f"value {text[:40]!r}: expected a number, text in quotes, t or f"
        ) from None
    if not math.isfinite(number) or "_" in text:
        raise ValueError(f"value {text[:40]!r}: expected a finite number")
    return number


def _integer(value: int, *, is_unsigned: bool) -> int:
    least, most = (0, 2**64) if is_unsigned else (-(2**63), 2**63)
    if not least <= value < most:
        raise ValueError(f"value {value}: expected an integer of 64 bits")
    return value
