"""Previews what maps make of a message: the readings as they would be stored. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.field_names import form
from edgewake.protocol.frames.frame import Scalar, from_plain
from edgewake.protocol.frames.units import as_written
from edgewake.protocol.maps.applying import Mapped, Outcome, apply
from edgewake.protocol.maps.rule import Map, Maps
from edgewake.protocol.printable import printable

VALUE_CHARS_MAX: Final = 80
"""The most characters of a value that are shown."""


class Stored(NamedTuple):
    """A reading as it would be stored."""

    device: str
    stream: str
    t: int
    fields: dict[str, Scalar]
    units: dict[str, str]
    seq: int | None = None


class Preview(NamedTuple):
    """What maps make of one message."""

    map: str
    stored: list[Stored]
    refused: list[Rejected]
    remarks: list[str]
    lost: int
    """How many readings were refused."""


def preview(maps: Maps, topic: str, payload: bytes, *, now_ms: int, prefix: str = "") -> Preview:
    """Applies maps to a message. Never raises, whatever the payload is."""
    return of_outcome(apply(maps, topic, payload, now_ms, prefix=prefix), now_ms)


def of_outcome(outcome: Outcome, now_ms: int) -> Preview:
    """Checks an outcome by the rule that every mapped reading must pass."""
    stored: list[Stored] = []
    refused = [one.why for one in outcome.refused]
    lost = sum(one.readings for one in outcome.refused)
    for reading in outcome.readings:
        try:
            stored.append(_stored(reading, now_ms))
        except Rejected as error:
            refused.append(error)
            lost += 1
    return Preview(outcome.map, stored, refused, list(outcome.remarks), lost)


def _stored(reading: Mapped, now_ms: int) -> Stored:
    try:
        payload = orjson.dumps(reading.body)
    except TypeError as error:
        raise Rejected(RejectReason.SHAPE, f"a value that JSON cannot hold: {error}") from error
    frame = from_plain(payload, received_at=now_ms)
    fields = {name: column[0] for name, column in frame.fields.items()}
    units = {form(name): as_written(unit) for name, unit in reading.units.items()}
    return Stored(reading.device, reading.stream, frame.t[0], fields, units, frame.seq)


def sample_topic(of: Map) -> str:
    """Returns a topic that a map matches, each part filled with its own name."""
    levels = of.topic.filter.split("/")
    for number, name in enumerate(of.topic.names):
        if levels[number] in ("+", "#"):
            levels[number] = name or "x"
    return "/".join(levels)


def lines(maps: Maps, topic: str, seen: Preview, now_ms: int) -> Iterator[str]:
    """Formats a preview for a terminal."""
    name = seen.map or "none"
    yield f"{printable(topic)}: map {name} (version {maps.version})"
    for one in seen.stored:
        device = one.device or "(the agent's)"
        stream = one.stream or "(the source's)"
        moment = datetime.fromtimestamp(one.t / 1000, UTC).isoformat(timespec="milliseconds")
        when = "now" if one.t == now_ms else moment.replace("+00:00", "Z")
        number = "" if one.seq is None else f", seq {one.seq}"
        yield f"  device {device}, stream {stream}, time {when}{number}"
        width = max((len(field) for field in one.fields), default=0)
        for field, value in one.fields.items():
            text = printable(orjson.dumps(value).decode())[:VALUE_CHARS_MAX]
            yield f"    {field:<{width}}  {text}  {one.units.get(field, '')}".rstrip()
    for what in dict.fromkeys(seen.remarks):
        yield f"  remark: {what}"
    for why in seen.refused:
        yield f"  REFUSED {printable(str(why))}"
    if not seen.stored and not seen.refused:
        yield "  ignored, as the map says"


def as_object(topic: str, seen: Preview) -> dict[str, Any]:
    """Formats a preview for programs."""
    return {
        "topic": topic,
        "map": seen.map,
        "readings": [one._asdict() for one in seen.stored],
        "refused": [{"reason": str(one.reason), "detail": one.detail} for one in seen.refused],
        "remarks": seen.remarks,
    }
