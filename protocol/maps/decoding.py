"""Decodes payloads to what JSON can express, by the format that the map's `payload` names. Pure.

Formats that need more than a few lines are modules in `decoders/`, imported when a map names one:
a small device pays only for the formats it uses.
"""

from __future__ import annotations

import csv
import importlib
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.field_values import NOTHING, as_declared
from edgewake.protocol.json_text import is_meant_as_json, parse
from edgewake.protocol.maps.rule import READINGS_MAX, Map


class BadItem(NamedTuple):
    """Stands in place of an item that could not be decoded; the others are kept."""

    why: Rejected
    text: bytes
    """The item as it came."""


Decoder: TypeAlias = Callable[[bytes, Map, int], Any]
"""Decodes a payload, for a map, at a time in ms since 1970, to an object or a list of them. Raises
Rejected."""
VALUE: Final = "value"
"""Default name of the field of a message that is one value."""
_MODULES: Final[Mapping[str, str]] = {
    name: f"edgewake.protocol.maps.decoders.{module}"
    for name, module in {
        "influx": "influx",
        "otlp": "otlp",
        "senml": "senml",
        "senml-cbor": "senml_cbor",
    }.items()
}


def known_kinds() -> list[str]:
    """Returns the formats that `payload` may name."""
    return sorted({*BUILT_IN, *_MODULES})


def decode(payload: bytes, of: Map, now_ms: int) -> Any:
    """Decodes a payload; times that are relative count from `now_ms`. Raises Rejected."""
    decoder = BUILT_IN.get(of.payload)
    return (decoder or module_of(of.payload).decode)(payload, of, now_ms)


def module_of(name: str) -> Any:
    """Imports the module of a format. Raises Rejected where its library is not installed."""
    try:
        return _imported(name)
    except ModuleNotFoundError as error:
        raise Rejected(
            RejectReason.ENCODING,
            f"{name} needs the Python module {error.name!r}: pip install 'edgewake[formats]'",
        ) from error


@cache
def _imported(name: str) -> Any:
    return importlib.import_module(_MODULES[name])


def text_of(payload: bytes) -> str:
    """Decodes UTF-8. Raises Rejected(encoding)."""
    try:
        return payload.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise Rejected(RejectReason.ENCODING, f"byte {error.start} is not UTF-8") from error


def json_of(payload: bytes) -> Any:
    """Decodes JSON. Raises Rejected(json)."""
    try:
        return parse(payload)
    except orjson.JSONDecodeError as error:
        if payload.startswith(BOM_UTF8):
            return json_of(payload.removeprefix(BOM_UTF8))
        raise Rejected(RejectReason.JSON, f"not JSON: {error}") from error


def _json(payload: bytes, _of: Map, _now_ms: int) -> Any:
    return json_of(payload)


def _auto(payload: bytes, _of: Map, _now_ms: int) -> Any:
    """Decodes JSON; what is not JSON is one value, as text."""
    try:
        return json_of(payload)
    except Rejected:
        if is_meant_as_json(payload):
            raise
    text = text_of(payload)
    return None if text.strip().lower() in NOTHING else text


def _text(payload: bytes, _of: Map, _now_ms: int) -> Any:
    return text_of(payload)


def _number(payload: bytes, _of: Map, _now_ms: int) -> Any:
    text = text_of(payload)
    try:
        return as_declared(text, FieldType.NUMBER)
    except ValueError as error:
        raise Rejected(RejectReason.SHAPE, f"{text[:40]!r}: {error}") from error


def _lines(payload: bytes, _of: Map, _now_ms: int) -> Sequence[Any]:
    """Decodes each line as a reading. A line that is not JSON is refused by itself, as bytes."""
    lines = [line for line in payload.removeprefix(BOM_UTF8).split(b"\n") if line.strip()]
    return [_line(line) for line in lines[: READINGS_MAX + 1]]


def _line(line: bytes) -> Any:
    try:
        return parse(line)
    except orjson.JSONDecodeError as error:
        return BadItem(Rejected(RejectReason.JSON, f"a line is not valid JSON: {error}"), line)


def _csv(payload: bytes, of: Map, _now_ms: int) -> Sequence[Any]:
    """Decodes each line as a reading; a header line is skipped."""
    lines = [line for line in text_of(payload).splitlines() if line.strip()][: READINGS_MAX + 2]
    try:
        rows = list(csv.reader(lines, delimiter=of.separator, skipinitialspace=True))
    except csv.Error as error:
        raise Rejected(RejectReason.SHAPE, f"CSV: {error}") from error
    return [
        dict(zip(of.columns, map(_cell, row), strict=False))
        for row in rows
        if tuple(row) != of.columns
    ]


def _cell(text: str) -> Any:
    """Converts a cell to a number where JSON would write it so, else leaves it a text."""
    text = text.strip()
    if text.lower() in NOTHING:
        return None
    try:
        value = parse(text)
    except orjson.JSONDecodeError:
        return text
    return value if isinstance(value, int | float) else text


BUILT_IN: Final[Mapping[str, Decoder]] = {
    "auto": _auto, "json": _json, "text": _text, "number": _number, "lines": _lines, "csv": _csv,
    "cloudevents": _json,
}  # fmt: skip
