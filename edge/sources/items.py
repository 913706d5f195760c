"""Finds the readings in a foreign JSON document.

It is one object, a list of them, lines of them, or a list inside an object.

`found` is pure; `checked` gives every other task its turn while it checks, since a document may
hold thousands.
"""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import orjson

from edgewake.edge.intake.intake import Intake
from edgewake.edge.log.tables.bundle import Pile
from edgewake.edge.log.tables.codec import Reading
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.json_text import parse

DOCUMENT_BYTES_MAX: Final = 1 << 20
"""Bytes of one document: all of it is in memory, several times over. A larger one is not read."""
ITEMS_MAX: Final = 10_000
"""Readings of one document; they are put in one transaction. The others are refused, counted."""
SLICE: Final = 500
"""Readings that are checked in one turn of the loop: less than a millisecond where all are alike, a
few where each has to be looked at."""


def found(document: bytes, path: str = "") -> Sequence[Any]:
    """What may be readings in it, in order.

    `path`: names of objects, joined by dots, that lead to them. Raises Rejected.
    """
    # Some programs write one, and a parser may pass over it (RFC 8259, section 8.1)
    document = document.removeprefix(BOM_UTF8)
    try:
        body = parse(document)
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


Refuse: TypeAlias = Callable[[int, Rejected, int], None]
"""Is told the number of an item, from 0, why it was refused, and for how many that holds."""


async def checked(
    intake: Intake, items: Sequence[Any], refuse: Refuse | None = None
) -> Sequence[Reading]:
    """Return the readings among the items, in order.

    The others are refused: counted by the intake, or passed to `refuse` instead. An item is an
    object, or a line of JSON as bytes.
    """
    parts: list[Sequence[Reading]] = []
    refuse = refuse or (lambda _at, why, count: intake.refuse(why.reason, why.detail, count))
    for at in range(0, min(len(items), ITEMS_MAX), SLICE):
        parts.append(_checked(intake, items[at : min(at + SLICE, ITEMS_MAX)], at, refuse))
        await asyncio.sleep(0)
    if len(items) > ITEMS_MAX:
        why = Rejected(
            RejectReason.OVERSIZE,
            f"a document of {len(items)} readings: expected at most {ITEMS_MAX}",
        )
        refuse(ITEMS_MAX, why, len(items) - ITEMS_MAX)
    return Pile([part for part in parts if part])


def _checked(intake: Intake, items: Sequence[Any], first: int, refuse: Refuse) -> Sequence[Reading]:
    are_lines = set(map(type, items)) == {bytes}
    bundle = intake.bundle_lines(items) if are_lines else intake.bundle(items)
    if bundle is not None:
        return bundle
    found: list[Reading] = []
    for at, item in enumerate(items, start=first):
        try:
            found.append(intake.reading(item))
        except Rejected as error:
            refuse(at, error, 1)
    return found
