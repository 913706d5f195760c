"""The readings in a JSON document that somebody else made: one object, a list of them, lines of them, or a list inside an object.

`found` is pure; `checked` gives every other task its turn while it checks, since a document may hold thousands.
"""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import Sequence
from typing import Any, Final

import orjson

from edgewake.edge.intake import Intake
from edgewake.edge.log.bundle import Pile
from edgewake.edge.log.codec import Reading
from edgewake.protocol.errors import Rejected, RejectReason

DOCUMENT_BYTES_MAX: Final = 1 << 20
"""Bytes of one document: all of it is in memory, several times over. A larger one is not read."""
ITEMS_MAX: Final = 10_000
"""Readings of one document; they are put in one transaction. The others are refused, counted."""
SLICE: Final = 500
"""Readings that are checked in one turn of the loop: less than a millisecond where all are alike, a few where each has to be looked at."""


def found(document: bytes, path: str = "") -> Sequence[Any]:
    """What may be readings in it, in order. `path`: names of objects, joined by dots, that lead to them. Raises Rejected."""
    document = document.removeprefix(BOM_UTF8)  # some programs write one, and a parser may pass over it (RFC 8259, section 8.1)
    try:
        body = orjson.loads(document)
    except orjson.JSONDecodeError as error:
        lines = [line for line in document.split(b"\n") if line.strip()] if not path else []
        if len(lines) < 2:
            raise Rejected(RejectReason.JSON, f"not JSON: {error}") from error
        return lines
    for name in filter(None, path.split(".")):
        if not isinstance(body, dict) or name not in body:
            raise Rejected(RejectReason.SHAPE, f"nothing at {path!r}")
        body = body[name]
    return body if isinstance(body, list) else [body]


async def checked(intake: Intake, items: Sequence[Any]) -> Sequence[Reading]:
    """The readings among them; the others are refused and counted. An item is an object, or a line of JSON as bytes."""
    parts: list[Sequence[Reading]] = []
    for at in range(0, min(len(items), ITEMS_MAX), SLICE):
        parts.append(_checked(intake, items[at : min(at + SLICE, ITEMS_MAX)]))
        await asyncio.sleep(0)
    if len(items) > ITEMS_MAX:
        intake.refuse(RejectReason.OVERSIZE, f"a document of {len(items)} readings: expected at most {ITEMS_MAX}", len(items) - ITEMS_MAX)
    return Pile([part for part in parts if part])


def _checked(intake: Intake, items: Sequence[Any]) -> Sequence[Reading]:
    kinds = set(map(type, items))
    if kinds == {dict}:
        return intake.check_all(items)
    if kinds == {bytes}:
        return intake.check_lines(items)
    return [reading for item in items if (reading := _checked_one(intake, item)) is not None]


def _checked_one(intake: Intake, item: Any) -> Reading | None:
    if isinstance(item, bytes):
        return intake.check_line(item)
    if isinstance(item, dict):
        return intake.check(item)
    intake.refuse(RejectReason.SHAPE, f"expected a JSON object, found {type(item).__name__}")
    return None
